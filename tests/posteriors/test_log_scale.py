"""Targets on a log scale: every verb is of one distribution of y itself, which is never negative."""

import numpy as np
import pytest
from scipy import integrate

import posteria as po
from posteria.data import Standardiser
from posteria.data.table_target import may_suit_logs
from posteria.errors import PosteriaError
from posteria.posteriors.units import in_units

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 2)).astype(np.float32)
Y = np.exp(X[:, 0] + 0.3 * RANDOM.normal(size=80))


@pytest.fixture(scope="module")
def scale():
    return Standardiser.of_logs(Y)


@pytest.fixture(scope="module", params=["plain", "calibrated"])
def posterior(request, scale):
    model = po.Model(po.nn.mlp((4,)), po.likelihoods.Gaussian(noise=0.3))
    y = scale.apply(Y).astype(np.float32)[:, None]
    posterior = po.fit(model, (X, y), po.MAP(num_epochs=200))
    return posterior.calibrate(X[::-1], y[::-1]) if request.param == "calibrated" else posterior


@pytest.fixture(scope="module")
def predictive(posterior, scale):
    return in_units(posterior.predict(X[:5]), scale)


def test_the_density_of_y_integrates_to_one_and_to_the_cdf(posterior, scale):
    """Of one row, over y itself: without the Jacobian it would not. It jumps at the knots of the scores, so that the
    sum is a grid step's worth of it off."""
    grid = np.geomspace(1e-8, 1e8, 30_001)
    one = in_units(posterior.predict(np.repeat(X[:1], len(grid), 0)), scale)
    density, cdf = np.exp(one.log_prob(grid)), one.cdf(grid)[:, 0]
    summed = integrate.cumulative_trapezoid(density, grid, initial=0.0)
    np.testing.assert_allclose(summed, cdf - cdf[0], atol=2e-3)
    assert cdf[0] < 1e-3 and abs(summed[-1] - 1) < 2e-3


def test_quantile_and_cdf_are_inverse_and_above_zero(predictive, posterior):
    is_exact = hasattr(posterior, "scores")  # calibrated: others are searched for in 32 bits
    for level in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(predictive.cdf(predictive.quantile(level)), level, atol=1e-9 if is_exact else 1e-4)
    lower, upper = predictive.interval(0.9)
    assert (lower > 0).all() and (upper > lower).all()
    np.testing.assert_allclose(np.stack([lower, upper]), predictive.quantile([0.05, 0.95]), rtol=1e-5)
    assert (predictive.sample(0, 200) > 0).all()


def test_nothing_is_below_zero(predictive):
    for y in (np.zeros(5), -np.ones(5)):
        assert (predictive.cdf(y) == 0).all() and (predictive.log_prob(y) == -np.inf).all()


def test_moments_are_those_of_draws_in_the_middle(predictive):
    draws = predictive.sample(1, 20_000)[..., 0]
    low, high = predictive.quantile([0.001, 0.999])[..., 0]
    for row in range(5):
        middle = draws[(draws[:, row] > low[row]) & (draws[:, row] < high[row]), row]
        error = middle.std() / np.sqrt(len(middle))
        assert abs(middle.mean() - predictive.mean[row, 0]) < 5 * error
        assert middle.std() == pytest.approx(predictive.std[row, 0], rel=0.06)
    np.testing.assert_allclose(predictive.aleatoric + predictive.epistemic, predictive.std**2, rtol=1e-5)


def test_a_lognormal_has_its_own_density(scale):
    """Against SciPy, with one draw and a noise that is known."""
    from scipy.stats import lognorm

    model = po.Model(po.nn.mlp(()), po.likelihoods.Gaussian(noise=0.5))
    posterior = po.fit(model, (X, scale.apply(Y).astype(np.float32)), po.MAP(num_epochs=50))
    plain = posterior.predict(X[:7])
    own, y = in_units(plain, scale), np.geomspace(0.1, 5, 7)
    wanted = lognorm(s=0.5 * scale.std, scale=np.exp(plain.mean[:, 0] * scale.std + scale.mean))
    np.testing.assert_allclose(own.log_prob(y), wanted.logpdf(y), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(own.cdf(y)[:, 0], wanted.cdf(y), atol=1e-5)
    np.testing.assert_allclose(own.mean[:, 0], wanted.mean(), rtol=0.02)  # all but the tails


def test_a_scale_goes_there_and_back(scale):
    np.testing.assert_allclose(scale.invert(scale.apply(Y)), Y)
    again = Standardiser.from_json(scale.to_json())
    assert again.is_log and again.mean == scale.mean
    with pytest.raises(PosteriaError, match="above 0"):
        scale.apply(np.array([1.0, 0.0]))


def test_only_what_is_positive_and_skewed_is_tried():
    assert may_suit_logs(Y)
    for y in (Y - 1, np.log(Y) + 10, -Y, Y[:20], np.stack([Y, Y], 1), Y.max() + 0.1 - Y):
        assert not may_suit_logs(y)
