"""Columns to mean 0 and standard deviation 1, and back; or beside their piecewise-linear features, and no further than
the training rows reach."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from posteria.data import cells
from posteria.data.arrays import check_finite
from posteria.errors import DataError
from posteria.tree import Json


@dataclass(frozen=True, eq=False)
class Standardiser:
    """(x - mean) / std for each column; a constant column has std 1, so it becomes exactly 0.

    Moments are float64. They have the shape of one datum: (columns,) for a matrix, () for y of shape (n,).
    With `is_log` it is the logarithms that are standardised: of a target, which is then above 0.
    """

    mean: np.ndarray
    std: np.ndarray
    is_log: bool = False

    @classmethod
    def fit(cls, x: ArrayLike) -> "Standardiser":
        values = np.asarray(x, np.float64)
        if values.size == 0 or values.ndim == 0:
            raise DataError(f"nothing to standardise, shape {values.shape}", "at least one row")
        check_finite(values, "x")
        if np.abs(values).max() > cells.LARGEST:
            raise DataError(
                f"values up to {np.abs(values).max():g}", f"numbers below {cells.LARGEST:g}", "rescale them"
            )
        # by the range, not by the rounded std: 0.1 repeated has a std of 1e-17
        is_constant = values.max(axis=0) == values.min(axis=0)
        return cls(
            mean=np.where(is_constant, values[0], values.mean(axis=0)),
            std=np.where(is_constant, 1.0, values.std(axis=0)),
        )

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> "Standardiser":
        """Values stay as they are: counts are whole numbers."""
        return cls(np.zeros(shape), np.ones(shape))

    @classmethod
    def of_logs(cls, y: ArrayLike) -> "Standardiser":
        plain = cls.fit(_logs(np.asarray(y, np.float64)))
        return cls(plain.mean, plain.std, is_log=True)

    def apply(self, x: ArrayLike) -> np.ndarray:
        values = self._check(x)
        if self.is_log:
            return ((_logs(values) - self.mean) / self.std).astype(values.dtype)
        return ((values - self.mean) / self.std).astype(values.dtype)

    def invert(self, x: ArrayLike) -> np.ndarray:
        values = self._check(x)
        back = values * self.std + self.mean
        return (np.exp(back) if self.is_log else back).astype(values.dtype)

    def to_json(self) -> Json:
        stored: Json = {"mean": self.mean.tolist(), "std": self.std.tolist()}
        return stored | ({"is_log": True} if self.is_log else {})

    @classmethod
    def from_json(cls, stored: Json) -> "Standardiser":
        mean, std = (np.asarray(stored[name], np.float64) for name in ("mean", "std"))
        return cls(mean, std, bool(stored.get("is_log", False)))

    def _check(self, x: ArrayLike) -> np.ndarray:
        """Floating values of any leading shape: rows, or draws of rows."""
        values = np.asarray(x)
        if values.dtype.kind != "f":
            values = values.astype(np.float64)
        leading = values.ndim - self.mean.ndim
        if leading < 0 or values.shape[leading:] != self.mean.shape:
            raise DataError(
                f"shape {values.shape}",
                f"(..., {', '.join(map(str, self.mean.shape))}), as when fitted",
                "pass the same columns in the same order",
            )
        return values


def _logs(values: np.ndarray) -> np.ndarray:
    if not (values > 0).all():
        raise DataError(
            f"a target of {values[~(values > 0)].flat[0]:g} on a log scale", "numbers above 0", 'target_scale="linear"'
        )
    return np.log(values)


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
