"""Rows that tell of each other: copies, groups, neighbours in time. Folds that leave single rows out are then easier
than new rows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from posteria.data import cells
from posteria.data.recognise import plain

if TYPE_CHECKING:
    import pandas as pd

FEWEST_GROUPS, LEAST_OF_A_GROUP = 5, 3.0  # rows of a group on average
LEAST_COPIES = 0.02  # of the rows
MOSTLY_DIFFERENT = 0.8  # of rows that are no copies, have a target of their own: else copies are chance
NAMES_SHOWN = 3
FEWEST_MOMENTS = 20  # different dates, in whose order rows stand
IN_TIME = "rows are in the order of"
GROUPS_ARE_ASKED = "groups="  # of an estimator's fit


def told_of_rows(
    frame: "pd.DataFrame",
    num_values: Mapping[str, int],
    numbers: set[str],
    y: "pd.Series",
    is_number: bool,
    dates: Mapping[str, str] = {},
) -> list[str]:
    """Notes on a table: of the columns beside its target y, how many values each has, which are numbers, and which
    dates, with their spelling."""
    copies = _copies(frame[list(num_values)], y) if is_number else ""
    found = (copies, _groups(frame, num_values, numbers), _in_time(frame, dates))
    return [note for note in found if note]


def _in_time(frame: "pd.DataFrame", dates: Mapping[str, str]) -> str:
    for name, spelling in dates.items():
        seconds, is_bad = cells.moments(plain(frame[name]), spelling)
        steps = np.diff(seconds[~is_bad & np.isfinite(seconds)])
        if (steps != 0).sum() >= FEWEST_MOMENTS - 1 and ((steps >= 0).all() or (steps <= 0).all()):
            return (
                f"{IN_TIME} {name}: those left out to judge the fit lie between others, and later ones "
                f"may be further off; posteria compare --time {name} tests on the last rows"
            )
    return ""


def _copies(frame: "pd.DataFrame", y: "pd.Series") -> str:
    import pandas as pd

    both = pd.concat([frame.reset_index(drop=True), pd.Series(y.to_numpy())], axis=1)
    try:
        is_copy = both.duplicated().to_numpy()
    except TypeError:  # lists in cells
        return ""
    num_different = len(y) - is_copy.sum()
    if is_copy.mean() < LEAST_COPIES or y[~is_copy].nunique() < MOSTLY_DIFFERENT * num_different:
        return ""
    return (
        f"{is_copy.sum():,} of {len(y):,} rows are copies of others: a fit has then seen what it is judged by, and "
        "widths come out too narrow; drop the copies, or let a weight count them"
    )


def _groups(frame: "pd.DataFrame", num_values: Mapping[str, int], numbers: set[str]) -> str:
    """Numbers with fractions that only ever change together are of groups of rows: of patients, of shops."""
    import pandas as pd

    partitions: dict[bytes, list[str]] = {}
    for name, num in num_values.items():
        if not FEWEST_GROUPS <= num <= len(frame) / LEAST_OF_A_GROUP:
            continue
        codes = pd.factorize(frame[name])[0]  # in the order in which values come
        partitions.setdefault(codes.tobytes(), []).append(name)
    for names in partitions.values():
        of_groups = [name for name in names if name in numbers and _has_fractions(frame[name])]
        if len(of_groups) < 2:
            continue
        others = [name for name in names if name not in numbers]
        shown = ", ".join(map(str, of_groups[:NAMES_SHOWN])) + (", ..." if len(of_groups) > NAMES_SHOWN else "")
        column = others[0] if others else "COLUMN"
        return (
            f"{shown} only ever change together, in {num_values[names[0]]:,} groups of rows: intervals are those of "
            f"further rows of these groups; for new ones, {GROUPS_ARE_ASKED} (--group {column})"
        )
    return ""


def _has_fractions(values: "pd.Series") -> bool:
    return values.dtype.kind == "f" and bool((values.dropna() % 1 != 0).any()) and np.isfinite(values.dropna()).all()
