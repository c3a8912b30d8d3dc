"""Stochastic-gradient Langevin dynamics. Welling & Teh 2011; preconditioned, Li et al. 2016.

    z <- z + h/2 gradient + sqrt(h) noise

On a Gaussian the stationary variance is too large by h/4 (curvature + gradient noise / curvature): first order in h.
SGLD of Izmailov et al. 2021 is `SGLD(batch_size=80)` with h = 2 * learning rate / prior variance: their 1e-6 under a
prior variance of 1/5 is `step_size=1e-5`.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from posteria.compiled import kept
from posteria.methods.stochastic.sampler import EXCESS, StochasticGradientSampler, Transformation


@dataclass(frozen=True)
class SGLD(StochasticGradientSampler):
    """The simplest sampler for data too large for full gradients: gradient steps on batches, plus noise.

    Its settings are those of all stochastic-gradient samplers: see `StochasticGradientSampler`.
    """

    paper: ClassVar[str] = "Welling & Teh 2011"

    def transformation(self, num_batches: int = 1) -> Transformation:
        return langevin()


@kept
def langevin() -> Transformation:
    def update(gradient: jax.Array, inner: None, noise: jax.Array, step_size: jax.Array) -> tuple[jax.Array, None]:
        return 0.5 * step_size * gradient + jnp.sqrt(step_size) * noise, None

    def suggest(curvature: jax.Array, noise: float) -> jax.Array:
        # the variance is 1 / (1 - h curvature / 4) times the truth with full gradients
        return 4.0 * EXCESS / (1.0 + EXCESS) / (curvature * (1.0 + noise))

    return Transformation(lambda key, position: None, update, suggest, heat=lambda inner: jnp.ones(()))
