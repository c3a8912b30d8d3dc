"""The rank-one family: each matrix W is a point, multiplied by noise (1 + s e)(1 + t e')^T with vectors s and t.

Memory of one network and two vectors a layer. Dusenberry et al. 2020, Efficient and Scalable Bayesian Neural Nets with
Rank-1 Factors. The means of the two factors are 1: others would be absorbed by W. All that is no matrix (biases, the
likelihood's parameters) has a Gaussian of its own, as in mean field.
"""

from typing import Any

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.methods.variational.bound import expected_normal
from posteria.methods.variational.families import ENTROPY_OF_UNIT, DiagonalFamily, Marginals, Phi, softplus_inverse
from posteria.models.densities import softplus
from posteria.models.target import Target
from posteria.posteriors.gaussian import GaussianPosterior
from posteria.posteriors.rank_one import RankOne, RankOnePosterior, leaves_of
from posteria.tree import Json

FACTOR_PRIOR = "each matrix a point times noise around 1, with a prior of its own"  # how the model differs
FACTOR_PRIOR_STD = 0.1  # of the factors around 1; Dusenberry et al. 2020, section 4


class RankOneFamily(DiagonalFamily):
    """The factors' prior is N(1, 0.1^2), W is at its mode under the model's prior: there is no ELBO of the model."""

    has_elbo = False

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.leaves = leaves_of(self.structs)

    def init(self, key: jax.Array, mean: tree.Params, std: tree.Params) -> Phi:
        own = [leaf.ravel() for leaf, (_, rows, _) in zip(jax.tree.leaves(std), self.leaves) if not rows]
        rows, columns = (sum(leaf[i] for leaf in self.leaves) for i in (1, 2))
        rho = softplus_inverse(jnp.asarray(FACTOR_PRIOR_STD))
        return {
            "mean": tree.ravel(mean),
            "rho": softplus_inverse(jnp.concatenate([*own, jnp.zeros(0)])),
            "rows": jnp.full(rows, rho),
            "columns": jnp.full(columns, rho),
        }

    def spread(self, phi: Phi) -> RankOne:
        std, rows, columns = (softplus(phi[name]) for name in ("rho", "rows", "columns"))
        return RankOne(phi["mean"], std, rows, columns, self.leaves)

    def marginals(self, phi: Phi) -> Marginals:
        """The standard deviation of a matrix is 0: the model's prior is taken at W itself."""
        std, at, parts = softplus(phi["rho"]), 0, []
        for size, rows, _ in self.leaves:
            parts.append(jnp.zeros(size) if rows else std[at : at + size])
            at += 0 if rows else size
        return self.unravel(phi["mean"]), self.unravel(jnp.concatenate(parts))

    def draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        return self.unravel(phi["mean"] + self.spread(phi).noise(key))

    def prior_draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        mean, std = self.marginals(phi)
        noise = self.unravel(jax.random.normal(key, phi["mean"].shape))
        return jax.tree.map(lambda m, s, e: m + s * e, mean, std, noise)

    def entropy(self, phi: Phi, marginals: Marginals | None = None) -> jax.Array:
        return sum(((jnp.log(s) + ENTROPY_OF_UNIT).sum() for s in map(softplus, self._noisy(phi))), start=jnp.zeros(()))

    def own_log_prior(self, phi: Phi) -> jax.Array:
        factors = (softplus(phi[name]) for name in ("rows", "columns"))
        terms = (expected_normal(jnp.ones_like(std), std, 1.0, FACTOR_PRIOR_STD) for std in factors)
        return sum(terms, start=jnp.zeros(()))

    def posterior(self, target: Target, phi: Phi, facts: Json) -> GaussianPosterior:
        return RankOnePosterior(target, phi["mean"], self.spread(phi), facts)

    def _noisy(self, phi: Phi) -> list[Any]:
        return [phi["rho"], phi["rows"], phi["columns"]]
