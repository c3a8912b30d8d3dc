"""`posteria export`: a fit as a folder that predicts with JAX alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from posteria.cli.app import Json, Quiet, app
from posteria.cli.fits import INTERRUPTED
from posteria.cli.fitted import OwnMethods, OwnNetwork, load_posterior
from posteria.cli.printing import print_json, say


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a fit.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    draws: Annotated[
        int | None, typer.Option(help="Thin to so many draws first; all otherwise.", show_default=False)
    ] = None,
    network: OwnNetwork = None,
    methods: OwnMethods = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a fit: prepared rows and the average over draws as one compiled function, with a script that runs it."""
    posterior, _ = load_posterior(folder, network, methods)
    if draws is not None:
        posterior = posterior.thin(draws)
    try:
        size = posterior.export(out)
    except KeyboardInterrupt:
        say("Interrupted; nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
    try:
        timed = subprocess.run([sys.executable, str(out / "predict.py"), "--time"], capture_output=True, text=True)
    except KeyboardInterrupt:
        say(f"Interrupted; {out} is whole, and was not timed.")
        raise typer.Exit(INTERRUPTED) from None
    measured = json.loads(timed.stdout) if timed.returncode == 0 else {}
    summary = {"folder": str(out), "bytes": size, "draws": posterior.num_draws} | measured
    if as_json:
        print_json(summary)
    elif not quiet:
        typer.echo(f"{out}: {size / 1e6:.2f} MB, {posterior.num_draws} draws")
        if measured:
            typer.echo(
                f"cold start {measured['cold_start_seconds']:.1f} s, one row {measured['one_row_milliseconds']:.2f} ms"
            )
        typer.echo(f"python {out / 'predict.py'} NEW.csv > predictions.csv   (needs JAX and NumPy alone)")
