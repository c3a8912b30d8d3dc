"""Coverage that holds, on top of any posterior: conformal predictive distributions, and temperature scaling of classes.

Vovk et al. 2005; Vovk et al. 2019, whose predictions are whole distributions; Romano et al. 2019, whose intervals keep
the shape of the prediction; Sadinle et al. 2019, sets of classes; Guo et al. 2017, temperature.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from posteria import tree
from posteria.data.arrays import Data, rows_in_short
from posteria.errors import DataError
from posteria.models.target import Target
from posteria.posteriors.base import Calibrated, Posterior
from posteria.posteriors.calibrated_predictive import CalibratedClasses, CalibratedCounts, CalibratedNumbers, scaled
from posteria.posteriors.conformal import ROUNDING, ScoreDistribution, repeated, threshold
from posteria.posteriors.predictive import Predictive
from posteria.tree import Arrays, Json

LEVELS = (0.5, 0.8, 0.9, 0.95)  # at which coverage before and after is told
MAX_LOG_TEMPERATURE = 4.0
LOG_TEMPERATURE_STD = 0.5  # of its prior: without one, rows that are all predicted right would be taken for certainty
FEWEST_OF_A_GROUP = 20  # a smaller group takes the scores of all
JITTER_SEED = 0  # of the fractions that make counts comparable with a continuous distribution
Coverage = dict[float, dict[str, float]]  # by level: the share "before" and "after", on rows not calibrated on


class CalibratedPosterior(Calibrated):
    """A posterior whose predictions (or sets of classes) hold the promised share of exchangeable new rows."""

    kind = "calibrated"

    def __init__(
        self,
        inner: Posterior,
        scores: np.ndarray,
        temperature: float = 1.0,
        coverage: Coverage | None = None,
        groups: np.ndarray | None = None,
    ) -> None:
        super().__init__(inner.target, inner.facts)
        self.inner = inner
        self.attached = inner.attached
        self.scores = scores  # (calibration row, target), or (calibration row,) for classes
        self.temperature = temperature
        self.coverage = coverage or {}
        self.groups = groups  # (calibration row,), texts, where coverage holds within each

    @property
    def num_draws(self) -> int:
        return self.inner.num_draws

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        return self.inner.draws(key, x, num_draws)

    def predict(self, x: Data, num_draws: int | None = None, groups: Any = None) -> Any:
        """The calibrated prediction; `groups` of the rows of x, where it was calibrated by groups."""
        plain = self.inner.predict(x, num_draws)
        parts = self._parts(len(plain), groups)
        if hasattr(self.model.likelihood, "probs"):
            return CalibratedClasses(plain, parts, self.temperature)
        is_count = self.model.likelihood.kind == "counts"
        return (CalibratedCounts if is_count else CalibratedNumbers)(plain, parts)

    def _parts(self, num_rows: int, groups: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """(rows of x, scores that hold for them), of each group."""
        if self.groups is None:
            if groups is not None:
                raise DataError("groups, and it was calibrated without", "no groups", "calibrate(x, y, groups=...)")
            return [(np.arange(num_rows), self.scores)]
        if groups is None:
            raise DataError("no groups, and it was calibrated by them", "a group for each row", "pass groups=")
        names = _names(groups, num_rows)
        parts = []
        for name in np.unique(names):
            own = self.scores[self.groups == name]
            parts.append((np.flatnonzero(names == name), own if len(own) >= FEWEST_OF_A_GROUP else self.scores))
        return parts

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = self.inner.state()
        own = {
            "inner": self.inner.kind,
            "settings": settings,
            "temperature": self.temperature,
            "coverage": [[level, both] for level, both in self.coverage.items()],
            "groups": None if self.groups is None else self.groups.tolist(),
        }
        return own, {f"inner.{name}": array for name, array in arrays.items()} | {"scores": self.scores}

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "CalibratedPosterior":
        from posteria.posteriors.saving import restore

        own = {name.removeprefix("inner."): array for name, array in arrays.items() if name != "scores"}
        inner = restore(target, settings["inner"], settings["settings"], own, facts)
        coverage = {level: both for level, both in settings["coverage"]}
        groups = settings.get("groups")
        groups = None if groups is None else np.asarray(groups, str)
        return cls(inner, arrays["scores"], settings["temperature"], coverage, groups)


def calibrate(posterior: Posterior, x: Data, y: Any, groups: Any = None) -> CalibratedPosterior:
    """Calibrate on rows that the posterior was not fitted to; with `groups` (a label a row), within each of them."""
    if isinstance(posterior, CalibratedPosterior):
        posterior.inner.facts, posterior.inner.attached = posterior.facts, posterior.attached
        posterior = posterior.inner
    predictive = posterior.predict(x)
    y = predictive.check_y(y)
    if len(y) < 2:
        raise DataError(f"{len(y)} rows to calibrate on", "at least 2, and 100 for 95 % intervals", "hold out more")
    if "rows" in posterior.facts and posterior.facts["rows"] == rows_in_short(posterior.check_x(x), y):
        raise DataError(
            "the rows to calibrate on are those that were fitted to",
            "rows of their own, on which errors are as large as on new ones",
            'hold some out, or fit with calibrate="folds" (--calibrate), which leaves out each fifth in turn',
        )
    names = None if groups is None else _names(groups, len(y))
    if hasattr(posterior.model.likelihood, "probs"):
        calibrated = of_classes(posterior, predictive.probs, y, names)
    else:
        scores = scores_about(predictive.half_widths, y, predictive.is_count)
        coverage = coverage_of_scores(scores, covered(predictive, y))
        calibrated = CalibratedPosterior(posterior, scores, 1.0, coverage, names)
    if names is not None:
        sizes = {str(name): int((names == name).sum()) for name in np.unique(names)}
        if small := [name for name, size in sizes.items() if size < FEWEST_OF_A_GROUP]:
            note = f"groups with fewer than {FEWEST_OF_A_GROUP} calibration rows take the scores of all: {small[:5]}"
            calibrated.facts = calibrated.facts | {"notes": [*calibrated.facts.get("notes", []), note]}
    return calibrated


def of_classes(
    posterior: Posterior,
    probs: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray | None = None,
    temperature: float | None = None,
    weight: np.ndarray | None = None,
) -> CalibratedPosterior:
    """From the probabilities of rows that were not fitted to, and their labels; `temperature` is the best, or given."""
    temperature = best_temperature(probs, y, weight) if temperature is None else temperature
    scores = 1.0 - _of_labels(scaled(probs, temperature), y)
    coverage = _coverage_of_sets(probs, scores, y, weight)
    return CalibratedPosterior(posterior, repeated(scores, weight), temperature, coverage, groups)


def scores_about(shape: Any, y: np.ndarray, is_count: bool) -> np.ndarray:
    """How many half-widths each y is above (or below, negative) its centre: (n, targets)."""
    centre, below, above = shape
    error = np.asarray(y, np.float64).reshape(centre.shape) - centre
    if is_count:  # a fraction of the unit that a whole number stands for
        error = error + np.random.default_rng(JITTER_SEED).uniform(-0.5, 0.5, error.shape)
    return np.where(error > 0, error / above, error / below)


def covered(predictive: Predictive, y: np.ndarray, weight: np.ndarray | None = None) -> dict[float, float]:
    """The share of rows inside the prediction's own central intervals, by level."""
    if not predictive.is_count:  # by the distribution function, which is cheaper than its inverse
        away = 2 * np.abs(predictive.cdf(y) - 0.5)
        return {level: _share(away <= level, weight) for level in LEVELS}
    shares = {}
    for level in LEVELS:
        lower, upper = predictive.interval(level)
        y = y.reshape(lower.shape)
        shares[level] = _share((lower <= y) & (y <= upper), weight)
    return shares


