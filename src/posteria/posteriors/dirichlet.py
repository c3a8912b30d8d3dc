"""Distributions over distributions: a network whose outputs are the logarithms of a Dirichlet's concentrations."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln

from posteria import tree
from posteria.data.arrays import Data
from posteria.posteriors.base import check_num_draws
from posteria.posteriors.draws import DrawsPosterior
from posteria.posteriors.predictive import Predictive, entropy_of
from posteria.random import as_key


class DirichletPredictive(Predictive):
    """Each member says Dirichlet(exp(outputs)) of the class probabilities; what follows from it is in closed form."""

    @cached_property
    def _parts(self) -> tuple[np.ndarray, ...]:
        parts: tuple[np.ndarray, ...] = self._map(_parts_of)
        return parts

    @cached_property
    def _entropies(self) -> tuple[np.ndarray, ...]:
        """Mean probabilities, and the expected entropy over members and over what each holds possible."""
        return self._parts[:2]

    def uncertainty(self) -> dict[str, np.ndarray]:
        probs, data, of_members = self._parts
        distributional = np.maximum(of_members - data, 0.0)
        return {
            "data": data,
            "distributional": distributional,
            "model": np.maximum(entropy_of(probs) - of_members, 0.0),
        }

    @property
    def concentration(self) -> np.ndarray:
        """How much a member knows of a row, the sum of its concentrations, on average over members: (n,)."""
        concentration: np.ndarray = self._map(_concentration_of)
        return concentration


def _parts_of(likelihood: Any, own: tree.Params, outputs: jax.Array, y: None) -> tuple[jax.Array, ...]:
    """(block, class), (block,), (block,): mean probabilities, expected entropy, mean entropy of the members' means."""
    probs = jax.nn.softmax(outputs)  # (member, block, class)
    return probs.mean(0), expected_entropy(outputs).mean(0), entropy_of(probs).mean(0)


def _concentration_of(likelihood: Any, own: tree.Params, outputs: jax.Array, y: None) -> jax.Array:
    return jnp.exp(outputs).sum(-1).mean(0)


def expected_entropy(log_concentration: jax.Array) -> jax.Array:
    """Of class probabilities under a Dirichlet: -sum_k a_k / a_0 (digamma(a_k + 1) - digamma(a_0 + 1))."""
    concentration = jnp.exp(log_concentration)
    total = concentration.sum(-1, keepdims=True)
    terms = jax.nn.softmax(log_concentration) * (digamma(concentration + 1) - digamma(total + 1))
    return -terms.sum(-1)


def expected_log_prob(log_concentration: jax.Array) -> jax.Array:
    """Of each class, under a Dirichlet."""
    concentration = jnp.exp(log_concentration)
    return digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))


def divergence(concentration: jax.Array, other: jax.Array) -> jax.Array:
    """KL(Dirichlet(concentration) || Dirichlet(other))."""
    total, other_total = concentration.sum(-1), other.sum(-1)
    expected = digamma(concentration) - digamma(total)[..., None]
    return (
        gammaln(total)
        - gammaln(other_total)
        + (gammaln(other) - gammaln(concentration)).sum(-1)
        + ((concentration - other) * expected).sum(-1)
    )


class DirichletPosterior(DrawsPosterior):
    """Weights of one or several members; `draws` are their outputs, and `predict` reads them as Dirichlets."""

    kind = "dirichlet"

    def predict(self, x: Data, num_draws: int | None = None) -> DirichletPredictive:
        plain = super().predict(x, num_draws)
        num = self.num_draws if num_draws is None else check_num_draws(num_draws)
        return DirichletPredictive(
            self.model.likelihood, plain.forward, self.check_x(x), num, int(self.target.num_outputs or 1)
        )

    def distributions(self, key: int | jax.Array, x: Data, num_draws: int) -> jax.Array:
        """Draws of class probabilities, (draw, batch, class): of a member, and from what it says."""
        key_member, key_probs = jax.random.split(as_key(key))
        outputs, _ = self.draws(key_member, self.check_x(x), check_num_draws(num_draws))
        return jax.random.dirichlet(key_probs, jnp.exp(outputs))
