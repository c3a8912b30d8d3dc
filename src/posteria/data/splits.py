"""Rows for training and for testing."""

import jax
import numpy as np

from posteria.errors import DataError, SettingError
from posteria.random import as_key

Split = tuple[np.ndarray, np.ndarray]  # (train, test): row numbers

UCI_SEED = 1
UCI_TRAIN_FRACTION = 0.9


def train_test(num_data: int, key: int | jax.Array, test: float = 0.1) -> Split:
    """A random split with `round(test * num_data)` test rows, at least one on either side."""
    if not 0 < test < 1:
        raise SettingError(f"test={test}", "a fraction between 0 and 1")
    if num_data < 2:
        raise DataError(f"{num_data} rows", "at least 2, one on either side")
    permutation = np.asarray(jax.random.permutation(as_key(key), num_data))
    num_test = min(max(round(test * num_data), 1), num_data - 1)
    return permutation[num_test:], permutation[:num_test]


def uci_splits(num_data: int, num_splits: int = 20) -> list[Split]:
    """The standard splits of the UCI regression benchmark (5 for protein, 20 for the others).

    Hernandez-Lobato and Adams 2015; Gal and Ghahramani 2016. The published index files are NumPy's legacy generator
    seeded once with 1 and drawn from once a split, so they regenerate exactly.
    """
    generator = np.random.RandomState(UCI_SEED)
    num_train = round(UCI_TRAIN_FRACTION * num_data)
    permutations = [generator.choice(range(num_data), num_data, replace=False) for _ in range(num_splits)]
    return [(permutation[:num_train], permutation[num_train:]) for permutation in permutations]
