"""Quantiles and probabilities as predictions, baselines, and the scores made of them: against closed forms."""

import numpy as np
import pytest
from scipy.stats import norm

import posteria as po
from posteria.comparison.enter import baselines
from posteria.comparison.enter.baselines import ProbsPredictive, QuantilePredictive
from posteria.comparison.judge import grades

MEAN, STD = np.array([0.0, 3.0, -50.0]), np.array([1.0, 0.1, 20.0])
Y = np.array([0.3, 3.4, -90.0])


@pytest.fixture(params=[(0.1, 0.9), (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)], ids=["two", "nine"])
def gaussian(request):
    levels = np.array(request.param)
    return QuantilePredictive(levels, MEAN + STD * norm.ppf(levels)[:, None])


def test_quantiles_of_a_gaussian_are_a_gaussian(gaussian):
    np.testing.assert_allclose(gaussian.log_prob(Y), norm.logpdf(Y, MEAN, STD), rtol=1e-9)
    np.testing.assert_allclose(gaussian.cdf(Y)[:, 0], norm.cdf(Y, MEAN, STD), rtol=1e-9)
    np.testing.assert_allclose(gaussian.quantile(0.999)[:, 0], norm.ppf(0.999, MEAN, STD), rtol=1e-9)
    np.testing.assert_allclose(gaussian.mean[:, 0], MEAN, atol=1e-9 * 50)
    np.testing.assert_allclose(gaussian.std[:, 0], STD, rtol=5e-3)  # 400 levels cut the tails
    lower, upper = gaussian.interval(0.9)
    np.testing.assert_allclose((upper - lower)[:, 0], 2 * STD * norm.ppf(0.95), rtol=1e-9)


def test_its_density_integrates_to_one_also_where_quantiles_cross():
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    crossed = np.array([[-1.0, 0.2, 0.1, 0.1, 2.0]]).T  # out of order, and two equal
    grid = np.concatenate(
        [np.linspace(-8, 0.09, 20_001), np.linspace(0.09, 0.11, 20_001)[1:], np.linspace(0.11, 9, 20_001)[1:]]
    )
    predictive = QuantilePredictive(levels, np.repeat(crossed, len(grid), axis=1))
    density = np.exp(predictive.log_prob(grid))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    assert (np.diff(predictive.cdf(grid)[:, 0]) >= 0).all()


def test_scores_of_a_gaussian_are_those_in_closed_form(gaussian):
    scores = grades.grade(gaussian, Y, "regression").scores
    z = (Y - MEAN) / STD
    crps = STD * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))  # Gneiting & Raftery 2007
    assert scores["crps"] == pytest.approx(crps.mean(), rel=2e-3)
    assert scores["nll"] == pytest.approx(-norm.logpdf(Y, MEAN, STD).mean())
    assert scores["rmse"] == pytest.approx(np.sqrt(((Y - MEAN) ** 2).mean()), rel=1e-6)
    assert scores["coverage_50"] == pytest.approx(1 / 3)  # z = 0.3, 4, -2
    assert scores["coverage_95"] == pytest.approx(1 / 3)
    assert scores["width_95"] == pytest.approx((2 * 1.959964 * STD).mean(), rel=1e-6)


def test_distances_of_gaussians_are_those_in_closed_form(gaussian):
    levels = po.metrics.quantile_levels(100)
    moved = QuantilePredictive([0.1, 0.9], MEAN + 2.0 + STD * norm.ppf([0.1, 0.9])[:, None])
    distance = grades.distances(gaussian.quantile_table(levels), moved.quantile_table(levels), "regression")
    assert distance.keys() == {"w1"} and distance["w1"].mean() == pytest.approx(2.0)


def test_many_quantiles_at_once_are_those_one_by_one():
    """Within the curvature of a grid step, for a mixture of few and of many components."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    model = po.Model(po.nn.mlp((4,)))
    sampler = po.HMC(num_chains=2, num_draws=30, num_warmup=5, num_leapfrog=2, start="prior")
    posterior = po.fit(model, (x, x[:, 0]), sampler, progress=False)
    levels = [0.025, 0.1, 0.5, 0.9, 0.975]
    for num_draws in (3, 60):
        predictive = posterior.predict(x, num_draws)
        gap = np.abs(predictive.quantile_table(levels) - predictive.quantile(levels)) / predictive.std
        assert gap.max() < 0.01


def test_baselines_know_a_line_and_a_wave_when_they_see_one():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(600, 2))
    line = 2 * x[:, 0] - x[:, 1] + 0.3 * rng.normal(size=600)
    fitted = baselines.fit("linear", x[:500], line[:500], "regression", 0)
    scores = grades.grade(fitted.predict(x[500:]), line[500:], "regression").scores
    # 100 test rows: a mean square is known to a share of sqrt(2 / 100), a coverage to sqrt(p (1 - p) / 100)
    assert scores["rmse"] == pytest.approx(0.3, rel=4 * np.sqrt(2 / 100) / 2)
    assert scores["coverage_90"] == pytest.approx(0.9, abs=4 * 0.03)
    wave = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=600)
    boosted = baselines.fit("boosting", x[:500], wave[:500], "regression", 0)
    scores = grades.grade(boosted.predict(x[500:]), wave[500:], "regression").scores
    assert scores["rmse"] < 0.5 * wave.std()
    labels = (x[:, 0] > 0).astype(np.int32) * 2  # class 1 of three never comes
    classifier = baselines.fit("boosting", x[:500], labels[:500], "classes", 3)
    probs = classifier.predict(x[500:])
    assert probs.probs.shape == (100, 3) and (probs.probs[:, 1] == 0).all()
    assert grades.grade(probs, labels[500:], "classes").scores["accuracy"] > 0.95


def test_scores_of_classes_and_of_foreign_data():
    probs = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [1.0, 0.0]])
    y = np.array([0, 0, 1, 0])
    graded = grades.grade(
        ProbsPredictive(probs), y, "classes", {"far": np.array([False, False, True, False])},
        {"elsewhere": ProbsPredictive(np.full((3, 2), 0.5))},
    )  # fmt: skip
    assert graded.scores["accuracy"] == 0.5
    assert graded.scores["nll"] == pytest.approx(-np.log([0.8, 0.4, 0.5, 1.0]).mean())
    assert graded.scores["auroc_far"] == 1.0  # the least sure row is the far one
    assert graded.scores["auroc_elsewhere"] == pytest.approx((3 + 0.5) / 4)  # one row in four is as unsure
    assert graded.picture["entropy_out"] == pytest.approx(np.log(2) * np.ones(3))
    distances = grades.distances(probs, probs[:, ::-1], "classes")
    means = {key: rows.mean() for key, rows in distances.items()}
    assert means == {"agreement": 0.25, "tv": pytest.approx((0.6 + 0.2 + 0 + 1) / 4)}


def test_a_class_held_impossible_scores_infinity():
    graded = grades.grade(ProbsPredictive(np.array([[1.0, 0.0], [1.0, 0.0]])), np.array([0, 1]), "classes")
    assert graded.scores["nll"] == np.inf
