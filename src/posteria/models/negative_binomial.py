"""Counts that vary more than Poisson's. Greenwood & Yule 1920; McCullagh & Nelder 1989, section 6.2."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from posteria.data import arrays
from posteria.models import densities
from posteria.settings import Infer, Positive, check_settings, infer
from posteria.tree import Params

MAX_SAMPLED_RATE = 2e9  # Poisson draws are made as 32-bit integers
LARGE = 10.0  # from here on Stirling's series is exact in float32


@dataclass(frozen=True)
class NegativeBinomial:
    """y ~ Poisson(rate), rate ~ Gamma with mean exp(outputs) and shape `concentration`.

    The variance is mean + mean^2 / concentration: Poisson's for a large one. With `concentration=infer` it has a
    Gamma(shape, rate) prior. In float32 a mean beyond exp(88) overflows.
    """

    concentration: Positive | Infer = infer
    shape: Positive = 1.0
    rate: Positive = 0.02
    kind: ClassVar[Literal["counts"]] = "counts"

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, key: jax.Array) -> Params:
        return {"log_concentration": jnp.asarray(math.log(10.0))} if self.concentration is infer else {}

    def log_prior(self, own: Params) -> jax.Array:
        if not own:
            return jnp.zeros(())
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return constant + self.shape * own["log_concentration"] - self.rate * jnp.exp(own["log_concentration"])

    def sample_own(self, key: jax.Array) -> Params:
        drawn = jax.random.loggamma(key, self.shape) - math.log(self.rate)
        return jax.tree.map(lambda _: drawn, self.init(key))

    def check(self, y: Any, num_outputs: int) -> np.ndarray:
        return arrays.counts(y, num_outputs)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape)
        log_size = self._log_size(own)
        size, y, log_odds = jnp.exp(log_size), densities.widen(y), densities.widen(outputs) - log_size
        # log(size / (size + mean)) and log(mean / (size + mean)), without their cancellation
        parts = -size * densities.softplus(log_odds) - y * densities.softplus(-log_odds)
        return (_log_coefficient(size, y) + parts).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        key_rate, key_count = jax.random.split(key)
        log_size = self._log_size(own)
        log_gamma = jax.random.loggamma(key_rate, jnp.exp(log_size), outputs.shape)
        rate = jnp.exp(densities.widen(outputs) + log_gamma - log_size)
        return jax.random.poisson(key_count, jnp.minimum(rate, MAX_SAMPLED_RATE)).astype(outputs.dtype)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = jnp.exp(outputs)
        return mean, mean + mean**2 * jnp.exp(-self._log_size(own))

    def cdf(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape)
        return densities.negative_binomial_cdf(densities.widen(outputs), self._log_size(own), y)

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        mean_by_size = jnp.exp(densities.widen(outputs) - self._log_size(own))
        information = jnp.exp(self._log_size(own)) * mean_by_size / (1.0 + mean_by_size)
        return information[..., None] * jnp.eye(outputs.shape[-1], dtype=information.dtype)

    def _log_size(self, own: Params) -> jax.Array:
        if isinstance(self.concentration, Infer):
            return densities.widen(own["log_concentration"])
        return jnp.asarray(math.log(self.concentration))


def _log_coefficient(size: jax.Array, y: jax.Array) -> jax.Array:
    """log of gamma(y + size) / (gamma(size) y!), by what the larger of size and y + 1 gains."""
    is_size = size > y + 1
    base, step = jnp.where(is_size, size, y + 1), jnp.where(is_size, y, size - 1)
    direct = special.gammaln(jnp.minimum(base, LARGE) + step) - special.gammaln(jnp.minimum(base, LARGE))
    gained = jnp.where(base < LARGE, direct, _log_gamma_gain(jnp.maximum(base, LARGE), step))
    return gained - special.gammaln(jnp.where(is_size, y + 1, size))


def _log_gamma_gain(base: jax.Array, step: jax.Array) -> jax.Array:
    """log gamma(base + step) - log gamma(base) of large ones, by Stirling's series; step is above -1."""
    end = base + step
    series = (1 / end - 1 / base) / 12 - (1 / end**3 - 1 / base**3) / 360
    return (base - 0.5) * jnp.log1p(step / base) + step * jnp.log(end) - step + series
