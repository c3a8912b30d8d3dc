"""The tables on which defaults are judged, their halves, and their splits.

The halves "choose" and "report" are the names in alphabetical order, taken in turns. What is tuned is tuned on the
first, what is reported is reported on the second. (`autompg` and `mpg` are one table in two forms, one in each.)
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from measure import use_shared_data

SIZES = (200, 750, 2000, 10_000)  # training rows
MOST_TESTED = 1000
LEAST_TESTED = 100  # a size is used where so many rows are left; of a small table 80 % is the least size
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
WITH_TARGET_LAST = ("airfoil", "autompg", "bike", "forest", "machine", "parkinsons", "solar")
MIXED = {"diamonds": ("diamonds.csv.gz", "price"), "mpg": ("mpg.csv", "mpg")}
SIMULATED_ROWS = 12_000


class Split(NamedTuple):
    train: tuple[pd.DataFrame, np.ndarray]
    test: tuple[pd.DataFrame, np.ndarray]


def heteroscedastic() -> tuple[np.ndarray, np.ndarray]:
    """Eight inputs, of which five make the mean and one of these the noise, 0.2 to 2."""
    random = np.random.default_rng(2026)
    x = random.normal(size=(SIMULATED_ROWS, 8))
    mean = np.sin(2 * x[:, 0]) + x[:, 1] * (x[:, 2] > 0) + 0.3 * x[:, 3] ** 2 + 0.5 * x[:, 4]
    return x, mean + (0.2 + 0.6 * np.abs(x[:, 4])) * random.normal(size=len(x))


def noise_inputs() -> tuple[np.ndarray, np.ndarray]:
    """32 inputs, of which 28 are noise."""
    random = np.random.default_rng(2027)
    x = random.normal(size=(SIMULATED_ROWS, 32))
    mean = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] ** 2
    return x, mean + 0.3 * random.normal(size=len(x))


SIMULATED: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "heteroscedastic": heteroscedastic,
    "noise-inputs": noise_inputs,
}
NAMES = tuple(sorted([*UCI, *WITH_TARGET_LAST, *MIXED, *SIMULATED, "diabetes"]))
HALVES = {"choose": NAMES[::2], "report": NAMES[1::2], "all": NAMES}


def load(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """The table as a user holds it: categories are words, and cells may be missing."""
    use_shared_data()
    folder = Path(os.environ["POSTERIA_DATA"]) / "tables"
    if name in MIXED:
        file, target = MIXED[name]
        frame = pd.read_csv(folder / file).drop(columns="name", errors="ignore")  # of a car: no two are the same
        return frame.drop(columns=target), frame[target].to_numpy(np.float64)
    if name in WITH_TARGET_LAST:
        values = pd.read_csv(folder / f"{name}.csv.gz").to_numpy(np.float64)
        x, y = values[:, :-1], values[:, -1]
    elif name in SIMULATED:
        x, y = SIMULATED[name]()
    else:
        from posteria.data import load as load_set

        data = load_set(name)
        x, y = data.x.astype(np.float64), data.y.astype(np.float64).reshape(len(data.y))
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])]), y


def sizes_of(num_rows: int) -> dict[int, int]:
    """Training rows by nominal size."""
    found = {size: size for size in SIZES if size + LEAST_TESTED <= num_rows}
    if SIZES[0] not in found:
        found = {SIZES[0]: int(0.8 * num_rows)}
    return found


def split(frame: pd.DataFrame, y: np.ndarray, num_train: int, seed: int) -> Split:
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:num_train], order[num_train : num_train + MOST_TESTED]
    return Split((frame.iloc[train], y[train]), (frame.iloc[test], y[test]))


def as_numbers(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Inputs for peers: words as indicators, the median of the training rows for a missing cell, no constant."""
    train, test = split.train[0], split.test[0]
    both = pd.get_dummies(pd.concat([train, test]), dtype=float).to_numpy(np.float64)
    medians = np.nanmedian(both[: len(train)], axis=0)
    both = np.where(np.isnan(both), medians, both)
    both = both[:, both[: len(train)].std(0) > 0]
    return both[: len(train)], both[len(train) :]
