"""Rows unlike the others, made of a data set's own, to see whether a method knows what it does not know: images as no
one has seen them, and the furthest rows of a table."""

from typing import Any

import numpy as np

from posteria.data.standardise import Standardiser

EXTREME_SHARE = 0.1  # of the test rows of a table, those furthest from the centre of the training rows
LEAST_EXTREMES = 5
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


def extremes(x_train: Any, x_test: Any) -> dict[str, np.ndarray]:
    """The mask of the test rows that are furthest out, by the mean square of features in the training rows' stds.

    They stand in for data from elsewhere where a table has none: a good posterior is less sure of them.
    """
    if not (isinstance(x_train, np.ndarray) and x_train.ndim == 2 and x_train.dtype.kind == "f"):
        return {}
    count = round(EXTREME_SHARE * len(x_test))
    if count < LEAST_EXTREMES:
        return {}
    distance = (Standardiser.fit(x_train).apply(x_test).astype(np.float64) ** 2).mean(1)
    mask = np.zeros(len(x_test), bool)
    mask[np.argsort(-distance, kind="stable")[:count]] = True
    return {"extremes": mask}
