"""Gaussians over the weights whose means are multiplied, unit by unit, by a flow: W = z * centre + std * noise.

z has one entry for each input unit (a feature, a channel) of the layers that have them, all layers' together, so that
the flow is over units and not over weights. Louizos & Welling 2017.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.compiled import kept
from posteria.posteriors.flow import Layer, layers_from_arrays, layers_to_arrays, through
from posteria.posteriors.gaussian import GaussianPosterior, Spread
from posteria.tree import Arrays

MULTIPLIER_STREAM = 7  # folded into a draw's key
MOMENT_DRAWS = 10_000  # of the multipliers, from which their means and covariances are read
BLOCK_DRAWS = 100  # of them that are held at once


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["centre", "std", "unit", "scale", "mean_multiplier", "layers"],
    meta_fields=[],
)
@dataclass(frozen=True, eq=False)
class Multiplicative(Spread):
    """centre * (z - E z) + std * noise, with z = 1 + scale * flow of unit noise. Not Gaussian."""

    centre: Any  # (size,)
    std: Any  # (size,)
    unit: Any  # (size,), which entry of z multiplies a weight; -1: none does
    scale: Any  # (unit,)
    mean_multiplier: Any  # E z, (unit,)
    layers: list[Layer]

    kind = "multiplicative"

    def noise(self, key: jax.Array) -> jax.Array:
        centre, std, scale = map(jnp.asarray, (self.centre, self.std, self.scale))
        unit_noise = jax.random.normal(jax.random.fold_in(key, MULTIPLIER_STREAM), scale.shape)
        moved = multipliers(self.layers, scale, unit_noise) - jnp.asarray(self.mean_multiplier)
        return centre * self._of_weights(moved) + std * jax.random.normal(key, std.shape)

    def _of_weights(self, of_units: jax.Array) -> jax.Array:
        unit = jnp.asarray(self.unit)
        return jnp.where(unit < 0, 0.0, of_units[jnp.maximum(unit, 0)])

    @property
    def variances(self) -> jax.Array:
        """Those of z by draws."""
        of_z = _moments(self)[1]
        return jnp.asarray(self.std) ** 2 + jnp.asarray(self.centre) ** 2 * self._of_weights(of_z)

    def covariance(self) -> jax.Array:
        """That of z by draws."""
        of_z = jax.vmap(self._of_weights)(_moments(self, is_joint=True)[1])  # (unit, weight)
        centre = jnp.asarray(self.centre)
        return jnp.diag(jnp.asarray(self.std) ** 2) + jnp.outer(centre, centre) * jax.vmap(self._of_weights)(of_z.T)

    def arrays(self) -> Arrays:
        own = {name: getattr(self, name) for name in ("centre", "std", "unit", "scale", "mean_multiplier")}
        return {name: np.asarray(part) for name, part in own.items()} | layers_to_arrays(self.layers)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Multiplicative":
        own = {name: array for name, array in arrays.items() if "." not in name}
        return cls(**own, layers=layers_from_arrays(arrays))


def multipliers(layers: list[Layer], scale: jax.Array, noise: jax.Array) -> jax.Array:
    """z of unit noise (unit,)."""
    return 1.0 + scale * through(layers, noise)[0]


def centred(centre: Any, std: Any, unit: np.ndarray, scale: Any, layers: list[Layer]) -> tuple[Any, Multiplicative]:
    """The mean of the weights, and what differs from it."""
    plain = Multiplicative(centre, std, unit, scale, np.zeros(np.shape(scale), np.float32), layers)
    mean, _ = _moments(plain)
    spread = Multiplicative(centre, std, unit, scale, mean, layers)
    return jnp.where(jnp.asarray(unit) < 0, centre, centre * spread._of_weights(mean)), spread


def _moments(spread: Multiplicative, is_joint: bool = False) -> tuple[jax.Array, jax.Array]:
    """Mean of z (unit,) and its variances, or where `is_joint` its covariance (unit, unit), by draws."""
    return _compiled_moments(is_joint)(spread.layers, jnp.asarray(spread.scale), jax.random.key(0))


@kept
def _compiled_moments(is_joint: bool) -> Any:
    """Block by block, twice over the same draws: neither all of them are held, nor squares of what is large."""

    def moments(layers: list[Layer], scale: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def average(of: Any, like: jax.Array) -> jax.Array:
            def add(total: jax.Array, number: jax.Array) -> tuple[jax.Array, None]:
                noise = jax.random.normal(jax.random.fold_in(key, number), (BLOCK_DRAWS, *scale.shape))
                return total + of(jax.vmap(partial(multipliers, layers, scale))(noise)), None

            total, _ = jax.lax.scan(add, like, jnp.arange(MOMENT_DRAWS // BLOCK_DRAWS))
            return total / MOMENT_DRAWS

        mean = average(lambda draws: draws.sum(0), jnp.zeros_like(scale))
        if is_joint:
            of_pairs = jnp.zeros((len(scale), len(scale)), scale.dtype)
            return mean, average(lambda draws: (draws - mean).T @ (draws - mean), of_pairs)
        return mean, average(lambda draws: ((draws - mean) ** 2).sum(0), jnp.zeros_like(scale))

    return jax.jit(moments)


class MultiplicativePosterior(GaussianPosterior):
    """By its mean and what differs from it."""

    kind = "multiplicative"
