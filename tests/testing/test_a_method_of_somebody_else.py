"""A method as another package would have it: a posterior class of its own, of functions and not of weights, no chains,
no count of draws. It passes the laws of its fidelity."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.methods.costs import Costed
from posteria.posteriors.base import Posterior
from posteria.testing import ExactLaws


class LinearModelPosterior(Posterior):
    """f(x) = J(x) w with w ~ N(mean, factor factor^T), where J is the network's Jacobian at 0."""

    kind = "linear-model-of-somebody-else"

    def __init__(self, target, mean, factor, facts=None):
        super().__init__(target, facts)
        self.mean, self.factor = jnp.asarray(mean), jnp.asarray(factor)

    def draws(self, key, x, num_draws):
        noise = jax.random.normal(key, (num_draws, len(self.mean)))
        outputs = jnp.einsum("nop,dp->dno", jacobian(self.target)(x), self.mean + noise @ self.factor.T)
        own = self.model.likelihood.init(key)
        return outputs, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_draws, *leaf.shape)), own)

    def state(self):
        return {}, {"mean": np.asarray(self.mean), "factor": np.asarray(self.factor)}

    @classmethod
    def from_state(cls, target, settings, arrays, facts):
        return cls(target, arrays["mean"], arrays["factor"], facts)


@dataclass(frozen=True)
class LinearModel(Costed):
    """Bayesian linear regression in closed form, for networks that are linear in their weights."""

    fidelity: ClassVar[str] = "exact"

    def expected_gradients(self, num_data):
        return 0  # a closed form

    def fit(self, key, target, start, run):
        own = target.model.likelihood.init(key)
        units = tree.ravel(
            jax.tree.map(lambda u, s: jnp.full(s.shape, u), target.units["network"], target.structs["network"])
        )
        precision, weighted = np.diag(np.asarray(units, np.float64) ** -2), 0.0
        if target.data is not None:
            x, y, *weight = target.data
            design = np.asarray(jacobian(target.without_data())(x), np.float64)[:, 0]
            noise = float(target.model.likelihood.noise_std(own))
            scaled = design.T * np.asarray(weight[0] if weight else np.ones(len(design)), np.float64) / noise**2
            precision = precision + scaled @ design
            weighted = scaled @ np.asarray(y, np.float64)[:, 0]
        covariance = target.temperature * np.linalg.inv(precision)
        mean = np.linalg.solve(precision, weighted * np.ones(len(precision)))
        return LinearModelPosterior(target, mean, np.linalg.cholesky(covariance))


@kept
def jacobian(target):
    """x -> (n, output, weight)."""
    unravel = tree.unraveller(target.structs["network"])
    zero = jnp.zeros(tree.size(target.structs["network"]))
    return jax.jit(lambda x: jax.jacobian(lambda flat: target.model.outputs(unravel(flat), x))(zero))


class TestLinearModel(ExactLaws):
    method = LinearModel()
