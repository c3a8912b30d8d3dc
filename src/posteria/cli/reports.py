"""`posteria report`: the page of a comparison, written again from its results."""

from pathlib import Path
from typing import Annotated

import typer

from posteria.cli.app import app


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="The folder of a comparison.")]) -> None:
    """Write the report of a comparison again."""
    from posteria.report import write

    typer.echo(str(write(folder)))
