"""Likelihoods of labels: two classes by one output, several by one output each, and labels that are wrong at times."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy import special

from posteria.data import arrays
from posteria.errors import NetworkError
from posteria.models import densities
from posteria.settings import Share, check_settings
from posteria.tree import Params

Kind = Literal["regression", "counts", "classes"]  # of targets, in the words of `--kind`
QUADRATURE_NODES = 32


class NothingToInfer:
    """The part of a likelihood's contract that concerns own parameters, where there are none."""

    def init(self, key: jax.Array) -> Params:
        return {}

    def log_prior(self, own: Params) -> jax.Array:
        return jnp.zeros(())

    def sample_own(self, key: jax.Array) -> Params:
        return {}


@dataclass(frozen=True)
class Bernoulli(NothingToInfer):
    """Labels 0 and 1 (n,), P(y = 1) = sigmoid(output), from one output."""

    kind: ClassVar[Kind] = "classes"

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        if num_outputs != 1:
            raise NetworkError(
                f"the network has {num_outputs} outputs",
                "one, the log odds of label 1, for Bernoulli",
                "give the network one output, or use Categorical",
            )
        return arrays.labels(y, num_classes=2)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape[:-1])
        logit = densities.widen(outputs)[..., 0]
        return jax.nn.log_sigmoid(jnp.where(y == 1, logit, -logit))

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        return jax.random.bernoulli(key, jax.nn.sigmoid(outputs[..., 0])).astype(jnp.int32)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.nn.sigmoid(outputs), jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs)

    def probs(self, own: Params, outputs: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(jnp.concatenate([-outputs, outputs], axis=-1))

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        return self.moments(own, outputs)[1][..., None]

    def moment_update(
        self, precision: None, mean: jax.Array, variance: jax.Array, y: jax.Array, power: float = 1.0
    ) -> tuple[jax.Array, None]:
        """By Gauss-Hermite quadrature: no closed form, but a one-dimensional integral of a smooth function."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        std = jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny))
        logits = mean[..., None] + std[..., None] * nodes.astype(mean.dtype)  # (batch, 1, node)
        log_probs = jax.nn.log_sigmoid(jnp.where(y[:, None, None] == 1, logits, -logits))
        log_weights = np.log(weights / weights.sum()).astype(mean.dtype)
        return special.logsumexp(power * log_probs + log_weights, axis=-1)[..., 0], None


@dataclass(frozen=True)
class Categorical(NothingToInfer):
    """Labels 0 .. classes - 1 (n,), P(y = c) = softmax(outputs)_c, one output a class."""

    kind: ClassVar[Kind] = "classes"

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        if num_outputs < 2:
            raise NetworkError(
                f"the network has {num_outputs} output",
                "one a class, at least two, for Categorical",
                "give the network one output a class, or use Bernoulli",
            )
        return arrays.labels(y, num_classes=num_outputs)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape[:-1])
        log_probs = jax.nn.log_softmax(densities.widen(outputs))
        return jnp.take_along_axis(log_probs, y[..., None], axis=-1)[..., 0]

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        return jax.random.categorical(key, outputs).astype(jnp.int32)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        probs = jax.nn.softmax(outputs)
        return probs, probs * (1 - probs)

    def probs(self, own: Params, outputs: jax.Array) -> jax.Array:
        return jax.nn.softmax(outputs)

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        return _covariance(jax.nn.softmax(outputs))


@dataclass(frozen=True)
class LabelSmoothing(Categorical):
    """P(y = c) = (1 - rate) softmax(outputs)_c + rate / classes: a share `rate` of labels is drawn at random.

    Label smoothing (Szegedy et al. 2016) said as a distribution of labels, so that a wrong one costs at most
    log(classes / rate) nats; what is minimised under that name, the cross-entropy with (1 - rate) onehot + rate /
    classes, is no density of y. Rate 0 is `Categorical`. Predictions are of labels as they come, errors included.
    """

    rate: Share = 0.05

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        log_probs = super().log_prob(own, outputs, y)
        if self.rate == 0:
            return log_probs
        return jnp.logaddexp(math.log1p(-self.rate) + log_probs, math.log(self.rate / outputs.shape[-1]))

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        return jax.random.categorical(key, jnp.log(self.probs(own, outputs))).astype(jnp.int32)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        probs = self.probs(own, outputs)
        return probs, probs * (1 - probs)

    def probs(self, own: Params, outputs: jax.Array) -> jax.Array:
        return (1 - self.rate) * jax.nn.softmax(outputs) + self.rate / outputs.shape[-1]

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        """J^T diag(1 / p) J, where J = (1 - rate) times the softmax's Jacobian."""
        if self.rate == 0:
            return super().output_hessian(own, outputs, y)
        slope = (1 - self.rate) * _covariance(jax.nn.softmax(outputs))
        return jnp.einsum("...ci,...c,...cj->...ij", slope, 1 / self.probs(own, outputs), slope)


def _covariance(probs: jax.Array) -> jax.Array:
    """Of the indicators of classes, (batch, k, k): the softmax's Jacobian."""
    unit = jnp.eye(probs.shape[-1], dtype=probs.dtype)
    return probs[..., None] * unit - probs[..., :, None] * probs[..., None, :]
