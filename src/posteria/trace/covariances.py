"""The covariance of an array of a very wide network, for two inputs of it, and how a change of layout moves it.

An axis of the array is a product of factors. The elements along a factor are UNITs (independent, of one distribution),
TIED (one and the same), or a FIELD (positions, of which each has its own): only fields are stored entry by entry. With
`across` the covariance of every two positions is known; without, of each position with itself at the other input,
which is all that is needed until positions are averaged.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posteria.errors import NetworkError

UNIT, TIED, FIELD = "unit", "tied", "field"

FOLLOWED = "dense layers, convolutions, biases, sums, averages, and functions of one element"
INSTEAD = 'InfiniteWidth(kernel="monte-carlo") estimates it from draws of the network'


class NotFollowed(NetworkError):
    """The walk has no closed form for what the network does."""

    def __init__(self, what: str) -> None:
        super().__init__(what, FOLLOWED, INSTEAD)


class NeedsPositions(Exception):
    """Positions are averaged: their covariances are needed."""


class Factor(NamedTuple):
    size: int
    kind: str

    @property
    def stored(self) -> int:
        return self.size if self.kind == FIELD else 1


Axes = tuple[tuple[Factor, ...], ...]  # of each axis, its factors


@dataclass(frozen=True)
class Covariance:
    """`parts` are of (x, x), (x, x') and (x', x'): one dimension a factor, and with `across` the same again."""

    axes: Axes
    parts: tuple[jax.Array, jax.Array, jax.Array]
    across: bool

    @classmethod
    def constant(cls, axes: Axes, variance: float, across: bool, dtype: jax.typing.DTypeLike) -> "Covariance":
        """Of elements that are UNIT or TIED."""
        number = jnp.full((1,) * (sum(map(len, axes)) * (1 + across)), variance, dtype)
        return cls(axes, (number, number, number), across)

    @property
    def factors(self) -> list[Factor]:
        return [factor for axis in self.axes for factor in axis]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(factor.size for factor in axis) for axis in self.axes)

    def on_parts(self, fn: Callable[[jax.Array], jax.Array], axes: Axes | None = None) -> "Covariance":
        parts = tuple(fn(part) for part in self.parts)
        return Covariance(self.axes if axes is None else axes, (parts[0], parts[1], parts[2]), self.across)

    def dims(self, number: int) -> tuple[int, ...]:
        """Where factor `number` is stored."""
        return (number, number + len(self.factors)) if self.across else (number,)

    def numbers(self, axis: int) -> range:
        """Of the factors of an axis."""
        first = sum(map(len, self.axes[:axis]))
        return range(first, first + len(self.axes[axis]))

    def variances(self, part: int) -> jax.Array:
        """Of part 0 or 2: the covariance of each element with itself, one dimension a factor."""
        covariance = self.parts[part]
        count = len(self.factors)
        if not self.across:
            return covariance
        letters = list(range(count))
        return jnp.einsum(covariance, [*letters, *letters], letters)

    # ---- changes of layout

    def transposed(self, permutation: Sequence[int]) -> "Covariance":
        order = [number for axis in permutation for number in self.numbers(axis)]
        both = [*order, *(number + len(order) for number in order)] if self.across else order
        return self.on_parts(lambda part: part.transpose(both), tuple(self.axes[axis] for axis in permutation))

    def reshaped(self, shape: Sequence[int]) -> "Covariance":
        """The factors in their order, dealt out to the new axes; one that belongs to two of them is split."""
        left = [factor for factor in self.factors if factor.size > 1]
        axes: list[tuple[Factor, ...]] = []
        for size in shape:
            taken: list[Factor] = []
            while size > 1:
                size_of_next, kind = left.pop(0)
                share = math.gcd(size, size_of_next)
                if size_of_next <= size and size % size_of_next == 0:
                    taken.append(Factor(size_of_next, kind))
                    size //= size_of_next
                elif share == size:  # the outer part of the factor belongs here
                    taken.append(Factor(size, kind))
                    left.insert(0, Factor(size_of_next // size, kind))
                    size = 1
                else:
                    raise NotFollowed("the network reshapes units across positions")
            axes.append(tuple(taken))
        stored = [factor.stored for axis in axes for factor in axis]
        return self.on_parts(lambda part: part.reshape(stored * (1 + self.across)), tuple(axes))

    def broadcast(self, shape: Sequence[int], dimensions: Sequence[int]) -> "Covariance":
        """As `broadcast_in_dim`: what is new is TIED."""
        kept = self.reshaped(self.shape)  # without factors of size 1
        axes: list[tuple[Factor, ...]] = []
        for axis, size in enumerate(shape):
            old = kept.axes[list(dimensions).index(axis)] if axis in dimensions else ()
            axes.append(old if old or size == 1 else (Factor(size, TIED),))
        stored = [factor.stored for axis_factors in axes for factor in axis_factors]
        return kept.on_parts(lambda part: part.reshape(stored * (1 + self.across)), tuple(axes))

    def along(self, axis: int, fn: Callable[[jax.Array, int], jax.Array], size: int) -> "Covariance":
        """An axis cut or turned round by `fn(array, dimension)`, so that it has `size` elements."""
        if not self.axes[axis]:
            return self
        if len(self.axes[axis]) > 1:
            raise NotFollowed("the network takes a part of an axis of several kinds")
        ((_, kind),) = self.axes[axis]
        axes = (*self.axes[:axis], (Factor(size, kind),), *self.axes[axis + 1 :])

        def moved(part: jax.Array) -> jax.Array:
            for dim in self.dims(self.numbers(axis)[0]) if kind == FIELD else ():
                part = fn(part, dim)
            return part

        result = self.on_parts(moved, axes)
        return result.reshaped(result.shape)

    def reshaped_stored(self, axes: Axes) -> "Covariance":
        stored = [factor.stored for axis in axes for factor in axis]
        return self.on_parts(lambda part: part.reshape(stored * (1 + self.across)), axes)

    # ---- sums

    def as_field(self, number: int) -> "Covariance":
        """Factor `number` stored entry by entry."""
        size, kind = self.factors[number]
        if kind == FIELD:
            return self
        flat = self.factors
        flat[number] = Factor(size, FIELD)
        axes, first = [], 0
        for axis in self.axes:
            axes.append(tuple(flat[first : first + len(axis)]))
            first += len(axis)

        def spread(part: jax.Array) -> jax.Array:
            shape = list(part.shape)
            for dim in self.dims(number):
                shape[dim] = size
            spread = jnp.broadcast_to(part, shape)
            if kind == TIED or not self.across:
                return spread
            one = jnp.eye(size, dtype=part.dtype)
            where = [size if dim in self.dims(number) else 1 for dim in range(part.ndim)]
            return spread * one.reshape(where)

        return self.on_parts(spread, tuple(axes))

    def contracted(self, axes: Sequence[int]) -> "Covariance":
        """Summed over axes, each element weighed by a number of its own: only its covariance with itself counts."""
        result = self
        for number in sorted((n for axis in axes for n in self.numbers(axis)), reverse=True):
            size, kind = self.factors[number]
            dims = result.dims(number)
            if kind != FIELD:
                result = result.on_parts(lambda part, dims=dims, size=size: size * part.squeeze(dims))  # type: ignore[misc]
            elif self.across:
                result = result.on_parts(lambda part, dims=dims: jnp.trace(part, axis1=dims[0], axis2=dims[1]))  # type: ignore[misc]
            else:
                result = result.on_parts(lambda part, dims=dims: part.sum(dims))  # type: ignore[misc]
            result = result._without(number)
        return replace(result, axes=tuple(axis for i, axis in enumerate(result.axes) if i not in axes))

    def summed(self, axes: Sequence[int], is_centred: bool) -> "Covariance":
        """Summed over axes as they are."""
        result = self
        for number in sorted((n for axis in axes for n in self.numbers(axis)), reverse=True):
            size, kind = self.factors[number]
            dims = result.dims(number)
            if kind == FIELD and not self.across:
                raise NeedsPositions
            if kind == UNIT and not is_centred:
                raise NotFollowed("the network averages units after a nonlinearity")
            factor = {UNIT: float(size), TIED: float(size) ** 2, FIELD: 1.0}[kind]
            result = result.on_parts(lambda part, dims=dims, factor=factor: factor * part.sum(dims))  # type: ignore[misc]
            result = result._without(number)
        return replace(result, axes=tuple(axis for i, axis in enumerate(result.axes) if i not in axes))

    def _without(self, number: int) -> "Covariance":
        """One factor fewer in `axes`; its dimensions are gone already."""
        axes, first = [], 0
        for axis in self.axes:
            axes.append(tuple(factor for i, factor in enumerate(axis, first) if i != number))
            first += len(axis)
        return replace(self, axes=tuple(axes))


def added(parts: Sequence[Covariance]) -> Covariance:
    """The sum of uncorrelated arrays of one shape."""
    parts = [part.reshaped(part.shape) for part in parts]
    sizes = [[[f.size for f in axis] for axis in part.axes] for part in parts]
    finest = [max((of[axis] for of in sizes), key=len) for axis in range(len(parts[0].axes))]
    parts = [_refined(part, finest) for part in parts]
    for number in range(len(parts[0].factors)):
        kinds = {part.factors[number].kind for part in parts}
        if len(kinds) > 1 and FIELD not in kinds:
            raise NotFollowed("the network adds one value to all units of a layer, which does not average out")
        if len(kinds) > 1:
            parts = [part.as_field(number) for part in parts]
    first, *rest = parts
    totals = [sum((part.parts[i] for part in rest), start=first.parts[i]) for i in range(3)]
    return Covariance(first.axes, (totals[0], totals[1], totals[2]), first.across)


def _refined(part: Covariance, sizes: Sequence[Sequence[int]]) -> Covariance:
    """With the factors of these sizes; units and what is tied can be split as one likes."""
    if [[f.size for f in axis] for axis in part.axes] == [list(axis) for axis in sizes]:
        return part
    axes: list[tuple[Factor, ...]] = []
    for axis, wanted in zip(part.axes, sizes):
        if len(axis) == len(wanted):
            axes.append(axis)
        elif len(axis) == 1:
            axes.append(tuple(Factor(size, axis[0].kind) for size in wanted))
        else:
            raise NotFollowed("the network adds arrays whose units are laid out differently")
    if [[f.size for f in axis] for axis in axes] != [list(axis) for axis in sizes]:
        raise NotFollowed("the network adds arrays whose units are laid out differently")
    return part.reshaped_stored(tuple(axes))
