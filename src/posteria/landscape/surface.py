"""The loss over a plane in weight space. Garipov et al. 2018 (through three points); Li et al. 2018 (random planes)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteria import tree
from posteria.errors import SettingError
from posteria.landscape.connect import flat_params, losses_at
from posteria.landscape.flatness import Flatness, flatness
from posteria.models.target import Density, Target, check_starts
from posteria.random import as_key
from posteria.settings import Positive, at_least, check_arguments


@dataclass(frozen=True, eq=False)
class Surface:
    """Losses on a grid: `losses[i, j]` is at `origin + x[i] * axes[0] + y[j] * axes[1]`, in flat weights.

    In nats a datum (without data: the negative log density). Through three points the axes are orthonormal, the
    origin is the first point, and distances on the grid are those between weights. Along random directions, each
    filter of an axis has the norm of the same filter at the origin.
    """

    target: Target | Density
    points: np.ndarray  # (point, size), as they were given
    origin: np.ndarray  # (size,)
    axes: np.ndarray  # (2, size)
    x: np.ndarray  # (num,)
    y: np.ndarray  # (num,)
    losses: np.ndarray  # (num, num)
    key: jax.Array

    def project(self, flat: ArrayLike) -> np.ndarray:
        """Where flat weights (..., size) are on the plane, or their nearest point on it: (..., 2)."""
        offsets = np.asarray(flat, np.float64) - self.origin
        axes = self.axes.astype(np.float64)
        return np.linalg.solve(axes @ axes.T, axes @ np.moveaxis(np.atleast_2d(offsets), -1, 0)).T.reshape(
            *offsets.shape[:-1], 2
        )

    def params(self, x: float, y: float) -> tree.Params:
        """The parameters at a place on the plane."""
        return tree.unraveller(self.target.structs)(jnp.asarray(self.origin + x * self.axes[0] + y * self.axes[1]))

    @cached_property
    def flatness(self) -> list[Flatness]:
        """Sharpness and trace of the loss's Hessian at each of the points."""
        unravel = tree.unraveller(self.target.structs)
        keys = jax.random.split(self.key, len(self.points))
        return [flatness(self.target, unravel(jnp.asarray(point)), key) for point, key in zip(self.points, keys)]


def surface(
    target: Target | Density,
    points: Sequence[tree.Params] | np.ndarray,
    *,
    num: Annotated[int, at_least(2)] = 25,
    margin: Annotated[float, at_least(0)] = 0.3,
    radius: Positive = 1.0,
    key: int | jax.Array = 0,
) -> Surface:
    """The loss on a grid of `num` x `num` over the plane through three weight vectors, with `margin` around them.

    With one weight vector, over two random directions with the scale of its filters, `radius` to each side. Weights are
    given as the network's tree or as flat vectors of all parameters.
    """
    if isinstance(points, dict) or len(points) not in (1, 3):
        raise SettingError(f"{len(points)} points", "three weight vectors, or one", "pass a list of three")
    num, margin, radius = check_arguments(surface, num=num, margin=margin, radius=radius)
    flat = np.stack([np.asarray(flat_params(target, point)) for point in points])
    check_starts(target, tree.unraveller(target.structs)(jnp.asarray(flat)))
    key_axes, key_flatness = jax.random.split(as_key(key))
    if len(points) == 3:
        axes, corners = _through(flat)
        low, high = corners.min(0), corners.max(0)
        room = margin * (high - low).max()
        low, high = low - room, high + room
    else:
        axes = np.stack([_filter_normalised(target, flat[0], k) for k in jax.random.split(key_axes)])
        low, high = np.full(2, -radius), np.full(2, radius)
    x, y = np.linspace(low[0], high[0], num), np.linspace(low[1], high[1], num)
    places = np.stack(np.meshgrid(x, y, indexing="ij"), -1).astype(np.float32)  # (num, num, 2)
    at = losses_at(target.without_data())
    rows = [np.asarray(at(jnp.asarray(flat[0] + row @ axes), target.data)) for row in places]  # all at once are many
    return Surface(target, flat, flat[0], axes, x, y, np.stack(rows), key_flatness)


def _through(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal axes of the plane through three points, and where these are on it: (2, size), (3, 2)."""
    first, second = flat[1].astype(np.float64) - flat[0], flat[2].astype(np.float64) - flat[0]
    along = first / np.linalg.norm(first)
    across = second - (second @ along) * along
    if not np.linalg.norm(across) > 1e-6 * np.linalg.norm(second):
        raise SettingError("the three points are on one line", "three that span a plane", "take another third point")
    axes = np.stack([along, across / np.linalg.norm(across)])
    return axes.astype(np.float32), np.stack([np.zeros(2), axes @ first, axes @ second])


def _filter_normalised(target: Target | Density, flat: np.ndarray, key: jax.Array) -> np.ndarray:
    """A random direction whose filters (all that leads to one output: the last axis of a kernel) have the norms of the
    weights' own; zero for biases and all that is no kernel."""
    params = tree.unraveller(target.structs)(jnp.asarray(flat))
    leaves, treedef = jax.tree.flatten(params)

    def one(leaf: jax.Array, key: jax.Array) -> jax.Array:
        if leaf.ndim < 2:
            return jnp.zeros_like(leaf)
        noise = jax.random.normal(key, leaf.shape)
        axes = tuple(range(leaf.ndim - 1))
        norms = [jnp.sqrt((part**2).sum(axes, keepdims=True)) for part in (leaf.astype(jnp.float32), noise)]
        return noise * norms[0] / norms[1]

    if all(leaf.ndim < 2 for leaf in leaves):
        raise SettingError("no parameter is a kernel", "kernels, whose filters give the scale", "pass three points")
    keys = jax.random.split(key, len(leaves))
    return np.asarray(tree.ravel(treedef.unflatten(map(one, leaves, keys))))
