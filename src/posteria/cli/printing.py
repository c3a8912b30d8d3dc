"""Tables and JSON on standard output, words on standard error."""

from collections.abc import Sequence

import typer

WIDTH, MOST_WIDTH = 80, 100  # characters: without a terminal, and at most


def print_json(content: object) -> None:
    import json

    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0)  # names stay whole, to be copied
    for row in rows:
        table.add_row(*map(Text, row))  # Text: a path may hold square brackets
    Console().print(table)


def print_entries(entries: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Names, each with lines below it, wrapped to the terminal: no column is ever too narrow."""
    import shutil
    import textwrap

    width = min(shutil.get_terminal_size((WIDTH, 0)).columns, MOST_WIDTH)
    for name, lines in entries:
        typer.secho(name, bold=True)
        for line in filter(None, lines):
            typer.echo(textwrap.fill(line, width, initial_indent="  ", subsequent_indent="  "))


def say(message: str, quiet: bool = False) -> None:
    if not quiet:
        typer.echo(message, err=True)
