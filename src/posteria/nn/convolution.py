"""Convolutions and pooling that are fast on CPU, also in a `lax.scan`, where XLA's own convolution is ruinous.

`Maps` are what the layers of a ready network hand to each other. On CPU the data stand innermost in them, so that a
slice of a map is a run of memory, whatever the number of channels.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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


# ---- maps with the data innermost


@dataclass(frozen=True)
class Maps:
    """Feature maps of n data: `values` are (n, height, width, channels) or, with the data last, the other way round in
    these two: (channels, height, width, n)."""

    values: jax.Array
    data_last: bool

    @classmethod
    def of(cls, x: jax.Array) -> "Maps":
        """Of x (n, height, width, channels), as they are computed fastest here."""
        data_last = prefers_slices()
        return cls(_swapped(x) if data_last else x, data_last)

    def convolution(self, kernel: jax.Array, strides: Sequence[int], padding: str) -> "Maps":
        if not self.data_last:
            return replace(self, values=convolution(self.values, kernel, strides=strides, padding=padding))
        pads = lax.padtype_to_pads(self.values.shape[1:3], kernel.shape[:2], strides, padding)
        slices = window_slices(self.values, kernel.shape[:2], strides, pads, (1, 1))  # each (in, height, width, n)
        patches = jnp.concatenate(slices).reshape(math.prod(kernel.shape[:-1]), -1)
        outputs = jnp.matmul(kernel.reshape(len(patches), -1).T, patches)
        return replace(self, values=outputs.reshape(-1, *slices[0].shape[1:]))

    def max_pool(self, window: tuple[int, int]) -> "Maps":
        """As `max_pool`. (A derivative by comparisons alone is faster by itself and slower in a network's loop.)"""
        if not self.data_last:
            return replace(self, values=max_pool(self.values, window))
        return replace(self, values=_tiles(self.values, window).max(axis=(2, 4)))

    def each(self, function: Callable[..., jax.Array], *of_channels: jax.Array) -> "Maps":
        """function(values, ...), with vectors of a number a channel beside the values."""
        vectors = (v[:, None, None, None] if self.data_last else v for v in of_channels)
        return replace(self, values=function(self.values, *vectors))

    def flat(self) -> jax.Array:
        """(n, height * width * channels)."""
        if not self.data_last:
            return self.values.reshape(len(self.values), -1)
        return self.values.transpose(1, 2, 0, 3).reshape(-1, self.values.shape[-1]).T

    def mean(self) -> jax.Array:
        """Over positions: (n, channels)."""
        means = self.values.mean(axis=(1, 2))
        return means.T if self.data_last else means


def _swapped(x: jax.Array) -> jax.Array:
    return x.transpose(3, 1, 2, 0)


def _tiles(x: jax.Array, window: tuple[int, int]) -> jax.Array:
    """(channels, rows, window, columns, window, n); a ragged edge is left out."""
    rows, columns = (size // w for size, w in zip(x.shape[1:3], window))
    x = x[:, : rows * window[0], : columns * window[1]]
    return x.reshape(x.shape[0], rows, window[0], columns, window[1], x.shape[-1])
