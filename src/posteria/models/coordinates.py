"""Flat coordinates in units of the prior: `weights = scale * z`, one vector z for all leaves.

One trajectory length and one first step size then serve every layer, and a sampler's state is one leaf.
"""

from collections.abc import Callable

import jax
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.target import Density, Target

LogDensity = Callable[[jax.Array], jax.Array]  # of a flat position


class Coordinates:
    """The way between parameters, flat weights, and flat prior units z; and the log density of z."""

    def __init__(self, target: Target | Density) -> None:
        self._target = target
        self.unravel = tree.unraveller(target.structs)
        self._unit = tree.ravel(
            jax.tree.map(lambda unit, leaf: np.full(leaf.shape, unit, np.float32), target.units, target.structs)
        )

    def to_units(self, params: tree.Params) -> jax.Array:
        return tree.ravel(params) / self._unit

    def starts(self, params: tree.Params) -> jax.Array:
        """The same of several, with a leading axis: (start, size)."""
        return jax.device_put(np.asarray(tree.ravel_each(params)) / np.asarray(self._unit))

    def to_weights(self, z: jax.Array) -> jax.Array:
        return z * self._unit

    def to_params(self, z: jax.Array) -> tree.Params:
        return self.unravel(self.to_weights(z))

    def log_density(self, z: jax.Array, data: Data) -> jax.Array:
        """Up to the constant of the change of units."""
        return self._target.log_density(self.to_params(z), data)


@kept
def coordinates(target: Target | Density) -> Coordinates:
    """Shared between fits of equal targets; pass `target.without_data()`."""
    return Coordinates(target)
