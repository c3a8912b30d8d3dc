"""Families of Gaussians over the weights: how a family's own parameters `phi` (a pytree) make draws of the weights.

Where the prior infers scales, "weights" here are relative to these, and the scales' logarithms are beside them.
"""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from posteria import tree
from posteria.compiled import kept
from posteria.models.densities import LOG_2PI, softplus
from posteria.models.densities import normal as normal_density
from posteria.models.target import Target
from posteria.posteriors import gaussian
from posteria.posteriors.gaussian import gaussian_posterior
from posteria.random import fast_normal
from posteria.tree import Json

ENTROPY_OF_UNIT = 0.5 * (LOG_2PI + 1.0)  # of N(0, 1)

Phi = tree.Tree  # the parameters of q
Marginals = tuple[tree.Params, tree.Params]  # mean and standard deviation of each weight


def softplus_inverse(value: jax.Array) -> jax.Array:
    return value + jnp.log(-jnp.expm1(-value))


class DiagonalFamily:
    """w = mean + softplus(rho) * noise, each weight alone."""

    has_elbo: ClassVar[bool] = True  # q and the model's prior are over the same weights

    def __init__(self, target: Target) -> None:
        self.structs, self.units = target.structs, target.units
        self.unravel = tree.unraveller(tree.widened(self.structs))

    def init(self, key: jax.Array, mean: tree.Params, std: tree.Params) -> Phi:
        """`mean` and `std` are trees of arrays of at least 32 bits."""
        del key
        return {"mean": mean, "rho": jax.tree.map(softplus_inverse, std)}

    def marginals(self, phi: Phi) -> Marginals:
        """Mean and standard deviation of each weight, as trees."""
        return phi["mean"], jax.tree.map(softplus, phi["rho"])

    def draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        mean, std = self.marginals(phi)
        noise = self.unravel(fast_normal(key, (tree.size(mean),)))
        return jax.tree.map(lambda m, s, e: m + s * e, mean, std, noise)

    def log_prob(self, phi: Phi, params: tree.Params) -> jax.Array:
        """Log density of q at weights."""
        mean, std = self.marginals(phi)
        terms = jax.tree.map(lambda m, s, w: normal_density((w - m) / s, jnp.log(s)).sum(), mean, std, params)
        value: jax.Array = sum(jax.tree.leaves(terms))
        return value

    def log_prob_at_draw(self, phi: Phi, key: jax.Array, draw: tree.Params) -> jax.Array:
        """Log density of q at `draw(phi, key)`, whose gradient is that along the draw alone."""
        del key
        return self.log_prob(jax.lax.stop_gradient(phi), draw)

    def prior_draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        """A draw at which priors are taken that have no closed form."""
        return self.draw(phi, key)

    def entropy(self, phi: Phi, marginals: Marginals | None = None) -> jax.Array:
        """`marginals`, where they are there already."""
        stds = jax.tree.leaves((marginals or self.marginals(phi))[1])
        return sum((jnp.log(std).sum() for std in stds), start=jnp.zeros(())) + tree.size(stds) * ENTROPY_OF_UNIT

    def own_log_prior(self, phi: Phi) -> jax.Array:
        """Of what the family has beside the weights."""
        return jnp.zeros(())

    def normal(self, phi: Phi) -> tuple[jax.Array, gaussian.Spread]:
        """The flat mean, and the spread around it."""
        mean, std = self.marginals(phi)
        return tree.ravel(mean), gaussian.Diagonal(tree.ravel(std))

    def posterior(self, target: Target, phi: Phi, facts: Json) -> gaussian.GaussianPosterior:
        return gaussian_posterior(target, *compiled_normal(self)(phi), facts)


@kept
def compiled_init(family: DiagonalFamily) -> Callable[[jax.Array, tree.Params, tree.Params], Phi]:
    return jax.jit(family.init)


@kept
def compiled_normal(family: DiagonalFamily) -> Callable[[Phi], tuple[jax.Array, gaussian.Spread]]:
    return jax.jit(family.normal)  # one function, not each of its operations


