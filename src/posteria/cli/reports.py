"""`posteria report`: the page of a comparison, written again from its results."""

from pathlib import Path
from typing import Annotated

import typer

from posteria.cli.app import app
from posteria.cli.printing import say


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="The folder of a comparison.")]) -> None:
    """Write the report of a comparison again."""
    from posteria.comparison.tell import results
    from posteria.report import write

    typer.echo(str(write(folder)))
    if not results.is_verified(results.read(folder)):
        say("these results have no checksums, as those of older versions: nothing says that they are as they were")
