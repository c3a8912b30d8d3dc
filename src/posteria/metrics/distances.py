"""How far two predictive distributions are apart: for classes a mean over points, for real values one value a point."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError, SettingError
from posteria.metrics import demands

ORDER_TOLERANCE = 1e-3  # of the largest quantile: a search for quantiles may miss by so much
END_TOLERANCE = 0.01  # probability still to come where a grid ends


def agreement(probs_a: ArrayLike, probs_b: ArrayLike) -> float:
    """Fraction of points with the same most probable class, 0 to 1. Izmailov et al. 2021."""
    probs_a, probs_b = _two_probabilities(probs_a, probs_b)
    return float((probs_a.argmax(1) == probs_b.argmax(1)).mean())


def total_variation(probs_a: ArrayLike, probs_b: ArrayLike) -> float:
    """Mean over points of half the summed absolute difference of class probabilities, 0 to 1. Izmailov et al. 2021."""
    probs_a, probs_b = _two_probabilities(probs_a, probs_b)
    return float(np.abs(probs_a - probs_b).sum(1).mean() / 2)


def quantile_levels(num_levels: int) -> np.ndarray:
    """Midpoints of num_levels equal slices of (0, 1): where `wasserstein` wants its quantiles."""
    if num_levels < 1:
        raise SettingError(f"{num_levels} levels", "at least one", "100 are accurate to 1 % for Gaussians")
    return (np.arange(num_levels) + 0.5) / num_levels


def wasserstein(quantiles_a: ArrayLike, quantiles_b: ArrayLike, order: Literal[1, 2] = 1) -> np.ndarray:
    """Wasserstein distance of each point's two distributions, in the units of y, (n, ...).

    quantiles are (level, n, ...), at quantile_levels(len(quantiles)): the midpoint rule for the integral over levels of
    |Q_a - Q_b|^order, then the order-th root. It is exact for a shift and cuts short the tails beyond the outermost
    levels: for Gaussians of different widths, 100 levels are low by 0.3 % (order 1) and 0.6 % (order 2), 500 by 0.05 %
    and 0.13 %.
    """
    _check_order(order)
    quantiles_a, quantiles_b = demands.numbers("quantiles_a", quantiles_a), demands.numbers("quantiles_b", quantiles_b)
    demands.same_shape("quantiles_a", quantiles_a, "quantiles_b", quantiles_b)
    if quantiles_a.ndim == 0:
        raise DataError("single numbers", "quantiles (level, n, ...)", "evaluate them at quantile_levels(100)")
    for name, quantiles in (("quantiles_a", quantiles_a), ("quantiles_b", quantiles_b)):
        if (np.diff(quantiles, axis=0) < -ORDER_TOLERANCE * np.abs(quantiles).max()).any():
            raise DataError(f"{name} falls along its first axis", "quantiles (level, n, ...)", "put the levels first")
    return np.asarray((np.abs(quantiles_a - quantiles_b) ** order).mean(0) ** (1 / order))


def wasserstein_1_from_cdf(cdf_a: ArrayLike, cdf_b: ArrayLike, grid: ArrayLike) -> np.ndarray:
    """Wasserstein-1 distance of each point's two distributions, in the units of y, (n, ...).

    The integral of |F_a - F_b| by the trapezoidal rule. cdfs are (grid, n, ...), evaluated at grid, which is (grid,)
    for all points or shaped as the cdfs; it must reach where both have (nearly) ended.
    """
    cdf_a, cdf_b, grid = demands.numbers("cdf_a", cdf_a), demands.numbers("cdf_b", cdf_b), demands.numbers("grid", grid)
    demands.same_shape("cdf_a", cdf_a, "cdf_b", cdf_b)
    if cdf_a.ndim == 0 or grid.shape not in (cdf_a.shape[:1], cdf_a.shape):
        wanted = f"{cdf_a.shape[:1]} or {cdf_a.shape}"
        raise DataError(f"grid is {grid.shape}, the cdfs are {cdf_a.shape}", wanted, "put the grid on the first axis")
    if len(grid) < 2 or (np.diff(grid, axis=0) <= 0).any():
        raise DataError("a grid that does not increase", "at least two increasing values", "sort it, drop repetitions")
    start, end = np.maximum(cdf_a[0], cdf_b[0]).max(), np.minimum(cdf_a[-1], cdf_b[-1]).min()
    if start > END_TOLERANCE or end < 1 - END_TOLERANCE:
        raise DataError(f"cdfs from {start:.3g} to {end:.3g} on the grid", "0 to 1", "widen the grid")
    return np.asarray(np.trapezoid(np.abs(cdf_a - cdf_b), grid, axis=0))


def wasserstein_from_samples(samples_a: ArrayLike, samples_b: ArrayLike, order: Literal[1, 2] = 1) -> np.ndarray:
    """Wasserstein distance between two sets of draws, (draw, n, ...) each, at every point, in the units of y, (n, ...).

    Exact for the empirical distributions, also of different numbers of draws. Two sets of draws of one distribution are
    apart: the distance falls only with the root of their number.
    """
    _check_order(order)
    samples_a, samples_b = demands.numbers("samples_a", samples_a), demands.numbers("samples_b", samples_b)
    if samples_a.ndim == 0 or samples_a.shape[1:] != samples_b.shape[1:]:
        got = f"samples_a is {samples_a.shape}, samples_b is {samples_b.shape}"
        raise DataError(got, "(draw, n, ...) at the same points", "put the draws on the first axis")
    num_a, num_b = len(samples_a), len(samples_b)
    # both quantile functions are steps: constant between these levels, which in units of 1 / (num_a num_b) are integers
    levels = np.union1d(np.arange(num_a + 1) * num_b, np.arange(num_b + 1) * num_a)
    steps_a = np.sort(samples_a, axis=0)[levels[:-1] // num_b]
    steps_b = np.sort(samples_b, axis=0)[levels[:-1] // num_a]
    mass = np.diff(levels) / (num_a * num_b)
    return np.asarray(np.tensordot(mass, np.abs(steps_a - steps_b) ** order, axes=1) ** (1 / order))


def _two_probabilities(probs_a: ArrayLike, probs_b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    probs_a, probs_b = demands.probabilities("probs_a", probs_a), demands.probabilities("probs_b", probs_b)
    demands.same_shape("probs_a", probs_a, "probs_b", probs_b)
    return probs_a, probs_b


def _check_order(order: int) -> None:
    if order not in (1, 2):
        raise SettingError(f"order is {order}", "1 or 2", "choose one")