class FullFamily(DiagonalFamily):
    """w = mean + factor @ noise with a lower triangular factor: any Gaussian. For small networks."""

    def init(self, key: jax.Array, mean: tree.Params, std: tree.Params) -> Phi:
        return {"mean": tree.ravel(mean), "factor": jnp.diag(softplus_inverse(tree.ravel(std)))}

    def factor(self, phi: Phi) -> jax.Array:
        """Rows in units of their diagonal: steps of an optimiser that were larger than it would make it singular."""
        diagonal = softplus(jnp.diagonal(phi["factor"]))
        return diagonal[:, None] * (jnp.tril(phi["factor"], -1) + jnp.eye(len(diagonal)))

    def marginals(self, phi: Phi) -> Marginals:
        return self.unravel(phi["mean"]), self.unravel(jnp.sqrt((self.factor(phi) ** 2).sum(1)))

    def draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        return self.unravel(phi["mean"] + self.factor(phi) @ fast_normal(key, phi["mean"].shape))

    def entropy(self, phi: Phi, marginals: Marginals | None = None) -> jax.Array:
        return jnp.log(jnp.diagonal(self.factor(phi))).sum() + len(phi["mean"]) * ENTROPY_OF_UNIT

    def log_prob(self, phi: Phi, params: tree.Params) -> jax.Array:
        factor = self.factor(phi)
        white = solve_triangular(factor, tree.ravel(params) - phi["mean"], lower=True)
        return normal_density(white, jnp.log(jnp.diagonal(factor))).sum()

    def log_prob_at_draw(self, phi: Phi, key: jax.Array, draw: tree.Params) -> jax.Array:
        """From the draw's own noise: to find it again from the draw would lose it to rounding."""
        factor = jax.lax.stop_gradient(self.factor(phi))
        white = fast_normal(key, phi["mean"].shape)
        slope = -solve_triangular(factor, white, lower=True, trans=1)
        flat = tree.ravel(draw)
        value = normal_density(white, jnp.log(jnp.diagonal(factor))).sum()
        return value + slope @ (flat - jax.lax.stop_gradient(flat))

    def normal(self, phi: Phi) -> tuple[jax.Array, gaussian.Spread]:
        return phi["mean"], gaussian.Full(self.factor(phi))


class LowRankFamily(DiagonalFamily):
    """w = mean + softplus(rho) * noise + factor @ noise', with a factor of a few columns. Ong, Nott & Smith 2018."""

    def __init__(self, target: Target, rank: int) -> None:
        super().__init__(target)
        self.rank = min(rank, tree.size(self.structs))

    def init(self, key: jax.Array, mean: tree.Params, std: tree.Params) -> Phi:
        std = tree.ravel(std)
        # columns of zeros would stay there: their gradient vanishes
        factor = 0.1 * std[:, None] * jax.random.normal(key, (len(std), self.rank))
        return {"mean": tree.ravel(mean), "rho": softplus_inverse(std), "factor": factor}

    def marginals(self, phi: Phi) -> Marginals:
        variances = softplus(phi["rho"]) ** 2 + (phi["factor"] ** 2).sum(1)
        return self.unravel(phi["mean"]), self.unravel(jnp.sqrt(variances))

    def draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        mean, spread = self.normal(phi)
        return self.unravel(mean + spread.noise(key))

    def entropy(self, phi: Phi, marginals: Marginals | None = None) -> jax.Array:
        return self._log_root_determinant(phi) + len(phi["mean"]) * ENTROPY_OF_UNIT

    def log_prob(self, phi: Phi, params: tree.Params) -> jax.Array:
        std = softplus(phi["rho"])
        white = (tree.ravel(params) - phi["mean"]) / std
        along = (phi["factor"] / std[:, None]).T @ white
        distance = white @ white - along @ jnp.linalg.solve(self._inner(phi), along)  # Woodbury
        value: jax.Array = -0.5 * distance - self._log_root_determinant(phi) - 0.5 * len(std) * LOG_2PI
        return value

    def _inner(self, phi: Phi) -> jax.Array:
        scaled = phi["factor"] / softplus(phi["rho"])[:, None]
        value: jax.Array = jnp.eye(self.rank) + scaled.T @ scaled
        return value

    def _log_root_determinant(self, phi: Phi) -> jax.Array:
        """Of diag(std^2) + factor factor^T."""
        value: jax.Array = jnp.log(softplus(phi["rho"])).sum() + 0.5 * jnp.linalg.slogdet(self._inner(phi))[1]
        return value

    def normal(self, phi: Phi) -> tuple[jax.Array, gaussian.Spread]:
        return phi["mean"], gaussian.LowRank(softplus(phi["rho"]), phi["factor"])


FAMILIES = {"diagonal": DiagonalFamily, "full": FullFamily}


@kept
def family(target: Target, name: str) -> DiagonalFamily:
    """Shared between fits of equal targets; pass `target.without_data()`."""
    return FAMILIES[name](target)
