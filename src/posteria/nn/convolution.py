"""Convolutions and pooling that are fast on CPU, also in a `lax.scan`, where XLA's own convolution is ruinous."""

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from posteria.networks import prefers_slices

Padding = str | Sequence[tuple[int, int]]


def convolution(
    x: jax.Array,
    kernel: jax.Array,
    *,
    strides: Sequence[int] | None = None,
    padding: Padding = "SAME",
    dilation: Sequence[int] | None = None,
    groups: int = 1,
) -> jax.Array:
    """Channels-last x (n, *space, in) with kernel (*window, in / groups, out), to (n, *space, out).

    On CPU it is slices of the padded input side by side and one matmul; elsewhere `lax.conv_general_dilated`.
    """
    rank = kernel.ndim - 2
    strides = tuple(strides or (1,) * rank)
    dilation = tuple(dilation or (1,) * rank)
    if isinstance(padding, str):
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel.shape)]
        padding = lax.padtype_to_pads(x.shape[1:-1], reach, strides, padding)
    padding = tuple((int(low), int(high)) for low, high in padding)
    if prefers_slices():
        return by_slices(x, kernel, strides, padding, dilation, groups)
    space = "HWDEF"[:rank]
    layout = (f"N{space}C", f"{space}IO", f"N{space}C")
    return lax.conv_general_dilated(
        x, kernel, strides, padding, rhs_dilation=dilation, dimension_numbers=layout, feature_group_count=groups
    )


def max_pool(x: jax.Array, window: Sequence[int]) -> jax.Array:
    """Largest value in each of the windows that tile x (n, *space, channels); a ragged edge is left out."""
    counts = [size // w for size, w in zip(x.shape[1:-1], window)]
    x = x[(slice(None), *(slice(c * w) for c, w in zip(counts, window)))]
    tiles = x.reshape(x.shape[0], *(n for pair in zip(counts, window) for n in pair), x.shape[-1])
    return tiles.max(axis=tuple(range(2, 2 * len(counts) + 1, 2)))


def by_slices(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
    precision: lax.PrecisionLike = None,
) -> jax.Array:
    """The convolution as slices of the padded input, side by side, and one matmul.

    The matmul is of two matrices, not of a matrix with an (n, *space, in) array: the same sums, faster gradients.
    """
    window, (per_group, out) = kernel.shape[:-2], kernel.shape[-2:]
    slices = window_slices(x, window, strides, padding, dilation)
    counts = slices[0].shape[1:-1]
    if groups == 1:
        patches = jnp.concatenate(slices, axis=-1).reshape(-1, math.prod(window) * per_group)
        y = jnp.matmul(patches, kernel.reshape(-1, out), precision=precision)
    else:
        patches = jnp.stack(slices, axis=-2).reshape(-1, math.prod(window), groups, per_group)
        kernel = kernel.reshape(math.prod(window), per_group, groups, out // groups)
        y = jnp.einsum("pwgi,wigo->pgo", patches, kernel, precision=precision)
    return y.reshape(len(x), *counts, out)


def window_slices(
    x: jax.Array,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
) -> list[jax.Array]:
    """What each place of the window sees of x (n, *space, in), padded: as many arrays (n, *counts, in)."""
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((low, high, 0) for low, high in padding), (0, 0, 0)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, window)]
    counts = [(size - r) // s + 1 for size, r, s in zip(x.shape[1:-1], reach, strides)]
    slices = []
    for offset in itertools.product(*(range(k) for k in window)):
        start = [o * d for o, d in zip(offset, dilation)]
        stop = [b + (c - 1) * s + 1 for b, c, s in zip(start, counts, strides)]
        slices.append(lax.slice(x, (0, *start, 0), (len(x), *stop, x.shape[-1]), (1, *strides, 1)))
    return slices
