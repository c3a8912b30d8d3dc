"""The stiffest direction of a density or a loss, which bounds the steps that are stable in it: by power iteration."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.models.coordinates import Coordinates
from posteria.models.target import Density, Target

UNITS_ITERATIONS = 20  # in units of the prior: a suggestion of a step needs no more
POWER_ITERATIONS = 40  # the gap to the next eigenvalue is wide in networks


def energy(target: Target | Density, params: tree.Params, batch: Any) -> jax.Array:
    """Negative log density a datum, prior included: what training goes down on."""
    return -target.log_density(params, batch) / max(target.num_data, 1)


def stiffness(flat: Coordinates, position: jax.Array, scale: jax.Array, data: Any) -> jax.Array:
    """The largest eigenvalue, in size, of -d2/dz2 log density at a position, each coordinate in units of `scale`."""

    def product(direction: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda z: flat.log_density(z, data))
        return -scale * jax.jvp(gradient, (position,), (scale * direction,))[1]

    first = jax.random.normal(jax.random.key(0), position.shape, position.dtype)
    return jnp.abs(largest_eigenvalue(product, first, UNITS_ITERATIONS))


def largest_curvature(
    fn: Callable, target: Target | Density, params: tree.Params, data: Any, key: jax.Array
) -> jax.Array:
    """The largest eigenvalue in size, with its sign, of the Hessian of `fn(target, params, data)` in the weights."""
    return _largest(fn, target.without_data())(params, key, data)


def hessian_product(fn: Callable, target: Target | Density, params: tree.Params, data: Any) -> Callable:
    """v -> Hessian of `fn` at `params` times v, over flat vectors."""
    unravel = tree.unraveller(target.structs)
    gradient = jax.grad(lambda flat: fn(target, unravel(flat), data))
    flat = tree.ravel(params)
    return lambda vector: jax.jvp(gradient, (flat,), (vector,))[1]


def largest_eigenvalue(product: Callable, first: jax.Array, num_iterations: int) -> jax.Array:
    """The largest in size, with its sign, of a symmetric matrix given by its product with vectors: power iteration."""

    def iterate(_: int, carry: tuple) -> tuple:
        _, image = carry
        direction = image / jnp.maximum(jnp.linalg.norm(image), jnp.finfo(image.dtype).tiny)
        return direction, product(direction)

    direction, image = jax.lax.fori_loop(0, num_iterations, iterate, (first, first))
    return jnp.copysign(jnp.linalg.norm(image), direction @ image)


@lru_cache(maxsize=64)
def _largest(fn: Callable, target: Target | Density) -> Callable:
    def largest(params: tree.Params, key: jax.Array, data: Any) -> jax.Array:
        first = jax.random.normal(key, (tree.size(target.structs),))
        return largest_eigenvalue(hessian_product(fn, target, params, data), first, POWER_ITERATIONS)

    return jax.jit(largest)
