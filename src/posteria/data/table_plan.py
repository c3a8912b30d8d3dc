"""How a table is read: one plan, column by column, that every door uses and shows.

As JSON, the part "table" of results.json and of a fit's preparation:

    {"rows": 500, "rows_left_out": 3, "notes": ["..."], "target": {column} or null, "columns": [{column}, ...]}
    column: {"name", "taken", "why", "becomes", "values", "missing", "spelling", "levels", "is_lenient"}

`taken` is number, count, category, ordered, date, text, or, of what is left out, id, constant, ignored; `values` is how
many different ones there are, `missing` how many rows have none; `becomes` is what the network sees.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from posteria.cards import preformatted
from posteria.data import cells
from posteria.data.recognise import (
    MAX_LEVELS,
    Recognised,
    check_asked,
    is_either_way,
    periods_of,
    plain,
    recognised,
    stand_in,
)
from posteria.data.repeated_rows import GROUPS_ARE_ASKED, IN_TIME, told_of_rows
from posteria.data.table_target import KIND_OF, check_target, is_copy, is_monotone, recognised_target
from posteria.errors import SettingError
from posteria.tree import Json

if TYPE_CHECKING:
    import pandas as pd

LEFT_OUT = ("id", "constant", "ignored")
WIDTH = 80
MOST_SHOWN = 30  # columns of a table, each on a line of its own; of more, those alike share one
NAME_WIDTH = 20


@dataclass(frozen=True)
class ColumnPlan:
    name: str
    taken: str
    why: str
    becomes: str
    values: int
    missing: int
    spelling: str = ""  # of dates, and of numbers in text
    levels: tuple[str, ...] = ()  # of what is ordered, from the least
    is_lenient: bool = False  # what is no number counts as missing

    @property
    def is_left_out(self) -> bool:
        return self.taken in LEFT_OUT

    @property
    def is_many_valued(self) -> bool:
        return self.taken == "category" and self.values > MAX_LEVELS


@dataclass(frozen=True)
class TablePlan:
    rows: int  # that have a target
    columns: tuple[ColumnPlan, ...]
    target: ColumnPlan | None = None
    rows_left_out: int = 0  # without a target
    notes: tuple[str, ...] = ()

    @property
    def left_out(self) -> tuple[ColumnPlan, ...]:
        return tuple(column for column in self.columns if column.is_left_out)

    def without(self, *names: str) -> "TablePlan":
        """Columns that another use has, such as splitting, shown as such; what that use answers is not told."""
        why = "splits the rows"
        columns = [
            replace(each, taken="ignored", why=why, becomes="left out") if each.name in names else each
            for each in self.columns
        ]
        notes = [note for note in self.notes if not any(f"{IN_TIME} {name}:" in note for name in names)]
        return replace(self, columns=tuple(columns), notes=tuple(notes))

    def by_groups(self) -> "TablePlan":
        """Without the note that rows come in groups, once they are asked for."""
        return replace(self, notes=tuple(note for note in self.notes if GROUPS_ARE_ASKED not in note))

    def text(self, width: int = WIDTH) -> str:
        """A line a column (of very many, a line for those alike), and the notes below; within `width`."""
        return as_text(self.to_json(), width)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Json) -> "TablePlan":
        target = None if stored["target"] is None else _column_from_json(stored["target"])
        columns = tuple(map(_column_from_json, stored["columns"]))
        return cls(stored["rows"], columns, target, stored["rows_left_out"], tuple(stored["notes"]))


def plan_table(
    frame: "pd.DataFrame",
    target: str | None = None,
    kind: str | None = None,
    as_: Mapping[str, str] = {},
    y: "pd.Series | None" = None,
) -> TablePlan:
    """How each column of a frame is taken, unless `as_` says otherwise: by its type, its values and its name.

    `target` is the name of the column to predict, and `kind` what it is taken as; or y stands beside the frame.
    """
    columns = [str(name) for name in frame.columns]
    check_asked(dict(as_), columns)
    if target is not None:
        check_target(target, columns)
        y = frame[target]
    asked = {name: wanted for name, wanted in as_.items() if name != target}
    num_left_out, notes, planned = 0, [], None
    if y is not None:
        is_known = y.notna().to_numpy()
        num_left_out = int((~is_known).sum())
        if num_left_out:
            frame, y = frame[is_known], y[is_known]
            notes.append(f"{num_left_out:,} rows without a target are left out")
        found, told = recognised_target(y, _kind(target, kind, as_))
        notes += told
        planned = ColumnPlan(str(target or "y"), found.taken, found.why, found.becomes, int(y.nunique()), num_left_out)
    made = [_planned(name, frame[name], asked.get(name, "")) for name in columns if name != target]
    notes += [note for _, note in made if note]
    if y is not None:
        used = [column.name for column, _ in made if not column.is_left_out]
        notes += [
            f"{name} tells the target exactly: will it be known where you predict? If not: --ignore {name}"
            for name in used
            if is_copy(frame[name], y) or (len(used) > 1 and is_monotone(frame[name], y))
        ]
        num_values = {column.name: column.values for column, _ in made}
        numbers = {column.name for column, _ in made if column.taken == "number"}
        dates = {column.name: column.spelling for column, _ in made if column.taken == "date"}
        is_number = planned is not None and planned.taken == "number"
        notes += told_of_rows(frame, num_values, numbers, y, is_number, dates)
    return TablePlan(len(frame), tuple(column for column, _ in made), planned, num_left_out, tuple(notes))


def _kind(target: str | None, kind: str | None, as_: Mapping[str, str]) -> str | None:
    """Of the target, in either of the two words that there are for it."""
    wanted = as_.get(str(target))
    if wanted is None:
        return kind
    if wanted not in KIND_OF or kind not in (None, KIND_OF[wanted]):
        raise SettingError(
            f"the target {target!r} as {wanted}" + (f" with --kind {kind}" if kind else ""),
            f"one of {', '.join(KIND_OF)}",
            "leave one out",
        )
    return KIND_OF[wanted]


def _planned(name: str, values: "pd.Series", asked: str) -> tuple[ColumnPlan, str]:
    """The plan of a column, and what has to be said of it besides."""
    found = recognised(name, values, asked)
    num_missing = int(values.isna().sum())
    num_values = int(values.nunique())
    becomes, note = "left out", ""
    if found.taken not in LEFT_OUT:
        becomes, num_unread = _becomes(found, values, num_values, num_missing)
        if num_unread:
            note = f"{name}: {num_unread:,} values are no {found.taken}s, and count as missing"
            num_missing += num_unread
        if found.taken == "number" and (odd := stand_in(values)):
            note = f"{name}: {odd} looks like a word for missing; if so, leave those cells empty"
        if found.taken == "date" and not asked and is_either_way(values[values.notna()], found.spelling):
            other = "month-day-year" if found.spelling == "day-month-year" else "day-month-year"
            note = f"{name}: day and month could change places; --as {name}=date:{other} reads them so"
    return (
        ColumnPlan(
            name,
            found.taken,
            found.why,
            becomes,
            num_values,
            num_missing,
            found.spelling,
            found.levels,
            found.is_lenient,
        ),
        note,
    )


def _becomes(found: Recognised, values: "pd.Series", num_values: int, num_missing: int) -> tuple[str, int]:
    """What the network sees, and how many values are missing because they could not be read."""
    if found.taken == "category":
        return ("mean of the target by value, by folds" if num_values > MAX_LEVELS else "0/1 for each value"), 0
    if found.taken == "text":
        return "words, hashed", 0
    num_unread = 0
    if found.taken == "date":
        seconds, is_bad = cells.moments(plain(values), found.spelling)
        num_unread = int(is_bad.sum())
        becomes = ", ".join(["days since the first", *periods_of(seconds)])
    elif found.taken == "ordered":
        becomes = f"its place among {len(found.levels)}"
    else:
        becomes = "the number"
        num_unread = int(cells.numbers(plain(values), found.spelling)[1].sum()) if found.is_lenient else 0
    return becomes + (", median where missing" if num_missing + num_unread else ""), num_unread


def _column_from_json(stored: Json) -> ColumnPlan:
    return ColumnPlan(**dict(stored) | {"levels": tuple(stored["levels"])})


# ---- in words


def as_text(table: Json, width: int = WIDTH) -> str:
    """The plan, from its JSON, as lines of at most `width` characters."""
    target = (
        [] if table["target"] is None else [dict(table["target"]) | {"name": f"{table['target']['name']} (target)"}]
    )
    shown = [column | {"name": " ".join(column["name"].split())} for column in target + _grouped(table["columns"])]
    lines = [_heading(table), *_lines(shown, width)]
    for note in table["notes"]:
        lines += textwrap.wrap(f"note: {note}", width, subsequent_indent="  ")
    return "\n".join(lines)


def _heading(table: Json) -> str:
    used = [column for column in table["columns"] if column["taken"] not in LEFT_OUT]
    num_left_out = len(table["columns"]) - len(used)
    said = f"{table['rows']:,} rows, {len(used):,} column{'' if len(used) == 1 else 's'} used" + (
        f", {num_left_out:,} left out" if num_left_out else ""
    )
    return f"{said} (--as COLUMN=... reads one otherwise)"


def _grouped(columns: Sequence[Json]) -> list[Json]:
    """Each on its own; of very many, those taken alike together."""
    if len(columns) <= MOST_SHOWN:
        return list(columns)
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for column in columns:
        key = (column["taken"], column["becomes"], column["why"] if column["taken"] in LEFT_OUT else "")
        groups.setdefault(key, []).append(column)
    return [_together(group) for group in groups.values()]


def _together(group: list[Json]) -> Json:
    if len(group) == 1:
        return group[0]
    name = f"{len(group):,} columns: {group[0]['name']}, ..., {group[-1]['name']}"
    reasons = {column["why"] for column in group}
    return {
        "name": name,
        "taken": group[0]["taken"],
        "values": max(column["values"] for column in group),
        "missing": max(column["missing"] for column in group),
        "becomes": group[0]["becomes"],
        "why": reasons.pop() if len(reasons) == 1 else "by their values",
    }


def _lines(columns: Sequence[Json], width: int) -> list[str]:
    name_width = min(NAME_WIDTH, max([len("column"), *(len(column["name"]) for column in columns)]))
    head = f"{'column':{name_width}}  {'taken as':8}  {'values':>7}  {'missing':>7}  "
    lines = [f"{head}becomes (why)"]
    for column in columns:
        start = f"  {column['taken']:8}  {column['values']:>7,}  {column['missing']:>7,}  "
        how = textwrap.wrap(f"{column['becomes']} ({column['why']})", max(width - len(head), 20))
        if len(column["name"]) > name_width:  # a long name has a line of its own, and no name is cut
            lines += textwrap.wrap(column["name"], width)
            name = ""
        else:
            name = column["name"]
        lines.append((f"{name:{name_width}}{start}" + (how[0] if how else "")).rstrip())
        lines += [" " * len(head) + more for more in how[1:]]
    return lines
