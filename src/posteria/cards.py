"""What an object says of itself where it is the last line of a notebook's cell, or of a prompt.

A card is words alone; as HTML it is escaped, has no scripts and no colours of its own paper: text inherits the page's,
rules and shades are translucent grey, so that it can be read on light and on dark pages.
"""

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

RULE = "1px solid rgba(128,128,128,0.35)"
BOX = (
    f"border:{RULE};border-radius:4px;padding:0.6em 0.9em;display:inline-block;max-width:100%;"
    "overflow-x:auto;box-sizing:border-box;color:inherit;background:transparent"
)
CELL = "padding:0.15em 0.8em 0.15em 0;text-align:left;vertical-align:top;background:transparent"
NUMBER = "padding:0.15em 0 0.15em 1.2em;text-align:right;background:transparent;font-variant-numeric:tabular-nums"
TONES = {
    "good": "#2a9d6f",
    "bad": "#d9622b",
    "": "rgba(128,128,128,0.6)",
}  # of the bar beside a remark; words say it too


class Remark(NamedTuple):
    text: str
    tone: str = ""  # "good" or "bad", where it is either


class Table(NamedTuple):
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


class Card(NamedTuple):
    title: str
    facts: list[tuple[str, str]]
    remarks: list[Remark] = []  # noqa: RUF012 (never changed)
    table: Table | None = None

    def text(self) -> str:
        """A line each."""
        wide = max((len(name) for name, _ in self.facts), default=0)
        lines = [self.title, *(f"  {name:{wide}}  {value}" for name, value in self.facts)]
        if self.table is not None:
            cells = [self.table.head, *self.table.rows]
            widths = [max(map(len, column)) for column in zip(*cells)]
            lines += ["  " + "  ".join(map(str.rjust, row, widths)) for row in cells]
        return "\n".join([*lines, *(f"  {remark.text}" for remark in self.remarks)])

    def html(self) -> str:
        title = f"<div style='font-weight:600;margin-bottom:0.3em'>{escape(self.title)}</div>"
        parts = [title] if self.title else []
        if self.facts:
            parts.append(_table(_row((name, value), "th", CELL, CELL) for name, value in self.facts))
        if self.table is not None:
            rows = [
                _row(self.table.head, "th", NUMBER, NUMBER, "th"),
                *(_row(r, "th", NUMBER, NUMBER) for r in self.table.rows),
            ]
            parts.append(_table(rows))
        parts += [
            f"<div style='border-left:3px solid {TONES[remark.tone]};padding-left:0.6em;margin:0.35em 0;"
            f"max-width:46em;white-space:pre-wrap'>{escape(remark.text)}</div>"
            for remark in self.remarks
        ]
        return f"<div style='{BOX}'>{''.join(parts)}</div>"


class Shown:
    """An object that has a card."""

    def _card(self) -> Card:
        """What it says of itself."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._card().text()

    def _repr_html_(self) -> str:
        return self._card().html()


def preformatted(text: str) -> str:
    """Lines that are laid out already, as HTML."""
    return f"<pre style='color:inherit;background:transparent;overflow-x:auto'>{escape(text)}</pre>"


def _table(rows: Iterable[str]) -> str:
    return f"<table style='border-collapse:collapse;border:0;margin:0.2em 0;color:inherit'>{''.join(rows)}</table>"


def _row(cells: tuple[str, ...], first: str, first_style: str, style: str, others: str = "td") -> str:
    head = f"<{first} style='{first_style};font-weight:normal;opacity:0.75;border:0'>{escape(cells[0])}</{first}>"
    rest = "".join(
        f"<{others} style='{style};font-weight:normal;border:0'>{escape(cell)}</{others}>" for cell in cells[1:]
    )
    return f"<tr style='background:transparent;border:0'>{head}{rest}</tr>"
