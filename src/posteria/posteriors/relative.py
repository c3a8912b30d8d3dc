"""Gaussians over weights whose scales are inferred: over the weights relative to their scales, and these."""

from typing import Any

import jax

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.target import Target
from posteria.posteriors.gaussian import GaussianPosterior, Spread
from posteria.tree import Json


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
        return _forward(self.target)(self.mean, self.spread, jax.random.split(key, num_draws), x)

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
def _forward(target: Target) -> Any:
    """Draw by draw, so that all draws' weights are never held at once."""
    absolute = _absolute(target)

    def one(mean: jax.Array, spread: Spread, key: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        params = absolute(mean + spread.noise(key))
        return target.model.outputs(params["network"], x), params["likelihood"]

    return jax.jit(lambda mean, spread, keys, x: jax.lax.map(lambda key: one(mean, spread, key, x), keys))
