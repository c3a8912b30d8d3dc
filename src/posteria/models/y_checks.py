"""y as the array a likelihood wants, checked on the host before anything is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteria.data.arrays import as_jax_dtype
from posteria.errors import DataError, NetworkError

MISSING = ("NoneType", "NAType", "NaTType")  # None and pandas' two, by name: pandas need not be imported
ROWS_SHOWN = 5


def real_targets(y: ArrayLike, num_outputs: int, outputs_per_target: int = 1) -> np.ndarray:
    """Finite y as (n, k) floats, where the network has `outputs_per_target` outputs for each of the k columns."""
    y = _finite_numbers(y)
    if y.ndim > 2:
        raise DataError(f"y is {y.shape}", "(n,) or (n, targets)", "reshape it to one row a datum")
    y = y.reshape(len(y), -1)
    if num_outputs != outputs_per_target * y.shape[1]:
        raise NetworkError(
            f"the network has {num_outputs} outputs and y has {y.shape[1]} columns",
            f"{outputs_per_target} outputs for each column of y",
            f"give the network {outputs_per_target * y.shape[1]} outputs, or check the shape of y",
        )
    return as_jax_dtype(y if jnp.issubdtype(y.dtype, np.floating) else y.astype(np.float32), "y")


def counts(y: ArrayLike, num_outputs: int) -> np.ndarray:
    """Non-negative whole numbers as (n, k) floats, one output for each column."""
    values = real_targets(y, num_outputs)
    fix = "use a real likelihood"
    _refuse_rows(np.any(values != np.floor(values), axis=1), "values that are no whole numbers", "counts", fix)
    _refuse_rows(np.any(values < 0, axis=1), "negative values", "counts: 0, 1, 2, ...", fix)
    return values


def labels(y: ArrayLike, num_classes: int) -> np.ndarray:
    """Labels 0 .. num_classes - 1 as (n,) int32; whole numbers held as floats, booleans and (n, 1) are understood."""
    y = _finite_numbers(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        fix = "pass y.argmax(axis=1)" if y.ndim == 2 else "pass one integer label a datum"
        raise DataError(f"y is {y.shape}", "(n,) integer labels", fix)
    _refuse_rows(
        y != np.floor(y),
        "labels that are no whole numbers",
        "integer labels",
        "encode the classes, or use a regression",
    )
    _refuse_rows(
        (y < 0) | (y >= num_classes),
        f"labels from {y.min()} to {y.max()}",
        f"labels from 0 to {num_classes - 1}, as the network has it",
        f"encode the classes as 0 .. {num_classes - 1}, or give the network one output a class",
    )
    return y.astype(np.int32)


def same_shape(y: jax.Array, wanted: tuple[int, ...]) -> None:
    """Refuse to broadcast: (n,) against (n, 1) would silently become (n, n)."""
    if np.shape(y) != wanted:
        raise DataError(
            f"y is {np.shape(y)}",
            f"{wanted}, to fit the outputs",
            "pass y through the likelihood's check(y, num_outputs)",
        )


def _finite_numbers(y: ArrayLike) -> np.ndarray:
    """A non-empty array of finite numbers (or booleans) with at least one axis."""
    try:
        y = np.asarray(y)
    except ValueError as error:
        raise DataError("y has rows of different lengths", "an array", "give every datum as many values") from error
    if y.dtype == object:
        y = _unboxed(y)
    if y.dtype.kind in "SUT":
        raise DataError(
            "y holds strings", "numbers", "encode the classes as 0, 1, ..., or use posteria.Classifier, which does"
        )
    is_real = y.dtype == bool or jnp.issubdtype(y.dtype, np.number)
    if not is_real or y.dtype.kind == "c":
        raise DataError(f"y holds values of type {y.dtype}", "real numbers", "convert y to numbers")
    if y.ndim == 0:
        raise DataError("y is a single value", "an array with one row a datum", "pass an array of length n")
    if y.size == 0:
        raise DataError(f"y is empty, of shape {y.shape}", "at least one datum", "check how the data were selected")
    is_bad = ~np.isfinite(y).reshape(len(y), -1).all(axis=1)
    _refuse_rows(is_bad, "NaN or infinite values", "finite values", "drop or impute these rows")
    return y


def _unboxed(y: np.ndarray) -> np.ndarray:
    """An array of Python objects as numbers, what is missing as NaN; strings stay strings and are refused later."""
    values = [np.nan if type(value).__name__ in MISSING else value for value in y.ravel()]
    if any(isinstance(value, str | bytes) for value in values):
        return y.astype(str)
    try:
        return np.asarray(values, dtype=np.float64).reshape(y.shape)
    except (TypeError, ValueError) as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise DataError(f"y holds objects ({kinds})", "an array of numbers", "convert y to numbers") from error


def _refuse_rows(is_bad: np.ndarray, got: str, wanted: str, fix: str) -> None:
    rows = np.flatnonzero(is_bad)
    if len(rows):
        shown = ", ".join(str(row) for row in rows[:ROWS_SHOWN])
        more = f" and {len(rows) - ROWS_SHOWN} more" if len(rows) > ROWS_SHOWN else ""
        raise DataError(f"y has {got} (row{'s' if len(rows) > 1 else ''} {shown}{more})", wanted, fix)
