"""x and y as arrays: checked on the host, before anything compiles.

`x` is an array, a pandas frame of numbers, or a tree (dict, tuple) of arrays with one leading axis, such as tokens
and mask. Lists are read as arrays. What comes out is the same tree of NumPy or JAX arrays in dtypes that JAX keeps:
wide numbers become 32 bits unless `jax_enable_x64` is set, a frame becomes one floating matrix, and whole numbers and
booleans stay what they are (tokens, masks, uint8 images; a network that wants floating features casts them).
"""

import hashlib
from typing import TYPE_CHECKING, Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError, NetworkError
from posteria.tree import Tree, path_string

if TYPE_CHECKING:
    import pandas as pd

Data = Tree  # of arrays with a common leading axis
Rows = slice | np.ndarray | list[int]  # which of them
ROWS_SHOWN = 5
ROWS_SUMMED = 1000
MISSING = ("NoneType", "NAType", "NaTType")  # None and pandas' two, by name: pandas need not be imported


def check_x(x: Data, name: str = "x") -> Data:
    """`x` as a tree of finite numeric arrays with a common, non-empty leading axis; a DataError otherwise."""
    if is_frame(x):
        return as_jax_dtype(_frame_values(x, name), name)
    leaves, structure = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda node: isinstance(node, list))
    if not leaves:
        raise DataError(f"{name} holds no arrays ({type(x).__name__})", "an array, a frame or a tree of arrays")
    names = [f"{name}/{path_string(path)}" if path else name for path, _ in leaves]
    arrays = [_check_leaf(leaf, label) for (_, leaf), label in zip(leaves, names)]
    for label, array in zip(names[1:], arrays[1:]):
        if len(array) != len(arrays[0]):
            raise DataError(
                f"{names[0]} has {len(arrays[0])} rows, {label} has {len(array)}",
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


def check_weight(weight: ArrayLike, num: int) -> np.ndarray:
    """How often each row counts: `num` numbers, none below 0 and not all 0."""
    values = np.asarray(weight)
    if not _is_numeric(values.dtype):
        raise DataError(f"weight has dtype {values.dtype}", "a number a row", "pass one weight for each row of x")
    if values.shape != (num,):
        raise DataError(f"weight is {values.shape}", f"({num},), a number a row", "pass one weight for each row of x")
    check_finite(values, "weight")
    values = as_jax_dtype(values.astype(np.float64), "weight")
    if (values < 0).any():
        where = _few(np.flatnonzero(values < 0), "row")
        raise DataError(f"weight has negative values ({where})", "0 or more", "a weight of 0 leaves a row out")
    if not (values > 0).any():
        raise DataError("all weights are zero", "some rows that count", "pass a weight above 0 for these")
    return values


def parts(data: Data) -> tuple[Data, Data, Data]:
    """x, y and the weights of the rows, None where each counts once."""
    x, y, *weight = data
    return x, y, weight[0] if weight else None


def given_parts(data: Data) -> tuple[Data, Data, Data]:
    """The same of what a user gave: refused where it is no pair, None three times where there is nothing."""
    if data is None:
        return None, None, None
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise DataError(
            f"data is {type(data).__name__}", "a pair (x, y), or (x, y, weight), or None for the prior", "pass (x, y)"
        )
    return parts(data)


def rows_that_count(x: Data, y: Data, weight: Data) -> tuple[Data, Data, Data]:
    """Without those of weight 0; the weights None where each counts once."""
    if weight is None:
        return x, y, None
    weight = check_weight(weight, num_rows(x))
    if not weight.all():
        counts = np.flatnonzero(weight)
        x, y, weight = rows(x, counts), rows(y, counts), weight[counts]
    return x, y, None if (weight == 1).all() else weight


def weighted(terms: jax.Array, batch: Data) -> jax.Array:
    """Terms (batch,), each as often as its row counts."""
    _, _, weight = parts(batch)
    return terms if weight is None else terms * weight


def num_rows(x: Data) -> int:
    """Size of the leading axis."""
    return len(x) if is_frame(x) or hasattr(x, "read_rows") else len(jax.tree.leaves(x)[0])


def rows(x: Data, indices: Rows) -> Data:
    """Rows of every leaf, on the host: NumPy leaves stay NumPy, and an index out of range is an error there."""
    if hasattr(x, "read_rows"):  # a source
        return x.read_rows(indices)
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


def in_memory(data: object) -> bool:
    """Whether it is an array, or some: of anything else `sources` knows where its rows come from."""
    parts = data if isinstance(data, tuple) else (data,)
    return all(part is None or type(part) is np.ndarray or isinstance(part, jax.Array) for part in parts)


def is_source(data: object) -> bool:
    """Whether rows are to be read from it when they are asked for."""
    return hasattr(data, "read_rows")


def is_frame(x: object) -> "TypeGuard[pd.DataFrame]":
    """A pandas frame, told without importing pandas."""
    return hasattr(x, "iloc") and hasattr(x, "columns")


def check_finite(values: np.ndarray, name: str, columns: list[str] | None = None) -> None:
    """Refuse NaN and infinite values, saying in which rows (and columns) they are."""
    flat = values.reshape(-1) if values.flags.c_contiguous and values.dtype in (np.float32, np.float64) else None
    with np.errstate(over="ignore", invalid="ignore"):
        if flat is not None and np.isfinite(np.dot(flat, flat)):  # what is not finite would show: one pass, no copy
            return
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


# ---- y as the array a likelihood wants


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
    if is_bad.any():
        raise DataError(f"y has {got} ({_few(np.flatnonzero(is_bad), 'row')})", wanted, fix)


def rows_in_short(x: Any, y: Any) -> str | None:
    """Of rows in memory, what tells them from others: how many, and a sum of the first ones, in 32 bits."""
    leaves = [*jax.tree.leaves(x), y]
    if any(hasattr(leaf, "read_rows") or not getattr(leaf, "is_fully_addressable", True) for leaf in leaves):
        return None  # larger than memory, or spread over hosts
    digest = hashlib.sha256(str(len(y)).encode())
    for leaf in leaves:
        digest.update(np.asarray(np.asarray(leaf)[:ROWS_SUMMED], np.float32).tobytes())
    return digest.hexdigest()
