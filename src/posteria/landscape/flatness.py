"""The loss around a point: what is plotted and climbed over, and how flat it is."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.stiffness import Loss, hessian_product, largest_curvature
from posteria.data.arrays import Data
from posteria.models.target import Density, Target

TRACE_PROBES = 100  # of Hutchinson's estimate


def loss(target: Target | Density, params: tree.Params, data: Data) -> jax.Array:
    """Mean negative log likelihood, in nats a datum; without data, the negative log density."""
    if data is None:
        return -target.log_density(params)
    return -target.log_likelihood(params, data).mean()  # type: ignore[union-attr]


class Flatness(NamedTuple):
    """Of the loss at a point. A flat minimum has both small."""

    sharpness: float  # the Hessian's largest eigenvalue
    trace: float  # the sum of all of them, by Hutchinson's estimate
    trace_error: float  # its standard error


def flatness(target: Target | Density, params: tree.Params, key: jax.Array) -> Flatness:
    """The Hessian of the loss, by products with vectors: it is never formed. Hutchinson 1990."""
    key_power, key_trace = jax.random.split(key)
    sharpness = largest_curvature(loss, target, params, target.data, key_power)
    terms = _trace_terms(loss, target.without_data())(params, jax.random.split(key_trace, TRACE_PROBES), target.data)
    return Flatness(float(sharpness), float(terms.mean()), float(terms.std() / TRACE_PROBES**0.5))


@kept
def _trace_terms(fn: Loss, target: Target | Density) -> Callable[[tree.Params, jax.Array, Data], jax.Array]:
    def terms(params: tree.Params, keys: jax.Array, data: Data) -> jax.Array:
        product = hessian_product(fn, target, params, data)

        def one(key: jax.Array) -> jax.Array:
            signs = jax.random.rademacher(key, (tree.size(target.structs),), jnp.float32)
            return signs @ product(signs)

        return jax.lax.map(one, keys)

    return jax.jit(terms)
