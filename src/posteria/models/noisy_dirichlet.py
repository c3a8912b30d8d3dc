"""Labels that were curated: every one is clear. Milios et al. 2018; Kapoor et al. 2022."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from posteria.data import arrays
from posteria.models import densities
from posteria.models.labels import Categorical
from posteria.settings import Positive, check_settings
from posteria.tree import Params


@dataclass(frozen=True)
class NoisyDirichlet(Categorical):
    """Class probabilities at a training row ~ Dirichlet(concentration + onehot(y)): its label is hardly in doubt.

    That is Categorical's likelihood times the belief Dirichlet(concentration) in the probabilities at each training
    row, which for a concentration below 1 favours sure ones: what cooling by T < 1 says of the labels, said as a model
    (Kapoor et al. 2022). Of a Dirichlet by Gammas g_c ~ Gamma(a_c, 1), a_c = concentration + [c = y], whose logarithms
    are the outputs, each is taken as log-normal with the Gamma's mean and variance, in Kapoor's and Milios's form:

        outputs_c ~ N(log a_c - s_c / 2, s_c),    s_c = log(1 + 1 / a_c).

    A row contributes the logarithm of this density of outputs (`log_factor`), which is of no label: evidences of this
    and another likelihood do not compare. Predictions are softmax(outputs), and are scored as Categorical's. The
    smaller the concentration, the surer the labels: 0.01 puts its output 6.6 above the others, 0.1 puts it 3.3 above.
    """

    concentration: Positive = 0.01

    def __post_init__(self) -> None:
        check_settings(self)

    def log_factor(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape[:-1])
        outputs = densities.widen(outputs)
        mean, variance = self.latent(y, outputs.shape[-1])
        return densities.normal((outputs - mean) / jnp.sqrt(variance), 0.5 * jnp.log(variance)).sum(-1)

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        """1 / s_c on the diagonal; where no y is given, its mean over labels drawn by softmax(outputs)."""
        num_classes = outputs.shape[-1]
        (_, at_others), (_, at_label) = self._moments(self.concentration), self._moments(self.concentration + 1)
        share = jax.nn.softmax(outputs) if y is None else jax.nn.one_hot(y, num_classes, dtype=outputs.dtype)
        precision = 1 / at_others + share * (1 / at_label - 1 / at_others)
        return precision[..., None] * jnp.eye(num_classes, dtype=outputs.dtype)

    def latent(self, y: Any, num_classes: int) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the outputs at rows with the labels y, each (batch, classes)."""
        is_label = jax.nn.one_hot(y, num_classes, dtype=bool)
        others, label = self._moments(self.concentration), self._moments(self.concentration + 1)
        mean, variance = (jnp.where(is_label, *pair) for pair in zip(label, others))
        return mean, variance

    def _moments(self, concentration: float) -> tuple[float, float]:
        variance = math.log1p(1 / concentration)
        return math.log(concentration) - variance / 2, variance
