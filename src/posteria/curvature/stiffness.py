"""The stiffest direction of a density or a loss, which bounds the steps that are stable in it: by power iteration."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.coordinates import Coordinates
from posteria.models.target import Density, Target

UNITS_ITERATIONS = 20  # in units of the prior: a suggestion of a step needs no more
POWER_ITERATIONS = 40  # the gap to the next eigenvalue is wide in networks

Loss = Callable[[Target | Density, tree.Params, Data], jax.Array]
Product = Callable[[jax.Array], jax.Array]  # a matrix times a vector


def energy(target: Target | Density, params: tree.Params, batch: Data) -> jax.Array:
    """Negative log density a datum, prior included: what training goes down on."""
    return -target.log_density(params, batch) / max(target.num_data, 1)


def stiffness(flat: Coordinates, position: jax.Array, scale: jax.Array, data: Data) -> jax.Array:
    """The largest eigenvalue, in size, of -d2/dz2 log density at a position, each coordinate in units of `scale`."""

    def product(direction: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda z: flat.log_density(z, data))
        return -scale * jax.jvp(gradient, (position,), (scale * direction,))[1]

    first = jax.random.normal(jax.random.key(0), position.shape, position.dtype)
    return jnp.abs(largest_eigenvalue(product, first, UNITS_ITERATIONS))


def largest_curvature(fn: Loss, target: Target | Density, params: tree.Params, data: Data, key: jax.Array) -> jax.Array:
    """The largest eigenvalue in size, with its sign, of the Hessian of `fn(target, params, data)` in the weights."""
    return _largest(fn, target.without_data())(params, key, data)


def hessian_product(fn: Loss, target: Target | Density, params: tree.Params, data: Data) -> Product:
    """v -> Hessian of `fn` at `params` times v, over flat vectors."""
    unravel = tree.unraveller(target.structs)
    gradient = jax.grad(lambda flat: fn(target, unravel(flat), data))
    flat = tree.ravel(params)
    return lambda vector: jax.jvp(gradient, (flat,), (vector,))[1]


def largest_eigenvalue(product: Product, first: jax.Array, num_iterations: int) -> jax.Array:
    """The largest in size, with its sign, of a symmetric matrix given by its product with vectors: power iteration."""
    direction, image = leading_direction(product, first, num_iterations)
    return jnp.copysign(jnp.linalg.norm(image), direction @ image)


def leading_direction(product: Product, first: jax.Array, num_iterations: int) -> tuple[jax.Array, jax.Array]:
    """The unit vector that it belongs to, and its image."""

    def iterate(step: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        del step
        _, image = carry
        direction = image / jnp.maximum(jnp.linalg.norm(image), jnp.finfo(image.dtype).tiny)
        return direction, product(direction)

    return jax.lax.fori_loop(0, num_iterations, iterate, (first, first))


@kept
def _largest(fn: Loss, target: Target | Density) -> Callable[[tree.Params, jax.Array, Data], jax.Array]:
    def largest(params: tree.Params, key: jax.Array, data: Data) -> jax.Array:
        first = jax.random.normal(key, (tree.size(target.structs),))
        return largest_eigenvalue(hessian_product(fn, target, params, data), first, POWER_ITERATIONS)

    return jax.jit(largest)
