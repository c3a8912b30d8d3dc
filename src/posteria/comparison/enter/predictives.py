"""Predictions that did not come from a posterior, with the surface of a `Predictive`: given as quantiles or as class
probabilities, by a baseline or from a file."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteria.errors import DataError
from posteria.metrics import quantile_levels

LEAST_SLOPE = 1e-3  # of a std by normal score: quantiles that meet or cross would make a density infinite
MOMENT_LEVELS = 400
SAMPLE_LEVELS = 100  # quantiles that stand for samples


class QuantilePredictive:
    """One real target, by its quantiles (level, n); between levels and beyond, they are linear in the normal score.

    So two quantiles make a Gaussian, and tails are Gaussian: there is a density everywhere. Quantiles that cross are
    put in order (Chernozhukov et al. 2010).
    """

    def __init__(self, levels: Any, quantiles: Any) -> None:
        from scipy.special import ndtri

        self._scores = ndtri(np.asarray(levels, np.float64))  # (level,)
        values = np.sort(np.asarray(quantiles, np.float64), axis=0)
        if len(values) < 2 or len(values) != len(self._scores):
            raise DataError(f"{len(values)} quantiles at {len(self._scores)} levels", "at least two, one a level")
        steps = np.diff(self._scores)[:, None]
        overall = (values[-1] - values[0]) / (self._scores[-1] - self._scores[0])
        least = np.maximum(LEAST_SLOPE * overall, 1e-12 * (1.0 + np.abs(values).max(0)))
        slopes = np.maximum(np.diff(values, axis=0) / steps, least)  # (level - 1, n)
        self._values = np.concatenate([values[:1], values[:1] + np.cumsum(slopes * steps, axis=0)])
        self._slopes = slopes

    def quantile_table(self, levels: Any) -> np.ndarray:
        from scipy.special import ndtri

        score = np.broadcast_to(ndtri(np.asarray(levels, np.float64))[:, None], (len(levels), self._values.shape[1]))
        part = np.clip(np.searchsorted(self._scores, score[:, 0]) - 1, 0, len(self._slopes) - 1)
        values = self._values[part] + (score - self._scores[part][:, None]) * self._slopes[part]
        return values[..., None]

    def quantile(self, q: Any) -> np.ndarray:
        table = self.quantile_table(np.atleast_1d(q))
        return table if np.ndim(q) else table[0]

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = self.quantile_table([(1 - level) / 2, (1 + level) / 2])
        return lower, upper

    @property
    def mean(self) -> np.ndarray:
        return self.quantile_table(quantile_levels(MOMENT_LEVELS)).mean(0)

    @property
    def std(self) -> np.ndarray:
        return self.quantile_table(quantile_levels(MOMENT_LEVELS)).std(0)

    def cdf(self, y: Any) -> np.ndarray:
        from scipy.special import ndtr

        return ndtr(self._score_at(y)[0])[:, None]

    def log_prob(self, y: Any) -> np.ndarray:
        score, slope = self._score_at(y)
        return -0.5 * score**2 - 0.5 * np.log(2 * np.pi) - np.log(slope)

    def _score_at(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """The normal score of y and the slope of the quantiles there, (n,) each."""
        y = np.asarray(y, np.float64).reshape(-1)
        part = np.clip((y > self._values).sum(0) - 1, 0, len(self._slopes) - 1)
        rows = np.arange(len(y))
        slope = self._slopes[part, rows]
        return self._scores[part] + (y - self._values[part, rows]) / slope, slope


class ProbsPredictive:
    """Class probabilities (n, class)."""

    def __init__(self, probs: Any) -> None:
        self.probs = np.asarray(probs, np.float64)

    @property
    def entropy(self) -> np.ndarray:
        from scipy.special import xlogy

        return -xlogy(self.probs, self.probs).sum(-1)

    def log_prob(self, y: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):  # a class held impossible scores -inf
            return np.log(self.probs[np.arange(len(self.probs)), np.asarray(y)])


@dataclass(frozen=True)
class GivenPredictions:
    """Of the test rows of one split, made elsewhere; it has no others, whatever it is asked."""

    predictive: Any
    num_rows: int

    def predict(self, x: Any) -> Any:
        return self.predictive


def given_predictions(arrays: dict[str, np.ndarray], kind: str) -> GivenPredictions:
    """Of `probs` (n, class), `quantiles` (level, n) at `quantile_levels`, or `samples` (draw, n), in the data's order
    and units."""
    if kind == "classes":
        if "probs" not in arrays:
            raise DataError(f"the reference holds {sorted(arrays)}", "probs (n, class)")
        return GivenPredictions(ProbsPredictive(arrays["probs"]), len(arrays["probs"]))
    if "quantiles" not in arrays and "samples" not in arrays:
        raise DataError(f"the reference holds {sorted(arrays)}", "quantiles (level, n) or samples (draw, n)")
    levels = quantile_levels(len(arrays["quantiles"]) if "quantiles" in arrays else SAMPLE_LEVELS)
    values = arrays["quantiles"] if "quantiles" in arrays else np.quantile(arrays["samples"], levels, axis=0)
    values = values.reshape(len(levels), -1)
    return GivenPredictions(QuantilePredictive(levels, values), values.shape[1])
