"""What has no posterior: baselines, fitted to the same rows and made whole distributions by rows that they left out,
and predictions made elsewhere; each with the surface of a `Predictive`.

Baselines (`rivals.py`, `po.Baseline`) say whether a network is worth its trouble here.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from posteria.comparison.enter.rivals import BUILT_IN, LARGE_TABLE
from posteria.data.arrays import Data
from posteria.errors import DataError, SettingError
from posteria.methods import registry
from posteria.methods.registry import Baseline, Numbers, Probs
from posteria.metrics import quantile_levels
from posteria.posteriors.conformal import ScoreDistribution

NUM_FOLDS = 5
LEAST_WIDTH = 1e-3  # of the median error: a narrower one is a model's overconfidence, not a row's
LEAST_MASS = 1e-12  # of a count that was held impossible
FEWEST_FOR_WIDTHS = 100  # rows, from which the size of errors is learnt
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


# ---- baselines


class Fitted(Protocol):
    """A fitted baseline: own units in, own units out."""

    def predict(self, x: Data) -> Any:
        """A prediction with the surface of a `Predictive`."""


class ScoredPredictive(QuantilePredictive):
    """One real target: centre + width x score, where scores are distributed as those of rows left out."""

    def __init__(self, centre: np.ndarray, width: np.ndarray, scores: ScoreDistribution) -> None:
        self._centre, self._width, self._of_scores = centre, width, scores

    def quantile_table(self, levels: Any) -> np.ndarray:
        scores = self._of_scores.quantile(np.asarray(levels, np.float64))[:, 0]  # (level,)
        return (self._centre + scores[:, None] * self._width)[..., None]

    @property
    def mean(self) -> np.ndarray:
        above, _, below, _ = self._of_scores.partial_moments()
        return (self._centre + (above - below)[0] * self._width)[:, None]

    @property
    def std(self) -> np.ndarray:
        above, above_squares, below, below_squares = self._of_scores.partial_moments()
        variance = (above_squares + below_squares - (above - below) ** 2)[0]
        return (np.sqrt(max(variance, 0.0)) * self._width)[:, None]

    def cdf(self, y: Any) -> np.ndarray:
        return self._of_scores.cdf(self._score(y))

    def log_prob(self, y: Any) -> np.ndarray:
        return self._of_scores.log_density(self._score(y))[:, 0] - np.log(self._width)

    def _score(self, y: Any) -> np.ndarray:
        return ((np.asarray(y, np.float64).reshape(-1) - self._centre) / self._width)[:, None]


class WholeNumbers:
    """A prediction of real numbers, read as one of counts: what it says of all that rounds to one."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.mean, self.std = real.mean, real.std

    def quantile_table(self, levels: Any) -> np.ndarray:
        return np.maximum(0.0, np.ceil(self._real.quantile_table(levels) - 0.5))

    def cdf(self, y: Any) -> np.ndarray:
        return self._real.cdf(np.floor(np.asarray(y, np.float64)) + 0.5)

    def log_prob(self, y: Any) -> np.ndarray:
        y = np.asarray(y, np.float64).reshape(-1)
        below = np.where(y > 0, self._real.cdf(y - 0.5)[:, 0], 0.0)
        return np.log(np.maximum(self._real.cdf(y + 0.5)[:, 0] - below, LEAST_MASS))


def present() -> dict[str, type[Baseline]]:
    """By name: those that come along and those that were registered, as far as what they need is installed."""
    return {name: each for name, each in {**BUILT_IN, **registry.baselines()}.items() if each.is_there()}


