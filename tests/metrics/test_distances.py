"""Held against closed forms for Gaussians and scipy."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm, wasserstein_distance

from posteria.errors import DataError, SettingError
from posteria.metrics import quantile_levels, wasserstein, wasserstein_1_from_cdf, wasserstein_from_samples

rng = np.random.default_rng(0)
MEAN_A, MEAN_B = np.array([0.0, 1.0, -2.0, 0.0]), np.array([0.0, 3.0, 1.0, 0.1])
STD_A, STD_B = np.array([1.0, 1.0, 0.5, 2.0]), np.array([2.0, 1.0, 3.0, 2.1])


def gaussian_quantiles(mean, std, num_levels):
    return mean + std * norm.ppf(quantile_levels(num_levels))[:, None]


def folded_normal_mean(mean, std):
    return std * np.sqrt(2 / np.pi) * np.exp(-(mean**2) / (2 * std**2)) + mean * (1 - 2 * norm.cdf(-mean / std))


def exact(order):
    """Q_a - Q_b is itself a Gaussian: N(difference of means, difference of stds)."""
    shift, spread = MEAN_A - MEAN_B, np.abs(STD_A - STD_B)
    if order == 2:
        return np.sqrt(shift**2 + spread**2)
    return np.where(spread > 0, folded_normal_mean(shift, np.where(spread > 0, spread, 1)), np.abs(shift))


@pytest.mark.parametrize("order, levels, error", [(1, 100, 0.003), (2, 100, 0.007), (1, 500, 0.0005), (2, 500, 0.0014)])
def test_wasserstein_of_gaussians_is_known(order, levels, error):
    a, b = gaussian_quantiles(MEAN_A, STD_A, levels), gaussian_quantiles(MEAN_B, STD_B, levels)
    result = wasserstein(a, b, order)
    assert result.shape == (4,)
    np.testing.assert_allclose(result, exact(order), rtol=error)
    np.testing.assert_allclose(result[1], 2.0, rtol=1e-12)  # a shift, exactly


@pytest.mark.parametrize("per_point", [False, True])
def test_wasserstein_1_from_cdfs_of_gaussians_is_known(per_point):
    grid = np.linspace(-20, 20, 2001)
    if per_point:
        grid = grid[:, None] * np.array([0.6, 0.8, 1.0, 0.9])
    z = grid if per_point else grid[:, None]
    result = wasserstein_1_from_cdf(norm.cdf(z, MEAN_A, STD_A), norm.cdf(z, MEAN_B, STD_B), grid)
    np.testing.assert_allclose(result, exact(1), rtol=1e-3)


def test_a_grid_of_two_points_is_the_least_there_is():
    assert wasserstein_1_from_cdf([[0.0], [1.0]], [[0.0], [1.0]], [0.0, 1.0]) == 0.0
    with pytest.raises(DataError, match="at least two"):
        wasserstein_1_from_cdf([[1.0]], [[1.0]], [0.0])


def test_wasserstein_1_from_quantiles_and_from_cdfs_agree_on_mixtures():
    means = rng.normal(size=(2, 8)) * 3
    grid = np.linspace(-15, 15, 4001)
    cdfs = [norm.cdf(grid[:, None], m, 0.5).mean(1) for m in means]
    quantiles = [np.interp(quantile_levels(500), cdf, grid) for cdf in cdfs]
    np.testing.assert_allclose(wasserstein(*quantiles), wasserstein_1_from_cdf(*cdfs, grid), rtol=5e-3)


@pytest.mark.parametrize("num_a, num_b", [(10, 10), (10, 7), (6, 12), (1, 5), (4, 6)])
def test_wasserstein_1_from_samples_agrees_with_scipy(num_a, num_b):
    a, b = rng.normal(size=(num_a, 3, 2)), rng.normal(1, 2, size=(num_b, 3, 2))
    expected = [[wasserstein_distance(a[:, i, j], b[:, i, j]) for j in range(2)] for i in range(3)]
    np.testing.assert_allclose(wasserstein_from_samples(a, b), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("num_a, num_b", [(6, 6), (4, 6)])
def test_wasserstein_from_samples_is_the_cheapest_transport(order, num_a, num_b):
    """The assignment problem, with draws repeated to a common number."""
    a, b = rng.normal(size=num_a), rng.normal(1, 2, size=num_b)
    common = np.lcm(num_a, num_b)
    cost = np.abs(np.repeat(a, common // num_a)[:, None] - np.repeat(b, common // num_b)) ** order
    expected = cost[linear_sum_assignment(cost)].mean() ** (1 / order)
    np.testing.assert_allclose(wasserstein_from_samples(a, b, order), expected, rtol=1e-12)


def test_wasserstein_2_is_at_least_wasserstein_1_and_both_are_symmetric():
    a, b = rng.normal(size=(50, 20)), rng.gamma(1.0, size=(40, 20))
    first, second = wasserstein_from_samples(a, b, 1), wasserstein_from_samples(a, b, 2)
    assert (second >= first).all()
    np.testing.assert_allclose(wasserstein_from_samples(b, a, 2), second, rtol=1e-12)
    np.testing.assert_array_equal(wasserstein_from_samples(a, a[::-1], 2), 0)


def test_levels_are_midpoints():
    np.testing.assert_allclose(quantile_levels(4), [0.125, 0.375, 0.625, 0.875])


def test_bad_input_is_named():
    quantiles = gaussian_quantiles(MEAN_A, STD_A, 10)
    grid = np.linspace(-9, 9, 50)
    cdf = norm.cdf(grid)
    cases = [
        (lambda: wasserstein(quantiles, quantiles[..., None]), "same shape"),
        (lambda: wasserstein(quantiles.T, quantiles.T), "levels first"),
        (lambda: wasserstein(1.0, 2.0), "single numbers"),
        (lambda: wasserstein(quantiles, np.full_like(quantiles, np.nan)), "not finite"),
        (lambda: wasserstein([], []), "empty"),
        (lambda: wasserstein_1_from_cdf(cdf, cdf, grid[:-1]), "grid is"),
        (lambda: wasserstein_1_from_cdf(cdf[:, None], cdf, grid), "same shape"),
        (lambda: wasserstein_1_from_cdf(cdf, cdf, grid[::-1]), "increas"),
        (lambda: wasserstein_1_from_cdf(cdf[:30], cdf[:30], grid[:30]), "widen the grid"),
        (lambda: wasserstein_from_samples(np.ones((5, 3)), np.ones(5)), "same points"),
        (lambda: wasserstein_from_samples(np.ones((5, 3)), np.ones((5, 1))), "same points"),
    ]
    for call, match in cases:
        with pytest.raises(DataError, match=match):
            call()
    for call in (lambda: wasserstein(quantiles, quantiles, 3), lambda: quantile_levels(0)):
        with pytest.raises(SettingError):
            call()
