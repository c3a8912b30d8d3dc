"""What has no posterior: scikit-learn's linear model and gradient boosting on the same rows, and predictions made
elsewhere; each with the surface of a `Predictive`.

Baselines say whether a network is worth its trouble here.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from posteria.data.arrays import Data
from posteria.errors import DataError, SettingError
from posteria.metrics import quantile_levels

BOOSTED_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
LARGE_TABLE = 1_000_000  # values, from where boosting is worth several threads
ONE_STD = (0.15865525393145707, 0.8413447460685429)  # the levels one std below and above a Gaussian's mean
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

    def predict(self, x: Data) -> Any:
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


# ---- baselines


class Fitted(Protocol):
    """A fitted baseline: own units in, own units out."""

    def predict(self, x: Data) -> Any:
        """A prediction with the surface of a `Predictive`."""


def fit(name: str, x: Data, y: np.ndarray, kind: str, num_classes: int) -> Fitted:
    """`x` as the networks get it, flattened; `y` in its own units, or labels."""
    x = np.asarray(x).reshape(len(y), -1)
    if kind == "regression" and np.ndim(y) > 1:
        if y.shape[1] > 1:
            raise SettingError(f"y has {y.shape[1]} targets", "one, for a baseline", "compare them one at a time")
        y = y[:, 0]
    if name == "linear":
        return _fit_linear(x, y, kind, num_classes)
    from threadpoolctl import threadpool_limits

    # threads that wait for each other in a busy loop: on small tables, or a busy machine, slower than one by far
    with threadpool_limits(1 if x.size < LARGE_TABLE else None, user_api="openmp"):
        return _fit_boosting(x, y, kind, num_classes)


def _fit_linear(x: np.ndarray, y: np.ndarray, kind: str, num_classes: int) -> Fitted:
    from sklearn.linear_model import BayesianRidge, LogisticRegression

    if kind == "classes":
        return _Classifier(LogisticRegression(max_iter=1000).fit(x, y), num_classes)
    return _Line(BayesianRidge().fit(x, y))


def _fit_boosting(x: np.ndarray, y: np.ndarray, kind: str, num_classes: int) -> Fitted:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if kind == "classes":
        return _Classifier(HistGradientBoostingClassifier(random_state=0).fit(x, y), num_classes)
    return _Boosted(
        [
            HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0).fit(x, y)
            for level in BOOSTED_LEVELS
        ]
    )


@dataclass(frozen=True)
class _Line:
    """Bayesian ridge regression: a Gaussian around a plane, its noise and shrinkage by evidence. MacKay 1992."""

    model: Any

    def predict(self, x: Data) -> QuantilePredictive:
        mean, std = self.model.predict(np.asarray(x).reshape(len(x), -1), return_std=True)
        return QuantilePredictive(ONE_STD, np.stack([mean - std, mean + std]))


@dataclass(frozen=True)
class _Boosted:
    """Trees fitted to nine quantiles, each by its own loss."""

    models: list[Any]

    def predict(self, x: Data) -> QuantilePredictive:
        x = np.asarray(x).reshape(len(x), -1)
        return QuantilePredictive(BOOSTED_LEVELS, np.stack([model.predict(x) for model in self.models]))


@dataclass(frozen=True)
class _Classifier:
    model: Any
    num_classes: int

    def predict(self, x: Data) -> ProbsPredictive:
        found = self.model.predict_proba(np.asarray(x).reshape(len(x), -1))
        probs = np.zeros((len(found), self.num_classes))
        probs[:, self.model.classes_] = found  # a class that no training row has stays at 0
        return ProbsPredictive(probs)


ABOUT = {
    "linear": "A linear model: what there is without a network (Bayesian ridge, or logistic regression).",
    "boosting": "Gradient boosting: the strongest simple rival on tables (nine quantiles, or class probabilities).",
}
