"""A frame of numbers, categories, dates and text as one matrix of numbers, the same way for new rows as for the first.

New rows never need their target. Where a column becomes means of the target, a training row gets those of other rows:
`encode_training` leaves out the fold that it is in.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from posteria.data import cells
from posteria.data.arrays import is_frame
from posteria.data.recognise import MAX_LEVELS, periods_of, plain
from posteria.data.table_columns import COLUMNS, Category, Column, Date, Means, Number, Ordered, Text
from posteria.data.table_plan import ColumnPlan, TablePlan, plan_table
from posteria.errors import DataError
from posteria.tree import Json

if TYPE_CHECKING:
    import pandas as pd

NUM_HASHES = 32  # columns of a text
MOST_LEVELS_TOLD = 20


@dataclass(frozen=True, eq=False)
class Encoded:
    x: np.ndarray  # (n, feature) float64
    unseen: dict[str, tuple[str, ...]]  # values that were no level, or no date, when fitted, by column
    ignored: tuple[str, ...]  # columns the encoder does not know
    filled: dict[str, int]  # numbers and dates that are missing where none was when fitted, by column
    num_unseen: np.ndarray  # (n,) unseen values in each row
    far: dict[str, tuple[int, str, str]]  # dates before or after those of the fit: how many, and its first and last
    counts: dict[str, int] = field(default_factory=dict)  # rows whose value is unseen, by column


@dataclass(frozen=True)
class Encoder:
    """How each column becomes numbers. Columns are matched by name, so a new frame may order them otherwise."""

    columns: tuple[Column, ...]
    dropped: tuple[tuple[str, str], ...] = ()  # columns that say nothing, with the reason

    @classmethod
    def fit(cls, frame: "pd.DataFrame", plan: TablePlan | None = None, y: np.ndarray | None = None) -> "Encoder":
        """Medians, levels and means of the training rows; y is (n,) or (n, targets), of classes their indicators."""
        check_frame(frame)
        plan = plan_table(frame) if plan is None else plan
        planned = {column.name: column for column in plan.columns if column.name in frame.columns}
        fitted = {
            name: f"{column.taken}: {column.why}" if column.is_left_out else _fit_column(column, frame[name], y)
            for name, column in planned.items()
        }
        columns = tuple(column for column in fitted.values() if not isinstance(column, str))
        dropped = tuple((name, reason) for name, reason in fitted.items() if isinstance(reason, str))
        if not columns:
            raise DataError(
                f"no column says anything: {dropped[:5]}",
                "at least one of numbers, categories, dates or text",
                "--as COLUMN=number takes one nevertheless" if dropped else "",
            )
        return cls(columns, dropped)

    @property
    def numbers(self) -> frozenset[str]:
        """The columns that are numbers."""
        return frozenset(column.name for column in self.columns if isinstance(column, Number))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    def encode(self, frame: "pd.DataFrame") -> Encoded:
        """The matrix with columns `feature_names`, and what could not be carried over."""
        check_frame(frame)
        missing = [column.name for column in self.columns if column.name not in frame.columns]
        if missing:
            raise DataError(
                f"columns {missing} are missing",
                "the columns it was fitted on",
                f"this frame has {list(frame.columns)}",
            )
        known = {column.name for column in self.columns} | {name for name, _ in self.dropped}
        blocks, unseen, filled, far = [], {}, {}, {}
        counts: dict[str, int] = {}
        num_unseen = np.zeros(len(frame), int)
        for column, stored in zip(self.columns, self._stored):
            values = plain(frame[column.name])
            try:
                block, is_new = cells.encoded(stored, values)
            except ValueError as error:
                got, _, wanted = str(error).partition("; wanted ")
                raise DataError(got, wanted, "correct them") from None
            blocks.append(block)
            if is_new.any():
                unseen[column.name] = _some_levels(values[is_new])
                counts[column.name] = int(is_new.sum())
            if column.tells_new_values:
                num_unseen += is_new
            if not getattr(column, "has_indicator", True) and (count := int(frame[column.name].isna().sum())):
                filled[column.name] = count
            if isinstance(column, Date) and (count := column.num_far(block[:, 0])):
                far[column.name] = (count, *column.range_told)
        ignored = tuple(str(name) for name in frame.columns if name not in known)
        return Encoded(np.concatenate(blocks, axis=1), unseen, ignored, filled, num_unseen, far, counts)

    def encode_training(self, frame: "pd.DataFrame", y: np.ndarray | None) -> np.ndarray:
        """The rows that it was fitted to: a row's own target has no part in its means."""
        x = self.encode(frame).x
        first = 0
        for column in self.columns:
            last = first + len(column.feature_names)
            if isinstance(column, Means) and y is not None:
                x[:, first:last] = means_without_own_fold(cells.levels(plain(frame[column.name])), y)
            first = last
        return x

    @property
    def is_size(self) -> np.ndarray:
        """Which features are sizes, and no flags, waves or words: (feature,)."""
        parts = [np.arange(len(column.feature_names)) < column.num_sizes for column in self.columns]
        return np.concatenate(parts)

    @property
    def has_means(self) -> bool:
        return any(isinstance(column, Means) for column in self.columns)

    @cached_property
    def _stored(self) -> list[Json]:
        return [column_to_json(column) for column in self.columns]

    def to_json(self) -> Json:
        return {"columns": self._stored, "dropped": [list(each) for each in self.dropped]}

    @classmethod
    def from_json(cls, stored: Json) -> "Encoder":
        columns = tuple(_column_from_json(dict(column)) for column in stored["columns"])
        return cls(columns, tuple((name, reason) for name, reason in stored["dropped"]))


