"""What moves, picks, joins and makes arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.bridges.aten_elementwise import Table

Shape = Sequence[int]


def expand(x: jax.Array, sizes: Shape, *, implicit: bool = False) -> jax.Array:
    del implicit
    own = (1,) * (len(sizes) - x.ndim) + x.shape
    return jnp.broadcast_to(x, [have if size == -1 else size for size, have in zip(sizes, own)])


def transpose(x: jax.Array, first: int, second: int) -> jax.Array:
    return jnp.swapaxes(x, first, second)


def squeeze(x: jax.Array, dims: int | Shape | None = None) -> jax.Array:
    """Axes of another size than 1 stay."""
    named = range(x.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    return jnp.squeeze(x, tuple(dim % max(x.ndim, 1) for dim in named if x.ndim and x.shape[dim] == 1))


def select(x: jax.Array, dim: int, index: int) -> jax.Array:
    return x[_at(x, dim, index)]


def cut(x: jax.Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> jax.Array:
    return x[_at(x, dim, slice(start, end, step))]


def with_slice(
    x: jax.Array, part: jax.Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    return x.at[_at(x, dim, slice(start, end, step))].set(part)


def _at(x: jax.Array, dim: int, index: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % x.ndim) + (index,)


def concatenate(arrays: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    """PyTorch leaves out an empty vector among arrays of any shape."""
    return jnp.concatenate([array for array in arrays if array.shape != (0,)] or arrays, dim)


def split_with_sizes(x: jax.Array, sizes: Shape, dim: int = 0) -> tuple[jax.Array, ...]:
    return tuple(jnp.split(x, np.cumsum(sizes)[:-1], dim))


def split(x: jax.Array, size: int, dim: int = 0) -> tuple[jax.Array, ...]:
    return tuple(jnp.split(x, list(range(size, x.shape[dim], size)), dim))


def repeat(x: jax.Array, times: Shape) -> jax.Array:
    return jnp.tile(x.reshape((1,) * (len(times) - x.ndim) + x.shape), times)


def roll(x: jax.Array, shifts: Shape, dims: Shape = ()) -> jax.Array:
    return jnp.roll(x, shifts, tuple(dims)) if dims else jnp.roll(x, shifts[0])


def as_strided(x: jax.Array, size: Shape, stride: Shape, offset: int | None = None) -> jax.Array:
    """Of an array that lies in memory as it is written; the comparison with PyTorch would see one that does not."""
    places = np.asarray(offset or 0)
    for length, step in zip(size, stride):
        places = places[..., None] + step * np.arange(length)
    return x if np.array_equal(places.ravel(), np.arange(x.size)) and x.shape == tuple(size) else x.ravel()[places]


def pad(x: jax.Array, amounts: Shape, value: float = 0.0) -> jax.Array:
    """From the last axis backwards, as PyTorch; a negative amount cuts."""
    return jax.lax.pad(x, jnp.asarray(value, x.dtype), [(*pair, 0) for pair in _pairs(x, amounts)])


def _pairs(x: jax.Array, amounts: Shape) -> list[tuple[int, int]]:
    pairs = list(zip(amounts[::2], amounts[1::2]))[::-1]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs


def index(x: jax.Array, indices: Sequence[jax.Array | None]) -> jax.Array:
    return x[tuple(slice(None) if each is None else each for each in indices)]


def index_put(
    x: jax.Array, indices: Sequence[jax.Array | None], values: jax.Array, accumulate: bool = False
) -> jax.Array:
    places = x.at[tuple(slice(None) if each is None else each for each in indices)]
    return places.add(values) if accumulate else places.set(values)


def gather(x: jax.Array, dim: int, index: jax.Array, *, sparse_grad: bool = False) -> jax.Array:
    del sparse_grad
    return x[_places(x, dim, index)] if x.ndim else x


def scatter(x: jax.Array, dim: int, index: jax.Array, values: jax.Array | float) -> jax.Array:
    return x.at[_places(x, dim, index)].set(_like(values, index))


def scatter_add(x: jax.Array, dim: int, index: jax.Array, values: jax.Array) -> jax.Array:
    return x.at[_places(x, dim, index)].add(_like(values, index))


def scatter_reduce(
    x: jax.Array, dim: int, index: jax.Array, values: jax.Array, reduce: str, *, include_self: bool = True
) -> jax.Array:
    """What is written to one place is joined, with what was there if `include_self`."""
    places, values = _places(x, dim, index), jnp.asarray(_like(values, index))
    name = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "max", "amin": "min"}[reduce]
    limits = {"add": 0, "multiply": 1, "max": -jnp.inf, "min": jnp.inf}
    written = jnp.zeros(x.shape, jnp.int32).at[places].add(1)
    start = x if include_self else jnp.where(written > 0, jnp.asarray(limits[name], x.dtype), x)
    joined = getattr(start.at[places], name)(values)
    return joined / jnp.maximum(written + include_self, 1) if reduce == "mean" else joined


def _like(values: jax.Array | float, index: jax.Array) -> jax.Array | float:
    """PyTorch uses the leading part of what is as large as the index or larger."""
    return values if jnp.ndim(values) == 0 else jnp.asarray(values)[tuple(map(slice, index.shape))]


def _places(x: jax.Array, dim: int, index: jax.Array) -> tuple[jax.Array, ...]:
    grid = [
        jnp.arange(n).reshape([-1 if a == axis else 1 for a in range(x.ndim)]) for axis, n in enumerate(index.shape)
    ]
    grid[dim % x.ndim] = index
    return tuple(grid)


def embedding(
    weight: jax.Array,
    indices: jax.Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> jax.Array:
    """NaN for what is not in the table. A padding index stops gradients in PyTorch's training alone."""
    del padding_idx, scale_grad_by_freq, sparse
    return jnp.take(weight, indices, axis=0)


