"""What a log density of one number says by itself: its mass, its distribution function and its moments."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

NUM_POINTS = 10_000  # on each side of the middle
REACH = 25.0  # of the coordinate t below: exp(25) is 7e10 scales away, so that a Cauchy keeps 1e-11 outside
MASS_ERROR = 1e-4  # of a density in float32 by this rule, the heaviest tails included
MOMENT_ERROR = 1e-3
GROWTH = 1.01  # of an integral when its range is squared: more than this and it does not converge


@dataclass(frozen=True)
class Measure:
    """Points and the mass of each, for a row of a distribution: real numbers, or the whole numbers from 0."""

    points: np.ndarray  # (point,), ascending
    masses: np.ndarray  # (point,): density times width, or probability
    is_discrete: bool

    @property
    def total(self) -> float:
        return float(self.masses.sum())

    def cdf(self, values: np.ndarray) -> np.ndarray:
        """P(Y <= value), normalised by the total."""
        cumulative = np.cumsum(self.masses)
        if self.is_discrete:
            at = np.searchsorted(self.points, values, side="right")
            return np.concatenate([[0.0], cumulative])[at] / cumulative[-1]
        return np.interp(values, self.points, (cumulative - 0.5 * self.masses) / cumulative[-1], left=0.0, right=1.0)

    def mean(self) -> float:
        return float(self.points @ self.masses / self.total)

    def variance(self) -> float:
        return float((self.points - self.mean()) ** 2 @ self.masses / self.total)

    def has_moment(self, power: int) -> bool:
        """Whether the integral of |y|^power converges: it does not grow when its range is squared."""
        if self.is_discrete:
            return True
        median = self.points[np.searchsorted(np.cumsum(self.masses), 0.5 * self.total)]
        sizes = np.abs(self.points - median)
        terms = sizes**power * self.masses
        inner = slice(len(terms) // 8, -(len(terms) // 8))  # up to exp(REACH / 2) scales away
        return bool(terms.sum() < GROWTH * terms[inner].sum())

    def p_value(self, draws: np.ndarray) -> float:
        """That these independent draws come from it: Kolmogorov and Smirnov, or a chi-square of pooled counts."""
        if not self.is_discrete:
            return float(stats.kstest(draws, self.cdf).pvalue)
        expected = len(draws) * self.masses / self.total
        counts = np.bincount(np.asarray(draws, int), minlength=len(expected)).astype(float)
        if len(counts) > len(expected):
            return 0.0  # a draw beyond all mass
        cells = np.minimum(np.cumsum(expected) / LEAST_EXPECTED, len(draws) / LEAST_EXPECTED).astype(int)
        pooled = [np.bincount(cells, weights=each) for each in (counts, expected)]
        is_used = pooled[1] > 0
        observed, wanted = pooled[0][is_used], pooled[1][is_used]
        if len(wanted) == 1:
            return 1.0
        return float(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


LEAST_EXPECTED = 20.0  # draws in a cell of the chi-square


def of_density(
    log_density: Callable[[np.ndarray], np.ndarray],
    draws: np.ndarray,
    support: tuple[float, float] = (-math.inf, math.inf),
    middle: float | None = None,
) -> Measure:
    """The measure of a density on `support`; `draws` only say where its middle is, and how wide that is."""
    points, widths = grid(draws, support, middle)
    with np.errstate(over="ignore"):
        masses = np.exp(np.asarray(log_density(points.astype(np.float32)), np.float64)) * widths
    return Measure(points, masses, is_discrete=False)


def grid(
    draws: np.ndarray, support: tuple[float, float] = (-math.inf, math.inf), middle: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Points that crowd around the middle and reach far out, with the trapezium rule's widths.

    On each side they are middle + scale * exp(t) with t spaced evenly: what is smooth on each side is integrated to
    rounding, whatever it does at the middle, where it may have a jump, a kink or a pole.
    """
    quartile, median, other = np.quantile(np.asarray(draws, np.float64), [0.25, 0.5, 0.75])
    middle, scale = float(median if middle is None else middle), max(other - quartile, 1e-6)
    t = np.linspace(-REACH, REACH, NUM_POINTS)
    sides = []
    for sign, end in ((-1.0, support[0]), (1.0, support[1])):
        if math.isinf(end):
            away = slope = scale * np.exp(t)
        else:  # crowded at the end, too
            share = 1 / (1 + np.exp(-t))
            away, slope = abs(end - middle) * share, abs(end - middle) * share * (1 - share)
        widths = slope * (t[1] - t[0])
        widths[[0, -1]] *= 0.5
        sides.append((middle + sign * away, widths))
    (below, widths_below), (above, widths_above) = sides
    return np.concatenate([below[::-1], above]), np.concatenate([widths_below[::-1], widths_above])
