"""Inputs as arrays: checked on the host, before anything compiles.

`x` is an array, a pandas frame of numbers, or a tree (dict, tuple) of arrays with one leading axis, such as tokens
and mask. Lists are read as arrays. What comes out is the same tree of NumPy or JAX arrays in dtypes that JAX keeps:
wide numbers become 32 bits unless `jax_enable_x64` is set, a frame becomes one floating matrix, and whole numbers and
booleans stay what they are (tokens, masks, uint8 images; a network that wants floating features casts them).
"""

from typing import TYPE_CHECKING, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError
from posteria.tree import Tree, path_string

if TYPE_CHECKING:
    import pandas as pd

Data = Tree  # of arrays with a common leading axis
Rows = slice | np.ndarray | list[int]  # which of them
ROWS_SHOWN = 5


def check_x(x: Data, name: str = "x") -> Data:
    """`x` as a tree of finite numeric arrays with a common, non-empty leading axis; a DataError otherwise."""
    if is_frame(x):
        return as_jax_dtype(_frame_values(x, name), name)
    leaves, structure = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda node: isinstance(node, list))
    if not leaves:
        raise DataError(f"{name} holds no arrays ({type(x).__name__})", "an array, a frame or a tree of arrays")
    labels = [f"{name}/{path_string(path)}" if path else name for path, _ in leaves]
    arrays = [_check_leaf(leaf, label) for (_, leaf), label in zip(leaves, labels)]
    for label, array in zip(labels[1:], arrays[1:]):
        if len(array) != len(arrays[0]):
            raise DataError(
                f"{labels[0]} has {len(arrays[0])} rows, {label} has {len(array)}",
                "the same number in every leaf",
                "check how they were joined",
            )
    return jax.tree_util.tree_unflatten(structure, arrays)


def check_same_length(x: Data, y: Data) -> None:
    """x and y have one row a datum each."""
    if num_rows(x) != num_rows(y):
        raise DataError(
            f"x has {num_rows(x)} rows, y has {num_rows(y)}", "the same number", "check how they were joined"
        )


def num_rows(x: Data) -> int:
    """Size of the leading axis."""
    return len(x) if is_frame(x) else len(jax.tree.leaves(x)[0])


def rows(x: Data, indices: Rows) -> Data:
    """Rows of every leaf, on the host: NumPy leaves stay NumPy, and an index out of range is an error there."""
    if isinstance(indices, jax.core.Tracer):
        return jax.tree.map(lambda leaf: leaf[indices], x)
    return jax.tree.map(lambda leaf: _on_host(leaf)[indices], x)


def _on_host(leaf: np.ndarray | jax.Array) -> np.ndarray | jax.Array:
    """As NumPy's where that is free: JAX would compile the choice of rows for every shape."""
    if isinstance(leaf, np.ndarray | jax.core.Tracer) or not leaf.is_fully_addressable:
        return leaf
    return np.asarray(leaf) if all(device.platform == "cpu" for device in leaf.devices()) else leaf


def joined(x: Data, other: Data) -> Data:
    """The rows of both, one below the other, on the host."""
    shapes = [jax.tree.map(lambda leaf: leaf.shape[1:], each) for each in (x, other)]
    if shapes[0] != shapes[1]:
        raise DataError(f"rows of {shapes[1]} beside rows of {shapes[0]}", "the same shape", "check how they were made")
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), x, other)


def is_frame(x: object) -> "TypeGuard[pd.DataFrame]":
    """A pandas frame, told without importing pandas."""
    return hasattr(x, "columns") and hasattr(x, "iloc")


def check_finite(values: np.ndarray, name: str, columns: list[str] | None = None) -> None:
    """Refuse NaN and infinite values, saying in which rows (and columns) they are."""
    is_bad = ~np.isfinite(values)
    if not is_bad.any():
        return
    by_row = is_bad.reshape(len(values), -1)
    where = _few(np.flatnonzero(by_row.any(axis=1)), "row")
    if columns is not None:
        where += f", columns {[column for column, bad in zip(columns, by_row.any(axis=0)) if bad]}"
    raise DataError(
        f"{name} has {is_bad.sum()} NaN or infinite values ({where})",
        "finite numbers",
        "drop or fill in those rows" if columns is None else "drop or fill them in, or use po.Regressor, which imputes",
    )


def _check_leaf(leaf: ArrayLike, name: str) -> np.ndarray | jax.Array:
    try:
        values = np.asarray(leaf)
    except ValueError as error:  # NumPy's word for nested lists of unequal lengths
        raise DataError(f"{name} is ragged ({error})", "rows of one shape", "pad them and pass a mask") from None
    if isinstance(leaf, np.ma.MaskedArray) and leaf.mask.any():
        raise DataError(f"{name} is a masked array with masked entries", "plain numbers", "fill them in or drop them")
    if not _is_numeric(values.dtype):
        raise DataError(
            f"{name} has dtype {values.dtype}", "numbers", "encode text and categories, or use po.Regressor"
        )
    if values.ndim == 0:
        raise DataError(f"{name} is a scalar", "one row a datum", "pass an array whose first axis is the data")
    if values.size == 0:
        raise DataError(f"{name} is empty, {values.shape}", "at least one row and one value a row")
    if jnp.issubdtype(values.dtype, jnp.floating):
        check_finite(values, name)
    return leaf if isinstance(leaf, jax.Array) else as_jax_dtype(values, name)


def _frame_values(frame: "pd.DataFrame", name: str) -> np.ndarray:
    columns = list(frame.columns)
    text = [column for column, dtype in zip(columns, frame.dtypes) if dtype.kind not in "biuf"]
    if text:
        raise DataError(
            f"{name} has columns that are not numbers: {text}", "numbers", "encode them, or use po.Regressor"
        )
    if frame.size == 0:
        raise DataError(f"{name} is empty, {frame.shape}", "at least one row and one column")
    values: np.ndarray = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    check_finite(values, name, columns)
    return values


def as_jax_dtype(values: np.ndarray, name: str) -> np.ndarray:
    """The dtype JAX would give it anyway, refusing values that do not survive."""
    dtype = jax.dtypes.canonicalize_dtype(np.float64 if values.dtype == np.longdouble else values.dtype)
    if dtype == values.dtype:
        return values
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)
    is_lost = np.isinf(cast) if jnp.issubdtype(dtype, jnp.floating) else cast != values
    if is_lost.any():
        lost = np.flatnonzero(is_lost.reshape(len(values), -1).any(axis=1))
        raise DataError(
            f"{name} has values too large for {dtype} ({_few(lost, 'row')})", "smaller numbers", "rescale them"
        )
    return cast


def _is_numeric(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.bool_) or jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.floating)


def _few(indices: np.ndarray, noun: str) -> str:
    """The first few of them and how many: "rows 3, 17, 20 and 4 more"."""
    shown = ", ".join(str(i) for i in indices[:ROWS_SHOWN])
    more = f" and {len(indices) - ROWS_SHOWN} more" if len(indices) > ROWS_SHOWN else ""
    return f"{noun}{'s' if len(indices) > 1 else ''} {shown}{more}"
