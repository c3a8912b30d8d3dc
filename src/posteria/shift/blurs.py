"""Blurs of the common corruptions: one image, (height, width, channel) in [0, 1], and a key for it."""

import jax
import jax.numpy as jnp
import numpy as np

from posteria.shift import filters


def gaussian_blur(image: jax.Array, key: jax.Array, sigma: float) -> jax.Array:
    return filters.gaussian(image, sigma)


def defocus_blur(image: jax.Array, key: jax.Array, radius: float, alias_blur: float) -> jax.Array:
    return filters.convolved(image, filters.disk(radius, alias_blur))


def motion_blur(image: jax.Array, key: jax.Array, radius: float, sigma: float) -> jax.Array:
    return filters.motion(image, radius, sigma, jax.random.uniform(key, minval=-45.0, maxval=45.0))


def zoom_blur(image: jax.Array, key: jax.Array, stop: float) -> jax.Array:
    """The mean of the image and of it zoomed in, in steps of a hundredth."""
    factors = np.arange(1, stop, 0.01)
    zoomed = (
        filters.along_axes(image, *(filters.zoom_matrix(size, factor) for size in image.shape[:2]))
        for factor in factors
    )
    return sum(zoomed, start=image) / (len(factors) + 1)


def glass_blur(image: jax.Array, key: jax.Array, sigma: float, reach: int, iterations: int) -> jax.Array:
    """Pixels change places with neighbours, one after another from the lower right, between two blurs.

    (The published files were made by a program whose exchange copies one of the two; here both move.)
    """
    height, width = image.shape[:2]
    rows, columns = (np.arange(size - reach, reach, -1) for size in (height, width))
    places = jnp.asarray(
        np.tile(np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2), (iterations, 1))
    )
    places = jnp.minimum(places, jnp.asarray([height - 1, width - 1]))
    moves = jax.random.randint(key, places.shape, -reach, reach)

    def exchange(i: jax.Array, image: jax.Array) -> jax.Array:
        (y, x), (dy, dx) = places[i], moves[i]
        here, there = image[y, x], image[y + dy, x + dx]
        return image.at[y, x].set(there).at[y + dy, x + dx].set(here)

    blurred = filters.gaussian(image, sigma)
    return filters.gaussian(jax.lax.fori_loop(0, len(places), exchange, blurred), sigma)
