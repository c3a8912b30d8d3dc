"""The distribution of a new row's score, from the scores of rows like it: what a calibrated prediction is made of.

A score is an error in units of the prediction's own width. With n exchangeable rows a new score is below the k-th
smallest with probability k / (n + 1) (Vovk et al. 2005), so the distribution goes through these points at the levels
that people ask for; between them, and beyond the last, it is that of a normal variable stretched piecewise, with the
tails of the t that suits the scores best. So it has quantiles, a density and moments, all of one distribution.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from posteria.errors import SettingError

MANY = 300  # scores from which on the two sides are told apart; fewer are taken as symmetric, which halves the noise
LEVELS = (0.25, 0.5, 0.68, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)  # of central intervals
FEWEST_BETWEEN = 2.0  # scores between two neighbouring levels
TAIL_STEPS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # beyond the last level, in units of the normal variable
DEGREES = (3.0, 4.0, 6.0, 10.0, 30.0, 1000.0)  # of freedom that the tails may have
LEAST_SLOPE, USUAL_LEVEL = 0.02, 0.9  # of the average one up to this level: ties would have an infinite density
MOST_REPEATED = 100_000  # scores of weighted rows
ROUNDING = 1e-6  # of a level: 0.9 is not quite 0.9 in float32, and the rank of a score must not depend on it


@dataclass(frozen=True, eq=False)
class ScoreDistribution:
    """score = T(z) with z ~ N(0, 1); T goes linearly from knot to knot, and on beyond the last ones.

    One z for all targets, scores a column each.
    """

    z: np.ndarray  # (knot,), increasing
    scores: np.ndarray  # (knot, target), each column increasing

    @classmethod
    def of(cls, scores: np.ndarray, heavy_tails: bool = True) -> "ScoreDistribution":
        """From the scores of calibration rows, (n, target); where none is negative, their signs were not kept.

        Without `heavy_tails` they are a normal's.
        """
        scores = np.asarray(scores, np.float64)
        num = len(scores)
        levels = _levels(num)
        if num < MANY or scores.min() >= 0:
            sizes = np.abs(scores)
            half = _increasing(ndtri((1 + levels) / 2), _ranked(sizes, levels), sizes)
            z, reach = _with_tail(*half, sizes, heavy_tails)
            return cls(np.r_[-z[::-1], 0.0, z], np.r_[-reach[::-1], np.zeros_like(reach[:1]), reach])
        sides = np.sort(np.r_[(1 - levels) / 2, 0.5, (1 + levels) / 2])
        centre = _ranked(scores, np.array([0.5]))
        z, knots = ndtri(sides), _ranked(scores, sides)
        middle = len(levels)
        sizes = np.abs(scores - centre)
        above = _with_tail(*_increasing(z[middle + 1 :], knots[middle + 1 :] - centre, sizes), sizes, heavy_tails)
        below = _with_tail(*_increasing(-z[:middle][::-1], centre - knots[:middle][::-1], sizes), sizes, heavy_tails)
        return cls(np.r_[-below[0][::-1], 0.0, above[0]], np.r_[centre - below[1][::-1], centre, centre + above[1]])

    def quantile(self, q: np.ndarray) -> np.ndarray:
        """Of each target: (*q, target)."""
        return self.quantile_of_normal(ndtri(np.asarray(q, np.float64)))

    def quantile_of_normal(self, z: np.ndarray) -> np.ndarray:
        """T itself: (*z, target)."""
        return np.stack([_line(z, self.z, column) for column in self.scores.T], axis=-1)

    def cdf(self, scores: np.ndarray) -> np.ndarray:
        """Of scores (n, target)."""
        return ndtr(self._normal(scores))

    def log_density(self, scores: np.ndarray) -> np.ndarray:
        z = self._normal(scores)
        slopes = np.diff(self.scores, axis=0) / np.diff(self.z)[:, None]  # (segment, target)
        segment = np.clip(np.searchsorted(self.z, z) - 1, 0, len(slopes) - 1)
        log_slope = np.log(np.take_along_axis(slopes, segment, 0))
        return -0.5 * z**2 - 0.5 * math.log(2 * math.pi) - log_slope

    def partial_moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """E[s; s > 0], E[s^2; s > 0], E[-s; s < 0], E[s^2; s < 0], each (target,)."""
        parts = []
        for column in self.scores.T:
            zero = float(_line(np.zeros(1), column, self.z)[0])
            knots = np.sort(np.r_[-np.inf, self.z, zero, np.inf])
            inner = np.r_[self.z[0] - 1, knots[1:-1], self.z[-1] + 1]  # two points of each segment's line
            values = _line(inner, self.z, column)
            first, second = _segment_moments(knots, inner, values)
            is_above = knots[:-1] >= zero
            parts.append(
                (first[is_above].sum(), second[is_above].sum(), -first[~is_above].sum(), second[~is_above].sum())
            )
        return tuple(np.array(part) for part in zip(*parts))  # type: ignore[return-value]

    def _normal(self, scores: np.ndarray) -> np.ndarray:
        columns = zip(np.asarray(scores, np.float64).T, self.scores.T)
        return np.stack([_line(each, column, self.z) for each, column in columns], axis=-1)


def check_level(level: float, num: int) -> None:
    """Refuse a level that so few rows cannot promise."""
    if not 0 < level < 1:
        raise SettingError(f"level is {level}", "a number between 0 and 1", "0.9 is a 90 % interval")
    if math.ceil((num + 1) * (level - ROUNDING)) > num:
        raise SettingError(
            f"{num} calibration rows for a level of {level:g}",
            f"at least {math.ceil(level / (1 - level))}: fewer cannot promise it",
            "calibrate on more rows, or ask for a lower level",
        )


def threshold(scores: np.ndarray, level: float) -> np.ndarray:
    """The score that a new row stays below with probability at least `level`: the (n + 1) level-th smallest."""
    check_level(level, len(scores))
    rank = max(1, math.ceil((len(scores) + 1) * (level - ROUNDING)))
    return np.sort(scores, axis=0)[rank - 1]


def repeated(scores: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Scores of rows that count `weight` times, as scores that count once each: of whole weights, each that often.

    Of others, as many as the weights add up to (at least as many as share them, sum(w)^2 / sum(w^2); Kish 1965), at
    even steps of the weighted distribution, column by column.
    """
    if weight is None:
        return scores
    total = float(weight.sum())
    num = int(np.clip(round(total), round(total**2 / float((weight**2).sum())), max(MOST_REPEATED, len(scores))))
    wanted = (np.arange(num) + 0.5) * (total / num)
    columns = []
    for column in scores.reshape(len(scores), -1).T:
        order = np.argsort(column, kind="stable")
        found = np.searchsorted(np.cumsum(weight[order]), wanted)
        columns.append(column[order][np.minimum(found, len(order) - 1)])
    return np.stack(columns, axis=1).reshape(num, *scores.shape[1:])


