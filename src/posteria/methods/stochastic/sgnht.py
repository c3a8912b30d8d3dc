"""The stochastic-gradient Nose-Hoover thermostat, by a symmetric splitting. Ding et al. 2014; Leimkuhler & Shang 2016.

SGHMC whose friction f follows the momenta's heat: gradient noise of unknown size heats them, friction rises until their
mean square is 1 again.

    kick    p <- p + h gradient
    drift   z <- z + h/2 p
    measure f <- f + h^2/2 (mean(p^2) - 1)
    mix     p <- exp(-f) p + sqrt((1 - exp(-2 f)) f0 / f) noise
    measure f <- f + h^2/2 (mean(p^2) - 1)
    drift   z <- z + h/2 p
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from posteria.compiled import kept
from posteria.methods.stochastic.sampler import StochasticGradientSampler, Transformation
from posteria.methods.stochastic.sghmc import suggest_step_size
from posteria.settings import ProperShare


@dataclass(frozen=True)
class SGNHT(StochasticGradientSampler):
    """SGHMC with a thermostat: for batches whose gradient noise is large and of unknown size.

    `momentum` is the share of the momentum that a step keeps at first; the thermostat then moves it. The other settings
    are those of all stochastic-gradient samplers: see `StochasticGradientSampler`.
    """

    momentum: ProperShare = 0.9

    paper: ClassVar[str] = "Ding et al. 2014"

    def transformation(self, num_batches: int = 1) -> Transformation:
        return thermostat(self.momentum)


class Bath(NamedTuple):
    momentum: jax.Array
    friction: jax.Array  # a step, not a unit of time


@kept
def thermostat(momentum: float) -> Transformation:
    first_friction = -math.log(momentum)

    def init(key: jax.Array, position: jax.Array) -> Bath:
        return Bath(jax.random.normal(key, position.shape, position.dtype), jnp.asarray(first_friction, position.dtype))

    def update(gradient: jax.Array, bath: Bath, noise: jax.Array, step_size: jax.Array) -> tuple[jax.Array, Bath]:
        half = 0.5 * step_size**2
        kicked = bath.momentum + step_size * gradient
        friction = bath.friction + half * (jnp.mean(kicked**2) - 1.0)
        # (1 - exp(-2 f)) / f, by its limit where f is nearly 0; it is positive for any f
        safe = jnp.where(jnp.abs(friction) < 1e-4, 1e-4, friction)
        mixed = jnp.exp(-friction) * kicked + jnp.sqrt(first_friction * -jnp.expm1(-2.0 * safe) / safe) * noise
        friction += half * (jnp.mean(mixed**2) - 1.0)
        return 0.5 * step_size * (kicked + mixed), Bath(mixed, friction)

    return Transformation(init, update, suggest_step_size(momentum), heat=lambda inner: jnp.mean(inner.momentum**2))
