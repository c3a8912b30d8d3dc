"""Options that say how a table is read, for every command that reads one."""

from typing import Annotated

import typer

from posteria.errors import SettingError

Target = Annotated[str | None, typer.Option(help="The column to predict (of a CSV).", show_default=False)]
Kind = Annotated[
    str | None,
    typer.Option(help="regression, counts or classes; guessed from the target otherwise.", show_default=False),
]
Ignore = Annotated[
    list[str] | None, typer.Option(help="A column (of a CSV) that is no input; may be given again.", show_default=False)
]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        help="How to take a column: COLUMN=number, count, category, ordered, date, text or ignore; may be given again.",
        show_default=False,
    ),
]
Encoding = Annotated[str | None, typer.Option(help="Of a CSV, as latin-1; found otherwise.", show_default=False)]


def as_pairs(texts: list[str] | None) -> dict[str, str]:
    """["when=date", ...] -> {"when": "date", ...}; a column's name may hold an equals sign."""
    pairs = {}
    for text in texts or ():
        column, equals, taken = text.rpartition("=")
        if not equals or not column or not taken:
            raise SettingError(f"--as {text}", "COLUMN=date, or another of " + ", ".join(taken_as()))
        pairs[column] = taken
    return pairs


def taken_as() -> tuple[str, ...]:
    from posteria.data.recognise import TAKEN

    return TAKEN
