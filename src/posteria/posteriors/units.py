"""Predictions in the data's own units, where the network was fitted to standardised targets."""

from typing import Any

import numpy as np

from posteria.data.standardise import Standardiser
from posteria.posteriors.predictive import Predictive
from posteria.posteriors.telling import ShownPrediction


class PredictiveInUnits(ShownPrediction):
    """A `Predictive` of standardised targets, with the same surface, in the targets' own units."""

    def __init__(self, standardised: Predictive, scale: Standardiser) -> None:
        self._standardised = standardised
        self._mean = np.atleast_1d(scale.mean)  # (target,)
        self._std = np.atleast_1d(scale.std)

    def __len__(self) -> int:
        return len(self._standardised)

    @property
    def mean(self) -> np.ndarray:
        return self._back(self._standardised.mean)

    @property
    def std(self) -> np.ndarray:
        return self._standardised.std * self._std

    @property
    def aleatoric(self) -> np.ndarray:
        return self._standardised.aleatoric * self._std**2

    @property
    def epistemic(self) -> np.ndarray:
        return self._standardised.epistemic * self._std**2

    def log_prob(self, y: Any) -> np.ndarray:
        return self._standardised.log_prob(self._forth(y)) - np.log(self._std).sum()

    def cdf(self, y: Any) -> np.ndarray:
        return self._standardised.cdf(self._forth(y))

    def quantile(self, q: Any) -> np.ndarray:
        return self._back(self._standardised.quantile(q))

    def quantile_table(self, levels: Any) -> np.ndarray:
        return self._back(self._standardised.quantile_table(levels))

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = self._standardised.interval(level)
        return self._back(lower), self._back(upper)

    def sample(self, key: Any, num: int) -> np.ndarray:
        return self._back(self._standardised.sample(key, num))

    def _back(self, values: np.ndarray) -> np.ndarray:
        return values * self._std + self._mean

    def _forth(self, y: Any) -> np.ndarray:
        y = np.asarray(y, np.float64)
        y = y[:, None] if y.ndim == 1 else y
        return ((y - self._mean) / self._std).astype(np.float32)


def in_units(predictive: Predictive, scale: Standardiser | None) -> Predictive | PredictiveInUnits:
    """The prediction in own units; as it is, where targets were not standardised."""
    return predictive if scale is None else PredictiveInUnits(predictive, scale)
