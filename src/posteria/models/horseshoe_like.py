"""A prior of sparse weights with a density in closed form. Bhadra, Datta, Li & Polson 2021."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from posteria.models import densities
from posteria.settings import Positive, check_settings


@dataclass(frozen=True)
class HorseshoeLike:
    """p(w) = log(1 + (scale / w)^2) / (2 pi scale): small weights are shrunk to 0, large ones are let alone.

    As of the horseshoe, the density has a pole at 0 and the tails of a Cauchy, so that there is no standard deviation;
    it is a Cauchy whose scale is uniform on (0, scale). The pole is cut off at the smallest normal number: there the
    density is finite and its gradient 0.
    """

    scale: Positive = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Any) -> jax.Array:
        z = jnp.abs(densities.widen(value)) / self.scale
        near = jnp.clip(z, jnp.finfo(z.dtype).tiny, 1.0)
        far = jnp.maximum(z, 1.0)
        bend = jnp.where(z < 1, jnp.log1p(near**2) - 2 * jnp.log(near), jnp.log1p(far**-2))  # log(1 + z^-2)
        return (jnp.log(bend) - math.log(2 * math.pi * self.scale)).sum()

    def sample(self, key: jax.Array, leaf: Any) -> jax.Array:
        key_scale, key_value = jax.random.split(key)
        dtype = jnp.promote_types(leaf.dtype, jnp.float32)
        scale = self.scale * jax.random.uniform(key_scale, leaf.shape, dtype)
        return (scale * jax.random.cauchy(key_value, leaf.shape, dtype)).astype(leaf.dtype)

    def unit(self, leaf: Any) -> float:
        return self.scale
