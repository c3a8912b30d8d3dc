"""Colours of images, (..., 3) in [0, 1]: hue, saturation and value; and the grey of a colour."""

import jax
import jax.numpy as jnp

GREY = (0.299, 0.587, 0.114)  # shares of red, green and blue (ITU-R BT.601)


def to_hsv(rgb: jax.Array) -> jax.Array:
    value, least = rgb.max(-1), rgb.min(-1)
    spread = value - least
    is_grey = spread == 0
    red, green, blue = jnp.moveaxis(rgb, -1, 0)
    safe = jnp.where(is_grey, 1.0, spread)
    hue = jnp.select(
        [value == red, value == green], [(green - blue) / safe, 2 + (blue - red) / safe], 4 + (red - green) / safe
    )
    hue = jnp.where(is_grey, 0.0, hue / 6 % 1)
    saturation = jnp.where(value == 0, 0.0, spread / jnp.where(value == 0, 1.0, value))
    return jnp.stack([hue, saturation, value], -1)


def to_rgb(hsv: jax.Array) -> jax.Array:
    hue, saturation, value = jnp.moveaxis(hsv, -1, 0)

    def channel(offset: float) -> jax.Array:
        k = (offset + 6 * hue) % 6
        return value * (1 - saturation * jnp.clip(jnp.minimum(k, 4 - k), 0, 1))

    return jnp.stack([channel(5.0), channel(3.0), channel(1.0)], -1)


def grey(image: jax.Array) -> jax.Array:
    """(..., 1); an image of one channel as it is."""
    if image.shape[-1] == 1:
        return image
    return (image @ jnp.asarray(GREY))[..., None]