def _share(holds: np.ndarray, weight: np.ndarray | None) -> float:
    """Of rows (and targets) of which it holds."""
    return float(np.average(holds.reshape(len(holds), -1).mean(1), weights=weight))


def best_temperature(probs: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Of the likelihood of the labels, and of the prior that its logarithm is N(0, 0.5^2)."""
    from scipy.optimize import minimize_scalar

    num_rows = len(labels) if weight is None else float(np.sum(weight))

    def negative_log_density(log_temperature: float) -> float:
        chosen = _of_labels(scaled(probs, math.exp(log_temperature)), labels)
        negative_log_likelihood = -np.average(np.log(np.maximum(chosen, 1e-30)), weights=weight)
        return float(negative_log_likelihood + 0.5 * (log_temperature / LOG_TEMPERATURE_STD) ** 2 / num_rows)

    bounds = (-MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE)
    return math.exp(minimize_scalar(negative_log_density, bounds=bounds, method="bounded").x)


def _names(groups: Any, num_rows: int) -> np.ndarray:
    names = np.asarray(groups).astype(str).reshape(-1)
    if len(names) != num_rows:
        raise DataError(f"{len(names)} groups for {num_rows} rows", "a group for each row", "pass the same rows")
    return names


def _of_labels(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return probs[np.arange(len(labels)), labels.astype(int).reshape(-1)]


def coverage_of_scores(scores: np.ndarray, before: dict[float, Any], weight: np.ndarray | None = None) -> Coverage:
    """Before: as given, of the posterior's own intervals. After: each half of the rows by the other half's scores."""
    told = {}
    halves = _halves(scores, weight)
    for level in _levels_for(min(len(half.repeated) for half in halves)):
        after = []
        for half, other in (halves, halves[::-1]):
            low, high = ScoreDistribution.of(half.repeated).quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
            after.append(_share((other.scores >= low) & (other.scores <= high), other.weight))
        told[level] = {"before": float(before[level]), "after": float(np.mean(after))}
    return told


class _Half(NamedTuple):
    scores: np.ndarray
    weight: np.ndarray | None
    repeated: np.ndarray


def _halves(scores: np.ndarray, weight: np.ndarray | None) -> tuple[_Half, _Half]:
    """Every other row, and the rest."""
    first, last = ((scores[i::2], None if weight is None else weight[i::2]) for i in (0, 1))
    return _Half(*first, repeated(*first)), _Half(*last, repeated(*last))


def _coverage_of_sets(
    probs: np.ndarray, scores: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None
) -> Coverage:
    """Before: of the sets that hold `level` of the plain probability, the most probable classes first."""
    order = np.argsort(-probs, axis=1)
    mass_before = np.cumsum(np.take_along_axis(probs, order, 1), 1) - np.take_along_axis(probs, order, 1)
    place = (order == labels.astype(int).reshape(-1, 1)).argmax(1)
    needed = mass_before[np.arange(len(labels)), place]  # a set that holds more than this has the label
    halves = _halves(scores, weight)
    told = {}
    for level in _levels_for(min(len(half.repeated) for half in halves)):
        after = [
            _share(other.scores <= threshold(half.repeated, level), other.weight)
            for half, other in (halves, halves[::-1])
        ]
        told[level] = {"before": _share(needed < level, weight), "after": float(np.mean(after))}
    return told


def _levels_for(num_rows: int) -> list[float]:
    return [level for level in LEVELS if math.ceil((num_rows + 1) * (level - ROUNDING)) <= num_rows]
