"""Products with weights, convolutions, norms, pooling and resizing, channels first as in PyTorch.

A batch of one is a matrix here (`bmm`), so that a weight that PyTorch repeats for every datum is seen as one matrix.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteria.bridges.aten_elementwise import Table

Sizes = Sequence[int]
Optional = jax.Array | None


# ---- products


def batched_product(x: jax.Array, y: jax.Array) -> jax.Array:
    return (x[0] @ y[0])[None] if len(x) == 1 else x @ y


def plus_product(
    product: Callable[[jax.Array, jax.Array], jax.Array],
    bias: jax.Array,
    x: jax.Array,
    y: jax.Array,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> jax.Array:
    """beta * bias + alpha * x @ y."""
    outputs = product(x, y)
    return (outputs if alpha == 1 else alpha * outputs) + (bias if beta == 1 else beta * bias)


# ---- convolutions


def convolution(
    x: jax.Array,
    weight: jax.Array,
    bias: Optional,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> jax.Array:
    """As `lax.conv_general_dilated`, which the walk over the network finds, and runs as slices and a matmul on CPU."""
    rank = weight.ndim - 2
    stride, padding, dilation, output_padding = (_each(s, rank) for s in (stride, padding, dilation, output_padding))
    letters = "HWD"[:rank]
    convolve = partial(
        lax.conv_general_dilated,
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{letters}", f"OI{letters}", f"NC{letters}"),
        feature_group_count=groups,
    )
    if transposed:
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
        around = [(r - p, r - p + extra) for r, p, extra in zip(reach, padding, output_padding)]
        outputs = convolve(x, _transposed(weight, groups), (1,) * rank, around, lhs_dilation=stride)
    else:
        outputs = convolve(x, weight, stride, [(p, p) for p in padding])
    return outputs if bias is None else outputs + bias.reshape(-1, *(1,) * rank)


def _transposed(weight: jax.Array, groups: int) -> jax.Array:
    """(in, out / groups, *window) as the kernel (out, in / groups, *window) of the convolution that does the same."""
    inputs, outputs, *window = weight.shape
    kernel = jnp.flip(weight, range(2, weight.ndim)).reshape(groups, inputs // groups, outputs, *window)
    return kernel.swapaxes(1, 2).reshape(groups * outputs, inputs // groups, *window)


def _each(sizes: Sizes, rank: int) -> tuple[int, ...]:
    """One number stands for all axes."""
    return tuple(sizes) * (rank if len(sizes) == 1 else 1)


# ---- norms


def batch_norm(
    x: jax.Array, weight: Optional, bias: Optional, mean: jax.Array, var: jax.Array, momentum: float, eps: float
) -> tuple[jax.Array, None, None]:
    """With frozen statistics: a scale and a shift a channel."""
    del momentum
    scale = lax.rsqrt(var + eps) * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - mean * scale
    return x * _on_channels(scale, x) + _on_channels(shift, x), None, None


def own_norm(
    x: jax.Array, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> tuple[jax.Array, None, None]:
    """By the array's own statistics: of a batch of one datum, instance norm."""
    del training, momentum
    y = _standardised(x, (0, *range(2, x.ndim)), eps)
    y = y if weight is None else y * _on_channels(weight, x)
    return (y if bias is None else y + _on_channels(bias, x)), None, None


def layer_norm(
    x: jax.Array, shape: Sizes, weight: Optional, bias: Optional, eps: float
) -> tuple[jax.Array, None, None]:
    y = _standardised(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), None, None