def check_frame(frame: "pd.DataFrame") -> None:
    if not is_frame(frame):
        raise DataError(f"a {type(frame).__name__}", "a frame", "pandas.DataFrame(x, columns=[...])")
    if len(frame) == 0:
        raise DataError("the frame has no rows", "at least one")
    if not frame.columns.is_unique or not all(isinstance(name, str) for name in frame.columns):
        raise DataError(f"columns {list(frame.columns)}", "different names that are strings", "rename them")


def _fit_column(plan: ColumnPlan, values: "pd.Series", y: np.ndarray | None) -> Column | str:
    """The fitted column, or the reason why it is dropped."""
    if values.isna().all():
        return "every value is missing"
    return FITS[plan.taken](plan, values, y)


def _fit_number(plan: ColumnPlan, values: "pd.Series", y: np.ndarray | None) -> Column | str:
    stored = {"name": plan.name, "spelling": plan.spelling, "is_lenient": plan.is_lenient}
    try:
        x, _ = cells.encoded({"type": "number", "median": np.nan, "has_indicator": False} | stored, plain(values))
    except ValueError as error:
        got, _, wanted = str(error).partition("; wanted ")
        raise DataError(got, wanted, "correct them") from None
    is_nan = np.isnan(x[:, 0])
    if is_nan.all():
        return "no value is a number"
    return Number(plan.name, float(np.median(x[~is_nan, 0])), bool(is_nan.any()), plan.spelling, plan.is_lenient)


def _fit_category(plan: ColumnPlan, values: "pd.Series", y: np.ndarray | None) -> Column | str:
    levels = cells.levels(plain(values))
    counts = Counter(levels.tolist())
    if plan.is_many_valued and y is not None:
        names, means, overall = means_by_level(levels, y)
        return Means(plan.name, tuple(names), means, overall)
    # the most frequent; ties and the order of the columns by name, so that row order does not matter
    frequent = sorted(counts, key=lambda level: (-counts[level], level))[:MAX_LEVELS]
    return Category(plan.name, tuple(sorted(frequent)))


def _fit_ordered(plan: ColumnPlan, values: "pd.Series", y: np.ndarray | None) -> Column | str:
    places = {level: place for place, level in enumerate(plan.levels)}
    found = [places[level] for level in cells.levels(plain(values)) if level in places]
    if not found:
        return "none of its values is known"
    return Ordered(plan.name, plan.levels, float(np.median(found)), len(found) < len(values))


def _fit_date(plan: ColumnPlan, values: "pd.Series", y: np.ndarray | None) -> Column | str:
    seconds, _ = cells.moments(plain(values), plan.spelling)
    is_nan = np.isnan(seconds)
    if is_nan.all():
        return "no value is a date"
    first, last = float(np.nanmin(seconds)), float(np.nanmax(seconds))
    median = float(np.median(seconds[~is_nan]) - first) / cells.DAY
    return Date(plan.name, plan.spelling, first, last, median, bool(is_nan.any()), periods_of(seconds))


def _fit_text(plan: ColumnPlan, values: "pd.Series", y: np.ndarray | None) -> Column | str:
    return Text(plan.name, NUM_HASHES)


FITS: dict[str, Any] = {
    "number": _fit_number,
    "count": _fit_number,
    "category": _fit_category,
    "ordered": _fit_ordered,
    "date": _fit_date,
    "text": _fit_text,
}


def _some_levels(values: np.ndarray) -> tuple[str, ...]:
    found = sorted(set(cells.levels(values)))
    return (*found[:MOST_LEVELS_TOLD], f"and {len(found) - MOST_LEVELS_TOLD} more") if len(found) > 25 else tuple(found)