def fit(
    name: str, x: Data, y: np.ndarray, kind: str, num_classes: int, is_count: bool = False, seed: int = 0
) -> Fitted:
    """`x` as the networks get it, flattened; `y` in its own units, or labels."""
    from threadpoolctl import threadpool_limits

    x = np.asarray(x).reshape(len(y), -1)
    if kind == "regression" and np.ndim(y) > 1:
        if y.shape[1] > 1:
            raise SettingError(f"y has {y.shape[1]} targets", "one, for a baseline", "compare them one at a time")
        y = y[:, 0]
    baseline = present()[name]()
    if not baseline.takes(kind, *x.shape):
        raise SettingError(f"{name} on {len(x):,} rows of {kind}", "data that it takes", "leave it out")
    # threads that wait for each other in a busy loop: on small tables, or a busy machine, slower than one by far
    with threadpool_limits(1 if x.size < LARGE_TABLE else None, user_api="openmp"):
        if kind == "classes":
            return _Classifier(baseline.fit_classes(x, y, num_classes))
        return _folded(baseline, x, np.asarray(y, np.float64), is_count, seed)


def _folded(baseline: Baseline, x: np.ndarray, y: np.ndarray, is_count: bool, seed: int) -> "_Scored":
    """Fitted to all rows; its scores are those of rows that five fits left out. Vovk 2015; Barber et al. 2021."""
    folds = np.random.default_rng(seed).permutation(len(y)) % min(NUM_FOLDS, max(2, len(y) // 2))
    centre, width = np.empty(len(y)), np.empty(len(y))
    for fold in np.unique(folds):
        is_left = folds == fold
        found, wide = baseline.fit_numbers(x[~is_left], y[~is_left])(x[is_left])
        centre[is_left], width[is_left] = found, 1.0 if wide is None else wide
    has_widths = wide is not None
    residuals = y - centre
    least = max(LEAST_WIDTH * float(np.median(np.abs(residuals))), 1e-12 * (1.0 + float(np.abs(y).max())))
    widths = None
    if not has_widths:
        width, widths = _learnt_widths(x, residuals, folds, least)
    scores = (residuals / np.maximum(width, least))[:, None]
    return _Scored(baseline.fit_numbers(x, y), widths, least, ScoreDistribution.of(scores), is_count)


def _learnt_widths(x: np.ndarray, residuals: np.ndarray, folds: np.ndarray, least: float) -> tuple[np.ndarray, Any]:
    """The size of the errors by boosting, by the folds that left each row out, and by all; the same for all rows where
    that does not predict them better."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    def learnt(chosen: np.ndarray) -> Any:
        model = HistGradientBoostingRegressor(random_state=0, max_depth=3, max_iter=60, learning_rate=0.05)
        return model.fit(x[chosen], np.log(np.maximum(np.abs(residuals[chosen]), least)))

    same = np.full(len(residuals), float(np.sqrt(np.mean(residuals**2))) + least)
    if len(residuals) < FEWEST_FOR_WIDTHS:
        return same, _Same(same[0])
    logs = np.empty(len(residuals))
    for fold in np.unique(folds):
        logs[folds == fold] = learnt(folds != fold).predict(x[folds == fold])
    width = np.exp(logs)
    gains = _log_densities(residuals, width) - _log_densities(residuals, same)
    if gains.mean() < gains.std() / np.sqrt(len(gains)):
        return same, _Same(same[0])
    model = learnt(np.ones(len(residuals), bool))
    return width, lambda x: np.exp(model.predict(x))


def _log_densities(residuals: np.ndarray, width: np.ndarray) -> np.ndarray:
    scores = (residuals / width)[:, None]
    return ScoreDistribution.of(scores).log_density(scores)[:, 0] - np.log(width)


@dataclass(frozen=True)
class _Same:
    width: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), self.width)


@dataclass(frozen=True)
class _Scored:
    model: Numbers
    widths: Any  # x -> (n,); None: the model has its own
    least: float
    scores: ScoreDistribution
    is_count: bool

    def predict(self, x: Data) -> Any:
        x = np.asarray(x).reshape(len(x), -1)
        centre, width = self.model(x)
        width = np.asarray(width if self.widths is None else self.widths(x), np.float64)
        found = ScoredPredictive(np.asarray(centre, np.float64), np.maximum(width, self.least), self.scores)
        return WholeNumbers(found) if self.is_count else found


@dataclass(frozen=True)
class _Classifier:
    model: Probs

    def predict(self, x: Data) -> ProbsPredictive:
        return ProbsPredictive(self.model(np.asarray(x).reshape(len(x), -1)))
