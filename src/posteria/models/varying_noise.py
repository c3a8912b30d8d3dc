"""Noise whose size follows the inputs, about a level that is inferred, with tails as heavy as the data ask for.

Nix & Weigend 1994 for a network's own noise; Lange et al. 1989 for Student's t.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from posteria.data import arrays
from posteria.models import densities
from posteria.settings import Infer, Positive, Share, at_least, check_settings, infer
from posteria.tree import Params

FIRST_LEVEL = -1.0  # the prior's mean of an inferred level: noise of a third of a standardised target's spread
FIRST_TAILS, TAILS_STD = -2.0, 1.5  # of an inferred share's log odds
DF = 4.0  # of the tails: a finite variance, and a distribution function in closed form
LARGEST = 4.0  # that slope * raw may add to the level or take from it, smoothly


@dataclass(frozen=True)
class VaryingNoise:
    """y = mean + scale * e, log scale = level + slope * raw: outputs are k means, then k raws, of a network.

    e is standard normal with probability 1 - tails, and Student's t with 4 degrees of freedom with probability `tails`.
    A `slope` below 1 makes the noise vary less than the mean, under a prior that treats their weights alike: with few
    rows it is then nearly constant. What it adds to the level is bounded (4 tanh(. / 4)), and `floor` is the least
    scale, so that no row is given a certainty beyond all others. `infer` is for standardised y: the level has the prior
    N(-1, 1), the log odds of tails N(-2, 1.5^2); each is one number for all targets.
    """

    slope: Positive = 0.25
    level: float | Infer = infer
    tails: Share | Infer = infer
    floor: Annotated[float, at_least(0)] = 0.0
    kind: ClassVar[Literal["regression", "counts", "classes"]] = "regression"
    outputs_per_target: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, key: jax.Array) -> Params:
        return self._own(FIRST_LEVEL, FIRST_TAILS)

    def log_prior(self, own: Params) -> jax.Array:
        total = jnp.zeros(())
        if "level" in own:
            total += densities.normal(own["level"] - FIRST_LEVEL, 0.0)
        if "tails" in own:
            total += densities.normal((own["tails"] - FIRST_TAILS) / TAILS_STD, math.log(TAILS_STD))
        return total

    def sample_own(self, key: jax.Array) -> Params:
        level, tails = jax.random.normal(key, (2,))
        return self._own(FIRST_LEVEL + level, FIRST_TAILS + TAILS_STD * tails)

    def check(self, y: Any, num_outputs: int) -> np.ndarray:
        return arrays.real_targets(y, num_outputs, self.outputs_per_target)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        mean, log_scale = self._mean_and_log_scale(own, outputs)
        residual = _residual(y, mean) * jnp.exp(-log_scale)
        normal = densities.normal(residual, log_scale)
        if self.tails == 0:
            return normal.sum(-1)
        log_odds = self._log_odds(own)
        student = densities.student_t(residual, log_scale, DF)
        return jnp.logaddexp(jax.nn.log_sigmoid(-log_odds) + normal, jax.nn.log_sigmoid(log_odds) + student).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        mean, log_scale = self._mean_and_log_scale(own, outputs)
        key_which, key_normal, key_student = jax.random.split(key, 3)
        is_tail = jax.random.bernoulli(key_which, self._share(own), mean.shape)
        normal, student = jax.random.normal(key_normal, mean.shape), jax.random.t(key_student, DF, mean.shape)
        return mean + jnp.exp(log_scale) * jnp.where(is_tail, student, normal)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_scale = self._mean_and_log_scale(own, outputs)
        share = self._share(own)
        return mean, jnp.exp(2 * log_scale) * (1 - share + share * DF / (DF - 2))

    def cdf(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        mean, log_scale = self._mean_and_log_scale(own, outputs)
        residual = _residual(y, mean) * jnp.exp(-log_scale)
        share = self._share(own)
        return (1 - share) * special.ndtr(residual) + share * _student_cdf(residual)

    def _own(self, level: jax.Array | float, tails: jax.Array | float) -> Params:
        inferred = {"level": (self.level, level), "tails": (self.tails, tails)}
        return {
            name: jnp.asarray(value, jnp.float32) for name, (setting, value) in inferred.items() if setting is infer
        }

    def _log_odds(self, own: Params) -> jax.Array:
        if isinstance(self.tails, Infer):
            return own["tails"]
        return jnp.asarray(math.log(self.tails) - math.log1p(-self.tails))

    def _share(self, own: Params) -> jax.Array:
        return jax.nn.sigmoid(own["tails"]) if isinstance(self.tails, Infer) else jnp.asarray(self.tails)

    def _mean_and_log_scale(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, raw = jnp.split(densities.widen(outputs), 2, axis=-1)
        level = own["level"] if isinstance(self.level, Infer) else self.level
        log_scale = level + LARGEST * jnp.tanh(self.slope * raw / LARGEST)
        if self.floor:
            log_scale = 0.5 * jnp.logaddexp(2 * log_scale, 2 * math.log(self.floor))
        return mean, log_scale


def _student_cdf(t: jax.Array) -> jax.Array:
    """Of four degrees of freedom. 1/2 + s (3 - s^2) / 4 with s = t / sqrt(4 + t^2), and without loss in either tail."""
    beyond = 1 / (4 + t**2)  # (1 - s^2) / 4
    size = jnp.sqrt(t**2 * beyond)
    rest = 4 * beyond / (1 + size)  # 1 - |s|
    upper_tail = rest**2 * (3 - rest) / 4
    return jnp.where(t < 0, upper_tail, 1 - upper_tail)


def _residual(y: jax.Array, mean: jax.Array) -> jax.Array:
    arrays.same_shape(y, mean.shape)
    return densities.widen(y) - mean
