"""Which rows to learn from and which to be graded on: at random, the UCI benchmark's, by groups, by time."""

from typing import TYPE_CHECKING, Any

import numpy as np

from posteria.data.splits import Split, train_test, uci_splits
from posteria.errors import DataError, SettingError

if TYPE_CHECKING:
    import pandas as pd

TEST_SHARE = 0.2
SPLITS = ("random", "uci")


def seeds_of(seeds: int | list[int]) -> list[int]:
    found = list(range(seeds)) if isinstance(seeds, int) else [int(seed) for seed in seeds]
    if not found:
        raise SettingError(f"seeds is {seeds!r}", "at least one", "5 gives standard errors")
    return found


def of_rows(num_rows: int, splits: str, seeds: list[int]) -> tuple[list[Split], str]:
    """A split a seed, and its description."""
    if splits == "uci":
        return [uci_splits(num_rows, max(seeds) + 1)[seed] for seed in seeds], "uci splits, 90 % to learn from"
    if splits != "random":
        raise SettingError(f"splits is {splits!r}", f"one of {SPLITS}", "or split by group or by time")
    found = [train_test(num_rows, seed, TEST_SHARE) for seed in seeds]
    return found, f"random, {1 - TEST_SHARE:.0%} to learn from"


def by_group(frame: "pd.DataFrame", column: str, seeds: list[int]) -> tuple[list[Split], str]:
    """Whole groups are held out, so that no group is on both sides."""
    groups, numbers = np.unique(_column(frame, column).astype(str), return_inverse=True)
    if len(groups) < 2:
        raise DataError(f"column {column!r} has one group", "at least two", "split at random")
    found = []
    for seed in seeds:
        _, held_out = train_test(len(groups), seed, TEST_SHARE)
        is_test = np.isin(numbers, held_out)
        found.append((np.flatnonzero(~is_test), np.flatnonzero(is_test)))
    return found, f"group by {column}, {1 - TEST_SHARE:.0%} of {len(groups)} groups to learn from"


def by_time(frame: "pd.DataFrame", column: str, seeds: list[int]) -> tuple[list[Split], str]:
    """The latest rows are held out, the same for every seed."""
    import pandas as pd

    values = _column(frame, column)
    if values.dtype.kind not in "biufmM":
        values = pd.to_datetime(values, errors="coerce")
        if values.isna().any():
            raise DataError(f"column {column!r} holds neither numbers nor dates", "times", "write them as 2024-01-31")
    order = np.argsort(values.to_numpy(), kind="stable")
    num_test = min(max(round(TEST_SHARE * len(order)), 1), len(order) - 1)
    split = (order[:-num_test], order[-num_test:])
    return [split] * len(seeds), f"time by {column}, the first {1 - TEST_SHARE:.0%} to learn from"


def _column(frame: "pd.DataFrame", column: str) -> Any:
    if column not in frame.columns:
        raise DataError(f"no column {column!r}", f"one of {list(map(str, frame.columns))}")
    if frame[column].isna().any():
        raise DataError(f"column {column!r} has missing values", "a value in every row")
    return frame[column]
