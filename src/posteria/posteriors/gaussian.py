"""Gaussians over the weights: what variational methods, SWAG and a sampled Laplace approximation hold; and
mixtures of them."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpy.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.densities import normal as normal_density
from posteria.models.target import Target
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.random import as_key
from posteria.tree import Arrays, Json


class Spread:
    """How a Gaussian's draws differ from its mean; subclasses are dataclasses of arrays, and JAX pytrees."""

    kind: ClassVar[str]  # its name in the store
    kinds: ClassVar[dict[str, type["Spread"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Spread.kinds[cls.kind] = cls

    def noise(self, key: jax.Array) -> jax.Array:
        """One draw with mean zero: (size,)."""
        raise NotImplementedError

    @property
    def variances(self) -> jax.Array:
        """Of each coordinate: (size,)."""
        raise NotImplementedError

    def covariance(self) -> jax.Array:
        """(size, size): for small networks."""
        raise NotImplementedError

    def sample(self, key: jax.Array, num: int) -> jax.Array:
        """Draws with mean zero: (num, size)."""
        return jax.lax.map(self.noise, jax.random.split(key, num))

    def arrays(self) -> Arrays:
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Spread":
        return cls(**arrays)


@partial(jax.tree_util.register_dataclass, data_fields=["std"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Diagonal(Spread):
    """Independent coordinates."""

    std: jax.Array | np.ndarray  # (size,)

    kind = "diagonal"

    def noise(self, key: jax.Array) -> jax.Array:
        return jnp.asarray(self.std) * jax.random.normal(key, jnp.shape(self.std))

    @property
    def variances(self) -> jax.Array:
        return jnp.asarray(self.std) ** 2

    def covariance(self) -> jax.Array:
        return jnp.diag(self.variances)


@partial(jax.tree_util.register_dataclass, data_fields=["std", "factor"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class LowRank(Spread):
    """diag(std^2) + factor factor^T."""

    std: jax.Array | np.ndarray  # (size,)
    factor: jax.Array | np.ndarray  # (size, rank)

    kind = "low rank"

    def noise(self, key: jax.Array) -> jax.Array:
        key_diagonal, key_factor = jax.random.split(key)
        factor = jnp.asarray(self.factor)
        along = factor @ jax.random.normal(key_factor, factor.shape[1:])
        return jnp.asarray(self.std) * jax.random.normal(key_diagonal, factor.shape[:1]) + along

    @property
    def variances(self) -> jax.Array:
        return jnp.asarray(self.std) ** 2 + (jnp.asarray(self.factor) ** 2).sum(1)

    def covariance(self) -> jax.Array:
        factor = jnp.asarray(self.factor)
        return jnp.diag(jnp.asarray(self.std) ** 2) + factor @ factor.T


@partial(jax.tree_util.register_dataclass, data_fields=["factor"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Full(Spread):
    """factor factor^T, as with a Cholesky factor."""

    factor: jax.Array | np.ndarray  # (size, size)

    kind = "full"

    def noise(self, key: jax.Array) -> jax.Array:
        factor = jnp.asarray(self.factor)
        return factor @ jax.random.normal(key, factor.shape[1:])

    @property
    def variances(self) -> jax.Array:
        return (jnp.asarray(self.factor) ** 2).sum(1)

    def covariance(self) -> jax.Array:
        factor = jnp.asarray(self.factor)
        return factor @ factor.T


class GaussianPosterior(Posterior):
    """Normal(mean, spread) over the network's weights and the likelihood's own parameters, as one flat vector."""

    kind = "gaussian"

    def __init__(self, target: Target, mean: ArrayLike, spread: Spread, facts: Json | None = None) -> None:
        super().__init__(target, facts)
        self.mean = tree.on_device(mean)
        self.spread = spread

    @property
    def mean_params(self) -> tree.Params:
        """The mean, in the network's own tree."""
        return tree.unraveller(self.target.structs)(self.mean)["network"]

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        return _forward(self.target)(self.mean, self.spread, jax.random.split(key, num_draws), x)

    def sample(self, key: int | jax.Array, num_draws: int) -> tree.Params:
        """Weight draws in the network's own tree with a leading draw axis."""
        return self.sample_params(as_key(key), check_num_draws(num_draws))["network"]

    def sample_params(self, key: jax.Array, num_draws: int) -> tree.Params:
        """Draws of the network's and the likelihood's parameters, with a leading draw axis."""
        return tree.unraveller(self.target.structs)(self.mean + self.spread.sample(key, num_draws))

    def state(self) -> tuple[Json, Arrays]:
        arrays = {f"spread.{name}": array for name, array in self.spread.arrays().items()}
        return {"spread": self.spread.kind}, {"mean": np.asarray(self.mean)} | arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "GaussianPosterior":
        own = {name.removeprefix("spread."): array for name, array in arrays.items() if name != "mean"}
        return cls(target, arrays["mean"], Spread.kinds[settings["spread"]].from_arrays(own), facts)


@kept
def _forward(target: Target) -> Any:
    """Draw by draw, so that all draws' weights are never held at once."""
    unravel = tree.unraveller(target.structs)

    def one(mean: jax.Array, spread: Spread, key: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        params = unravel(mean + spread.noise(key))
        return target.model.outputs(params["network"], x), params["likelihood"]

    return jax.jit(lambda mean, spread, keys, x: jax.lax.map(lambda key: one(mean, spread, key, x), keys))


# ---- of weights whose scales are inferred: over the weights relative to their scales, and these


class RelativeGaussianPosterior(GaussianPosterior):
    """Normal(mean, spread) over z, with weights w = scale * z, over the scales' logarithms and the likelihood's own.

    In these coordinates there is no funnel, and the prior is as independent as a diagonal Gaussian.
    """

    kind = "relative gaussian"

    @property
    def mean_params(self) -> tree.Params:
        """The weights at the mean of all that is Gaussian, in the network's own tree."""
        return _absolute(self.target)(self.mean)["network"]

    def draws(self, key: jax.Array, x: Any, num_draws: int) -> tuple[jax.Array, Any]:
        return _relative_forward(self.target)(self.mean, self.spread, jax.random.split(key, num_draws), x)

    def sample_params(self, key: jax.Array, num_draws: int) -> tree.Params:
        """Draws of the network's parameters, the likelihood's, and the scales, with a leading draw axis."""
        return jax.vmap(_absolute(self.target))(self.mean + self.spread.sample(key, num_draws))


def gaussian_posterior(target: Target, relative_mean: Any, spread: Spread, facts: Json) -> GaussianPosterior:
    """Of a Gaussian over relative coordinates, which are the weights themselves where no scale is inferred."""
    return (RelativeGaussianPosterior if target.scales else GaussianPosterior)(target, relative_mean, spread, facts)


@kept
def _absolute(target: Target) -> Any:
    unravel = tree.unraveller(tree.widened(target.structs))
    return jax.jit(lambda flat: target.absolute(unravel(flat)))


@kept
def _relative_forward(target: Target) -> Any:
    """Draw by draw, so that all draws' weights are never held at once."""
    absolute = _absolute(target)

    def one(mean: jax.Array, spread: Spread, key: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        params = absolute(mean + spread.noise(key))
        return target.model.outputs(params["network"], x), params["likelihood"]

    return jax.jit(lambda mean, spread, keys, x: jax.lax.map(lambda key: one(mean, spread, key, x), keys))


# ---- mixtures, each component with independent weights


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


def mixture_log_prob(log_shares: jax.Array, means: jax.Array, stds: jax.Array, flat: jax.Array) -> jax.Array:
    """Log density at flat weights; a log share of -inf is of no component."""
    each = normal_density((flat - means) / stds, jnp.log(stds)).sum(-1)  # (component,)
    return logsumexp(log_shares + each)


class NormalMixturePosterior(GaussianPosterior):
    """By its mean, and what differs from it."""

    kind = "normal mixture"
