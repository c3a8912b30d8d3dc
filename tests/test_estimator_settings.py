"""What scikit-learn users ask of the estimators: weights, parts of uncertainty, quantiles, groups, nested settings."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import posteria as po
from posteria.errors import DataError, SettingError

QUICK = po.MAP(num_epochs=60, learning_rate=0.05)


@pytest.fixture(scope="module")
def line():
    """Sixty rows with a slope: (x, y)."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    return x, 5 + 3 * x[:, 0] + 0.5 * random.normal(size=60)


def test_a_row_of_weight_2_is_the_row_twice_and_one_of_0_is_left_out(line):
    """In units, categories and bins as well: a fit that ends at its mode predicts the same."""
    x, y = line
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(c=np.resize(["u", "v", None], 60))
    weight = np.resize([2, 1, 0, 3], 60)
    often = np.repeat(np.arange(60), weight)
    model = po.Regressor(
        po.Laplace("full", map=po.MAP(num_epochs=400)), "mlp:", likelihood=po.likelihoods.Gaussian(0.2)
    )
    one = clone(model).fit(frame, y, sample_weight=weight).predict(frame, return_std=True)
    other = clone(model).fit(frame.iloc[often], y[often]).predict(frame, return_std=True)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    halves = clone(model).fit(frame, y, sample_weight=0.5 * weight)
    assert (halves.predict(frame, return_std=True)[1] > one[1]).all()
    with pytest.raises(DataError, match="negative"):
        model.fit(x, y, sample_weight=-weight)
    with pytest.raises(DataError, match="one weight for each row"):
        model.fit(x, y, sample_weight=weight[:, None])


def test_a_default_fit_takes_weights(line):
    """Rows of another law, which hardly count, hardly matter; by the default preset."""
    x, y = line
    x, y, is_wrong = np.tile(x, (3, 1)), np.tile(y, 3), np.arange(180) % 3 == 0
    y = np.where(is_wrong, -y, y) + 0.1 * np.sin(np.arange(180))
    weight = np.where(is_wrong, 1e-3, 1.0)
    model = po.Regressor(network="mlp:8").fit(x, y, sample_weight=weight)
    lower, upper = model.interval(x[~is_wrong])
    assert model.score(x, y, sample_weight=weight) > 0.95 > 0.5 > model.score(x, y)
    assert 0.8 < np.mean((lower < y[~is_wrong]) & (y[~is_wrong] < upper)) <= 1.0


@pytest.fixture(scope="module")
def rare():
    """Two classes that overlap, one rare, and a third beside them: (x, labels)."""
    random = np.random.default_rng(1)
    labels = np.array(["common"] * 160 + ["rare"] * 20 + ["other"] * 20)
    centres = {"common": (0, 0), "rare": (1.2, 0), "other": (0, 6)}
    return np.array([centres[label] for label in labels]) + random.normal(size=(200, 2)), labels


def test_class_weights_are_weights_of_rows(rare, tmp_path):
    x, labels = rare
    plain = po.Classifier(QUICK, "mlp:6").fit(x, labels)
    balanced = po.Classifier(QUICK, "mlp:6", class_weight="balanced").fit(x, labels)
    weights = np.where(labels == "common", 200 / 3 / 160, 200 / 3 / 20)
    np.testing.assert_allclose(balanced._weighed(labels, None), weights)
    np.testing.assert_allclose(balanced._weighed(labels, np.full(200, 2.0)), 2 * weights)
    is_rare = labels == "rare"
    assert (balanced.predict(x)[is_rare] == "rare").mean() > (plain.predict(x)[is_rare] == "rare").mean() + 0.2
    by_name = {"common": 1.0, "rare": 8, "other": np.float64(0.0)}
    chosen = po.Classifier(QUICK, "mlp:6", class_weight=by_name).fit(x, labels)
    assert list(chosen.classes_) == ["common", "rare"]  # a class of weight 0 is left out
    chosen.save(tmp_path / "saved")
    assert po.Classifier.load(tmp_path / "saved").class_weight == by_name
    with pytest.raises(ValueError, match=r"daisy|balanced"):
        po.Classifier(QUICK, "mlp:6", class_weight="daisy").fit(x, labels)
    with pytest.raises(SettingError, match="parts"):
        po.Classifier("mean-field", class_weight="balanced").partial_fit(x, labels)


def test_probabilities_sum_to_one_and_have_logarithms(rare):
    x, labels = rare
    model = po.Classifier(QUICK, "mlp:6").fit(x, labels)
    probs = model.predict_proba(x)
    assert probs.dtype == np.float64
    np.testing.assert_allclose(probs.sum(1), 1.0, rtol=0, atol=4e-16)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(x)), probs)
    np.testing.assert_allclose(model.aleatoric(x) + model.epistemic(x), model.entropy(x), atol=1e-5)
    far = model.predict_log_proba(1e4 * x)
    assert np.isfinite(far).all()


