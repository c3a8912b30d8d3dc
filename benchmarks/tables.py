"""One split of a regression table, standardised on its training rows, and scores in the data's own units."""

from typing import NamedTuple

import numpy as np
from measure import use_shared_data


class Split(NamedTuple):
    train: tuple[np.ndarray, np.ndarray]  # standardised
    test: tuple[np.ndarray, np.ndarray]
    y_std: float  # of the training rows, in the data's own units


def load_split(name: str, number: int = 0) -> Split:
    """The standard split `number` (counted from 0) of a data set."""
    use_shared_data()
    from posteria.data import Standardiser, load, uci_splits

    dataset = load(name)
    train, test = uci_splits(len(dataset.y))[number]
    x_units, y_units = Standardiser.fit(dataset.x[train]), Standardiser.fit(dataset.y[train])
    x, y = x_units.apply(dataset.x).astype(np.float32), y_units.apply(dataset.y).astype(np.float32)
    return Split((x[train], y[train]), (x[test], y[test]), float(y_units.std))


def rmse(predictive, split: Split) -> float:
    error = predictive.mean[:, 0] - split.test[1]
    return split.y_std * float(np.sqrt(np.mean(error**2)))


def log_likelihood(predictive, split: Split) -> float:
    """Mean over test rows, in nats, of the density in the data's own units."""
    return float(predictive.log_prob(split.test[1]).mean()) - float(np.log(split.y_std))


def coverage(predictive, split: Split, level: float) -> float:
    lower, upper = predictive.interval(level)
    y = split.test[1][:, None]
    return float(np.mean((lower <= y) & (y <= upper)))
