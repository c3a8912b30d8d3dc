"""A frame of numbers and categories as one matrix of numbers, the same way for new frames as for the first."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from posteria.data import cells
from posteria.data.arrays import is_frame
from posteria.errors import DataError
from posteria.tree import Json

if TYPE_CHECKING:
    import pandas as pd

MAX_LEVELS = 20  # of one category, as columns of their own
VALUES_SHOWN = 5


@dataclass(frozen=True)
class Number:
    """A numeric column. Missing values take the median; had any been missing when fitted, a column says which."""

    name: str
    median: float
    has_indicator: bool

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} is missing") if self.has_indicator else (self.name,)


@dataclass(frozen=True)
class Category:
    """A column of text or categories: one 0/1 column a level, all zeros for any other value."""

    name: str
    levels: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels)


@dataclass(frozen=True, eq=False)
class Encoded:
    x: np.ndarray  # (n, feature) float64
    unseen: dict[str, tuple[str, ...]]  # values that were no level when fitted, by column
    ignored: tuple[str, ...]  # columns the encoder does not know
    filled: dict[str, int]  # numbers that are missing where none was when fitted, by column
    num_unseen: np.ndarray  # (n,) unseen values in each row


@dataclass(frozen=True)
class Encoder:
    """How each column becomes numbers. Columns are matched by name, so a new frame may order them otherwise."""

    columns: tuple[Number | Category, ...]
    dropped: tuple[tuple[str, str], ...] = ()  # columns that say nothing, with the reason

    @classmethod
    def fit(cls, frame: "pd.DataFrame") -> "Encoder":
        """Medians and levels of the training rows."""
        _check_frame(frame)
        fitted = {name: _fit_column(name, frame[name]) for name in frame.columns}
        columns = tuple(column for column in fitted.values() if not isinstance(column, str))
        dropped = tuple((name, reason) for name, reason in fitted.items() if isinstance(reason, str))
        if not columns:
            raise DataError(f"no column says anything: {dropped}", "at least one of numbers or categories")
        return cls(columns, dropped)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    def encode(self, frame: "pd.DataFrame") -> Encoded:
        """The matrix with columns `feature_names`, and what could not be carried over."""
        _check_frame(frame)
        missing = [column.name for column in self.columns if column.name not in frame.columns]
        if missing:
            raise DataError(
                f"columns {missing} are missing",
                "the columns it was fitted on",
                f"this frame has {list(frame.columns)}",
            )
        known = {column.name for column in self.columns} | {name for name, _ in self.dropped}
        blocks, unseen, filled = [], {}, {}
        num_unseen = np.zeros(len(frame), int)
        for column in self.columns:
            if isinstance(column, Number):
                blocks.append(_encode_number(column, frame[column.name]))
                if not column.has_indicator and (count := int(frame[column.name].isna().sum())):
                    filled[column.name] = count
            else:
                block, others = _encode_category(column, frame[column.name])
                blocks.append(block)
                if len(column.levels) < MAX_LEVELS:  # with more, a value may have been there and rare
                    num_unseen += ~block.any(axis=1)
                if others:
                    unseen[column.name] = others
        ignored = tuple(str(name) for name in frame.columns if name not in known)
        return Encoded(np.concatenate(blocks, axis=1), unseen, ignored, filled, num_unseen)

    def to_json(self) -> Json:
        columns = [{"type": type(column).__name__.lower(), **asdict(column)} for column in self.columns]
        return {"columns": columns, "dropped": [list(each) for each in self.dropped]}

    @classmethod
    def from_json(cls, stored: Json) -> "Encoder":
        columns = tuple(_column_from_json(dict(column)) for column in stored["columns"])
        return cls(columns, tuple((name, reason) for name, reason in stored["dropped"]))


def _check_frame(frame: "pd.DataFrame") -> None:
    if not is_frame(frame):
        raise DataError(f"a {type(frame).__name__}", "a pandas frame", "pandas.DataFrame(x, columns=[...])")
    if len(frame) == 0:
        raise DataError("the frame has no rows", "at least one")
    if not frame.columns.is_unique or not all(isinstance(name, str) for name in frame.columns):
        raise DataError(f"columns {list(frame.columns)}", "different names that are strings", "rename them")


def _fit_column(name: str, values: "pd.Series") -> Number | Category | str:
    """The fitted column, or the reason why it is dropped."""
    if values.isna().all():
        return "every value is missing"
    if values.dtype.kind in "mM":
        raise DataError(f"column {name!r} holds dates", "numbers or categories", "turn it into numbers, as days since")
    if values.dtype.kind in "biuf" or _is_numbers_as_text(name, values):
        numbers = _numbers(name, values)
        return Number(name, float(np.nanmedian(numbers)), bool(np.isnan(numbers).any()))
    levels = cells.levels(values.to_numpy(object))
    counts = Counter(levels.tolist())
    if len(counts) == len(levels) > MAX_LEVELS:
        return "text with another value in every row"
    # the most frequent; ties and the order of the columns by name, so that row order does not matter
    frequent = sorted(counts, key=lambda level: (-counts[level], level))[:MAX_LEVELS]
    return Category(name, tuple(sorted(frequent)))


def _numbers(name: str, values: "pd.Series") -> np.ndarray:
    """float64 with NaN where a value is missing; text, infinite and huge ones are refused."""
    is_typed = values.dtype.kind in "biuf"  # also where pandas has its own kind of missing
    plain = values.to_numpy(np.float64, na_value=np.nan) if is_typed else values.to_numpy(object)
    numbers, is_bad = cells.numbers(plain)
    if is_bad.any():
        found = list(dict.fromkeys(map(str, values[is_bad])))[:VALUES_SHOWN]
        rows = np.flatnonzero(is_bad)[:VALUES_SHOWN].tolist()
        raise DataError(
            f"column {name!r} holds {found} ({is_bad.sum()} values, first rows {rows})",
            f"finite numbers, below {cells.LARGEST:g}",
            "correct them",
        )
    return numbers


def _is_numbers_as_text(name: str, values: "pd.Series") -> bool:
    """Many different numbers, written as text; with other text among them, refused: no category looks like that."""
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        return False
    present = values.dropna()
    numbers = pd.to_numeric(present.astype(str), errors="coerce")
    if numbers.notna().mean() <= 0.5 or numbers.nunique() <= MAX_LEVELS:
        return False
    found = present[numbers.isna()]
    if found.empty:
        return True
    raise DataError(
        f"column {name!r} is mostly numbers but holds {list(dict.fromkeys(map(str, found)))[:VALUES_SHOWN]} "
        f"({len(found)} values, first rows {[int(i) for i in np.flatnonzero(values.isin(found))[:VALUES_SHOWN]]})",
        "numbers, or text that repeats",
        "correct those values, or leave them empty",
    )


def _encode_number(column: Number, values: "pd.Series") -> np.ndarray:
    return cells.encoded_number(_numbers(column.name, values), column.median, column.has_indicator)


def _encode_category(column: Category, values: "pd.Series") -> tuple[np.ndarray, tuple[str, ...]]:
    levels = cells.levels(values.to_numpy(object))
    is_level = cells.encoded_category(levels, column.levels)
    others = sorted(set(levels[~is_level.any(axis=1)]))
    return is_level, tuple(others)


def _column_from_json(stored: Json) -> Number | Category:
    if stored.pop("type") == "number":
        return Number(**stored)
    return Category(stored["name"], tuple(stored["levels"]))
