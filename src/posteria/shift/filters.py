"""Filters of small images, (height, width, channel) in [0, 1]: blurs, motion, warps, and matrices that resize.

What is linear and known beforehand is a matrix for each axis, made on the host: rows of it are the weights of an
output pixel.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates


def along_axes(image: jax.Array, rows: np.ndarray, columns: np.ndarray) -> jax.Array:
    """(height', height) and (width', width) applied to an image: (height', width', channel)."""
    return jnp.einsum("ih,jw,hwc->ijc", jnp.asarray(rows), jnp.asarray(columns), image)


def gaussian(image: jax.Array, sigma: float, truncate: float = 4.0, mode: str = "nearest") -> jax.Array:
    """Blurred by a Gaussian of `sigma` pixels, cut at `truncate` sigmas; "nearest" repeats the edge, "reflect" mirrors
    it with the edge counted twice."""
    height, width = image.shape[:2]
    return along_axes(image, *(gaussian_matrix(size, sigma, truncate, mode) for size in (height, width)))


def gaussian_matrix(size: int, sigma: float, truncate: float = 4.0, mode: str = "nearest") -> np.ndarray:
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2) if sigma > 0 else np.ones(1)
    return tap_matrix(size, offsets, weights / weights.sum(), mode)


def tap_matrix(size: int, offsets: np.ndarray, weights: np.ndarray, mode: str) -> np.ndarray:
    """Output i is the sum of `weights` times the pixels at i + `offsets`, found at the edges as `mode` says."""
    matrix = np.zeros((size, size), np.float32)
    for i in range(size):
        np.add.at(matrix[i], _inside(i + offsets, size, mode), weights)
    return matrix


def _inside(places: np.ndarray, size: int, mode: str) -> np.ndarray:
    if mode == "nearest":
        return np.clip(places, 0, size - 1)
    if mode == "mirror":  # the edge is counted once
        period = max(1, 2 * (size - 1))
        folded = np.mod(places, period)
        return np.minimum(folded, period - folded)
    folded = np.mod(places, 2 * size)  # "reflect"
    return np.minimum(folded, 2 * size - 1 - folded)


def convolved(image: jax.Array, kernel: np.ndarray) -> jax.Array:
    """Each channel with a small kernel, (2 r + 1, 2 r + 1), mirrored at the edges."""
    radius = len(kernel) // 2
    height, width = image.shape[:2]
    rows, columns = (_inside(np.arange(-radius, size + radius), size, "mirror") for size in (height, width))
    padded = image[rows][:, columns]
    taps = [
        weight * padded[i : i + height, j : j + width] for (i, j), weight in np.ndenumerate(kernel) if weight != 0.0
    ]
    return sum(taps, start=jnp.zeros_like(image))


def disk(radius: float, alias_blur: float) -> np.ndarray:
    """A disk of light whose rim is softened: what a lens out of focus makes of a point."""
    across = np.arange(-8, 9)
    inside = (across[:, None] ** 2 + across[None, :] ** 2 <= radius**2).astype(np.float64)
    weights = np.exp(-0.5 * (np.arange(-1, 2) / alias_blur) ** 2)
    soften = tap_matrix(len(across), np.arange(-1, 2), weights / weights.sum(), "mirror")
    return soften @ (inside / inside.sum()) @ soften.T


def motion(image: jax.Array, radius: float, sigma: float, degrees: jax.Array) -> jax.Array:
    """Smeared along a line: half a Gaussian of `sigma` pixels over 2 radius + 1 taps, edges repeated."""
    steps = np.arange(2 * int(radius) + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    weights /= weights.sum()
    angle = jnp.deg2rad(degrees)
    down = jnp.ceil(steps * jnp.sin(angle) - 0.5).astype(jnp.int32)
    right = jnp.ceil(steps * jnp.cos(angle) - 0.5).astype(jnp.int32)
    height, width = image.shape[:2]

    def moved(dy: jax.Array, dx: jax.Array) -> jax.Array:
        rows = jnp.clip(jnp.arange(height) + dy, 0, height - 1)
        columns = jnp.clip(jnp.arange(width) + dx, 0, width - 1)
        return image[rows][:, columns]

    return jnp.einsum("k,khwc->hwc", jnp.asarray(weights, jnp.float32), jax.vmap(moved)(down, right))


def zoom_matrix(size: int, factor: float) -> np.ndarray:
    """The middle of an axis, stretched by `factor` with linear interpolation, and cut to its length again."""
    crop = math.ceil(size / factor)
    top = (size - crop) // 2
    out = max(size, round(crop * factor))
    trim = (out - size) // 2
    matrix = np.zeros((size, size), np.float32)
    for i in range(size):
        place = (i + trim) * (crop - 1) / max(1, out - 1)
        below = min(int(place), crop - 1)
        share = place - below
        matrix[i, top + below] += 1 - share
        matrix[i, top + min(below + 1, crop - 1)] += share
    return matrix


def box_matrix(size: int, out: int) -> np.ndarray:
    """An axis resized by averaging the pixels under each output pixel (Pillow's BOX)."""
    scale = size / out
    wide = max(scale, 1.0)
    matrix = np.zeros((out, size), np.float32)
    for i in range(out):
        center = (i + 0.5) * scale
        first, last = int(center - 0.5 * wide + 0.5), int(center + 0.5 * wide + 0.5)
        places = np.arange(max(first, 0), min(last, size))
        inside = (places + 0.5 - center) / wide
        matrix[i, places] = (inside > -0.5) & (inside <= 0.5)
        matrix[i] /= matrix[i].sum()
    return matrix


def warped(image: jax.Array, rows: jax.Array, columns: jax.Array, mode: str) -> jax.Array:
    """The image read at other places, (height, width) each, with linear interpolation."""
    places = [rows, columns]
    channels = [map_coordinates(image[..., c], places, 1, mode) for c in range(image.shape[-1])]
    return jnp.stack(channels, -1)
