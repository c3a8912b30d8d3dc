"""Fitted columns: what has to be known of the training rows to encode others. `cells` has how; exports carry that.

The first `num_sizes` features of a column are sizes, which piecewise-linear features can refine; the others are flags,
waves and words.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from posteria.data import cells

FULL_LEVELS = 20  # one-hot columns, with which a value may have been there and rare


@dataclass(frozen=True)
class Number:
    """Missing values take the median; had any been missing when fitted, a column says which."""

    name: str
    median: float
    has_indicator: bool
    spelling: str = ""  # of numbers in text, "" for plain ones
    is_lenient: bool = False  # what is no number counts as missing

    num_sizes: ClassVar[int] = 1
    tells_new_values: ClassVar[bool] = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        return _with_indicator(self.name, self.has_indicator)


@dataclass(frozen=True)
class Category:
    """A column of text or categories: one 0/1 column a level, all zeros for any other value."""

    name: str
    levels: tuple[str, ...]

    num_sizes: ClassVar[int] = 0

    @property
    def tells_new_values(self) -> bool:
        return len(self.levels) < FULL_LEVELS

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels)


@dataclass(frozen=True)
class Ordered:
    """Levels in an order: the place of each."""

    name: str
    levels: tuple[str, ...]
    median: float
    has_indicator: bool

    num_sizes: ClassVar[int] = 1
    tells_new_values: ClassVar[bool] = True

    @property
    def feature_names(self) -> tuple[str, ...]:
        return _with_indicator(self.name, self.has_indicator)


@dataclass(frozen=True)
class Means:
    """A category of many levels: for each, the mean of the targets of its rows, shrunk towards that of all."""

    name: str
    levels: tuple[str, ...]
    means: tuple[tuple[float, ...], ...]  # (level, target)
    overall: tuple[float, ...]

    tells_new_values: ClassVar[bool] = True

    @property
    def num_sizes(self) -> int:
        return len(self.overall)

    @property
    def feature_names(self) -> tuple[str, ...]:
        many = len(self.overall) > 1
        return tuple(f"mean target of {self.name}" + (f" {i}" if many else "") for i in range(len(self.overall)))


@dataclass(frozen=True)
class Text:
    """Words by their hashes, and how many there are."""

    name: str
    num_hashes: int

    num_sizes: ClassVar[int] = 0
    tells_new_values: ClassVar[bool] = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (*(f"{self.name} words {i}" for i in range(self.num_hashes)), f"{self.name} length")


@dataclass(frozen=True)
class Date:
    """Days since the first training row, and the periods of the calendar that the training rows carry."""

    name: str
    spelling: str
    first: float  # seconds since 1970, of the training rows
    last: float
    median: float  # days since the first
    has_indicator: bool
    periods: tuple[str, ...]

    num_sizes: ClassVar[int] = 1
    tells_new_values: ClassVar[bool] = True

    @property
    def feature_names(self) -> tuple[str, ...]:
        waves = tuple(f"{self.name} {period} {i}" for period in self.periods for i in range(NUM_FEATURES[period]))
        return _with_indicator(f"{self.name} days", self.has_indicator, self.name) + waves

    def num_far(self, days: np.ndarray) -> int:
        """How many lie before the first or after the last training row."""
        return int(((days < 0) | (days > (self.last - self.first) / cells.DAY)).sum())

    @property
    def range_told(self) -> tuple[str, str]:
        return told(self.first), told(self.last)


NUM_FEATURES = {period: features(np.zeros(1)).shape[1] for period, features in cells.PERIODS.items()}
Column = Number | Category | Ordered | Means | Text | Date
COLUMNS: dict[str, type[Column]] = {
    each.__name__.lower(): each for each in (Number, Category, Ordered, Means, Text, Date)
}


def told(seconds: float) -> str:
    """A moment, as 2024-01-31 or 2024-01-31T13:30."""
    text = str(np.datetime64(round(seconds), "s"))
    return text.removesuffix("T00:00:00").removesuffix(":00")


def _with_indicator(name: str, has_indicator: bool, of: str = "") -> tuple[str, ...]:
    return (name, f"{of or name} is missing") if has_indicator else (name,)
