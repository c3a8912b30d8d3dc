"""The stiffest direction of a log density, which bounds the steps that are stable in it."""

from typing import Any

import jax
import jax.numpy as jnp

from posteria.inference.coordinates import Coordinates

POWER_ITERATIONS = 20


def largest_curvature(flat: Coordinates, position: jax.Array, scale: jax.Array, data: Any) -> jax.Array:
    """The largest eigenvalue of -d2/dz2 log density at a position, each coordinate in units of `scale`."""

    def product(direction: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda z: flat.log_density(z, data))
        return -scale * jax.jvp(gradient, (position,), (scale * direction,))[1]

    def iterate(_: int, carry: tuple) -> tuple:
        image, _ = carry
        direction = image / jnp.maximum(jnp.linalg.norm(image), jnp.finfo(image.dtype).tiny)
        image = product(direction)
        return image, jnp.linalg.norm(image)

    first = jax.random.normal(jax.random.key(0), position.shape, position.dtype)
    return jax.lax.fori_loop(0, POWER_ITERATIONS, iterate, (first, jnp.zeros((), position.dtype)))[1]
