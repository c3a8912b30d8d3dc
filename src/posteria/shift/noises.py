"""Noises of the common corruptions: one image, (height, width, channel) in [0, 1], and a key for it."""

import jax
import jax.numpy as jnp


def gaussian_noise(image: jax.Array, key: jax.Array, sigma: float) -> jax.Array:
    return image + sigma * jax.random.normal(key, image.shape)


def shot_noise(image: jax.Array, key: jax.Array, photons: float) -> jax.Array:
    """So many photons reach a white pixel."""
    return jax.random.poisson(key, jnp.clip(image, 0, 1) * photons).astype(image.dtype) / photons


def impulse_noise(image: jax.Array, key: jax.Array, amount: float) -> jax.Array:
    """A share of all values is black or white."""
    key_where, key_which = jax.random.split(key)
    is_hit = jax.random.uniform(key_where, image.shape) < amount
    salt = jax.random.bernoulli(key_which, shape=image.shape).astype(image.dtype)
    return jnp.where(is_hit, salt, image)


def speckle_noise(image: jax.Array, key: jax.Array, sigma: float) -> jax.Array:
    return image + image * sigma * jax.random.normal(key, image.shape)
