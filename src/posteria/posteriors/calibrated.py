"""Coverage that holds, on top of any posterior: split conformal prediction, and temperature scaling of classes.

Vovk et al. 2005; Romano et al. 2019, whose intervals keep the shape of the prediction; Sadinle et al. 2019, sets of
classes; Guo et al. 2017, temperature.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import metrics, tree
from posteria.data.arrays import Data
from posteria.errors import DataError, SettingError
from posteria.models.target import Target
from posteria.posteriors.base import Calibrated, Posterior
from posteria.posteriors.predictive import Predictive
from posteria.random import as_key
from posteria.tree import Arrays, Json

LEVELS = (0.5, 0.8, 0.9, 0.95)  # at which coverage before and after is told
MIDDLE = (0.16, 0.5, 0.84)  # quantiles that give each prediction its centre and its two half-widths
LEAST_WIDTH = 1e-3  # of a half-width, in stds: counts may have none
MAX_LOG_TEMPERATURE = 4.0
ROUNDING = 1e-6  # of a level: 0.9 is not quite 0.9 in float32, and the rank of a score must not depend on it
Coverage = dict[float, dict[str, float]]  # by level: the share "before" and "after", on rows not calibrated on


class CalibratedPosterior(Calibrated):
    """A posterior whose intervals (or sets of classes) hold the promised share of exchangeable new rows."""

    kind = "calibrated"

    def __init__(
        self, inner: Posterior, scores: np.ndarray, temperature: float = 1.0, coverage: Coverage | None = None
    ) -> None:
        super().__init__(inner.target, inner.facts)
        self.inner = inner
        self.attached = inner.attached
        self.scores = np.sort(scores, axis=0)  # (calibration row, target), or (calibration row,) for classes
        self.temperature = temperature
        self.coverage = coverage or {}

    @property
    def num_draws(self) -> int:
        return self.inner.num_draws

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        return self.inner.draws(key, x, num_draws)

    def predict(self, x: Data, num_draws: int | None = None) -> Any:
        kind = CalibratedClasses if hasattr(self.model.likelihood, "probs") else CalibratedNumbers
        return kind(self.inner.predict(x, num_draws), self.scores, self.temperature)

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = self.inner.state()
        coverage = [[level, both] for level, both in self.coverage.items()]
        own = {"inner": self.inner.kind, "settings": settings, "temperature": self.temperature, "coverage": coverage}
        return own, {f"inner.{name}": array for name, array in arrays.items()} | {"scores": self.scores}

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "CalibratedPosterior":
        from posteria.posteriors.saving import restore

        own = {name.removeprefix("inner."): array for name, array in arrays.items() if name != "scores"}
        inner = restore(target, settings["inner"], settings["settings"], own, facts)
        coverage = {level: both for level, both in settings["coverage"]}
        return cls(inner, arrays["scores"], settings["temperature"], coverage)


class CalibratedNumbers:
    """A prediction with conformal intervals; all else is the posterior's own."""

    def __init__(self, plain: Predictive, scores: np.ndarray, temperature: float = 1.0) -> None:
        del temperature  # of classes
        self._plain = plain
        self._scores = scores

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper), each (n, targets): holds `level` of rows like those calibrated on."""
        centre, below, above = half_widths(self._plain)
        stretch = threshold(self._scores, level)
        return centre - stretch * below, centre + stretch * above


class CalibratedClasses:
    """A prediction with scaled probabilities and conformal sets; its epistemic part is the posterior's own."""

    def __init__(self, plain: Predictive, scores: np.ndarray, temperature: float) -> None:
        self._plain = plain
        self._scores = scores
        self._temperature = temperature

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    @property
    def probs(self) -> np.ndarray:
        return scaled(self._plain.probs, self._temperature)

    @property
    def entropy(self) -> np.ndarray:
        probs = self.probs
        return -np.where(probs > 0, probs * np.log(np.maximum(probs, 1e-38)), 0.0).sum(-1)

    def log_prob(self, y: Any) -> np.ndarray:
        """Log probability of the labels, (n,)."""
        labels = self._plain.check_y(y)
        return np.log(np.maximum(_of_labels(self.probs, labels), 1e-38))

    def sample(self, key: int | jax.Array, num: int) -> np.ndarray:
        """Draws of the label, (num, n)."""
        log_probs = jnp.log(jnp.asarray(self.probs))
        return np.asarray(jax.random.categorical(as_key(key), log_probs, shape=(num, len(log_probs))))

    def sets(self, level: float = 0.9) -> np.ndarray:
        """Which classes are in each row's set, (n, classes): it holds the right one for `level` of rows like those."""
        return 1.0 - self.probs <= threshold(self._scores, level)


