"""Sums, means, extremes, softmax, sorting: what joins the entries of an axis."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from posteria.bridges.aten_elementwise import Table

Dims = int | Sequence[int] | None


def _axes(x: jax.Array, dims: Dims) -> tuple[int, ...] | None:
    """PyTorch's empty list of axes is all of them."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return None
    return tuple(dim % x.ndim for dim in ([dims] if isinstance(dims, int) else dims) if x.ndim)


def _over_axes(reduce: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def reduced(x: jax.Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> jax.Array:
        return reduce(x if dtype is None else x.astype(dtype), axis=_axes(x, dim), keepdims=keepdim)

    return reduced


def extreme(reduce: Callable[..., jax.Array], where: Callable[..., jax.Array]) -> Callable[..., Any]:
    """PyTorch's max and min: of all, of two arrays, or along an axis with the places."""

    def found(x: jax.Array, dim: int | jax.Array | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return reduce(x)
        return reduce(x, axis=dim, keepdims=keepdim), where(x, axis=dim, keepdims=keepdim)

    return found


def variance(x: jax.Array, dim: Dims = None, *, correction: float | None = 1, keepdim: bool = False) -> jax.Array:
    axes = _axes(x, dim)
    count = math.prod(x.shape[axis] for axis in (range(x.ndim) if axes is None else axes))
    square = jnp.square(x - x.mean(axes, keepdims=True)).sum(axes, keepdims=keepdim)
    return square / max(count - (1 if correction is None else correction), 0)


def variance_and_mean(x: jax.Array, dim: Dims = None, **settings: Any) -> tuple[jax.Array, jax.Array]:
    mean = x.mean(_axes(x, dim), keepdims=settings.get("keepdim", False))
    return variance(x, dim, **settings), mean


def vector_norm(x: jax.Array, order: float = 2, dim: Dims = None, keepdim: bool = False, **_: Any) -> jax.Array:
    axes = _axes(x, dim)
    if math.isinf(order):
        return (jnp.max if order > 0 else jnp.min)(jnp.abs(x), axis=axes, keepdims=keepdim)
    if order == 0:
        return (x != 0).sum(axes, keepdims=keepdim)
    if order == 1:
        return jnp.abs(x).sum(axes, keepdims=keepdim)
    if order == 2:
        total = jnp.square(x).sum(axes, keepdims=keepdim)
        return jnp.where(total > 0, jnp.sqrt(jnp.where(total > 0, total, 1)), 0)  # with a derivative at 0
    return (jnp.abs(x) ** order).sum(axes, keepdims=keepdim) ** (1 / order)


def distances(x: jax.Array, y: jax.Array, order: float, mode: int | None = None) -> jax.Array:
    """Between all rows of x and of y."""
    del mode
    return vector_norm(x[..., :, None, :] - y[..., None, :, :], order, -1)


def softmax(x: jax.Array, dim: int, half_to_float: bool = False) -> jax.Array:
    del half_to_float
    return jax.nn.softmax(x, axis=dim)


def log_softmax(x: jax.Array, dim: int, half_to_float: bool = False) -> jax.Array:
    del half_to_float
    return jax.nn.log_softmax(x, axis=dim)


def argument(find: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def found(x: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
        return find(x, axis=dim, keepdims=keepdim)

    return found


def order(x: jax.Array, dim: int = -1, descending: bool = False) -> tuple[jax.Array, jax.Array]:
    places = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, places, dim), places


def largest(x: jax.Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    del sorted
    values, places = order(x, dim, descending=largest)
    return jax.lax.slice_in_dim(values, 0, k, axis=dim % x.ndim), jax.lax.slice_in_dim(places, 0, k, axis=dim % x.ndim)


def cumulative(run: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda x, dim, *, dtype=None: run(x, axis=dim, dtype=dtype) if x.ndim else x


def logsumexp(x: jax.Array, dim: Dims, keepdim: bool = False) -> jax.Array:
    return jax.nn.logsumexp(x, axis=_axes(x, dim), keepdims=keepdim)


TABLE: Table = {
    "_cdist_forward": distances,
    "_log_softmax": log_softmax,
    "_softmax": softmax,
    "amax": _over_axes(jnp.max),
    "amin": _over_axes(jnp.min),
    "any": _over_axes(jnp.any),
    "argmax": argument(jnp.argmax),
    "argmin": argument(jnp.argmin),
    "cumprod": cumulative(jnp.cumprod),
    "cumsum": cumulative(jnp.cumsum),
    "linalg_vector_norm": vector_norm,
    "max": extreme(jnp.max, jnp.argmax),
    "mean": _over_axes(jnp.mean),
    "min": extreme(jnp.min, jnp.argmin),
    "prod": _over_axes(jnp.prod),
    "sort": order,
    "sum": _over_axes(jnp.sum),
    "topk": largest,
    "var": variance,
    "var_mean": variance_and_mean,
}