def _levels(num: int) -> np.ndarray:
    """Those of LEVELS that so many rows can promise, with some rows between each; and the highest they can."""
    highest = num / (num + 1) if num < MANY else 1 - 2 / (num + 1)
    levels: list[float] = []
    for level in (*LEVELS, highest):
        is_apart = (level - (levels[-1] if levels else 0.0)) * num >= FEWEST_BETWEEN / (1 if num < MANY else 0.5)
        if level <= highest and (is_apart or level in (0.9, 0.95) or (level == highest and num < MANY)):
            levels.append(level)
    return np.unique(levels)


def _ranked(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The scores of rank (n + 1) level, between two of them where that is no whole number: (level, target)."""
    num = len(scores)
    return np.stack(
        [np.interp((num + 1) * levels, np.arange(1, num + 1), column) for column in np.sort(scores, 0).T], 1
    )


def _increasing(z: np.ndarray, sizes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Knots from (0, 0) on that rise by some least slope, in which a few huge scores have no say."""
    usual = min(int(np.searchsorted(z, ndtri((1 + USUAL_LEVEL) / 2) - ROUNDING)), len(z) - 1)
    least = LEAST_SLOPE * np.maximum(sizes[usual] / z[usual], 1e-6 + 1e-6 * np.quantile(np.abs(scores), USUAL_LEVEL, 0))
    raised = np.empty_like(sizes)
    last_z, last = 0.0, np.zeros(sizes.shape[1])
    for i, size in enumerate(sizes):
        last = raised[i] = np.maximum(size, last + least * (z[i] - last_z))
        last_z = z[i]
    return z, raised


def _with_tail(z: np.ndarray, sizes: np.ndarray, scores: np.ndarray, heavy: bool) -> tuple[np.ndarray, np.ndarray]:
    """Knots beyond the last, where a t would have them."""
    beyond = z[-1] + np.array(TAIL_STEPS)
    tails = []
    for size, column in zip(sizes[-1], np.abs(scores).T):
        degrees = _degrees_of(column) if heavy else DEGREES[-1]
        upper = stdtrit(degrees, ndtr(-np.r_[z[-1], beyond]))  # of the lower tail, which keeps its digits
        tails.append(size * upper[1:] / upper[0])
    return np.r_[z, beyond], np.r_[sizes, np.stack(tails, 1)]


def _degrees_of(sizes: np.ndarray) -> float:
    """The t of which these sizes are most probable, its scale by their median."""
    from scipy.stats import t

    scale = max(float(np.median(sizes)), 1e-12)
    log_likelihoods = []
    for degrees in DEGREES:
        own_scale = scale / t.ppf(0.75, degrees)
        log_likelihoods.append((t.logpdf(sizes / own_scale, degrees) - math.log(own_scale)).sum())
    return DEGREES[int(np.argmax(log_likelihoods))]


def _line(at: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Piecewise linear interpolation that goes on beyond the ends."""
    inside = np.interp(at, x, y)
    low = y[0] + (at - x[0]) * (y[1] - y[0]) / (x[1] - x[0])
    high = y[-1] + (at - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.where(at < x[0], low, np.where(at > x[-1], high, inside))


def _segment_moments(knots: np.ndarray, inner: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a + b z over each [knot, next]: its first and second moment under N(0, 1)."""
    span = np.diff(inner)
    slope = np.divide(np.diff(values), span, out=np.zeros_like(span), where=span > 0)
    start = values[:-1] - slope * inner[:-1]
    finite = np.nan_to_num(knots, posinf=0.0, neginf=0.0)
    density = np.where(np.isfinite(knots), np.exp(-0.5 * finite**2) / math.sqrt(2 * math.pi), 0.0)
    mass, mean = np.diff(ndtr(knots)), -np.diff(density)
    square = mass - np.diff(finite * density)
    return start * mass + slope * mean, start**2 * mass + 2 * start * slope * mean + slope**2 * square