def column_to_json(column: Column) -> Json:
    return {"type": type(column).__name__.lower(), **asdict(column)}


def _column_from_json(stored: Json) -> Column:
    kind = stored.pop("type", None)
    if kind not in COLUMNS:
        raise DataError(f"a column taken as {kind!r}", f"one of {list(COLUMNS)}", "use the version that wrote it")
    for name, value in stored.items():
        if isinstance(value, list):
            stored[name] = tuple(tuple(each) if isinstance(each, list) else each for each in value)
    return COLUMNS[kind](**stored)


# ---- what new rows have that the rows of the fit had not, in words

VALUES_SHOWN = 5
AS_WHAT = {"Means": "the average of all rows", "Ordered": "missing"}  # an unseen value of such a column


def told_of(encoded: Encoded, encoder: Encoder | None) -> dict[str, str]:
    """A line by column, the most surprising alone where there are several."""
    taken = {column.name: type(column).__name__ for column in encoder.columns} if encoder else {}
    lines = {}
    for column, count in encoded.filled.items():
        lines[column] = f"{column}: {count:,} missing, as never in the fit; taken as its median"
    for column, (count, first, last) in encoded.far.items():
        lines[column] = f"{column}: {count:,} dates before {first} or after {last}, the range of the fit"
    for column, values in encoded.unseen.items():
        shown = ", ".join(map(repr, values[:VALUES_SHOWN])) + (", ..." if len(values) > VALUES_SHOWN else "")
        count, total = encoded.counts[column], len(encoded.x)
        where = f"in {count:,} of {total:,} rows"
        if taken[column] in ("Number", "Date"):
            lines[column] = f"{column}: {shown} cannot be read as a {taken[column].lower()}; taken as missing, {where}"
        elif taken[column] in AS_WHAT:
            lines[column] = f"{column}: {shown} not seen in the fit; taken as {AS_WHAT[taken[column]]}, {where}"
        else:
            lines[column] = f"{column}: {shown} not seen in the fit, or rarely; taken as none of its values, {where}"
    return lines


# ---- means of the target by level, for categories of many values. Micci-Barreca 2001

FOLDS = 5
SEED = 0  # of the folds, which depend on the number of rows alone: a resumed fit sees the same rows
LEAST_ROWS, MOST_ROWS = 1.0, 1000.0  # that the mean of all rows counts as, in that of a level


def means_by_level(
    levels: np.ndarray, y: np.ndarray
) -> tuple[list[str], tuple[tuple[float, ...], ...], tuple[float, ...]]:
    """The levels, for each the means of the targets, and those of all rows."""
    names, codes = np.unique(levels.astype(str), return_inverse=True)
    targets = y.reshape(len(y), -1).astype(np.float64)
    means, overall = _shrunk(codes, targets, len(names))
    return names.tolist(), tuple(map(tuple, means.tolist())), tuple(overall.tolist())


def means_without_own_fold(levels: np.ndarray, y: np.ndarray) -> np.ndarray:
    """For each row the means of its level among the rows of other folds: its own target has no part in them."""
    names, codes = np.unique(levels.astype(str), return_inverse=True)
    targets = y.reshape(len(y), -1).astype(np.float64)
    fold = np.random.default_rng(SEED).permutation(len(codes)) % FOLDS
    found = np.zeros_like(targets)
    for number in range(FOLDS):
        is_own = fold == number
        if is_own.any() and not is_own.all():
            found[is_own] = _shrunk(codes[~is_own], targets[~is_own], len(names))[0][codes[is_own]]
    return found


def _shrunk(codes: np.ndarray, targets: np.ndarray, num_levels: int) -> tuple[np.ndarray, np.ndarray]:
    """(level, target) means, each shrunk towards that of all by the variance within levels over that between them.

    So many rows does the mean of all count as; a level without rows has it alone.
    """
    counts = np.bincount(codes, minlength=num_levels).astype(np.float64)[:, None]
    sums = np.stack([np.bincount(codes, each, num_levels) for each in targets.T], axis=1)
    overall = targets.mean(axis=0)
    raw = sums / np.maximum(counts, 1.0)
    num_repeated = max(len(codes) - (counts > 0).sum(), 1)
    within = ((targets - raw[codes]) ** 2).sum(axis=0) / num_repeated
    between = ((raw[codes] - overall) ** 2).mean(axis=0) - within * (counts > 0).sum() / len(codes)
    rows = np.clip(within / np.maximum(between, 1e-12 * np.maximum(within, 1e-300)), LEAST_ROWS, MOST_ROWS)
    return (sums + rows * overall) / (counts + rows), overall
