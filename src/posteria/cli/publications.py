"""`posteria publish`: a fit as a folder that others can rely on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posteria.cli.app import Json, Quiet, app
from posteria.cli.fitted import OwnMethods, OwnNetwork, load_posterior
from posteria.cli.printing import print_json, say
from posteria.errors import DataError

if TYPE_CHECKING:
    from posteria.data.preparation import Preparation


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="The folder of a fit.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    test: Annotated[
        str | None,
        typer.Option(help="Rows that were not fitted to, with their target: scores on them are on the card."),
    ] = None,
    if_exists: Annotated[str, typer.Option(help="error or replace.")] = "error",
    network: OwnNetwork = None,
    methods: OwnMethods = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Publish a fit: draws as safetensors, a manifest with the SHA-256 of every file, and a card with its scores.

    `po.load` reads it from a path or a URL, and `posteria compare --reference` too.
    """
    from posteria.posteriors.publish import publish as publish_folder

    posterior, preparation = load_posterior(folder, network, methods)
    data = None if test is None else _rows(test, preparation)
    size = publish_folder(posterior, out, data, if_exists=if_exists)
    if as_json:
        print_json({"folder": str(out), "bytes": size})
    else:
        say(f'{out}: {size / 1e6:.2f} MB; po.load("{out}") reads it, checked', quiet)


def _rows(test: str, preparation: "Preparation") -> tuple[Any, Any]:
    from posteria.data.table_file import read_frame

    if preparation.encoder is None:
        raise DataError("the fit is not of a table", "a fit of a table for --test", "publish in Python: po.publish")
    frame = read_frame(Path(test))
    if preparation.target not in frame.columns:
        raise DataError(f"{test} lacks the column {preparation.target!r}", "rows with their target", "add it")
    frame = frame[frame[preparation.target].notna()]
    return preparation.inputs(frame), preparation.targets(frame[preparation.target])
