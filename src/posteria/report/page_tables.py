"""The tables of the report: scores of all methods, and single rows of data worth looking at."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from posteria.comparison.tell.results import LEVELS, remarkable
from posteria.report import phrases
from posteria.report.reading import Problem, Row

GROUPS = {"quality": "held-out quality", "truth": "distance to truth", "cost": "cost"}


class Cell(NamedTuple):
    text: str
    error: str  # standard error, or nothing
    value: float | None  # what the column is sorted by
    mark: str  # "best", "tied" or nothing
    seeds: str  # the values of single seeds, in words


class ScoreRow(NamedTuple):
    label: str
    role: str
    said_role: str  # beside the label, where it does not say so itself
    about: str
    labels: list[str]
    status: str  # nothing when all is done
    reason: str
    cells: list[Cell]

    @property
    def is_blank(self) -> bool:
        return all(cell.value is None for cell in self.cells)


class ScoreTable(NamedTuple):
    groups: list[tuple[str, int]]  # title and number of columns
    main_groups: list[tuple[str, int]]  # the same without columns that are shown only on demand
    kinds: list[str]  # of each column: "first" of its group, "minor", both or nothing
    columns: list[dict[str, Any]]
    rows: list[ScoreRow]
    has_ties: bool
    has_errors: bool


class DataTable(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]


def scores(problem: Problem) -> ScoreTable:
    """All rows by all columns, with the best of each column and what cannot be told apart from it marked."""
    columns = sorted(problem.columns, key=lambda column: list(GROUPS).index(column["group"]))
    kinds = []
    for before, column in zip([None, *columns], columns):
        is_first = before is None or before["group"] != column["group"]
        kinds.append(" ".join(kind for kind, is_so in (("first", is_first), ("minor", column["minor"])) if is_so))
    shown = [(column, _places(problem, column)) for column in columns]
    rows = [
        ScoreRow(
            row.label,
            row.role,
            "" if row.role == "method" or row.role in row.label else row.role,
            row.facts["about"],
            _tags(row.facts),
            "" if row.facts["status"] == "done" else row.facts["status"],
            row.facts["reason"],
            [_cell(row, *one) for one in shown],
        )
        for row in problem.rows
    ]
    cells = [cell for row in rows for cell in row.cells]
    has_ties, has_errors = any(cell.mark == "tied" for cell in cells), any(cell.error for cell in cells)
    main = [column for column in columns if not column["minor"]]
    return ScoreTable(_groups(columns), _groups(main), kinds, columns, rows, has_ties, has_errors)


def _tags(facts: dict[str, Any]) -> list[str]:
    """Beside the label; the reason of a row that is not done stands with its status."""
    has_remark = facts["status"] == "done" and facts["reason"]
    return [*facts["labels"], facts["reason"]] if has_remark else facts["labels"]


def _groups(columns: list[dict[str, Any]]) -> list[tuple[str, int]]:
    widths = [(title, sum(column["group"] == group for column in columns)) for group, title in GROUPS.items()]
    return [(title, width) for title, width in widths if width]


def _cell(row: Row, column: dict[str, Any], places: int) -> Cell:
    key = column["key"]
    score = row.facts["scores"].get(key, {})
    value, text = score.get("value"), score.get("text", "")
    if value is None:
        return Cell(text, "", None, "", "")
    versus = row.facts["versus_best"].get(key, {"difference": None, "indistinguishable": False})
    mark = "best" if versus["difference"] == 0 else "tied" if versus["indistinguishable"] else ""
    by_seed = [one for one in score["by_seed"] if one is not None]
    seeds = "by seed: " + ", ".join(phrases.fixed(one, places) for one in by_seed) if len(by_seed) > 1 else ""
    has_error = score["se"] and column["group"] != "cost"
    error = phrases.fixed(score["se"], places) if has_error else ""
    return Cell(text or phrases.fixed(value, places), error, value, mark, seeds)


def _places(problem: Problem, column: dict[str, Any]) -> int:
    """Decimals of a column: what it asks for, fewer where its numbers are large, more where all are small."""
    values = [abs(value) for row in problem.rows if (value := row.score(column["key"])) is not None]
    largest = max(values, default=0.0)
    if column["digits"] == 0 or largest == 0:
        return column["digits"]
    order = math.floor(math.log10(largest))
    return max(column["digits"] - max(order - 2, 0) + max(-1 - order, 0), 0)


EVEN = 1e-3  # of the average uncertainty: rows that differ by less are none the more uncertain


def remarkable_rows(problem: Problem, row: Row) -> list[DataTable]:
    """The held-out rows of which this method is least certain, unless it is as unsure of all; and those on which it is
    most wrong."""
    if problem.is_regression and row.has("y", "mean", "std", "lower"):
        header, line = _numbers(row)
    elif not problem.is_regression and row.has("y", "probs", "entropy"):
        header, line = _classes(problem, row)
    else:
        return []
    look = _Look(row)
    unsure, worst = remarkable(problem.data["kind"], row.arrays)
    spread = row.arrays["std" if problem.is_regression else "entropy"]
    is_even = bool(np.ptp(spread) <= EVEN * np.mean(spread))
    return [
        DataTable(title, [*header, *look.header], [[*line(int(place)), *look.of(int(place))] for place in places])
        for title, places in (("Most uncertain", unsure), ("Worst", worst))
        if not (is_even and places is unsure)
    ]


class _Look:
    """What is unusual about a row, and its values of the columns that say most."""

    def __init__(self, row: Row) -> None:
        self._arrays = row.arrays if row.has("look", "look_odd") else {}
        self._place = {int(place): number for number, place in enumerate(self._arrays.get("look", ()))}
        names = self._arrays.get("look_names", np.zeros(0, str))
        self.header = ["what is unusual", *names.tolist()] if self._arrays else []

    def of(self, place: int) -> list[str]:
        if not self._arrays:
            return []
        if place not in self._place:
            return [phrases.NOTHING] * len(self.header)
        number = self._place[place]
        odd = str(self._arrays["look_odd"][number]) or "nothing in a single column"
        return [odd, *map(str, self._arrays["look_values"][number])]


def _row_numbers(row: Row) -> np.ndarray:
    """Of the held-out rows in their file, or among themselves."""
    return row.arrays["row"] if row.has("row") else np.arange(len(row.arrays["y"]))


Line = Callable[[int], list[str]]


def _numbers(row: Row) -> tuple[list[str], Line]:
    y, mean, std = (row.arrays[name].ravel() for name in ("y", "mean", "std"))
    lower, upper = (row.arrays[name][LEVELS.index(0.9)] for name in ("lower", "upper"))
    numbers = _row_numbers(row)

    def line(i: int) -> list[str]:
        error = f"{phrases.fixed(abs(mean[i] - y[i]) / std[i], 1)} std" if std[i] > 0 else phrases.NOTHING
        interval = f"{phrases.number(lower[i], 3)} to {phrases.number(upper[i], 3)}"
        return [str(numbers[i] + 1), phrases.number(y[i], 4), phrases.number(mean[i], 4), interval, error]

    return ["row", "truth", "mean", "90% interval", "off by"], line


def _classes(problem: Problem, row: Row) -> tuple[list[str], Line]:
    y, probs, entropy = row.arrays["y"], row.arrays["probs"], row.arrays["entropy"]
    names = problem.data.get("class_names") or [str(k) for k in range(probs.shape[1])]
    of_truth = probs[np.arange(len(y)), y]
    numbers = _row_numbers(row)

    def line(i: int) -> list[str]:
        said = f"{names[probs[i].argmax()]} ({probs[i].max():.0%})"
        share = f"{of_truth[i]:.0%}" if of_truth[i] >= 0.005 else "< 1%"
        return [str(numbers[i] + 1), str(names[y[i]]), said, share, phrases.number(entropy[i], 2)]

    return ["row", "truth", "said", "truth's share", "entropy"], line
