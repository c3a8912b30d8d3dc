"""Rows that count more or less often than once."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from posteria.data.arrays import check_weight
from posteria.data.frames import as_values

if TYPE_CHECKING:
    import pandas as pd

SHARES = 4  # rows that stand for one of average weight, where weights are not whole numbers
MOST_REPEATED = 1_000_000  # rows


def counted(
    frame: "pd.DataFrame", y: np.ndarray, sample_weight: ArrayLike | None
) -> tuple["pd.DataFrame", np.ndarray, np.ndarray | None]:
    """The rows that count, and how often; None where each does once."""
    if sample_weight is None:
        return frame, y, None
    weight = check_weight(np.asarray(as_values(sample_weight)), len(y))
    counts = np.flatnonzero(weight)
    if len(counts) == len(y):
        return frame, y, weight
    return frame.iloc[counts], y[counts], weight[counts]


def as_often(frame: "pd.DataFrame", y: np.ndarray, weight: np.ndarray | None) -> tuple["pd.DataFrame", np.ndarray]:
    """Rows about as often as they count, each at least once, by which units and categories are those of weighted rows:
    exactly so where weights are whole."""
    if weight is None:
        return frame, y
    is_whole = (weight == np.round(weight)).all() and weight.sum() <= max(MOST_REPEATED, len(y))
    counts = weight if is_whole else np.maximum(1.0, np.round(SHARES * weight / weight.mean()))
    often = np.repeat(np.arange(len(y)), counts.astype(int))
    return frame.iloc[often], y[often]