def test_quantiles_and_parts_of_the_variance(line):
    x, y = line
    model = po.Regressor(po.Laplace(map=QUICK), "mlp:4").fit(x, y)
    lower, upper = model.interval(x, 0.8)
    np.testing.assert_allclose(model.quantile(x, [0.1, 0.9]), [lower, upper], rtol=1e-5)
    assert model.quantile(x, 0.5).shape == (60,)
    _, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(model.aleatoric(x) + model.epistemic(x), std**2, rtol=1e-4)
    assert model.epistemic(50 * x).mean() > 10 * model.epistemic(x).mean()
    with pytest.raises(SettingError, match="q is"):
        model.quantile(x, 1.5)


def test_each_of_several_targets_has_its_own_noise():
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    y = np.stack([x[:, 0] + 0.1 * random.normal(size=300), x[:, 1] + 2.0 * random.normal(size=300)], axis=1)
    model = po.Regressor("laplace", "mlp:").fit(x, y)
    _, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(std.mean(0), [0.1, 2.0], rtol=0.1)
    assert model.quantile(x, [0.1, 0.9]).shape == (2, 300, 2)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_coverage_holds_within_groups(line):
    random = np.random.default_rng(3)
    x = random.normal(size=(600, 2))
    groups = np.where(random.uniform(size=600) < 0.5, "quiet", "loud")
    y = x[:, 0] + np.where(groups == "loud", 1.0, 0.1) * random.normal(size=600)
    model = po.Regressor(QUICK, "mlp:").fit(x[:200], y[:200])
    model.calibrate(x[200:400], y[200:400], groups=groups[200:400])
    new, truth, own = x[400:], y[400:], pd.Series(groups[400:])
    lower, upper = model.interval(new, 0.9, groups=own)
    for group in ("quiet", "loud"):
        is_own = (own == group).to_numpy()
        assert abs(np.mean((lower < truth)[is_own] & (truth < upper)[is_own]) - 0.9) < 0.09
    widths = upper - lower
    assert widths[own == "loud"].mean() > 4 * widths[own == "quiet"].mean()
    np.testing.assert_allclose(model.quantile(new, 0.05, groups=own), lower)
    assert model.predict(new, groups=own).shape == model.sample(new, 2, groups=own)[0].shape
    with pytest.raises(DataError, match="groups"):
        model.predict(new)
    with pytest.raises(DataError, match="groups"):
        po.Regressor(QUICK, "mlp:").fit(x, y).predict(x, groups=groups)


def test_a_grid_search_reaches_into_the_method(line):
    x, y = line
    model = po.Regressor("map", "mlp:4")
    assert model.get_params()["method__num_epochs"] == po.MAP().num_epochs
    grid = {"method__num_epochs": [1, 200], "method__learning_rate": [0.05], "prior__scale": [2.0]}
    search = GridSearchCV(model.set_params(prior=po.priors.FanIn()), grid, cv=2).fit(x, y)
    assert search.best_params_["method__num_epochs"] == 200
    best = search.best_estimator_
    assert best.posterior_.facts["method"]["settings"]["num_epochs"] == 200
    assert best.method == po.MAP(num_epochs=200, learning_rate=0.05)
    assert clone(best).get_params()["method__num_epochs"] == 200


def test_settings_of_parts_of_parts_and_what_is_refused():
    model = po.Regressor(po.Ensemble(po.Laplace(map=po.MAP()), 3))
    model.set_params(method__method__map__num_epochs=7, method__size=2)
    assert model.method.size == 2 and model.method.method.map.num_epochs == 7
    model.set_params(method="laplace", method__structure="diagonal")  # the method first
    assert model.method == po.Laplace("diagonal")
    for settings, said in {
        "method__structur": "structur",
        "method__map__num_epochs": "auto",  # a word, not a MAP
        "network__width": "network",
        "likelihood__noise": "likelihood",
    }.items():
        with pytest.raises(SettingError, match=said):
            model.set_params(**{settings: 1})
    with pytest.raises(SettingError, match="give the estimator a method"):
        po.Regressor().set_params(method__num_epochs=3)
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(metod="map")
    assert "method__num_epochs" not in po.Regressor("no such method").get_params()
    assert "Regressor" in po.Regressor("laplace")._repr_html_()


def test_without_a_random_state_fits_differ_and_with_one_they_do_not(line):
    x, y = line
    fits = {
        state: [po.Regressor(QUICK, "mlp:4", random_state=state).fit(x, y) for _ in range(2)] for state in (None, 3)
    }
    first, second = (model.predict(x) for model in fits[None])
    assert np.abs(first - second).max() > 1e-6
    np.testing.assert_array_equal(*(model.predict(x) for model in fits[3]))
