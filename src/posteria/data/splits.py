"""Rows to learn from and to test on: at random, the UCI benchmark's, by groups, by time, the last; those far out."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from posteria.data import cells
from posteria.data.recognise import date_spelling, plain
from posteria.data.standardise import Standardiser
from posteria.errors import DataError, SettingError
from posteria.random import as_key

if TYPE_CHECKING:
    import pandas as pd

Split = tuple[np.ndarray, np.ndarray]  # (train, test): row numbers

UCI_SEED = 1
UCI_TRAIN_FRACTION = 0.9
TEST_SHARE = 0.2  # of rows, groups or time that a comparison holds out
EXTREME_SHARE = 0.1  # of the test rows of a table, those furthest from the centre of the training rows
LEAST_EXTREMES = 5


class Splits(NamedTuple):
    """One split a seed."""

    kind: str  # "random", "uci", "group", "time" or "given"
    parts: list[Split]
    about: str  # "random, 80 % to learn from"
    groups: np.ndarray | None = None  # of every row, where the split is by them


def train_test(num_data: int, key: int | jax.Array, test: float = 0.1) -> Split:
    """A random split with `round(test * num_data)` test rows, at least one on either side."""
    if not 0 < test < 1:
        raise SettingError(f"test={test}", "a fraction between 0 and 1")
    if num_data < 2:
        raise DataError(f"{num_data} rows", "at least 2, one on either side")
    permutation = np.asarray(jax.random.permutation(as_key(key), num_data))
    num_test = min(max(round(test * num_data), 1), num_data - 1)
    return permutation[num_test:], permutation[:num_test]


def uci_splits(num_data: int, num_splits: int = 20) -> list[Split]:
    """The standard splits of the UCI regression benchmark (5 for protein, 20 for the others).

    Hernandez-Lobato and Adams 2015; Gal and Ghahramani 2016. The published index files are NumPy's legacy generator
    seeded once with 1 and drawn from once a split, so they regenerate exactly.
    """
    generator = np.random.RandomState(UCI_SEED)
    num_train = round(UCI_TRAIN_FRACTION * num_data)
    permutations = [generator.choice(range(num_data), num_data, replace=False) for _ in range(num_splits)]
    return [(permutation[:num_train], permutation[num_train:]) for permutation in permutations]


def of_rows(num_data: int, kind: str, seeds: list[int]) -> Splits:
    """By their number alone: "random", or the "uci" benchmark's."""
    if kind == "uci":
        parts = uci_splits(num_data, max(seeds) + 1)
        return Splits(kind, [parts[seed] for seed in seeds], "uci splits, 90 % to learn from")
    if kind != "random":
        raise SettingError(f"splits is {kind!r}", "one of ('random', 'uci')", "or split by group or by time")
    parts = [train_test(num_data, seed, TEST_SHARE) for seed in seeds]
    return Splits(kind, parts, f"random, {1 - TEST_SHARE:.0%} to learn from")


def last_rows(num_data: int, num_test: int, seeds: list[int]) -> Splits:
    """The last rows are the test rows that someone has chosen, the same for every seed."""
    rows = np.arange(num_data)
    return Splits("given", [(rows[:-num_test], rows[-num_test:])] * len(seeds), "given test rows")


def by_group(frame: "pd.DataFrame", column: str, seeds: list[int]) -> Splits:
    """Whole groups are held out, so that no group is on both sides."""
    groups, numbers = np.unique(labels_of(frame, column), return_inverse=True)
    if len(groups) < 2:
        raise DataError(f"column {column!r} has one group", "at least two", "split at random")
    found = []
    for seed in seeds:
        _, held_out = train_test(len(groups), seed, TEST_SHARE)
        is_test = np.isin(numbers, held_out)
        found.append((np.flatnonzero(~is_test), np.flatnonzero(is_test)))
    about = f"group by {column}, {1 - TEST_SHARE:.0%} of {len(groups)} groups to learn from"
    return Splits("group", found, about, numbers)


def labels_of(frame: "pd.DataFrame", column: str) -> np.ndarray:
    """What a column says of each row, as text."""
    found: np.ndarray = _column(frame, column).astype(str).to_numpy(object)
    return found


def by_time(frame: "pd.DataFrame", column: str, seeds: list[int]) -> Splits:
    """The latest rows are held out, the same for every seed."""
    column_values = _column(frame, column)
    values = plain(column_values)
    if values.dtype.kind not in "fM":
        values, is_bad = cells.moments(values, date_spelling(column_values, has_to_be=True))
        if is_bad.any():
            raise DataError(f"column {column!r} holds neither numbers nor dates", "times", "write them as 2024-01-31")
    order = np.argsort(values, kind="stable")
    num_test = min(max(round(TEST_SHARE * len(order)), 1), len(order) - 1)
    split = (order[:-num_test], order[-num_test:])
    return Splits("time", [split] * len(seeds), f"time by {column}, the first {1 - TEST_SHARE:.0%} to learn from")


def extremes(x_train: Any, x_test: Any) -> dict[str, np.ndarray]:
    """The mask of the test rows that are furthest out, by the mean square of features in the training rows' stds.

    They stand in for data from elsewhere where a table has none: a good posterior is less sure of them.
    """
    if not (isinstance(x_train, np.ndarray) and x_train.ndim == 2 and x_train.dtype.kind == "f"):
        return {}
    count = round(EXTREME_SHARE * len(x_test))
    if count < LEAST_EXTREMES:
        return {}
    distance = (Standardiser.fit(x_train).apply(x_test).astype(np.float64) ** 2).mean(1)
    mask = np.zeros(len(x_test), bool)
    mask[np.argsort(-distance, kind="stable")[:count]] = True
    return {"extremes": mask}


def _column(frame: "pd.DataFrame", column: str) -> Any:
    if column not in frame.columns:
        raise DataError(f"no column {column!r}", f"one of {list(map(str, frame.columns))}")
    if frame[column].isna().any():
        raise DataError(f"column {column!r} has missing values", "a value in every row")
    return frame[column]