def calibrate(posterior: Posterior, x: Data, y: Any) -> CalibratedPosterior:
    """Calibrate on rows that the posterior was not fitted to."""
    if isinstance(posterior, CalibratedPosterior):
        posterior = posterior.inner
    predictive = posterior.predict(x)
    y = predictive.check_y(y)
    if len(y) < 2:
        raise DataError(f"{len(y)} rows to calibrate on", "at least 2, and 100 for 95 % intervals", "hold out more")
    if hasattr(posterior.model.likelihood, "probs"):
        temperature = best_temperature(predictive.probs, y)
        scores = 1.0 - _of_labels(scaled(predictive.probs, temperature), y)
        return CalibratedPosterior(posterior, scores, temperature, _coverage_of_sets(predictive.probs, scores, y))
    scores = interval_scores(predictive, y)
    return CalibratedPosterior(posterior, scores, 1.0, _coverage_of_intervals(predictive, scores, y))


def half_widths(predictive: Predictive) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median, and how far the middle 68 % reach below and above it."""
    low, centre, high = predictive.quantile(list(MIDDLE))
    least = LEAST_WIDTH * predictive.std
    return centre, np.maximum(centre - low, least), np.maximum(high - centre, least)


def interval_scores(predictive: Predictive, y: np.ndarray) -> np.ndarray:
    """How many half-widths each y is away from its median: (n, targets)."""
    centre, below, above = half_widths(predictive)
    error = y.reshape(centre.shape) - centre
    return np.where(error > 0, error / above, -error / below)


def threshold(scores: np.ndarray, level: float) -> np.ndarray:
    """The score that a new row stays below with probability at least `level`: the (n + 1) level-th smallest."""
    if not 0 < level < 1:
        raise SettingError(f"level is {level}", "a number between 0 and 1", "0.9 is a 90 % interval")
    rank = max(1, math.ceil((len(scores) + 1) * (level - ROUNDING)))
    if rank > len(scores):
        raise SettingError(
            f"{len(scores)} calibration rows for a level of {level:g}",
            f"at least {math.ceil(level / (1 - level))}: fewer cannot promise it",
            "calibrate on more rows, or ask for a lower level",
        )
    return np.sort(scores, axis=0)[rank - 1]


def scaled(probs: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities to the power 1 / temperature, made to sum to 1."""
    log_probs = np.log(np.maximum(probs, 1e-30)) / temperature
    powers = np.exp(log_probs - log_probs.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def best_temperature(probs: np.ndarray, labels: np.ndarray) -> float:
    """Of the likelihood of the labels."""
    from scipy.optimize import minimize_scalar

    def negative_log_likelihood(log_temperature: float) -> float:
        chosen = _of_labels(scaled(probs, math.exp(log_temperature)), labels)
        return float(-np.log(np.maximum(chosen, 1e-30)).mean())

    bounds = (-MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE)
    return math.exp(minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded").x)


def _of_labels(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return probs[np.arange(len(labels)), labels.astype(int).reshape(-1)]


def _coverage_of_intervals(predictive: Predictive, scores: np.ndarray, y: np.ndarray) -> Coverage:
    """Before: of the posterior's own intervals. After: each half of the rows by the other half's scores."""
    told = {}
    for level in _levels_for(len(y) // 2):
        lower, upper = predictive.interval(level)
        before = metrics.coverage(lower, upper, y.reshape(lower.shape))
        told[level] = {"before": float(before), "after": _cross(scores, level)}
    return told


def _coverage_of_sets(probs: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> Coverage:
    """Before: of the sets that hold `level` of the plain probability, the most probable classes first."""
    order = np.argsort(-probs, axis=1)
    mass_before = np.cumsum(np.take_along_axis(probs, order, 1), 1) - np.take_along_axis(probs, order, 1)
    place = (order == labels.astype(int).reshape(-1, 1)).argmax(1)
    needed = mass_before[np.arange(len(labels)), place]  # a set that holds more than this has the label
    return {
        level: {"before": float((needed < level).mean()), "after": _cross(scores, level)}
        for level in _levels_for(len(labels) // 2)
    }


def _cross(scores: np.ndarray, level: float) -> float:
    halves = scores[::2], scores[1::2]
    return float(np.mean([(halves[1 - i] <= threshold(halves[i], level)).mean() for i in (0, 1)]))


def _levels_for(num_rows: int) -> list[float]:
    return [level for level in LEVELS if math.ceil((num_rows + 1) * (level - ROUNDING)) <= num_rows]
