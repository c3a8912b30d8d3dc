"""What layers, slices and pooling do to the covariance between two inputs of an infinitely wide network.

The rules of the walk in `kernels.py` that know the shapes of linear operations.
"""

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from posteria.trace import operations
from posteria.trace.covariances import FIELD, UNIT, Axes, Covariance, Factor, NeedsPositions, NotFollowed
from posteria.trace.operations import shape_of


def of_inputs(
    eqn: core.JaxprEqn, left: jax.Array, right: jax.Array, linear: operations.Linear, across: bool
) -> Covariance:
    """What meets the inputs: exact at any width."""
    if linear.matrix is None:
        raise NotFollowed("a layer with groups, or with weights matched to the inputs' axes")
    a, b = (linear.matrix.inputs(side) for side in (left, right))  # (position, row)
    axes: Axes = tuple(
        () if size == 1 else (Factor(size, FIELD if unit == 1 else UNIT),)
        for size, unit in zip(shape_of(eqn.outvars[0]), linear.out_unit_shape)
    )
    stored = [factor.stored for axis in axes for factor in axis]

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        if across:
            return (a @ b.T).reshape(stored * 2)
        return jnp.einsum("pr,pr->p", a, b).reshape(stored)

    return Covariance(axes, (product(a, a), product(a, b), product(b, b)), across)


def of_dense(eqn: core.JaxprEqn, covariance: Covariance, linear: operations.Linear) -> Covariance:
    """Sums over what it sees, of every unit."""
    contracted, matched = eqn.params["dimension_numbers"]
    if matched[0]:
        raise NotFollowed("a layer with weights matched to the axes of what it sees")
    seen = covariance.contracted(linear.contracted)
    weight_shape = shape_of(eqn.invars[linear.weight])
    units: Axes = tuple(
        () if size == 1 else (Factor(size, UNIT),)
        for axis, size in enumerate(weight_shape)
        if axis not in contracted[linear.weight]
    )
    axes = (*seen.axes, *units) if linear.weight == 1 else (*units, *seen.axes)
    return seen.reshaped_stored(axes)


def of_convolution(eqn: core.JaxprEqn, seen: Covariance) -> Covariance:
    """Sums over windows of positions, of every channel."""
    p = eqn.params
    if p["batch_group_count"] != 1 or not set(p["lhs_dilation"]) <= {1}:
        raise NotFollowed("a transposed convolution")
    if list(p["dimension_numbers"][2][2:]) != sorted(p["dimension_numbers"][2][2:]):
        raise NotFollowed("a convolution that turns its image")
    (batch, channels, *space), _, (_, y_channels, *y_space) = p["dimension_numbers"]
    if p["feature_group_count"] != 1 and any(f.kind == FIELD for f in seen.axes[channels]):
        raise NotFollowed("a convolution in groups, of channels that differ")
    seen = seen.transposed([batch, *space, channels]).contracted([0, len(space) + 1])
    seen = seen.on_parts(lambda part: part / p["feature_group_count"])
    for axis in range(len(space)):
        if len(seen.axes[axis]) > 1:
            raise NotFollowed("a convolution over an axis of several kinds")
        for number in seen.numbers(axis):
            seen = seen.as_field(number)
    sizes = seen.shape
    window_axes = p["dimension_numbers"][1][2:]
    window = [shape_of(eqn.invars[1])[axis] for axis in window_axes]
    y_shape = shape_of(eqn.outvars[0])
    counts = [y_shape[axis] for axis in y_space]

    def windows(part: jax.Array) -> jax.Array:
        copies = 1 + seen.across
        part = part.reshape(sizes * copies)
        part = jax.lax.pad(part, jnp.zeros((), part.dtype), [(lo, hi, 0) for lo, hi in p["padding"]] * copies)
        total = jnp.zeros(counts * copies, part.dtype)
        for offset in itertools.product(*map(range, window)):
            start = [o * d for o, d in zip(offset, p["rhs_dilation"])]
            stop = [b + (c - 1) * s + 1 for b, c, s in zip(start, counts, p["window_strides"])]
            total += jax.lax.slice(part, start * copies, stop * copies, tuple(p["window_strides"]) * copies)
        return total

    axes: list[tuple[Factor, ...]] = [()] * len(y_shape)
    for axis in y_space:
        axes[axis] = (Factor(y_shape[axis], FIELD),)
    axes[y_channels] = (Factor(y_shape[y_channels], UNIT),)
    return seen.on_parts(windows).reshaped_stored(tuple(axes)).reshaped(y_shape)


def sliced(c: Covariance, p: Mapping[str, Any]) -> Covariance:
    strides = p["strides"] or (1,) * len(c.shape)
    for axis, (first, last, stride) in enumerate(zip(p["start_indices"], p["limit_indices"], strides)):
        size = -(-(last - first) // stride)
        if size != c.shape[axis]:
            c = c.along(axis, partial(_slice_along, where=slice(first, last, stride)), size)
    return c


def _slice_along(part: jax.Array, dim: int, where: slice) -> jax.Array:
    return part[(slice(None),) * dim + (where,)]


def window_sums(c: Covariance, p: Mapping[str, Any]) -> Covariance:
    """Sums over windows, as of average pooling: only axes of positions may be summed."""
    if not set(p["base_dilation"]) <= {1}:
        raise NotFollowed("windows that are spread apart")
    for axis, (size, window) in enumerate(zip(c.shape, p["window_dimensions"])):
        if window == 1:
            continue
        if not c.across:
            raise NeedsPositions
        if len(c.axes[axis]) > 1 or (c.axes[axis] and c.axes[axis][0].kind == UNIT):
            raise NotFollowed("windows over units")
        for number in c.numbers(axis):
            c = c.as_field(number)
        stride, pads, dilation = p["window_strides"][axis], p["padding"][axis], p["window_dilation"][axis]
        count = (size + sum(pads) - dilation * (window - 1) - 1) // stride + 1

        reach = {"window": window, "stride": stride, "pads": pads, "dilation": dilation}
        c = c.along(axis, partial(_sums_along, **reach), count)
    return c


def _sums_along(part: jax.Array, dim: int, window: int, stride: int, pads: tuple[int, int], dilation: int) -> jax.Array:
    def of(number: int) -> list[int]:
        return [number if d == dim else 1 for d in range(part.ndim)]

    padding = [pads if d == dim else (0, 0) for d in range(part.ndim)]
    zero = np.zeros((), part.dtype)
    return jax.lax.reduce_window(part, zero, jax.lax.add, of(window), of(stride), padding, None, of(dilation))
