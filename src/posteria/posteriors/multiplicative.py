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
        of_z = _multiplier_draws(self).var(0)
        return jnp.asarray(self.std) ** 2 + jnp.asarray(self.centre) ** 2 * self._of_weights(of_z)

    def covariance(self) -> jax.Array:
        """That of z by draws."""
        draws = _multiplier_draws(self)
        residual = jax.vmap(self._of_weights)(draws - draws.mean(0)) * jnp.asarray(self.centre)
        return jnp.diag(jnp.asarray(self.std) ** 2) + residual.T @ residual / len(draws)

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
    mean = _multiplier_draws(plain).mean(0)
    spread = Multiplicative(centre, std, unit, scale, mean, layers)
    return jnp.where(jnp.asarray(unit) < 0, centre, centre * spread._of_weights(mean)), spread


def _multiplier_draws(spread: Multiplicative) -> jax.Array:
    """(draw, unit)"""
    return _drawn()(spread.layers, jnp.asarray(spread.scale), jax.random.key(0))


@kept
def _drawn() -> Any:
    def draws(layers: list[Layer], scale: jax.Array, key: jax.Array) -> jax.Array:
        one = lambda key: multipliers(layers, scale, jax.random.normal(key, scale.shape))  # noqa: E731
        return jax.lax.map(one, jax.random.split(key, MOMENT_DRAWS), batch_size=100)

    return jax.jit(draws)


class MultiplicativePosterior(GaussianPosterior):
    """By its mean and what differs from it."""

    kind = "multiplicative"
