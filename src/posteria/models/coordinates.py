"""Flat coordinates in units of the prior: `weights = scale * z`, one vector z for all leaves.

One trajectory length and one first step size then serve every layer, and a sampler's state is one leaf. Scales that
are inferred are among the coordinates, as logarithms, and z is relative to them: so there is no funnel.
"""

from collections.abc import Callable
from typing import Any

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
        self._target: Any = target
        self._has_scales = bool(target.scales)
        structs = tree.widened(target.structs) if self._has_scales else target.structs  # z is no weight of the network
        self._unravel = tree.unraveller(structs)
        self._unit = tree.ravel(
            jax.tree.map(lambda unit, leaf: np.full(leaf.shape, unit, np.float32), target.units, target.structs)
        )

    def to_units(self, params: tree.Params) -> jax.Array:
        if self._has_scales:
            params = self._target.relative(params)
        return tree.ravel(params) / self._unit

    def starts(self, params: tree.Params) -> jax.Array:
        """The same of several, with a leading axis: (start, size)."""
        if self._has_scales:
            params = jax.jit(jax.vmap(self._target.relative))(params)  # one function, not each of its operations
        return jax.device_put(np.asarray(tree.ravel_each(params)) / np.asarray(self._unit))

    def to_weights(self, z: jax.Array) -> jax.Array:
        return tree.ravel(self.to_params(z)) if self._has_scales else z * self._unit

    def to_params(self, z: jax.Array) -> tree.Params:
        relative = self._unravel(z * self._unit)
        return self._target.absolute(relative) if self._has_scales else relative

    def several_params(self, z: Any) -> tree.Params:
        """The same of several, (several, size) -> a leading axis: on the host, or as one compiled function."""
        if self._has_scales:
            return _several_params(self)(z)
        return self._unravel(np.asarray(z) * np.asarray(self._unit))

    def log_density(self, z: jax.Array, data: Data, likelihood_power: jax.Array | float = 1.0) -> jax.Array:
        """Up to the constant of the change of units."""
        return self._target.relative_log_density(self._unravel(z * self._unit), data, likelihood_power)

    def log_prior(self, z: jax.Array) -> jax.Array:
        """Likewise, of the prior alone, not tempered."""
        return self._target.relative_log_prior(self._unravel(z * self._unit))


@kept
def coordinates(target: Target | Density) -> Coordinates:
    """Shared between fits of equal targets; pass `target.without_data()`."""
    return Coordinates(target)


@kept
def _several_params(flat: Coordinates) -> Callable[[Any], tree.Params]:
    return jax.jit(jax.vmap(flat.to_params))
