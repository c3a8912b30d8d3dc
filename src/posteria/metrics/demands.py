"""What every metric demands of its arrays before it computes anything."""

import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError

SUM_TOLERANCE = 5e-3  # of a row of probabilities, which may come in bfloat16


def numbers(name: str, values: ArrayLike) -> np.ndarray:
    """A non-empty array of finite float64 values."""
    values = real(name, values)
    bad = ~np.isfinite(values)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        got = f"{name} has {bad.sum()} values that are not finite, the first at {where}"
        raise DataError(got, "finite values", "drop or repair them: a metric over the rest would flatter")
    return values


def real(name: str, values: ArrayLike) -> np.ndarray:
    """A non-empty float64 array, which may hold infinities and nan."""
    try:
        values = np.asarray(values)
        if np.iscomplexobj(values):
            raise TypeError("complex values")
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not an array of numbers ({error})", "real numbers", "convert it first") from error
    if values.size == 0:
        raise DataError(f"{name} is empty, shaped {values.shape}", "at least one value", "check how it was selected")
    return values


def same_shape(name_a: str, a: np.ndarray, name_b: str, b: np.ndarray) -> None:
    if a.shape == b.shape:
        return
    if a.ndim == b.ndim + 1 and a.shape == (*b.shape, 1):
        fix = f"pass {name_b}[..., None]"
    elif b.ndim == a.ndim + 1 and b.shape == (*a.shape, 1):
        fix = f"pass {name_a}[..., None]"
    else:
        fix = "they must belong to the same points"
    raise DataError(f"{name_a} is {a.shape}, {name_b} is {b.shape}", "the same shape", fix)


def draws_of(name: str, draws: np.ndarray, point_shape: tuple[int, ...]) -> None:
    """Draws stand on a leading axis before the shape of the points."""
    if draws.ndim == 0 or draws.shape[1:] != point_shape:
        wanted = f"(draw, {', '.join(map(str, point_shape))})"
        raise DataError(f"{name} is {draws.shape}, y is {point_shape}", wanted, "put the draws on the first axis")


def probabilities(name: str, probs: ArrayLike) -> np.ndarray:
    """Rows of class probabilities, (n, classes)."""
    probs = numbers(name, probs)
    if probs.ndim != 2 or probs.shape[1] < 2:
        fix = "for two classes stack 1 - p and p on the last axis"
        raise DataError(f"{name} is {probs.shape}", "(n, classes) with at least two classes", fix)
    row_sum = probs.sum(1)
    if probs.min() < 0 or np.abs(row_sum - 1).max() > SUM_TOLERANCE:
        got = (
            f"{name} reaches down to {probs.min():.3g}, and its rows sum to {row_sum.min():.3g} to {row_sum.max():.3g}"
        )
        raise DataError(got, "probabilities", "logits go through a softmax first")
    return probs


def labels(y: ArrayLike, probs: np.ndarray) -> np.ndarray:
    """One integer label for each row of probabilities, (n,)."""
    y = np.asarray(y)
    num_points, num_classes = probs.shape
    if y.shape != (num_points,):
        raise DataError(
            f"probs has {num_points} rows, y is {y.shape}", f"y shaped ({num_points},)", "pass one label a row"
        )
    if not (np.issubdtype(y.dtype, np.integer) or y.dtype == bool):
        raise DataError(f"labels of dtype {y.dtype}", "integers", "encode the classes as 0, 1, ...")
    y = y.astype(np.int64)
    if y.min() < 0 or y.max() >= num_classes:
        got = f"labels from {y.min()} to {y.max()}"
        raise DataError(
            got, f"0 to {num_classes - 1}", "encode the classes as 0, 1, ..., in the order of the probabilities"
        )
    return y
