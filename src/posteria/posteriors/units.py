"""Predictions in the data's own units, where the network was fitted to standardised targets."""

from functools import cached_property
from typing import Any

import numpy as np

from posteria.data.standardise import Standardiser
from posteria.posteriors.predictive import Predictive
from posteria.posteriors.telling import ShownPrediction

LEFT_OUT = 0.001  # of each tail, of the moments on a log scale
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
MIDDLE_LEVELS, MIDDLE_WEIGHTS = 0.5 + (0.5 - LEFT_OUT) * _NODES, 0.5 * _WEIGHTS
SMALLEST, LARGEST_LOG = 1e-300, 690.0  # exp stays finite


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
        return (_columns(y) - self._mean) / self._std


class PredictiveOfLogs(PredictiveInUnits):
    """A `Predictive` of standardised logarithms, in the targets' own units: nothing is below 0.

    Of the exponential of a variable with heavy tails neither mean nor variance exist. `mean` and `std` are those of the
    middle 99.8 % of the distribution; `aleatoric` and `epistemic` divide that variance as they divide the logarithms'.
    """

    @property
    def mean(self) -> np.ndarray:
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(self._moments[1])

    @property
    def aleatoric(self) -> np.ndarray:
        return self._moments[1] - self.epistemic

    @property
    def epistemic(self) -> np.ndarray:
        epistemic, aleatoric = (np.asarray(part, np.float64) for part in (super().epistemic, super().aleatoric))
        with np.errstate(invalid="ignore"):
            return self._moments[1] * np.nan_to_num(epistemic / (epistemic + aleatoric))

    def log_prob(self, y: Any) -> np.ndarray:
        """Log density of y itself, (n,): that of its logarithm, less the logarithm; minus infinity from 0 down."""
        logs = np.log(np.maximum(_columns(y), SMALLEST))
        found = super().log_prob(y) - logs.sum(-1)
        return np.where((_columns(y) > 0).all(-1), found, -np.inf)

    def cdf(self, y: Any) -> np.ndarray:
        return np.where(_columns(y) > 0, super().cdf(y), 0.0)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return middle_moments(self.quantile_table(MIDDLE_LEVELS))

    def _back(self, values: np.ndarray) -> np.ndarray:
        logs = np.asarray(values, np.float64) * self._std + self._mean
        return np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG))

    def _forth(self, y: Any) -> np.ndarray:
        return super()._forth(np.log(np.maximum(_columns(y), SMALLEST)))


def middle_moments(quantiles: Any) -> tuple[Any, Any]:
    """Mean and variance from quantiles at `MIDDLE_LEVELS`, their first axis."""
    weights = MIDDLE_WEIGHTS.reshape(-1, *[1] * (quantiles.ndim - 1))
    mean = (weights * quantiles).sum(0)
    return mean, (weights * (quantiles - mean) ** 2).sum(0)


def _columns(y: Any) -> np.ndarray:
    y = np.asarray(y, np.float64)
    return y[:, None] if y.ndim == 1 else y


def in_units(predictive: Predictive, scale: Standardiser | None) -> Predictive | PredictiveInUnits:
    """The prediction in own units; as it is, where targets were not standardised."""
    if scale is None:
        return predictive
    return (PredictiveOfLogs if scale.is_log else PredictiveInUnits)(predictive, scale)
