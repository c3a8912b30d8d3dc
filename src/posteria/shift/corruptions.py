"""The common corruptions of small images: 15, and 4 more, at five severities. Hendrycks & Dietterich 2019.

The constants are those with which CIFAR-10-C was made. The programs are our own, so that each is one compiled function
of an image and a key; where CIFAR-10-C called a library for images (ImageMagick's motion blur, OpenCV's edges of
spatter), this is the same idea and not the same bits.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.compiled import kept
from posteria.errors import DataError, SettingError
from posteria.random import as_key
from posteria.settings import shown
from posteria.shift import blurs, digital, noises, weather
from posteria.shift.table_shifts import SEVERITIES as SEVERITIES
from posteria.shift.table_shifts import as_severity

AT_ONCE = 32  # images

Corruption = Callable[..., jax.Array]
Constants = tuple[tuple[float, ...], ...]  # of each severity


def _each(*values: float) -> Constants:
    return tuple((value,) for value in values)


# name: the function, and what it gets at each severity
COMMON: dict[str, tuple[Corruption, Constants]] = {
    "gaussian_noise": (noises.gaussian_noise, _each(0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (noises.shot_noise, _each(500, 250, 100, 75, 50)),
    "impulse_noise": (noises.impulse_noise, _each(0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": (blurs.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (blurs.glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    "motion_blur": (blurs.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (blurs.zoom_blur, _each(1.06, 1.11, 1.16, 1.21, 1.26)),
    "snow": (
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": (weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": (weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (weather.brightness, _each(0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (digital.contrast, _each(0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": (
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (digital.pixelate, _each(0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (digital.jpeg_compression, _each(80, 65, 58, 50, 40)),
}
EXTRA: dict[str, tuple[Corruption, Constants]] = {
    "speckle_noise": (noises.speckle_noise, _each(0.06, 0.1, 0.12, 0.16, 0.2)),
    "gaussian_blur": (blurs.gaussian_blur, _each(0.4, 0.6, 0.7, 0.8, 1)),
    "spatter": (
        weather.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
    ),
    "saturate": (digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
}
CORRUPTIONS = tuple(COMMON | EXTRA)


def corrupt(images: Any, name: str, severity: int, key: int | jax.Array = 0) -> np.ndarray:
    """Images with a common corruption of severity 1 to 5: `po.shift.CORRUPTIONS` has the names.

    `images` are (n, height, width) or (n, height, width, channels), whole numbers from 0 to 255 (uint8) or floats in
    [0, 1]; they come back in the same shape and type. The same key gives the same images, and each image has a draw of
    its own. Hendrycks & Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions.

    >>> images = np.zeros((2, 32, 32, 3), np.uint8)
    >>> corrupt(images, "frost", severity=3, key=0).shape
    (2, 32, 32, 3)
    """
    if not isinstance(name, str) or name not in CORRUPTIONS:
        raise SettingError(f"the corruption is {shown(name)}", "one of " + ", ".join(CORRUPTIONS), "correct the name")
    severity = as_severity(severity)
    try:
        given = np.asarray(images)
    except ValueError:
        raise DataError("images of several sizes", "one height and width", "corrupt them one by one") from None
    pixels = _pixels(given)
    if name == "saturate" and pixels.shape[-1] == 1:
        raise DataError("images of one channel", "colours, for saturate", "take another corruption")
    keys = jax.random.split(as_key(key), len(pixels))
    found = np.asarray(_compiled(name, severity)(pixels, jax.random.key_data(keys))).reshape(given.shape)
    return np.round(255 * found).astype(np.uint8) if given.dtype == np.uint8 else found.astype(given.dtype)


def _pixels(images: np.ndarray) -> np.ndarray:
    """(n, height, width, channel), floats in [0, 1]."""
    shape, wanted = images.shape, "(n, height, width) or (n, height, width, 1 or 3)"
    if images.ndim not in (3, 4) or (images.ndim == 4 and shape[-1] not in (1, 3)) or not all(shape):
        raise DataError(f"images are {shape}", wanted, "give each image its own height and width")
    if min(shape[1:3]) < 8:
        raise DataError(f"images are {shape[1]} x {shape[2]}", "at least 8 x 8 pixels", "take larger ones")
    if images.dtype == np.uint8:
        images = images.astype(np.float32) / 255
    elif not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"images are {images.dtype}", "uint8 from 0 to 255, or floats in [0, 1]", "convert them")
    if not (np.isfinite(images).all() and images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"pixels from {images.min():.3g} to {images.max():.3g}",
            "floats in [0, 1]",
            "corrupt images before they are standardised, and standardise them as the training images were",
        )
    return images.astype(np.float32).reshape(*shape[:3], -1)


@kept
def _compiled(name: str, severity: int) -> Callable[[np.ndarray, jax.Array], jax.Array]:
    function, constants = (COMMON | EXTRA)[name]

    def one(image_and_key: tuple[jax.Array, jax.Array]) -> jax.Array:
        image, key_data = image_and_key
        changed = function(image, jax.random.wrap_key_data(key_data), *constants[severity - 1])
        return jnp.clip(changed, 0, 1)

    return jax.jit(lambda images, keys: jax.lax.map(one, (images, keys), batch_size=AT_ONCE))
