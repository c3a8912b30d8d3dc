"""The scale of a target, by the estimators and the command line."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import posteria as po
from cli.test_fit_and_predict import invoke
from posteria import recipes
from posteria.errors import SettingError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 2))
PRICE = np.exp(X[:, 0] + 0.4 * RANDOM.normal(size=120))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(recipes, "FOLD_STEPS", 200)


def test_a_price_is_taken_on_a_log_scale_and_that_is_said(tmp_path):
    model = po.Regressor()
    with pytest.warns(UserWarning, match="log scale.*target_scale"):
        model.fit(X, PRICE)
    assert model.preparation_.y.is_log and "logarithm" in model.plan_.text()
    lower, upper = model.interval(X, 0.9)
    assert (lower > 0).all() and 0.75 < np.mean((lower <= PRICE) & (upper >= PRICE)) < 1
    np.testing.assert_allclose(model.quantile(X, [0.05, 0.95]), [lower, upper], rtol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(po.Regressor.load(tmp_path / "saved").predict(X), model.predict(X), rtol=1e-6)
    model.export(tmp_path / "export")
    exported = _exported(tmp_path / "export")({f"x{i}": X[:, i] for i in range(2)}, level=0.9)
    mean, std = model.predict(X, return_std=True)
    for name, wanted in {"mean": mean, "std": std, "lower": lower, "upper": upper}.items():
        np.testing.assert_allclose(exported[name][:, 0], wanted, rtol=2e-3)


@pytest.mark.parametrize("settings", [{"target_scale": "linear"}, {"likelihood": po.likelihoods.Gaussian()}])
def test_what_is_asked_for_is_done(settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not po.Regressor(**settings).fit(X, PRICE).preparation_.y.is_log


def test_any_method_takes_a_log_scale_that_is_asked_for():
    model = po.Regressor(po.MAP(num_epochs=20), target_scale="log").fit(X, PRICE)
    assert model.preparation_.y.is_log and (model.interval(X)[0] > 0).all()
    assert not po.Regressor(po.MAP(num_epochs=20)).fit(X, PRICE).preparation_.y.is_log


def test_what_cannot_be_is_refused():
    for scale, y in (("cubic", PRICE), ("log", RANDOM.poisson(2, 120))):
        with pytest.raises(SettingError, match="scale"):
            po.Regressor(target_scale=scale).fit(X, y)
    with pytest.raises(ValueError, match="above 0"):
        po.Regressor(target_scale="log").fit(X, PRICE - 1)


def test_the_command_line_chooses_alike(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(price=PRICE)
    frame.to_csv(tmp_path / "prices.csv", index=False)
    for scale, is_log in (("auto", True), ("linear", False)):
        out = tmp_path / scale
        answer = invoke(
            "fit", tmp_path / "prices.csv", "--target", "price", "--target-scale", scale, "-o", out, "--json"
        )
        assert answer.exit_code == 0, answer.stderr
        assert ("log scale" in answer.stderr) == is_log
        told = invoke("predict", out, tmp_path / "prices.csv", "--json")
        lower = [row["lower"] for row in json.loads(told.stdout)]
        assert (min(lower) > 0) == is_log


def _exported(folder):
    import importlib.util

    spec = importlib.util.spec_from_file_location("predict", folder / "predict.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(folder)
