"""Held against numerical integration, loops over pairs, and distributions with known scores."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error

from posteria.errors import DataError
from posteria.metrics import (
    coverage,
    crps_from_quantiles,
    crps_from_samples,
    crps_gaussian_mixture,
    quantile_levels,
    rmse,
    scores,
    width,
)

rng = np.random.default_rng(0)
MEANS, STDS, Y = rng.normal(size=(5, 7)), rng.uniform(0.1, 2, (5, 7)), rng.normal(size=7)


def crps_by_integration(means, stds, y, weights):
    """The integral of (F(z) - 1{z >= y})^2 over z, for one point."""

    def cdf(z):
        return weights @ norm.cdf(z, means, stds)

    below = quad(lambda z: cdf(z) ** 2, min(y, means.min()) - 20, y, limit=200)[0]
    above = quad(lambda z: (1 - cdf(z)) ** 2, y, max(y, means.max()) + 20, limit=200)[0]
    return below + above


@pytest.mark.parametrize("weights", [None, [0.1, 0.4, 0.2, 0.25, 0.05]])
def test_crps_of_a_mixture_is_its_integral(weights):
    w = np.full(5, 0.2) if weights is None else np.array(weights)
    expected = np.mean([crps_by_integration(MEANS[:, i], STDS[:, i], Y[i], w) for i in range(7)])
    assert crps_gaussian_mixture(MEANS, STDS, Y, weights) == pytest.approx(expected, rel=1e-7)


def test_crps_of_one_gaussian_is_the_textbook_formula():
    z = (Y - MEANS[0]) / STDS[0]
    expected = STDS[0] * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))  # Gneiting et al. 2005
    assert crps_gaussian_mixture(MEANS[:1], STDS[:1], Y) == pytest.approx(expected.mean())
    repeated = crps_gaussian_mixture(np.repeat(MEANS[:1], 3, 0), np.repeat(STDS[:1], 3, 0), Y)
    assert repeated == pytest.approx(expected.mean())


def test_crps_scores_the_mixture_not_its_moments():
    """Truth at one of two well separated modes: one Gaussian of the same mean and variance is far worse."""
    means, stds = np.array([[-5.0], [5.0]]), np.full((2, 1), 0.1)
    moments = crps_gaussian_mixture([[0.0]], [[np.sqrt(25.01)]], [5.0])
    assert crps_gaussian_mixture(means, stds, [5.0]) == pytest.approx(2.5, abs=0.1)
    assert moments == pytest.approx(3.01, abs=0.01)


def test_crps_of_a_mixture_is_the_same_in_any_blocks(monkeypatch):
    means, stds, y = rng.normal(size=(5, 6, 2)), rng.uniform(0.1, 2, (5, 6, 2)), rng.normal(size=(6, 2))
    whole = crps_gaussian_mixture(means, stds, y)
    monkeypatch.setattr(scores, "BLOCK_VALUES", 1)
    assert crps_gaussian_mixture(means, stds, y) == pytest.approx(whole, rel=1e-12)


def test_crps_of_a_mixture_never_holds_all_pairs():
    import tracemalloc

    shape = (100, 3000)  # all pairs at all points would be 240 MB
    means, stds, y = rng.normal(size=shape), np.ones(shape), rng.normal(size=3000)
    tracemalloc.start()
    crps_gaussian_mixture(means, stds, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_crps_from_quantiles_of_a_gaussian_is_high_by_less_than_a_thousandth():
    """Truths in the middle and in both tails, of one target or two."""
    y = np.array([[-2.0, 0.1], [0.5, 3.0], [1.0, -1.0]])
    mean, std = rng.normal(size=(3, 2)), rng.uniform(0.5, 2, (3, 2))
    quantiles = norm.ppf(quantile_levels(100)[:, None, None], mean, std)
    exact = crps_gaussian_mixture(mean[None], std[None], y)
    assert exact < crps_from_quantiles(quantiles, y) < 1.001 * exact
    assert crps_from_quantiles(quantiles[..., 0], y[:, 0]) == pytest.approx(
        crps_gaussian_mixture(mean[None, :, 0], std[None, :, 0], y[:, 0]), rel=1e-3
    )


def test_crps_from_one_quantile_is_the_absolute_error_from_the_median():
    assert crps_from_quantiles([[1.0, 5.0]], [3.0, 4.0]) == pytest.approx((2.0 + 1.0) / 2)


def test_quantiles_of_other_values_than_y_are_refused_where_they_would_broadcast():
    with pytest.raises(DataError, match="quantiles"):
        crps_from_quantiles(np.zeros((4, 3)), np.zeros(1))


def test_crps_from_samples_agrees_with_loops_over_pairs():
    samples = rng.normal(size=(6, 4))
    y = rng.normal(size=4)
    pairs = [np.abs(samples[i] - samples[j]) for i in range(6) for j in range(6) if i != j]
    expected = (np.abs(samples - y).mean(0) - np.mean(pairs, axis=0) / 2).mean()
    assert crps_from_samples(samples, y) == pytest.approx(expected, rel=1e-12)
    assert crps_from_samples(samples + 1e6, y + 1e6) == pytest.approx(expected, rel=1e-8)


def test_crps_from_samples_is_unbiased_even_with_three_draws():
    """Against the closed form of the mixture that is drawn from, over 20,000 repetitions at one point."""
    truth = crps_gaussian_mixture([[0.0], [3.0]], [[1.0], [0.5]], [1.0])
    is_second = rng.integers(0, 2, (3, 20_000))
    samples = np.where(is_second, rng.normal(3.0, 0.5, (3, 20_000)), rng.normal(0.0, 1.0, (3, 20_000)))
    scores = np.array([crps_from_samples(part, np.ones(200)) for part in np.split(samples, 100, axis=1)])
    assert abs(scores.mean() - truth) < 4 * scores.std(ddof=1) / np.sqrt(100)


def test_rmse_agrees_with_scikit_learn():
    assert rmse(MEANS[0], Y) == pytest.approx(root_mean_squared_error(Y, MEANS[0]))
    assert rmse(MEANS[:, :, None], MEANS[:, :, None] + 2) == pytest.approx(2)


def test_coverage_counts_the_ends_and_width_is_a_mean():
    lower, upper = np.zeros(4), np.array([1.0, 1.0, 1.0, 3.0])
    assert coverage(lower, upper, np.array([0.0, 1.0, 1.1, -0.1])) == 0.5
    assert width(lower, upper) == 1.5


def test_coverage_of_exact_intervals_is_nominal():
    y = rng.normal(size=10_000)
    end = np.full(10_000, norm.ppf(0.95))
    assert abs(coverage(-end, end, y) - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 10_000)


@pytest.mark.parametrize("metric", [rmse, width])
def test_no_silent_broadcasting(metric):
    with pytest.raises(DataError, match=r"\(7, 1\).*\[\.\.\., None\]"):
        metric(Y[:, None], Y)
    with pytest.raises(DataError, match="same shape"):
        metric(Y, Y[:-1])


def test_bad_input_is_named():
    one = np.ones(3)
    cases = [
        (lambda: rmse([], []), "empty"),
        (lambda: rmse(one, [1.0, np.nan, 1.0]), r"y has 1 values that are not finite, the first at \(1,\)"),
        (lambda: coverage(one, one, one[:, None]), "same shape"),
        (lambda: coverage(one, one - 1, one), "end before they start"),
        (lambda: crps_gaussian_mixture(one, one, one), "draws on the first axis"),
        (lambda: crps_gaussian_mixture(MEANS[..., None], STDS[..., None], Y), "draws on the first axis"),
        (lambda: crps_gaussian_mixture(MEANS, STDS[:1], Y), "same shape"),
        (lambda: crps_gaussian_mixture(MEANS, 0 * STDS, Y), "positive"),
        (lambda: crps_gaussian_mixture(MEANS, STDS, Y, np.ones(5)), "normalise"),
        (lambda: crps_gaussian_mixture(MEANS, STDS, Y, np.ones(4) / 4), "one weight a draw"),
        (lambda: crps_from_samples(MEANS[:1], Y), "at least two"),
        (lambda: crps_from_samples(MEANS.T, Y), "draws on the first axis"),
        (lambda: crps_from_samples(np.full((2, 7), np.inf), Y), "not finite"),
    ]
    for call, match in cases:
        with pytest.raises(DataError, match=match):
            call()
