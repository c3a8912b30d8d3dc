"""Columns to mean 0 and standard deviation 1, and back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from posteria.data.arrays import check_finite
from posteria.data.cells import LARGEST
from posteria.errors import DataError
from posteria.tree import Json


@dataclass(frozen=True, eq=False)
class Standardiser:
    """(x - mean) / std for each column; a constant column has std 1, so it becomes exactly 0.

    Moments are float64. They have the shape of one datum: (columns,) for a matrix, () for y of shape (n,).
    """

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def fit(cls, x: ArrayLike) -> "Standardiser":
        values = np.asarray(x, np.float64)
        if values.size == 0 or values.ndim == 0:
            raise DataError(f"nothing to standardise, shape {values.shape}", "at least one row")
        check_finite(values, "x")
        if np.abs(values).max() > LARGEST:
            raise DataError(f"values up to {np.abs(values).max():g}", f"numbers below {LARGEST:g}", "rescale them")
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

    def apply(self, x: ArrayLike) -> np.ndarray:
        values = self._check(x)
        return ((values - self.mean) / self.std).astype(values.dtype)

    def invert(self, x: ArrayLike) -> np.ndarray:
        values = self._check(x)
        return (values * self.std + self.mean).astype(values.dtype)

    def to_json(self) -> Json:
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @classmethod
    def from_json(cls, stored: Json) -> "Standardiser":
        return cls(np.asarray(stored["mean"], np.float64), np.asarray(stored["std"], np.float64))

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
