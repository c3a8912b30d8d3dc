"""Predictions after `calibrate`: every verb is of one distribution."""

from functools import cached_property
from typing import Any

import jax
import numpy as np

from posteria.errors import CapabilityError, SettingError
from posteria.posteriors.conformal import ScoreDistribution, check_level, threshold
from posteria.posteriors.predictive import Predictive
from posteria.posteriors.telling import ShownPrediction
from posteria.random import as_key

Parts = list[tuple[np.ndarray, np.ndarray]]  # (rows, the scores that hold for them)
MOST_SUMMED = 2000  # terms of the sums that moments of counts are
FARTHEST = 1e-9  # of each tail, left out of those sums


class CalibratedNumbers(ShownPrediction):
    """y = centre + half-width x score: centre and half-widths are the prediction's, the score is distributed as those
    of the calibration rows."""

    heavy_tails = True

    def __init__(self, plain: Predictive, parts: Parts) -> None:
        self._plain = plain
        self._parts = [(rows, ScoreDistribution.of(scores, self.heavy_tails)) for rows, scores in parts]
        self._fewest = min(len(scores) for _, scores in parts)

    def __len__(self) -> int:
        return len(self._plain)

    @property
    def mean(self) -> np.ndarray:
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(self._moments[1])

    @property
    def aleatoric(self) -> np.ndarray:
        """The same share of the variance as the posterior's own."""
        return self._moments[1] - self.epistemic

    @property
    def epistemic(self) -> np.ndarray:
        epistemic, aleatoric = (np.asarray(part, np.float64) for part in (self._plain.epistemic, self._plain.aleatoric))
        with np.errstate(invalid="ignore"):
            share = epistemic / (epistemic + aleatoric)  # 0 where the posterior's own variance is infinite
        return self._moments[1] * np.nan_to_num(share)

    def quantile(self, q: float | Any) -> np.ndarray:
        """Of each target alone: (n, targets), with a leading axis where q is a list."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not ((levels > 0) & (levels < 1)).all():
            raise SettingError(f"q is {q}", "levels between 0 and 1, exclusive", "0.9 is the 90 % quantile")
        values = self._at(lambda scores, num: scores.quantile(levels)[:, None].repeat(num, 1), len(levels))
        return values if np.ndim(q) else values[0]

    quantile_table = quantile

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper), each (n, targets): holds `level` of rows like those calibrated on."""
        check_level(level, self._fewest)
        lower, upper = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return lower, upper

    def sample(self, key: int | jax.Array, num: int) -> np.ndarray:
        """Draws of y: (num, n, targets)."""
        shape = (num, *self._shape[0].shape)
        levels = np.asarray(jax.random.uniform(as_key(key), shape, minval=1e-7, maxval=1 - 1e-7), np.float64)
        values = np.empty(shape)
        for rows, scores in self._parts:
            for target in range(shape[-1]):
                values[:, rows, target] = scores.quantile(levels[:, rows, target])[..., target]
        return self._placed(values)

    def cdf(self, y: Any) -> np.ndarray:
        """P(target <= y), each target alone: (n, targets)."""
        return self._cdf(self._values(y))

    def log_prob(self, y: Any) -> np.ndarray:
        """Log density at y, (n,): of several targets the sum, as if they were independent."""
        y = self._values(y)
        centre, below, above = self._shape
        scores, log_density = self._scores(y), np.empty(y.shape)
        for rows, distribution in self._parts:
            log_density[rows] = distribution.log_density(scores[rows])
        return (log_density - np.log(np.where(y > centre, above, below))).sum(-1)

    def check_y(self, y: Any) -> np.ndarray:
        return self._plain.check_y(y)

    @property
    def probs(self) -> np.ndarray:
        return self._plain.probs  # raises: numbers have none

    @property
    def entropy(self) -> np.ndarray:
        return self._plain.entropy

    @property
    def mutual_information(self) -> np.ndarray:
        return self._plain.mutual_information

    # ---- parts

    @cached_property
    def _shape(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._plain.half_widths

    def _values(self, y: Any) -> np.ndarray:
        """As they were given: the 32 bits that a network takes are steps as wide as small errors are."""
        self._plain.check_y(y)
        return np.asarray(y, np.float64).reshape(self._shape[0].shape)

    def _scores(self, y: np.ndarray) -> np.ndarray:
        centre, below, above = self._shape
        return np.where(y > centre, (y - centre) / above, (y - centre) / below)

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        scores, shares = self._scores(y), np.empty(y.shape)
        for rows, distribution in self._parts:
            shares[rows] = distribution.cdf(scores[rows])
        return shares

    def _at(self, score_of: Any, leading: int) -> np.ndarray:
        """Values of y at scores (leading, rows, target) of each part."""
        scores = np.empty((leading, *self._shape[0].shape))
        for rows, distribution in self._parts:
            scores[:, rows] = score_of(distribution, len(rows))
        return self._placed(scores)

    def _placed(self, scores: np.ndarray) -> np.ndarray:
        centre, below, above = self._shape
        return centre + np.where(scores > 0, above, below) * scores

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        centre, below, above = self._shape
        mean, square = np.empty(centre.shape), np.empty(centre.shape)
        for rows, distribution in self._parts:
            up, up_square, down, down_square = distribution.partial_moments()
            mean[rows] = above[rows] * up - below[rows] * down
            square[rows] = above[rows] ** 2 * up_square + below[rows] ** 2 * down_square
        return centre + mean, np.maximum(square - mean**2, 0.0)


class CalibratedCounts(CalibratedNumbers):
    """Whole numbers, none below 0: the nearest to a number of that distribution."""

    heavy_tails = False

    def quantile(self, q: float | Any) -> np.ndarray:
        return np.maximum(np.ceil(super().quantile(q) - 0.5), 0.0)

    quantile_table = quantile

    def sample(self, key: int | jax.Array, num: int) -> np.ndarray:
        return np.maximum(np.ceil(super().sample(key, num) - 0.5), 0.0)

    def cdf(self, y: Any) -> np.ndarray:
        y = self._values(y)
        return np.where(y < 0, 0.0, self._cdf(np.floor(y) + 0.5))

    def log_prob(self, y: Any) -> np.ndarray:
        y = self._values(y)
        below = np.where(y > 0, self._cdf(y - 0.5), 0.0)
        return np.log(np.maximum(self._cdf(y + 0.5) - below, 1e-300)).sum(-1)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of P(y > k) and (2 k + 1) P(y > k) from the least count on; of more than `MOST_SUMMED`, by blocks."""
        low, high = self.quantile([FARTHEST, 1 - FARTHEST])
        size = np.ceil((high - low + 1) / MOST_SUMMED)  # counts in a block, of which the middle one speaks for all
        first, second = np.zeros(low.shape), np.zeros(low.shape)
        for block in range(1 + int(((high - low) / size).max())):
            above = 1.0 - self._cdf(low + size * (block + 0.5))
            first, second = first + size * above, second + size**2 * (2 * block + 1) * above
        return low + first, np.maximum(second - first**2, 0.0)


class CalibratedClasses(ShownPrediction):
    """Scaled probabilities, and sets of classes that hold the right one as often as promised."""

    def __init__(self, plain: Predictive, parts: Parts, temperature: float) -> None:
        self._plain = plain
        self._parts = parts
        self._temperature = temperature

    def __len__(self) -> int:
        return len(self._plain)

    @cached_property
    def probs(self) -> np.ndarray:
        return scaled(np.asarray(self._plain.probs, np.float64), self._temperature)

    @property
    def mean(self) -> np.ndarray:
        """Of each class's indicator; of a likelihood with one output, of label 1: as before calibration."""
        return self.probs[:, -self._plain.mean.shape[1] :]

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(self.mean * (1 - self.mean))

    @cached_property
    def entropy(self) -> np.ndarray:
        return -np.where(self.probs > 0, self.probs * np.log(np.maximum(self.probs, 1e-300)), 0.0).sum(-1)

    @property
    def aleatoric(self) -> np.ndarray:
        """The same share of the entropy as the posterior's own."""
        return self.entropy - self.epistemic

    @property
    def epistemic(self) -> np.ndarray:
        before = np.asarray(self._plain.entropy, np.float64)
        share = np.divide(self._plain.epistemic, before, out=np.zeros_like(before), where=before > 0)
        return self.entropy * np.clip(share, 0.0, 1.0)

    mutual_information = epistemic

    def log_prob(self, y: Any) -> np.ndarray:
        """Log probability of the labels, (n,)."""
        labels = self.check_y(y)
        return np.log(np.maximum(self.probs[np.arange(len(labels)), labels.astype(int).reshape(-1)], 1e-300))

    def sample(self, key: int | jax.Array, num: int) -> np.ndarray:
        """Draws of the label, (num, n)."""
        levels = np.asarray(jax.random.uniform(as_key(key), (num, len(self), 1)))
        return (levels > self.probs.cumsum(-1)[:, :-1]).sum(-1).astype(np.int32)

    def sets(self, level: float = 0.9) -> np.ndarray:
        """Which classes are in each row's set, (n, classes): it holds the right one for `level` of rows like those."""
        held = np.empty(self.probs.shape, bool)
        for rows, scores in self._parts:
            held[rows] = 1.0 - self.probs[rows] <= threshold(scores, level)
        return held

    def check_y(self, y: Any) -> np.ndarray:
        return self._plain.check_y(y)

    def _refuse(self, what: str) -> Any:
        raise CapabilityError(f"classes have no {what}", "numbers", "use probs or sets")

    def cdf(self, y: Any) -> np.ndarray:
        return self._refuse("distribution function")

    def quantile(self, q: Any) -> np.ndarray:
        return self._refuse("quantiles")

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        return self._refuse("intervals")


def scaled(probs: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities to the power 1 / temperature, made to sum to 1."""
    log_probs = np.log(np.maximum(probs, 1e-30)) / temperature
    powers = np.exp(log_probs - log_probs.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
