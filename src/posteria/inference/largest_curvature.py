"""The stiffest direction of a log density, which bounds the steps that are stable in it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posteria.inference.coordinates import Coordinates

POWER_ITERATIONS = 20


def largest_curvature(flat: Coordinates, position: jax.Array, scale: jax.Array, data: Any) -> jax.Array:
    """The largest eigenvalue, in size, of -d2/dz2 log density at a position, each coordinate in units of `scale`."""

    def product(direction: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda z: flat.log_density(z, data))
        return -scale * jax.jvp(gradient, (position,), (scale * direction,))[1]

    first = jax.random.normal(jax.random.key(0), position.shape, position.dtype)
    return jnp.abs(largest_eigenvalue(product, first, POWER_ITERATIONS))


def largest_eigenvalue(product: Callable, first: jax.Array, num_iterations: int) -> jax.Array:
    """The largest in size, with its sign, of a symmetric matrix given by its product with vectors: power iteration."""

    def iterate(_: int, carry: tuple) -> tuple:
        _, image = carry
        direction = image / jnp.maximum(jnp.linalg.norm(image), jnp.finfo(image.dtype).tiny)
        return direction, product(direction)

    direction, image = jax.lax.fori_loop(0, num_iterations, iterate, (first, first))
    return jnp.copysign(jnp.linalg.norm(image), direction @ image)
