"""Conformal coverage, whatever the posterior: marginally exact on exchangeable rows."""

import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria.errors import DataError, SettingError
from posteria.posteriors.calibrated import best_temperature
from posteria.posteriors.calibrated_predictive import scaled
from posteria.posteriors.conformal import threshold
from posteria.posteriors.units import in_units


@pytest.fixture(scope="module")
def regression():
    """A point fitted with a noise far too small, on data whose noise grows with x."""
    random = np.random.default_rng(0)
    x = random.uniform(0.2, 2.0, size=(6000, 1)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) + 0.3 * x[:, 0] * random.normal(size=6000)).astype(np.float32)
    model = po.Model(po.nn.mlp((10,)), po.likelihoods.Gaussian(noise=0.05))
    return po.fit(model, (x[:200], y[:200]), po.MAP(num_epochs=300), progress=False), x[200:], y[200:]


def test_the_threshold_covers_by_its_rank():
    """Of n + 1 exchangeable scores the last is at most the k-th smallest of the others with probability k / (n + 1)."""
    scores = np.random.default_rng(1).normal(size=(20000, 20))
    covered = np.mean([row[19] <= threshold(row[:19], 0.9) for row in scores])  # k = 18 of 20: exactly 0.9
    assert abs(covered - 0.9) < 4 * np.sqrt(0.09 / 20000)


def test_the_rank_of_a_score_is_the_same_in_float32():
    from posteria.posteriors.export import _threshold

    for num in (9, 19, 39, 69, 99, 149, 199, 999):
        scores = np.arange(1, num + 1)
        for level in (0.5, 0.7, 0.8, 0.9):
            wanted = round((num + 1) * level * 1e6) / 1e6
            assert threshold(scores, level) == np.ceil(wanted) == _threshold(scores, np.float32(level))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_intervals_cover_what_they_promise_where_the_posteriors_do_not(regression, level):
    posterior, x, y = regression
    num_calibration, num_test = 800, 5000
    calibrated = posterior.calibrate(x[:num_calibration], y[:num_calibration])
    x, y = x[num_calibration:], y[num_calibration:]

    def coverage(predictive):
        lower, upper = predictive.interval(level)
        return ((lower[:, 0] <= y) & (y <= upper[:, 0])).mean()

    assert coverage(posterior.predict(x)) < level - 0.2
    rank = int(np.ceil((num_calibration + 1) * level))
    law = stats.betabinom(num_test, rank, num_calibration + 1 - rank)  # of the number covered
    assert law.ppf(1e-4) <= coverage(calibrated.predict(x)) * num_test <= law.ppf(1 - 1e-4)


def test_coverage_before_and_after_is_told(regression):
    posterior, x, y = regression
    told = posterior.calibrate(x[:400], y[:400]).coverage
    assert told[0.9]["before"] < 0.6 and abs(told[0.9]["after"] - 0.9) < 0.06


def test_rows_that_were_fitted_to_are_refused(tmp_path):
    """Errors there are small: 90 % intervals would hold less on any others."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    model, data, method = po.Model(po.nn.mlp((2,))), (x, x[:, 0]), po.MAP(num_epochs=2)
    posterior = po.fit(model, data, method, out=tmp_path / "f", progress=False)
    for each in (posterior, po.load(tmp_path / "f"), po.fit(model, data, method, progress=False)):
        with pytest.raises(DataError, match="are those that were fitted to"):
            each.calibrate(x, x[:, 0])
    again = posterior.calibrate(x[::-1], x[::-1, 0])
    with pytest.raises(DataError, match="are those that were fitted to"):
        again.calibrate(x, x[:, 0])


def test_it_saves_and_speaks_own_units(regression, tmp_path):
    posterior, x, y = regression
    calibrated = posterior.calibrate(x[:400], y[:400])
    calibrated.save(tmp_path / "c")
    loaded = po.load(tmp_path / "c")
    for one, other in zip(calibrated.predict(x[:9]).interval(0.8), loaded.predict(x[:9]).interval(0.8)):
        np.testing.assert_array_equal(one, other)
    assert loaded.coverage == calibrated.coverage
    scale = po.data.Standardiser(np.asarray(5.0), np.asarray(2.0))
    lower, _ = in_units(calibrated.predict(x[:9]), scale).interval(0.8)
    np.testing.assert_allclose(lower, 5 + 2 * calibrated.predict(x[:9]).interval(0.8)[0], rtol=1e-6)


def test_too_few_rows_for_a_level_are_refused(regression):
    posterior, x, y = regression
    with pytest.raises(SettingError, match="at least 19"):
        posterior.calibrate(x[:10], y[:10]).predict(x[:3]).interval(0.95)


def test_rows_that_are_all_right_are_not_taken_for_certainty():
    """Logits of 3 that are right in all rows: n sigmoid(-3 / T) 3 / T = -4 log T, of which the root is found apart."""
    from scipy.optimize import brentq

    for num_rows in (20, 500):
        probs = np.tile([[1 / (1 + np.exp(-3.0)), 1 / (1 + np.exp(3.0))]], (num_rows, 1))

        def slope(t, num_rows=num_rows):
            return num_rows * 3 * np.exp(-t) / (1 + np.exp(3 * np.exp(-t))) + 4 * t

        expected = np.exp(brentq(slope, -3, 0))
        assert best_temperature(probs, np.zeros(num_rows, int)) == pytest.approx(expected, rel=1e-3)
        twice = best_temperature(probs[::2], np.zeros(num_rows // 2, int), np.full(num_rows // 2, 2.0))
        assert twice == pytest.approx(expected, rel=1e-3)


def test_temperature_is_recovered_and_sets_cover():
    random = np.random.default_rng(2)
    true = random.dirichlet(np.ones(4) * 0.7, size=8000)
    labels = (true.cumsum(1) < random.uniform(size=(8000, 1))).sum(1).clip(max=3)
    overconfident = scaled(true, 0.4)
    assert abs(best_temperature(overconfident[:4000], labels[:4000]) / 2.5 - 1) < 0.1
    assert abs(best_temperature(true[:4000], labels[:4000]) - 1) < 0.1


def test_classes_get_calibrated_probabilities_and_sets():
    x, y = po.data.load("iris").x.astype(np.float32), po.data.load("iris").y
    x = (x - x.mean(0)) / x.std(0)
    order = np.random.default_rng(0).permutation(150)
    fitted, held, new = order[:60], order[60:110], order[110:]
    model = po.Model(po.nn.mlp((10,), outputs=3), po.likelihoods.Categorical())
    posterior = po.fit(model, (x[fitted], y[fitted]), po.MAP(num_epochs=100), progress=False)
    calibrated = posterior.calibrate(x[held], y[held]).predict(x[new])
    np.testing.assert_allclose(calibrated.probs.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(np.exp(calibrated.log_prob(y[new])), calibrated.probs[np.arange(40), y[new]], rtol=1e-5)
    small, large = calibrated.sets(0.5), calibrated.sets(0.95)
    assert (small <= large).all() and large[np.arange(40), y[new]].mean() > 0.8
    drawn = calibrated.sample(3, 4000)[..., None] == np.arange(3)  # (num, n, classes)
    error = 5 * np.sqrt(calibrated.probs * (1 - calibrated.probs) / 4000) + 1e-3
    assert (np.abs(drawn.mean(0) - calibrated.probs) < error).all()
