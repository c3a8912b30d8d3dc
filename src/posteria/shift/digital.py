"""What cameras and files do to images: one image, (height, width, channel) in [0, 1], and a key for it."""

import jax
import jax.numpy as jnp
import numpy as np

from posteria.shift import color, filters

# The quantisation of brightness and of colour in the JPEG standard (ITU-T T.81, Annex K), at quality 50
BRIGHTNESS_STEPS = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
COLOUR_STEPS = np.full((8, 8), 99.0)
COLOUR_STEPS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
TO_YCC = np.array([[0.299, 0.587, 0.114], [-0.168735892, -0.331264108, 0.5], [0.5, -0.418687589, -0.081312411]])


def contrast(image: jax.Array, key: jax.Array, gain: float) -> jax.Array:
    mean = image.mean((0, 1))
    return (image - mean) * gain + mean


def saturate(image: jax.Array, key: jax.Array, times: float, more: float) -> jax.Array:
    hsv = color.to_hsv(image)
    return color.to_rgb(hsv.at[..., 1].set(jnp.clip(times * hsv[..., 1] + more, 0, 1)))


def pixelate(image: jax.Array, key: jax.Array, factor: float) -> jax.Array:
    down = [filters.box_matrix(size, int(size * factor)) for size in image.shape[:2]]
    up = [filters.box_matrix(int(size * factor), size) for size in image.shape[:2]]
    return filters.along_axes(image, *(back @ there for there, back in zip(down, up)))


def elastic_transform(image: jax.Array, key: jax.Array, alpha: float, sigma: float, affine: float) -> jax.Array:
    """Three points are moved by up to `affine` of the image's size, and each pixel by a smooth field of `alpha`."""
    height, width = image.shape[:2]
    key_points, key_rows, key_columns = jax.random.split(key, 3)
    middle, reach = np.array([height, width]) // 2, min(height, width) // 3
    points = np.float32(middle + reach * np.array([[1, 1], [1, -1], [-1, -1]]))
    spread = affine * height
    moved = points + jax.random.uniform(key_points, points.shape, minval=-spread, maxval=spread)
    system = jnp.concatenate([moved, jnp.ones((3, 1))], 1)
    back = jnp.linalg.solve(system, points)  # from places in the new image to those in the old one
    y, x = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    rows, columns = jnp.moveaxis(jnp.stack([y, x, jnp.ones_like(y)], -1) @ back, -1, 0)
    turned = filters.warped(image, rows, columns, "mirror")
    if alpha == 0:
        return turned

    def field(key: jax.Array) -> jax.Array:
        rough = jax.random.uniform(key, (height, width, 1), minval=-1.0, maxval=1.0)
        return alpha * height * filters.gaussian(rough, sigma * height, truncate=3.0, mode="reflect")[..., 0]

    return filters.warped(turned, y + field(key_rows), x + field(key_columns), "reflect")


def jpeg_compression(image: jax.Array, key: jax.Array, quality: int) -> jax.Array:
    """Through the JPEG format and back: blocks of 8 x 8 frequencies, rounded; colours at half the resolution."""
    height, width, channels = image.shape
    scale = 5000 / quality if quality < 50 else 200 - 2 * quality
    brightness_steps, colour_steps = (
        np.clip(np.floor((steps * scale + 50) / 100), 1, 255) for steps in (BRIGHTNESS_STEPS, COLOUR_STEPS)
    )
    whole = [-(-size // 16) * 16 for size in (height, width)]
    padded = jnp.pad(image, [(0, whole[0] - height), (0, whole[1] - width), (0, 0)], mode="edge")
    pixels = jnp.round(255 * jnp.clip(padded, 0, 1))
    if channels == 1:
        return _rounded(pixels - 128, brightness_steps)[:height, :width] / 255 + 128 / 255
    ycc = jnp.round(pixels @ jnp.asarray(TO_YCC.T, jnp.float32) - jnp.asarray([128.0, 0, 0]))
    halves, doubles = ([_half(size) for size in whole], [_double(size // 2) for size in whole])
    small = jnp.round(filters.along_axes(ycc[..., 1:], *halves))
    colours = jnp.concatenate([_rounded(small[..., i : i + 1], colour_steps) for i in (0, 1)], -1)
    decoded = jnp.concatenate([_rounded(ycc[..., :1], brightness_steps), filters.along_axes(colours, *doubles)], -1)
    back = (decoded + jnp.asarray([128.0, 0, 0])) @ jnp.asarray(np.linalg.inv(TO_YCC).T, jnp.float32)
    return jnp.round(back)[:height, :width] / 255


def _rounded(plane: jax.Array, steps: np.ndarray) -> jax.Array:
    """(height, width, 1), whole blocks: each block's frequencies rounded to steps, and back to whole numbers."""
    height, width = plane.shape[:2]
    k = np.arange(8)
    cosines = np.sqrt(2 / 8) * np.cos(np.pi * (2 * k[None] + 1) * k[:, None] / 16)
    cosines[0] /= np.sqrt(2)
    dct = jnp.asarray(cosines, jnp.float32)
    blocks = plane.reshape(height // 8, 8, width // 8, 8)
    frequencies = jnp.einsum("ua,hawb,vb->huwv", dct, blocks, dct)
    grid = jnp.asarray(steps, jnp.float32)[None, :, None, :]
    values = jnp.einsum("ua,huwv,vb->hawb", dct, jnp.round(frequencies / grid) * grid, dct)
    return jnp.clip(jnp.round(values), -128, 127).reshape(height, width, 1)


def _half(size: int) -> np.ndarray:
    return np.repeat(np.eye(size // 2, dtype=np.float32), 2, axis=1) / 2


def _double(size: int) -> np.ndarray:
    """Each value to two, three parts of its own and one of the neighbour's on that side, as decoders do."""
    matrix = np.zeros((2 * size, size), np.float32)
    for i in range(size):
        for side, row in ((-1, 2 * i), (1, 2 * i + 1)):
            matrix[row, i] += 0.75
            matrix[row, min(max(i + side, 0), size - 1)] += 0.25
    return matrix
