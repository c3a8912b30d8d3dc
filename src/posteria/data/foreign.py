"""Images as no one has seen them: made of a data set's own, to see whether a method knows what it does not know."""

import numpy as np

SHIFT = 3 / 8  # of the width of an image


def scrambled(images: np.ndarray) -> np.ndarray:
    """The same pixels in another order, another one for each image."""
    generator = np.random.default_rng(0)
    flat = images.reshape(len(images), -1)
    return generator.permuted(flat, axis=1).reshape(images.shape)


def shifted(images: np.ndarray) -> np.ndarray:
    """Moved to the right by three eighths of the width; what leaves the image is lost."""
    distance = round(SHIFT * images.shape[2])
    moved = np.zeros_like(images)
    moved[:, :, distance:] = images[:, :, :-distance]
    return moved
