"""Weather of the common corruptions: one image, (height, width, channel) in [0, 1], and a key for it."""

import functools
import io
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np

from posteria.compiled import kept
from posteria.shift import color, filters

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)
FARTHEST = 20.0  # pixels, beyond which the middle of a drop is flat


def snow(
    image: jax.Array,
    key: jax.Array,
    loc: float,
    scale: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    blend: float,
) -> jax.Array:
    """Flakes, smeared as they fall, both ways; the rest is paler."""
    key_layer, key_angle = jax.random.split(key)
    layer = loc + scale * jax.random.normal(key_layer, (*image.shape[:2], 1))
    layer = filters.along_axes(layer, *(filters.zoom_matrix(size, zoom) for size in image.shape[:2]))
    layer = jnp.clip(jnp.where(layer < threshold, 0.0, layer), 0, 1)
    layer = filters.motion(layer, radius, sigma, jax.random.uniform(key_angle, minval=-135.0, maxval=-45.0))
    pale = blend * image + (1 - blend) * jnp.maximum(image, 1.5 * color.grey(image) + 0.5)
    return pale + layer + jnp.rot90(layer, 2)


def frost(image: jax.Array, key: jax.Array, image_weight: float, frost_weight: float) -> jax.Array:
    """A part of one of five photographs of frost over the image."""
    height, width = image.shape[:2]
    key_which, key_top, key_left = jax.random.split(key, 3)
    pictures = frost_pictures(height, width)

    def cut(picture: jax.Array, top: jax.Array, left: jax.Array) -> jax.Array:
        rows, columns = (picture.shape[axis] - size + 1 for axis, size in enumerate((height, width)))
        corner = (jnp.floor(top * rows).astype(jnp.int32), jnp.floor(left * columns).astype(jnp.int32), 0)
        return jax.lax.dynamic_slice(picture, corner, (height, width, 3))

    place = jax.random.uniform(key_top), jax.random.uniform(key_left)
    which = jax.random.randint(key_which, (), 0, len(pictures))
    ice = jax.lax.switch(which, [functools.partial(cut, jnp.asarray(picture)) for picture in pictures], *place)
    return image_weight * image + frost_weight * (ice if image.shape[-1] == 3 else color.grey(ice))


@kept
def frost_pictures(height: int, width: int) -> tuple[np.ndarray, ...]:
    """Photographs in [0, 1], at least so large: at a fifth of their size, repeated where that is too small."""
    stored = np.load(io.BytesIO(pkgutil.get_data("posteria.shift", "frost.npz") or b""), allow_pickle=False)
    pictures = [stored[name].astype(np.float32) / 255 for name in sorted(stored.files)]
    times = [(-(-height // p.shape[0]), -(-width // p.shape[1]), 1) for p in pictures]
    return tuple(np.tile(picture, each) for picture, each in zip(pictures, times))


def fog(image: jax.Array, key: jax.Array, amount: float, decay: float) -> jax.Array:
    height, width = image.shape[:2]
    size = 1 << (max(height, width) - 1).bit_length()
    haze = plasma(key, size, decay)[:height, :width, None]
    brightest = image.max()
    return (image + amount * haze) * brightest / (brightest + amount)


def plasma(key: jax.Array, size: int, decay: float) -> jax.Array:
    """A fractal that closes on itself, (size, size) in [0, 1], by diamonds and squares: `size` is a power of two, and
    the noise of each finer level is decay^2 times smaller."""
    heights = jnp.zeros((size, size))
    step, wibble = size, 100.0
    while step >= 2:
        half = step // 2
        key, key_middle, key_top, key_left = jax.random.split(key, 4)

        def noise(key: jax.Array, like: jax.Array, wibble: float = wibble) -> jax.Array:
            return wibble * jax.random.uniform(key, like.shape, minval=-wibble, maxval=wibble)

        corners = heights[::step, ::step]
        pairs = corners + jnp.roll(corners, -1, 0)
        middle = (pairs + jnp.roll(pairs, -1, 1)) / 4
        middle += noise(key_middle, middle)
        heights = heights.at[half::step, half::step].set(middle)
        top = (middle + jnp.roll(middle, 1, 0) + corners + jnp.roll(corners, -1, 1)) / 4
        left = (middle + jnp.roll(middle, 1, 1) + corners + jnp.roll(corners, -1, 0)) / 4
        heights = heights.at[::step, half::step].set(top + noise(key_top, top))
        heights = heights.at[half::step, ::step].set(left + noise(key_left, left))
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()


def brightness(image: jax.Array, key: jax.Array, more: float) -> jax.Array:
    if image.shape[-1] == 1:
        return image + more
    hsv = color.to_hsv(image)
    return color.to_rgb(hsv.at[..., 2].set(jnp.clip(hsv[..., 2] + more, 0, 1)))


def spatter(
    image: jax.Array, key: jax.Array, loc: float, scale: float, sigma: float, threshold: float, weight: float, mud: int
) -> jax.Array:
    """Drops of water that catch the light at their rims, or of mud that hide what is behind them."""
    layer = filters.gaussian(loc + scale * jax.random.normal(key, (*image.shape[:2], 1)), sigma)
    if mud:
        cover = filters.gaussian((layer > threshold).astype(image.dtype), weight)
        cover = jnp.where(cover < 0.8, 0.0, cover)
        return image * (1 - cover) + cover * _tint(MUD, image)
    layer = jnp.where(layer < threshold, 0.0, layer)
    light = layer * _relief(layer[..., 0] > 0)[..., None]
    return image + weight * light / jnp.maximum(light.max(), 1e-6) * _tint(WATER, image)


def _tint(rgb: tuple[float, float, float], image: jax.Array) -> jax.Array:
    return jnp.asarray(rgb) if image.shape[-1] == 3 else color.grey(jnp.asarray(rgb))


def _relief(is_drop: jax.Array) -> jax.Array:
    """Of drops, lit from one side: by the distance to their rims, levelled so that each is as common as another."""
    height, width = is_drop.shape
    is_rim = is_drop & ~(_neighbours_all(is_drop))
    y, x = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    places = jnp.stack([y.ravel(), x.ravel()], -1).astype(jnp.float32)
    squared = ((places[:, None] - places[None]) ** 2).sum(-1)
    nearest = jnp.sqrt(jnp.where(is_rim.ravel()[None], squared, FARTHEST**2).min(1))
    smooth = np.full((3, 3), 1 / 9)
    distance = jnp.floor(filters.convolved(jnp.minimum(nearest, FARTHEST).reshape(height, width, 1), smooth))
    rank = (distance.ravel()[None] <= distance.ravel()[:, None]).mean(1).reshape(height, width, 1)
    least = rank.min()
    levelled = 255 * (rank - least) / jnp.maximum(1 - least, 1e-6)
    lit = jnp.clip(filters.convolved(levelled, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])), 0, 255)
    return filters.convolved(lit, smooth)[..., 0]


def _neighbours_all(mask: jax.Array) -> jax.Array:
    padded = jnp.pad(mask, 1, mode="edge")
    return padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
