"""Columns beside their piecewise-linear features, and no further than the training rows reach."""

from dataclasses import dataclass

import numpy as np

from posteria.data import cells
from posteria.tree import Json

NUM_BINS = 8
FAR = 3.0  # times the range of the middle 98 %: what the training rows have beyond that counts as out of range too


@dataclass(frozen=True, eq=False)
class Bins:
    """Where each column is clipped, softly, and the edges of its bins: quantiles of the training rows."""

    low: np.ndarray  # (column,)
    high: np.ndarray
    edges: tuple[tuple[float, ...], ...]  # empty for a column of one or two values

    @classmethod
    def fit(cls, x: np.ndarray, num_bins: int = NUM_BINS, is_size: np.ndarray | None = None) -> "Bins":
        """Of the training rows; with no bins, and where columns are no sizes, they are clipped alone."""
        x = np.asarray(x, np.float64)
        first, last = np.quantile(x, [0.01, 0.99], axis=0)
        reach = np.where(last > first, FAR * (last - first), np.inf)  # a rare value of an indicator stays
        low, high = np.maximum(x.min(0), first - reach), np.minimum(x.max(0), last + reach)
        if not num_bins:
            return cls(low, high, ((),) * x.shape[1])
        levels = np.linspace(0, 1, num_bins + 1)
        is_size = np.ones(x.shape[1], bool) if is_size is None else is_size
        edges = [
            tuple(np.unique(np.quantile(column, levels)).tolist()) if is_cut else ()
            for column, is_cut in zip(x.T, is_size)
        ]
        return cls(low, high, tuple(own if len(own) > 2 else () for own in edges))

    def clipped(self, x: np.ndarray) -> np.ndarray:
        return cells.softly_clipped(x, self.low, self.high)

    def features(self, x: np.ndarray) -> np.ndarray:
        return cells.piecewise_linear(x, self.edges)

    def to_json(self) -> Json:
        return {"low": self.low.tolist(), "high": self.high.tolist(), "edges": [list(own) for own in self.edges]}

    @classmethod
    def from_json(cls, stored: Json) -> "Bins":
        low, high = (np.asarray(stored[name], np.float64) for name in ("low", "high"))
        return cls(low, high, tuple(tuple(own) for own in stored["edges"]))
