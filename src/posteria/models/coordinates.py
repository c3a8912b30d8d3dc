"""Flat coordinates in units of the prior: `weights = scale * z`, one vector z for all leaves.

One trajectory length and one first step size then serve every layer, and a sampler's state is one leaf. Scales that
are inferred are among the coordinates, as logarithms, and z is relative to them: so there is no funnel. Where the prior
correlates the entries of a leaf, z is white: weights = L z.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.leaf import Leaf
from posteria.models.target import Density, Target

LogDensity = Callable[[jax.Array], jax.Array]  # of a flat position


class Coordinates:
    """The way between parameters, flat weights, and flat prior units z; and the log density of z."""

    def __init__(self, target: Target | Density) -> None:
        self._target: Any = target
        self._correlated = target.correlated
        self._is_scaled = not target.scales and not self._correlated  # each entry by itself
        structs = target.structs if self._is_scaled else tree.widened(target.structs)  # z is no weight of the network
        self._unravel = tree.unraveller(structs)
        units = self._of_correlated(lambda unit, leaf: 1.0, target.units)
        self._unit = tree.ravel(
            jax.tree.map(lambda unit, leaf: np.full(leaf.shape, unit, np.float32), units, target.structs)
        )

    def to_units(self, params: tree.Params) -> jax.Array:
        return tree.ravel(params if self._is_scaled else self._relative(params)) / self._unit

    def starts(self, params: tree.Params) -> jax.Array:
        """The same of several, with a leading axis: (start, size)."""
        if not self._is_scaled:
            params = jax.jit(jax.vmap(self._relative))(params)  # one function, not each of its operations
        return jax.device_put(np.asarray(tree.ravel_each(params)) / np.asarray(self._unit))

    def to_weights(self, z: jax.Array) -> jax.Array:
        return z * self._unit if self._is_scaled else tree.ravel(self.to_params(z))

    def to_params(self, z: jax.Array) -> tree.Params:
        weights = self._target.absolute(self._weights(z)) if self._target.scales else self._weights(z)
        return tree.cast_like(weights, self._target.structs) if self._correlated else weights

    def several_params(self, z: Any) -> tree.Params:
        """The same of several, (several, size) -> a leading axis: on the host, or as one compiled function."""
        if not self._is_scaled:
            return _several_params(self)(z)
        return self._unravel(np.asarray(z) * np.asarray(self._unit))

    def log_density(self, z: jax.Array, data: Data, likelihood_power: jax.Array | float = 1.0) -> jax.Array:
        """Up to the constant of the change of units."""
        return self._target.relative_log_density(self._weights(z), data, likelihood_power)

    def log_prior(self, z: jax.Array) -> jax.Array:
        """Likewise, of the prior alone, not tempered."""
        return self._target.relative_log_prior(self._weights(z))

    def _weights(self, z: jax.Array) -> tree.Params:
        """Relative to their scales, where these are inferred."""
        return self._of_correlated(lambda white, leaf: self._prior.coloured(white, leaf), self._unravel(z * self._unit))

    def _relative(self, params: tree.Params) -> tree.Params:
        relative = self._target.relative(params) if self._target.scales else params
        return self._of_correlated(lambda value, leaf: self._prior.whitened(value, leaf), relative)

    @property
    def _prior(self) -> Any:
        return self._target.model.prior

    def _of_correlated(self, change: Callable[[Any, Leaf], Any], params: tree.Params) -> tree.Params:
        """With the leaves changed that the prior correlates."""
        if not self._correlated:
            return params
        leaves, treedef = jax.tree.flatten(params["network"])
        changed = [
            change(each, self._correlated[number]) if number in self._correlated else each
            for number, each in enumerate(leaves)
        ]
        return params | {"network": treedef.unflatten(changed)}


@kept
def coordinates(target: Target | Density) -> Coordinates:
    """Shared between fits of equal targets; pass `target.without_data()`."""
    return Coordinates(target)


@kept
def _several_params(flat: Coordinates) -> Callable[[Any], tree.Params]:
    return jax.jit(jax.vmap(flat.to_params))
