"""What the laws of likelihoods compare, computed once for each likelihood."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria.compiled import kept
from posteria.testing import quadrature
from posteria.testing.quadrature import Measure

NUM_ROWS = 3
NUM_SAMPLES = 4000


class Distribution(NamedTuple):
    """Of y, one row for each row of the outputs."""

    measures: list[Measure]  # by `log_prob`
    samples: np.ndarray  # (sample, row), by `sample`
    scores: list[np.ndarray]  # (point, output): the gradient of log_prob with respect to the outputs


@kept
def own_of(laws: Any) -> Any:
    own = laws.likelihood.init(jax.random.key(0)) if laws.own is None else laws.own
    return jax.tree.map(jnp.asarray, own)


@kept
def outputs_of(laws: Any) -> jax.Array:
    num_outputs = laws.num_outputs or getattr(laws.likelihood, "outputs_per_target", 1)
    return jax.random.normal(jax.random.key(1), (NUM_ROWS, num_outputs))


@kept
def distribution_of(laws: Any) -> Distribution:
    likelihood, own, outputs = laws.likelihood, own_of(laws), outputs_of(laws)
    keys = jax.random.split(jax.random.key(3), NUM_SAMPLES)
    samples = jax.jit(jax.vmap(lambda key: likelihood.sample(key, own, outputs)))(keys)
    samples = np.asarray(samples, np.float64).reshape(NUM_SAMPLES, NUM_ROWS)

    @jax.jit
    @jax.vmap
    def at(y: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(lambda row: likelihood.log_prob(own, row[None], y[None])[0])(row)

    measures, scores = [], []
    widths: float | np.ndarray
    for row in range(NUM_ROWS):
        if likelihood.kind == "classes":
            points, widths = np.arange(max(2, outputs.shape[1]), dtype=float), 1.0
            y = jnp.asarray(points, jnp.int32)
        elif likelihood.kind == "counts":
            mean, variance = (float(each[row, 0]) for each in likelihood.moments(own, outputs))
            points, widths = np.arange(math.ceil(50 + mean + 60 * math.sqrt(variance)), dtype=float), 1.0
            y = jnp.asarray(points, jnp.float32)[:, None]
        else:
            kinks = laws().kinks(np.asarray(outputs))
            middle = None if kinks is None else float(kinks[row])
            points, widths = quadrature.grid(samples[:, row], laws.support, middle)
            y = jnp.asarray(points, jnp.float32)[:, None]
        log_probs, slopes = at(y, jnp.tile(outputs[row], (len(points), 1)))
        masses = np.exp(np.asarray(log_probs, np.float64)) * widths
        measures.append(Measure(points, masses, is_discrete=likelihood.kind != "regression"))
        scores.append(np.asarray(slopes))
    return Distribution(measures, samples, scores)
