"""The loss around a point: what is plotted and climbed over, its curvature, and how flat it is."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.inference.largest_curvature import largest_eigenvalue
from posteria.models.target import Density, Target

POWER_STEPS = 40  # of power iteration: the gap to the next eigenvalue is wide in networks
TRACE_PROBES = 100  # of Hutchinson's estimate


def loss(target: Target | Density, params: tree.Params, data: Any) -> jax.Array:
    """Mean negative log likelihood, in nats a datum; without data, the negative log density."""
    if data is None:
        return -target.log_density(params)
    return -target.log_likelihood(params, data).mean()  # type: ignore[union-attr]


def energy(target: Target | Density, params: tree.Params, batch: Any) -> jax.Array:
    """Negative log density a datum, prior included: what training goes down on."""
    return -target.log_density(params, batch) / max(target.num_data, 1)


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


def largest_curvature(
    fn: Callable, target: Target | Density, params: tree.Params, data: Any, key: jax.Array
) -> jax.Array:
    """The largest eigenvalue in size of the Hessian of `fn`."""
    return _largest(fn, target.without_data())(params, key, data)


def hessian_product(fn: Callable, target: Target | Density, params: tree.Params, data: Any) -> Callable:
    """v -> Hessian of `fn` at `params` times v, over flat vectors."""
    unravel = tree.unraveller(target.structs)
    gradient = jax.grad(lambda flat: fn(target, unravel(flat), data))
    flat = tree.ravel(params)
    return lambda vector: jax.jvp(gradient, (flat,), (vector,))[1]


@lru_cache(maxsize=64)
def _largest(fn: Callable, target: Target | Density) -> Callable:
    def largest(params: tree.Params, key: jax.Array, data: Any) -> jax.Array:
        first = jax.random.normal(key, (tree.size(target.structs),))
        return largest_eigenvalue(hessian_product(fn, target, params, data), first, POWER_STEPS)

    return jax.jit(largest)


@lru_cache(maxsize=64)
def _trace_terms(fn: Callable, target: Target | Density) -> Callable:
    def terms(params: tree.Params, keys: jax.Array, data: Any) -> jax.Array:
        product = hessian_product(fn, target, params, data)

        def one(key: jax.Array) -> jax.Array:
            signs = jax.random.rademacher(key, (tree.size(target.structs),), jnp.float32)
            return signs @ product(signs)

        return jax.lax.map(one, keys)

    return jax.jit(terms)
