"""The scikit-learn estimators: their contract, a table's whole life, and that units come back."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

import posteria as po
from posteria.errors import DataError, SettingError
from posteria.models.model import MANY_ROWS, model_for

QUICK = po.MAP(num_epochs=60, learning_rate=0.05)
EXEMPT = {
    "check_dataframe_column_names_consistency": "columns of a frame are matched by name: another order is no error",
    "check_sample_weight_equivalence_on_dense_data": "equal to 1e-4, not to scikit-learn's 1e-7: in float32 "
    "(tests/test_estimator_settings.py has it where a fit ends at its mode)",
}


def expected_failures(estimator):
    return EXEMPT


@pytest.mark.slow  # a compilation for every shape that scikit-learn thinks of
@parametrize_with_checks(
    [po.Regressor(QUICK, "mlp:10"), po.Classifier(QUICK, "mlp:10")], expected_failed_checks=expected_failures
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def houses(num_rows, seed=0):
    """Eight columns: two categories, one with missing values, one of booleans."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({f"n{i}": random.normal(size=num_rows) for i in range(4)})
    frame["age"] = np.where(random.uniform(size=num_rows) < 0.2, np.nan, random.integers(1, 90, num_rows))
    frame["colour"] = random.choice(["red", "blue", "green"], num_rows)
    frame["city"] = pd.Categorical(random.choice(["Ulm", "Bonn"], num_rows))
    frame["garden"] = random.uniform(size=num_rows) < 0.5
    price = 300 + 40 * frame["n0"] + 20 * frame["n1"] * frame["garden"] + 30 * (frame["colour"] == "red")
    return frame, price.to_numpy() + 10 * random.normal(size=num_rows)


def test_a_day_in_the_life(tmp_path):
    """Fit, calibrate, thin, export; each step's numbers are consistent with the last."""
    frame, price = houses(500)
    with pytest.warns(UserWarning, match="age"):
        model = po.Regressor(network="mlp:20").fit(frame[:300], price[:300])
    new, truth = houses(400, seed=1)
    mean, std = model.predict(new, return_std=True)
    error = np.sqrt(np.mean((mean - truth) ** 2))
    assert error < 0.5 * truth.std() and model.score(new, truth) > 0.75
    assert 0.5 < np.mean((mean - truth) ** 2 / std**2) < 2.0
    before = model.interval(new, 0.9)

    model.calibrate(frame[300:], price[300:])
    assert np.abs(model.predict(new) - mean).max() < 0.5 * std.min()  # it is the mean of the calibrated distribution
    lower, upper = model.interval(new, 0.9)
    assert ((lower <= truth) & (truth <= upper)).mean() == pytest.approx(0.9, abs=0.06)
    assert np.corrcoef(upper - lower, before[1] - before[0])[0, 1] > 0.99

    model.thin(50, frame[300:])
    thin_mean, thin_std = model.predict(new, return_std=True)
    assert np.abs(thin_mean - mean).max() < 0.1 * std.min() and np.allclose(thin_std, std, rtol=0.1)

    size = model.export(tmp_path / "artifact")
    assert size < 5e6
    second = new[["city", "n3", "n2", "n1", "n0", "garden", "colour", "age"]].copy()
    second.loc[second.index[0], "colour"] = "pink"  # unseen
    second.to_csv(tmp_path / "second.csv", index=False)
    arguments = [sys.executable, tmp_path / "artifact" / "predict.py", tmp_path / "second.csv"]
    answer = subprocess.run(arguments, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    (tmp_path / "out.csv").write_text(answer.stdout)
    exported = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(exported["mean"], model.predict(second), rtol=1e-5)
    for name, bound in zip(("lower", "upper"), model.interval(second, 0.9)):
        np.testing.assert_allclose(exported[name], bound, rtol=1e-5)

    model.save(tmp_path / "saved")
    loaded = po.Regressor.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(new), thin_mean)
    assert loaded.get_params()["network"] == "mlp:20" and list(loaded.feature_names_in_) == list(frame.columns)


def test_units_come_back_whatever_they_are():
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 2))
    y = x[:, 0] + 0.1 * random.normal(size=80)
    one = po.Regressor(QUICK, "mlp:5").fit(x, y)
    other = po.Regressor(QUICK, "mlp:5").fit(1e3 * x + 7, 1e4 * y - 5)
    np.testing.assert_allclose(other.predict(1e3 * x + 7), 1e4 * one.predict(x) - 5, rtol=1e-3, atol=30)
    assert one.predict(x).shape == (80,) and one.sample(x, 3).shape == (3, 80)


