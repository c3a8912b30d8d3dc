"""Data from elsewhere, to see whether a method knows what it does not know: partners of the data sets that have one."""

from typing import Any

import numpy as np

MNIST_PARTNERS = ("fashion-mnist", "kmnist", "notmnist")
MOST_ROWS = 1000
SHIFT = 3 / 8  # of the width of an image


def partners(name: str, x_test: Any) -> dict[str, np.ndarray]:
    """Inputs out of distribution by name; empty for a data set without partners (a table has its extremes)."""
    if name == "digits":
        few = x_test[:MOST_ROWS]
        return {"scrambled": scrambled(few), "shifted": shifted(few)}
    if name == "mnist":
        return _loaded(MNIST_PARTNERS)
    return {}


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


def _loaded(names: tuple[str, ...]) -> dict[str, np.ndarray]:
    from posteria.data.sets import load
    from posteria.data.sets import names as listings

    present = {each.name for each in listings() if each.present or "test" in each.parts}
    return {name: load(name, "test").x[:MOST_ROWS] for name in names if name in present}
