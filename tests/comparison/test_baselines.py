"""Quantiles and probabilities as predictions, baselines, and the scores made of them: against closed forms."""

import numpy as np
import pytest
from scipy.stats import norm, poisson, t

import posteria as po
from posteria.comparison.enter import baselines
from posteria.comparison.enter.baselines import ProbsPredictive, QuantilePredictive
from posteria.comparison.enter.entries import as_entries
from posteria.comparison.judge import grades
from posteria.methods import registry

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


# ---- distributions by rows left out


class Middle(po.Baseline):
    """Somebody's: the median, with a width that is off by a factor."""

    about = "The median of all rows."

    def fit_numbers(self, x, y):
        middle = float(np.median(y))
        return lambda x: (np.full(len(x), middle), np.full(len(x), 1e-3))


def tailed(num_rows: int) -> np.ndarray:
    return 5.0 + np.random.default_rng(3).standard_t(3, size=num_rows)


def test_a_baseline_of_ones_own_is_registered_and_needs_no_honest_widths():
    po.register(Middle)
    assert baselines.present()["middle"] is Middle
    assert [entry.name for entry in as_entries(["map"], True, None) if entry.role == "baseline"][-1] == "middle"
    x, y = np.zeros((2400, 1)), tailed(2400)
    predictive = baselines.fit("middle", x[:400], y[:400], "regression", 0).predict(x[400:])
    scores = grades.grade(predictive, y[400:], "regression").scores
    for level in (50, 80, 90, 95):  # of 400 rows left out and 2,000 test rows
        share = level / 100
        error = np.sqrt(share * (1 - share) * (1 / 400 + 1 / 2000))
        assert scores[f"coverage_{level}"] == pytest.approx(share, abs=4 * error)
    truth = -t.logpdf(y[400:] - 5.0, 3).mean()
    assert truth - 0.05 < scores["nll"] < truth + 0.1  # a normal of that width is worse by 0.24
    grid = np.linspace(-2000.0, 2000.0, 400_001)
    found = predictive.log_prob
    one = baselines.fit("middle", x[:400], y[:400], "regression", 0).predict(np.zeros((len(grid), 1)))
    assert np.trapezoid(np.exp(one.log_prob(grid)), grid) == pytest.approx(1.0, abs=1e-3)
    assert np.isfinite(found(y[400:] + 1e4)).all()  # far out, it is improbable and not absurd


def test_those_that_do_not_take_such_data_are_left_out(monkeypatch):
    monkeypatch.setattr(registry, "_baselines", {"middle": Middle})
    assert Middle().takes("regression", 10, 2) and not Middle().takes("classes", 10, 2)
    with pytest.raises(po.errors.SettingError, match="middle on 3 rows of classes"):
        baselines.fit("middle", np.zeros((3, 1)), np.array([0, 1, 0]), "classes", 2)


@pytest.mark.parametrize("name", ["linear", "boosting"])
def test_outliers_do_not_make_a_density_absurd(name):
    """Heavy tails and a few rows a thousand times as far: within a nat of a normal with the width of rows left out."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 3))
    y = x[:, 0] + 0.1 * rng.standard_t(2, size=500)
    y[::97] += 100.0 * rng.normal(size=len(y[::97]))
    predictive = baselines.fit(name, x[:300], y[:300], "regression", 0).predict(x[300:])
    width = np.sqrt(np.mean((y[:300] - np.median(y[:300])) ** 2))
    normal = -norm.logpdf(y[300:], predictive.quantile(0.5)[:, 0], width).mean()
    assert -predictive.log_prob(y[300:]).mean() < normal + 1.0


@pytest.mark.parametrize("name", ["catboost", "ngboost", "tabpfn"])
def test_guests_take_part_where_they_are_installed(name):
    pytest.importorskip(name, reason=f"{name} is not installed")
    rng = np.random.default_rng(5)
    x = rng.normal(size=(120, 2))
    y = x[:, 0] + 0.3 * rng.normal(size=120)
    scores = grades.grade(baselines.fit(name, x, y, "regression", 0).predict(x), y, "regression").scores
    assert scores["rmse"] < y.std() and scores["nll"] < -norm.logpdf(y, y.mean(), y.std()).mean()


# ---- counts, and tails without a variance


def test_a_real_prediction_read_as_one_of_counts_sums_to_one():
    real = QuantilePredictive([0.1, 0.9], np.array([[1.0, 20.0], [4.0, 31.0]]))
    counts = baselines.WholeNumbers(real)
    each = np.stack([np.exp(counts.log_prob(np.full(2, float(k)))) for k in range(200)])
    np.testing.assert_allclose(each.sum(0), 1.0, atol=1e-6)
    np.testing.assert_allclose(counts.cdf(np.array([3.0, 3.0]))[:, 0], each[:4].sum(0), atol=1e-6)
    quantile = counts.quantile_table([0.95])[0, :, 0]
    assert (counts.cdf(quantile)[:, 0] >= 0.95).all() and (counts.cdf(quantile - 1)[:, 0] < 0.95).all()


def test_coverage_of_counts_is_counted_on_the_steps_of_their_distribution():
    """Of Poisson(1.2), a central 90 % interval is 0 to 3, which holds 96.6 %: a line through steps says less."""
    rng = np.random.default_rng(6)
    x = np.zeros((4000, 1), np.float32)
    y = rng.poisson(1.2, 4000).astype(np.float32)
    posterior = po.fit(
        po.Model(po.nn.mlp(()), po.likelihoods.Poisson()), (x, y), po.MAP(num_epochs=200), progress=False
    )
    scores = grades.grade(posterior.predict(x[:2000]), y[:2000], "regression").scores
    assert scores["coverage_90"] == pytest.approx(poisson.cdf(3, 1.2), abs=4 * np.sqrt(0.034 * 0.966 / 2000))
    assert scores["width_90"] == 3.0


@pytest.mark.parametrize("df", [2.0, 1.0])
def test_tails_without_a_variance_or_a_mean_are_graded(df):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(600, 1)).astype(np.float32)
    y = (x[:, 0] + 0.1 * rng.standard_t(df, size=600)).astype(np.float32)
    model = po.Model(po.nn.mlp(()), po.likelihoods.StudentT(df=df))
    posterior = po.fit(model, (x, y), po.MAP(num_epochs=400), progress=False)
    graded = grades.grade(posterior.predict(x), y, "regression", {"far": np.abs(x[:, 0]) > 2})
    assert all(np.isfinite(value) for value in graded.scores.values())
    assert graded.scores["coverage_90"] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 600))
    assert np.isfinite(graded.picture["std"]).all()
