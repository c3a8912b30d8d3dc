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
