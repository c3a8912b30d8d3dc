"""The likelihood of quantile regression. Koenker & Bassett 1978; Yu & Moyeed 2001."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteria.data import arrays
from posteria.models import densities
from posteria.settings import Infer, Positive, ProperShare, check_settings, infer
from posteria.tree import Params


@dataclass(frozen=True)
class AsymmetricLaplace:
    """p(y) = level (1 - level) / scale * exp(-pinball(y - outputs) / scale): outputs are the quantile at `level`.

    pinball(r) is level * r above 0 and (level - 1) * r below; at level 0.5 this is Laplace's distribution about the
    median. With `scale=infer`, 1 / scale ~ Gamma(shape, rate): given n residuals of a known quantile function its
    posterior is Gamma(shape + n, rate + sum(pinball)).
    """

    level: ProperShare = 0.5
    scale: Positive | Infer = infer
    shape: Positive = 1.0
    rate: Positive = 0.1
    kind: ClassVar[Literal["regression"]] = "regression"

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, key: jax.Array) -> Params:
        return {"log_inverse_scale": jnp.zeros(())} if self.scale is infer else {}

    def log_prior(self, own: Params) -> jax.Array:
        if not own:
            return jnp.zeros(())
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return constant + self.shape * own["log_inverse_scale"] - self.rate * jnp.exp(own["log_inverse_scale"])

    def sample_own(self, key: jax.Array) -> Params:
        drawn = jax.random.loggamma(key, self.shape) - math.log(self.rate)
        return jax.tree.map(lambda _: drawn, self.init(key))

    def check(self, y: Any, num_outputs: int) -> np.ndarray:
        return arrays.real_targets(y, num_outputs)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        inverse_scale = self._inverse_scale(own)
        residual = self._residual(outputs, y)
        # jnp.abs has the gradient 1 at 0
        pinball = 0.5 * jnp.sign(residual) * residual + (self.level - 0.5) * residual
        log_height = math.log(self.level * (1 - self.level)) + jnp.log(inverse_scale)
        return (log_height - pinball * inverse_scale).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        above, below = jax.random.exponential(key, (2, *outputs.shape), outputs.dtype)
        return outputs + (above / self.level - below / (1 - self.level)) / self._inverse_scale(own)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        above, below = (1 / (share * self._inverse_scale(own)) for share in (self.level, 1 - self.level))
        return outputs + above - below, (above**2 + below**2) * jnp.ones_like(outputs)

    def cdf(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        scaled = self._residual(outputs, y) * self._inverse_scale(own)
        below = self.level * jnp.exp((1 - self.level) * jnp.minimum(scaled, 0.0))
        above = 1 - (1 - self.level) * jnp.exp(-self.level * jnp.maximum(scaled, 0.0))
        return jnp.where(scaled < 0, below, above)

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        information = self.level * (1 - self.level) * self._inverse_scale(own) ** 2
        return information * jnp.ones_like(outputs)[..., None] * jnp.eye(outputs.shape[-1], dtype=outputs.dtype)

    def _residual(self, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape)
        return densities.widen(y) - densities.widen(outputs)

    def _inverse_scale(self, own: Params) -> jax.Array:
        return jnp.exp(own["log_inverse_scale"]) if isinstance(self.scale, Infer) else jnp.asarray(1 / self.scale)