def test_several_targets():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    y = np.stack([x[:, 0], 5 * x[:, 1]], axis=1)
    model = po.Regressor(QUICK, "mlp:8").fit(x, y)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (60, 2) and model.score(x, y) > 0.5


def test_classes_keep_their_labels():
    data = po.data.load("iris")
    labels = np.array(["setosa", "versicolor", "virginica"])[data.y]
    model = po.Classifier(QUICK, "mlp:8").fit(data.x, labels)
    assert model.score(data.x, labels) > 0.9
    np.testing.assert_allclose(model.predict_proba(data.x).sum(1), 1, atol=1e-5)
    assert set(model.sample(data.x, 2).ravel()) <= set(labels) and model.entropy(data.x).shape == (150,)
    with pytest.raises(SettingError, match="calibrate"):
        model.sets(data.x)
    with pytest.raises(DataError, match="are those that were fitted to"):
        model.calibrate(data.x, labels)
    assert model.calibrate(data.x[::2], labels[::2]).sets(data.x, 0.9).shape == (150, 3)
    with pytest.raises(DataError, match="daisy"):
        model.calibrate(data.x[:2], ["daisy", "setosa"])


def test_it_works_inside_scikit_learn():
    data = po.data.load("diabetes")
    x, y = data.x[:120], data.y[:120]
    model = po.Regressor(QUICK, "mlp:5")
    assert clone(model).get_params()["method"] == QUICK
    assert np.isfinite(cross_val_score(make_pipeline(StandardScaler(), model), x, y, cv=2)).all()
    search = GridSearchCV(model, {"network": ["mlp:", "mlp:5"]}, cv=2).fit(x, y)
    assert search.best_params_["network"] in ("mlp:", "mlp:5")
    fitted = model.fit(x, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(x), fitted.predict(x))
    assert not hasattr(pickle.loads(pickle.dumps(clone(model))), "posterior_")