def group_norm(
    x: jax.Array, weight: Optional, bias: Optional, n: int, channels: int, space: int, groups: int, eps: float
) -> tuple[jax.Array, None, None]:
    y = _standardised(x.reshape(n, groups, channels // groups * space), (2,), eps).reshape(x.shape)
    y = y if weight is None else y * _on_channels(weight, x)
    return (y if bias is None else y + _on_channels(bias, x)), None, None


def _standardised(x: jax.Array, axes: tuple[int, ...], eps: float) -> jax.Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred * lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)


def _on_channels(values: jax.Array, x: jax.Array) -> jax.Array:
    return values.reshape(-1, *(1,) * (x.ndim - 2))


# ---- pooling: over slices, or tiles where windows do not overlap; XLA's windowed reductions are slow on CPU


def max_pool(
    rank: int,
    x: jax.Array,
    window: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[jax.Array, None]:
    window, padding, dilation = (_each(sizes, rank) for sizes in (window, padding, dilation))
    stride = _each(stride, rank) if len(stride) else window
    counts = _counts(x.shape[-rank:], window, stride, padding, dilation, ceil_mode)
    return _pooled(x, window, stride, padding, dilation, counts, -jnp.inf, jnp.maximum, jnp.max), None


def avg_pool(
    rank: int,
    x: jax.Array,
    window: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    window, padding = (_each(sizes, rank) for sizes in (window, padding))
    stride = _each(stride, rank) if len(stride) else window
    counts = _counts(x.shape[-rank:], window, stride, padding, (1,) * rank, ceil_mode)
    total = _pooled(x, window, stride, padding, (1,) * rank, counts, 0.0, jnp.add, jnp.sum)
    if divisor_override is not None:
        return total / divisor_override
    seen = [
        _num_seen(size, w, s, p, n, count_include_pad)
        for size, w, s, p, n in zip(x.shape[-rank:], window, stride, padding, counts)
    ]
    return total / jnp.asarray(math.prod(np.ix_(*seen)), total.dtype)


def _num_seen(size: int, window: int, stride: int, padding: int, count: int, with_padding: bool) -> np.ndarray:
    """How many entries each window of an axis has; what lies beyond the padding is none."""
    first = stride * np.arange(count) - padding
    low, high = (-padding, size + padding) if with_padding else (0, size)
    return np.minimum(first + window, high) - np.maximum(first, low)


def _counts(
    space: Sizes, window: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[int, ...]:
    counts = []
    for size, w, s, p, d in zip(space, window, stride, padding, dilation):
        free = size + 2 * p - d * (w - 1) - 1
        count = (-(-free // s) if ceil_mode else free // s) + 1
        counts.append(count - (ceil_mode and (count - 1) * s >= size + p))  # no window begins in the padding
    return tuple(counts)


def _pooled(
    x: jax.Array,
    window: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    counts: Sizes,
    neutral: float,
    join: Callable[[jax.Array, jax.Array], jax.Array],
    reduce: Callable[..., jax.Array],
) -> jax.Array:
    lead, rank = x.ndim - len(window), len(window)
    stops = [(n - 1) * s + d * (w - 1) + 1 for n, s, d, w in zip(counts, stride, dilation, window)]
    after = [stop - p - size for stop, p, size in zip(stops, padding, x.shape[lead:])]  # below 0: a ragged edge goes
    x = lax.pad(x, jnp.asarray(neutral, x.dtype), [(0, 0, 0)] * lead + [(p, a, 0) for p, a in zip(padding, after)])
    if tuple(window) == tuple(stride) and set(dilation) == {1}:
        tiles = x.reshape(*x.shape[:lead], *(n for pair in zip(counts, window) for n in pair))
        return reduce(tiles, axis=tuple(lead + 1 + 2 * axis for axis in range(rank)))
    parts = []
    for offset in itertools.product(*(range(w) for w in window)):
        start = [o * d for o, d in zip(offset, dilation)]
        stop = [b + (n - 1) * s + 1 for b, n, s in zip(start, counts, stride)]
        parts.append(lax.slice(x, (*(0,) * lead, *start), (*x.shape[:lead], *stop), (*(1,) * lead, *stride)))
    pooled = parts[0]
    for part in parts[1:]:
        pooled = join(pooled, part)
    return pooled


# ---- resizing: a matrix for each axis


def adaptive_avg_pool(x: jax.Array, sizes: Sizes) -> jax.Array:
    bins = [_bins(size, out) for size, out in zip(x.shape[-len(sizes) :], sizes)]
    return _resized(x, sizes, [each / each.sum(0) for each in bins])


def adaptive_max_pool(x: jax.Array, sizes: Sizes) -> tuple[jax.Array, None]:
    for axis, out in enumerate(sizes, start=x.ndim - len(sizes)):
        parts = [x.take(np.flatnonzero(places), axis).max(axis) for places in _bins(x.shape[axis], out).T]
        x = jnp.stack(parts, axis)
    return x, None


def _bins(size: int, out: int) -> np.ndarray:
    """(in, out): whether an entry is in each output's part."""
    first, last = np.arange(out) * size // out, -(-(np.arange(1, out + 1) * size) // out)
    places = np.arange(size)[:, None]
    return (places >= first) & (places < last)


Weigh = Callable[[int, int, float, bool], np.ndarray]  # (in, out, step, align corners) -> (in, out)


def upsample(weigh: Weigh, x: jax.Array, output_size: Sizes | None, *rest: Any) -> jax.Array:
    """`rest` is (align_corners, factors), and the factors alone where nearest entries are taken."""
    align, factors = rest if weigh is _linear_weights else (False, *rest)
    space = x.shape[2:]
    sizes = [int(n * f) for n, f in zip(space, factors or ())] if output_size is None else output_size
    scales = [1 / f for f in factors] if factors else [n / out for n, out in zip(space, sizes)]
    return _resized(x, sizes, [weigh(n, out, s, align) for n, out, s in zip(space, sizes, scales)])


def _sources(size: int, out: int, scale: float, align: bool) -> np.ndarray:
    """Where in the input each output lies."""
    if align:
        return np.arange(out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return scale * (np.arange(out) + 0.5) - 0.5


def _linear_weights(size: int, out: int, scale: float, align: bool) -> np.ndarray:
    source = np.maximum(_sources(size, out, scale, align), 0)
    low = np.minimum(source.astype(int), size - 1)
    return _spread(size, {0: 1 - (source - low), 1: source - low}, low)


def _nearest_weights(size: int, out: int, scale: float, align: bool) -> np.ndarray:
    low = np.minimum(np.floor(scale * np.arange(out)).astype(int), size - 1)
    return _spread(size, {0: np.ones(out)}, low)


def _spread(size: int, weights: dict[int, np.ndarray], low: np.ndarray) -> np.ndarray:
    """(in, out): the weight of each neighbour, with the edge repeated."""
    matrix = np.zeros((size, len(low)))
    for offset, weight in weights.items():
        np.add.at(matrix, (np.clip(low + offset, 0, size - 1), np.arange(len(low))), weight)
    return matrix


def _resized(x: jax.Array, sizes: Sizes, matrices: list[np.ndarray]) -> jax.Array:
    for axis, (out, matrix) in enumerate(zip(sizes, matrices), start=x.ndim - len(sizes)):
        if not (out == x.shape[axis] and np.array_equal(matrix, np.eye(out))):
            x = jnp.moveaxis(jnp.tensordot(x, jnp.asarray(matrix, x.dtype), (axis, 0)), -1, axis)
    return x


TABLE: Table = {
    "_adaptive_avg_pool2d": adaptive_avg_pool,
    "_adaptive_avg_pool3d": adaptive_avg_pool,
    "_native_batch_norm_legit.no_stats": own_norm,
    "_native_batch_norm_legit_no_training": batch_norm,
    "adaptive_max_pool2d": adaptive_max_pool,
    "addmm": partial(plus_product, jnp.matmul),
    "avg_pool2d": partial(avg_pool, 2),
    "avg_pool3d": partial(avg_pool, 3),
    "bmm": batched_product,
    "convolution": convolution,
    "max_pool2d_with_indices": partial(max_pool, 2),
    "max_pool3d_with_indices": partial(max_pool, 3),
    "mm": jnp.matmul,
    "native_group_norm": group_norm,
    "native_layer_norm": layer_norm,
    "upsample_bilinear2d.vec": partial(upsample, _linear_weights),
    "upsample_nearest2d.vec": partial(upsample, _nearest_weights),
}
