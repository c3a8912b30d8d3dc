"""`posteria calibrate`: rows that a fit has not seen to intervals that hold what they promise."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from posteria.cli.app import Quiet, app
from posteria.cli.fitted import OwnMethods, OwnNetwork, in_words, load_posterior
from posteria.cli.printing import say
from posteria.cli.table_options import Encoding
from posteria.errors import DataError


@app.command()
def calibrate(
    folder: Annotated[Path, typer.Argument(help="The folder of a fit.")],
    data: Annotated[str, typer.Argument(help="A file with the columns and the target of the fit: rows not seen.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to write.  [default: FOLDER-calibrated]", show_default=False),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="A column: coverage then holds for each of its values.", show_default=False)
    ] = None,
    if_exists: Annotated[str, typer.Option(help="error or replace.")] = "error",
    encoding: Encoding = None,
    network: OwnNetwork = None,
    methods: OwnMethods = None,
    quiet: Quiet = False,
) -> None:
    """Calibrate a fit on rows that it has not seen: its predictions then cover what they promise."""
    from posteria.data.table_file import read_frame

    posterior, preparation = load_posterior(folder, network, methods)
    if preparation.encoder is None:
        raise DataError("the fit is not of a table", "a fit of a CSV", "use posterior.calibrate(x, y) in Python")
    frame = read_frame(Path(data), encoding=encoding)
    wanted = [preparation.target, *([] if groups is None else [groups])]
    if missing := [name for name in wanted if name not in frame.columns]:
        raise DataError(f"{data} lacks the columns {missing}", "rows with their target", "add them")
    known = frame[preparation.target].notna()
    if not known.all():
        say(f"{(~known).sum():,} rows without a target are left out", quiet)
        frame = frame[known]
    labels = None if groups is None else frame[groups].astype(str).to_numpy()
    calibrated = posterior.calibrate(preparation.inputs(frame), preparation.targets(frame[preparation.target]), labels)
    if groups is not None:
        calibrated.attached = calibrated.attached | {"groups": groups}
    place = out or folder.with_name(f"{folder.name}-calibrated")
    calibrated.save(place, if_exists)
    for note in calibrated.facts.get("notes", [])[len(posterior.facts.get("notes", [])) :]:
        say(note, quiet)
    typer.echo(in_words(calibrated) or f"calibrated on {len(frame):,} rows: too few to tell the coverage")
    say(f"next: posteria predict {shlex.quote(str(place))} NEW.csv -o predictions.csv", quiet)