def arange(start: float, end: float | None = None, step: float = 1, *, dtype: Any = None) -> jax.Array:
    low, high = (0, start) if end is None else (start, end)
    return jnp.asarray(np.arange(low, high, step, dtype=dtype))


def full(size: Shape, value: float, *, dtype: Any = None) -> jax.Array:
    return jnp.full(tuple(size), value, dtype)


def full_like(x: jax.Array, value: float, *, dtype: Any = None) -> jax.Array:
    return jnp.full_like(x, value, dtype=dtype)


def diagonal(x: jax.Array, offset: int = 0, first: int = 0, second: int = 1) -> jax.Array:
    return jnp.diagonal(x, offset, first, second)


def unfold(x: jax.Array, dim: int, size: int, step: int) -> jax.Array:
    """Windows along an axis, which become a last one."""
    dim %= x.ndim
    count = (x.shape[dim] - size) // step + 1
    windows = step * np.arange(count)[:, None] + np.arange(size)
    return jnp.moveaxis(jnp.take(x, windows, axis=dim), dim + 1, -1)


def same(x: jax.Array, *_: Any, **__: Any) -> jax.Array:
    return x


def cast(x: jax.Array, dtype: Any = None, *_: Any, **__: Any) -> jax.Array:
    return x if dtype is None else x.astype(dtype)


def constant(value: float, *, dtype: Any = None) -> jax.Array:
    return jnp.asarray(value, dtype)


TABLE: Table = {
    "_to_copy": lambda x, *, dtype=None, **_: cast(x, dtype),
    "alias": same,
    "arange": arange,
    "as_strided": as_strided,
    "cat": concatenate,
    "clone": same,
    "constant_pad_nd": pad,
    "copy": lambda x, y, *_: jnp.broadcast_to(y, x.shape),
    "diagonal": diagonal,
    "embedding": embedding,
    "empty": lambda size, *, dtype=None: full(size, 0, dtype=dtype),  # to be written over
    "expand": expand,
    "flip": lambda x, dims: jnp.flip(x, tuple(dims)),
    "full": full,
    "full_like": full_like,
    "gather": gather,
    "index": index,
    "index_put": index_put,
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim),
    "lift_fresh_copy": same,
    "permute": lambda x, dims: jnp.transpose(x, tuple(dims)),
    "repeat": repeat,
    "scalar_tensor": constant,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
    "select": select,
    "slice": cut,
    "slice_scatter": with_slice,
    "split_with_sizes": split_with_sizes,
    "squeeze": squeeze,
    "unfold": unfold,
    "unsqueeze": jnp.expand_dims,
    "view": jnp.reshape,
}
