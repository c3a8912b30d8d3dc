"""Stochastic-gradient Hamiltonian Monte Carlo, by a symmetric splitting. Chen et al. 2014; Leimkuhler & Matthews 2013.

    kick    p <- p + h gradient
    drift   z <- z + h/2 p
    mix     p <- m p + sqrt(1 - m^2) noise
    drift   z <- z + h/2 p

The positions are those of the splitting BAOAB, whose two half kicks at one position are one kick here. With full
gradients the stationary covariance of the positions of a Gaussian is exact at any stable h, that of the momenta is
right to second order; a batch's gradient noise adds h^2 noise / (1 - m^2) to both: second order in h for a given m.

Methods of Izmailov et al. 2021, with h = sqrt(learning rate / prior variance): SGHMC is `SGHMC(batch_size=80,
momentum=0.9)`; SGHMC-CLR is `SGHMC(batch_size=80, momentum=0.95, schedule="cyclical", thinning=steps in 50 epochs)`;
SGHMC-CLR-Prec is that with `preconditioner="rmsprop"`. Their 3e-7 under a prior variance of 1/5 is `step_size=1.2e-3`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from posteria.compiled import kept
from posteria.methods.stochastic.sampler import EXCESS, StochasticGradientSampler, Transformation
from posteria.settings import ProperShare

LARGEST_STEP = 0.5  # times 1 / sqrt(largest curvature), in units of the prior; 2 is unstable


@dataclass(frozen=True)
class SGHMC(StochasticGradientSampler):
    """The sampler to try first where full gradients are too dear: momentum carries it further than SGLD.

    `momentum` is the share of the momentum that a step keeps. The other settings are those of all stochastic-gradient
    samplers: see `StochasticGradientSampler`.
    """

    momentum: ProperShare = 0.9

    paper: ClassVar[str] = "Chen et al. 2014"

    def transformation(self, num_batches: int = 1) -> Transformation:
        return underdamped_langevin(self.momentum)


@kept
def underdamped_langevin(momentum: float) -> Transformation:
    def init(key: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.normal(key, position.shape, position.dtype)

    def update(
        gradient: jax.Array, before: jax.Array, noise: jax.Array, step_size: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        kicked = before + step_size * gradient
        mixed = momentum * kicked + (1.0 - momentum**2) ** 0.5 * noise
        return 0.5 * step_size * (kicked + mixed), mixed

    return Transformation(init, update, suggest_step_size(momentum), heat=lambda inner: jnp.mean(inner**2))


def suggest_step_size(momentum: float) -> Callable[[jax.Array, float], jax.Array]:
    """A batch's gradient noise heats the momenta by h^2 noise / (1 - m^2); and h is well below where it is unstable."""

    def suggest(curvature: jax.Array, noise: float) -> jax.Array:
        squared = LARGEST_STEP**2
        if noise > 0.0:
            squared = min(squared, EXCESS * (1.0 - momentum**2) / noise)
        return jnp.sqrt(squared / curvature)

    return suggest
