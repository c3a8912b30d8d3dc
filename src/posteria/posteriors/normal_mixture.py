"""Mixtures of Gaussians over the weights, each with independent weights."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from posteria.models.densities import normal as normal_density
from posteria.posteriors.gaussian import GaussianPosterior, Spread


@partial(jax.tree_util.register_dataclass, data_fields=["shares", "centres", "stds"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class NormalMixture(Spread):
    """A component by its share, then a Gaussian about its centre; the centres' mean, by shares, is 0."""

    shares: Any  # (component,)
    centres: Any  # (component, size)
    stds: Any  # (component, size)

    kind = "normal mixture"

    def noise(self, key: jax.Array) -> jax.Array:
        key_component, key_noise = jax.random.split(key)
        which = jax.random.categorical(key_component, jnp.log(jnp.asarray(self.shares)))
        centre, std = jnp.asarray(self.centres)[which], jnp.asarray(self.stds)[which]
        return centre + std * jax.random.normal(key_noise, std.shape)

    @property
    def variances(self) -> jax.Array:
        return jnp.asarray(self.shares) @ (jnp.asarray(self.stds) ** 2 + jnp.asarray(self.centres) ** 2)

    def covariance(self) -> jax.Array:
        shares, centres = jnp.asarray(self.shares), jnp.asarray(self.centres)
        return jnp.diag(shares @ jnp.asarray(self.stds) ** 2) + jnp.einsum("k,ki,kj->ij", shares, centres, centres)


def log_prob(log_shares: jax.Array, means: jax.Array, stds: jax.Array, flat: jax.Array) -> jax.Array:
    """Log density at flat weights; a log share of -inf is of no component."""
    each = normal_density((flat - means) / stds, jnp.log(stds)).sum(-1)  # (component,)
    return logsumexp(log_shares + each)


class NormalMixturePosterior(GaussianPosterior):
    """By its mean, and what differs from it."""

    kind = "normal mixture"