def test_new_rows_update_a_gaussian_posterior_and_nothing_else(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2))
    y = x[:, 0] - x[:, 1] + 0.1 * random.normal(size=200)
    model = po.Regressor("mean-field", "mlp:", random_state=1).partial_fit(x[:20], y[:20])
    first = model.predict(x, return_std=True)
    model.calibrate(x[20:40], y[20:40]).partial_fit(x[20:], y[20:])
    assert not hasattr(model.posterior_, "scores")  # what was calibrated is no more
    second = model.predict(x, return_std=True)
    assert np.mean((second[0] - y) ** 2) < np.mean((first[0] - y) ** 2)
    model.save(tmp_path / "saved")
    for again in (po.Regressor.load(tmp_path / "saved"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(x), second[0])
    point = po.Regressor(QUICK, "mlp:").fit(x, y)
    with pytest.raises(AttributeError) as told:
        point.partial_fit(x, y)
    assert "cannot be updated" in str(told.value.__cause__)


def test_a_sampler_is_diagnosed_and_a_point_stops_early():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    model = po.Regressor(po.HMC(num_chains=2, num_draws=20, num_warmup=10, num_leapfrog=3, start="prior"), "mlp:3").fit(
        x, x[:, 0]
    )
    assert model.diagnose(x).num_chains == 2 and model.calibrate(x[:9], x[:9, 0]).diagnose(x).num_chains == 2
    stopped = po.Regressor(po.MAP(num_epochs=5, patience=2), "mlp:3", early_stopping=True).fit(x, x[:, 0])
    assert stopped.posterior_.facts["method"]["settings"]["validation"] == 0.1


def test_columns_are_matched_by_name_and_missing_ones_named():
    frame, price = houses(60)
    model = po.Regressor(QUICK, "mlp:3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(frame, price)
    np.testing.assert_array_equal(model.predict(frame[frame.columns[::-1]]), model.predict(frame))
    with pytest.raises(DataError, match="colour"):
        model.predict(frame.drop(columns="colour"))


@pytest.fixture(scope="module")
def line():
    """Fifty rows with a slope: (x, y)."""
    random = np.random.default_rng(0)
    x = random.normal(size=(50, 2))
    return x, 5 + 3 * x[:, 0] + 0.1 * random.normal(size=50)


def test_arrays_and_frames_are_one_table_where_the_fit_had_no_names(line):
    x, y = line
    numbered, named = pd.DataFrame(x), pd.DataFrame(x, columns=["a", "b"])
    of_frame = po.Regressor(QUICK, "mlp:3").fit(numbered, y)
    np.testing.assert_array_equal(of_frame.predict(x), of_frame.predict(numbered))
    with pytest.warns(UserWarning, match="in order"):
        np.testing.assert_array_equal(of_frame.predict(named), of_frame.predict(x))
    with pytest.raises(DataError, match="missing"):
        of_frame.predict(named.assign(c=0.0))


def test_counts_stay_counts(line):
    x, _ = line
    counts = np.random.default_rng(1).poisson(np.exp(1 + x[:, 0]))
    method = po.MAP(num_epochs=300, learning_rate=0.05)
    model = po.Regressor(method, "mlp:", likelihood=po.likelihoods.Poisson()).fit(x, counts)
    wanted = PoissonRegressor(alpha=0).fit(x, counts).predict(x)
    np.testing.assert_allclose(model.predict(x), wanted, rtol=0.03)  # the prior is worth a row or so in fifty
    draws = model.sample(x, 5)
    assert (draws >= 0).all() and (draws == np.round(draws)).all()


def test_a_spelled_network_has_the_outputs_its_likelihood_wants_and_is_loaded_as_it_was(line, tmp_path):
    x, y = line
    model = po.Regressor(QUICK, "mlp:3", likelihood=po.likelihoods.HeteroscedasticGaussian()).fit(x, y)
    model.save(tmp_path / "saved")
    loaded = po.Regressor.load(tmp_path / "saved")
    assert loaded.get_params() == model.get_params()
    for again in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.interval(x), model.interval(x))


def test_early_stopping_keeps_what_was_set_of_the_climb_and_mini_batches_where_rows_are_many():
    x, y = np.zeros((5000, 1), np.float32), np.zeros((5000, 1), np.float32)
    model = model_for("regression", 1, 5000, "mlp:3")
    method = po.Regressor(early_stopping=True, method=QUICK)._method(po.Laplace(map=QUICK), model, (x, y))
    assert method.map.num_epochs == QUICK.num_epochs and method.map.validation == 0.1
    method = po.Regressor("laplace", early_stopping=True)._method("laplace", model, (x, y))
    assert method.map.batch_size < 1000 and method.map.validation == 0.1


def test_the_default_prior_is_wider_for_classes_and_where_rows_are_many():
    assert model_for("regression", 1, 100).prior == po.priors.FanIn()
    assert model_for("regression", 1, MANY_ROWS - 1).prior == po.priors.FanIn()
    for many in (model_for("regression", 1, MANY_ROWS), model_for("classes", 3, 100)):
        assert many.prior == po.priors.FanIn(scale=2.0)
    assert model_for("classes", 3, 100, prior=po.priors.Normal(0.5)).prior == po.priors.Normal(0.5)


def test_missing_labels_are_named(line):
    with pytest.raises(DataError, match="25 missing labels"):
        po.Classifier(QUICK, "mlp:3").fit(line[0], pd.Series(["a", None] * 25))


@pytest.mark.parametrize("estimator", [po.Regressor(), po.Classifier()])
def test_it_is_not_fitted_before_fit(estimator):
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)


def test_a_target_that_cannot_be_predicted_is_told_in_words():
    x = np.zeros((6, 2))
    with pytest.raises(DataError, match=r"y holds \['a', 'b'\]; wanted numbers: po.Classifier"):
        po.Regressor().fit(x, ["a", "b", "1"] * 2)
    with pytest.raises(DataError, match="y has one class, 1; wanted at least two"):
        po.Classifier().fit(x, np.ones(6, int))


def test_a_handful_of_rows_is_fitted_and_promises_no_interval():
    random = np.random.default_rng(0)
    x = random.normal(size=(6, 2))
    model = po.Regressor().fit(x, x[:, 0])
    assert np.isfinite(model.predict(x, return_std=True)).all()
    with pytest.raises(SettingError, match="fewer cannot promise it"):
        model.interval(x, 0.9)
    with pytest.raises(DataError, match="3 rows for 2 folds"):
        po.Regressor().fit(x[:3], x[:3, 0])
