"""Fewer draws that predict alike; a folder that predicts without Posteria."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import posteria as po
from posteria.errors import SettingError
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.posteriors.units import in_units

HMC = po.HMC(num_chains=2, num_draws=100, num_warmup=20, num_leapfrog=5, start="prior")
WITHOUT_POSTERIA = """
import sys
for name in ("posteria", "tensorstore", "flax", "optax", "blackjax", "sklearn", "pandas", "scipy.stats"):
    sys.modules[name] = None
import numpy as np
_, artifact, rows, out = sys.argv
sys.path.insert(0, artifact)
from predict import load
rows = dict(np.load(rows))
np.savez(out, **load(artifact)(rows["x"] if "x" in rows else rows, level=0.8))
"""


def predict_elsewhere(artifact, rows, tmp_path):
    np.savez(tmp_path / "rows.npz", **rows)
    arguments = [
        sys.executable,
        "-c",
        WITHOUT_POSTERIA,
        str(artifact),
        str(tmp_path / "rows.npz"),
        str(tmp_path / "out.npz"),
    ]
    subprocess.run(arguments, check=True, capture_output=True, text=True)
    return dict(np.load(tmp_path / "out.npz"))


@pytest.fixture(scope="module")
def regression():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3)).astype(np.float32)
    y = np.sin(x[:, 0]) + 0.1 * random.normal(size=60)
    return po.fit(po.Model(po.nn.mlp((8,))), (x, y), HMC, progress=False), x


def test_chosen_draws_keep_the_prediction_better_than_nearly_all_random_choices(regression):
    posterior, x = regression
    whole = posterior.predict(x)

    def error(predictive):
        return np.abs(predictive.mean - whole.mean).mean() + np.abs(predictive.std - whole.std).mean()

    def at_random(seed):
        flat = posterior.stored.flat.reshape(1, -1, posterior.stored.flat.shape[-1])
        rows = np.random.default_rng(seed).choice(flat.shape[1], 20, replace=False)
        return DrawsPosterior(posterior.target, Draws(posterior.target.structs, flat[:, rows], {}))

    chosen = posterior.thin(20, x)
    assert chosen.num_draws == 20
    better = sum(error(at_random(seed).predict(x)) < error(chosen.predict(x)) for seed in range(40))
    assert better <= 3  # chance alone would give so few one time in ten


def test_thinning_keeps_draws_of_the_posterior_and_is_whole_where_nothing_is_to_thin(regression):
    posterior, x = regression
    stored = {row.tobytes() for row in posterior.stored.flat.reshape(-1, posterior.stored.flat.shape[-1])}
    assert all(row.tobytes() in stored for row in posterior.thin(7, x).stored.flat[0])
    np.testing.assert_allclose(posterior.thin(1000).predict(x).mean, posterior.predict(x).mean, rtol=1e-5, atol=1e-6)


def test_the_choice_looks_at_all_of_x_though_it_be_sorted(regression):
    posterior, x = regression
    alike = np.zeros((200, 3), np.float32)  # as many rows as it looks at
    of_first, of_all = posterior.thin(10, alike), posterior.thin(10, np.concatenate([alike, x]))
    assert not np.array_equal(of_first.stored.flat, of_all.stored.flat)


def test_an_exported_table_has_a_column_for_each_target_and_none_is_a_category(tmp_path):
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"a": random.normal(size=40), "b": ["None", "u"] * 20})
    y = np.stack([frame["a"] + 3 * (frame["b"] == "None"), -frame["a"]], axis=1)
    model = po.Regressor(po.MAP(num_epochs=100), "mlp:4").fit(frame, y)
    model.export(tmp_path / "artifact")
    frame.to_csv(tmp_path / "new.csv", index=False)
    arguments = [sys.executable, tmp_path / "artifact" / "predict.py", tmp_path / "new.csv"]
    answer = subprocess.run(arguments, check=True, capture_output=True, text=True)
    (tmp_path / "out.csv").write_text(answer.stdout)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")[["mean 0", "mean 1"]], model.predict(frame), rtol=1e-5)


def test_an_export_of_arrays_predicts_the_same_without_posteria(regression, tmp_path):
    posterior, x = regression
    size = posterior.export(tmp_path / "artifact")
    assert size == sum(file.stat().st_size for file in (tmp_path / "artifact").rglob("*") if file.is_file())
    got = predict_elsewhere(tmp_path / "artifact", {"x": x[:7]}, tmp_path)
    wanted = posterior.predict(x[:7])
    lower, upper = wanted.interval(0.8)
    np.testing.assert_allclose(got["mean"], wanted.mean, atol=1e-5)
    np.testing.assert_allclose(got["std"], wanted.std, atol=1e-5)
    np.testing.assert_allclose(got["lower"], lower, atol=1e-5)
    np.testing.assert_allclose(got["upper"], upper, atol=1e-5)
    with pytest.raises(SettingError, match="not empty"):
        posterior.export(tmp_path / "artifact")


def test_an_export_of_fewer_draws_predicts_as_the_posterior_with_as_many(regression, tmp_path):
    posterior, x = regression
    posterior.export(tmp_path / "artifact", num_draws=7)
    got = predict_elsewhere(tmp_path / "artifact", {"x": x[:5]}, tmp_path)
    np.testing.assert_allclose(got["mean"], posterior.predict(x[:5], 7).mean, atol=1e-5)


def test_an_export_of_a_calibrated_table_prepares_rows_as_the_fit_did(tmp_path):
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"a": random.normal(size=90), "b": random.choice(["u", "v"], 90), "y": random.normal(size=90)})
    frame.loc[::9, "a"] = np.nan
    frame["y"] += 3 * (frame["b"] == "u") + 10
    preparation = po.data.Preparation.from_table(frame[:60], "y")
    data = preparation.inputs(frame[:60]), preparation.targets(frame["y"][:60])
    attach = {"preparation": preparation.to_json()}
    posterior = po.fit(po.Model(po.nn.mlp((8,))), data, HMC, progress=False, attach=attach)
    held = preparation.inputs(frame[60:]), preparation.targets(frame["y"][60:])
    calibrated = posterior.calibrate(*held).thin(50, held[0])
    calibrated.export(tmp_path / "artifact")
    new = pd.DataFrame({"b": ["u", "w", None, "v"], "a": [0.5, -1.0, 2.0, np.nan]})
    rows = {"b": np.array(["u", "w", "", "v"]), "a": new["a"].to_numpy()}
    got = predict_elsewhere(tmp_path / "artifact", rows, tmp_path)
    wanted = in_units(calibrated.predict(preparation.inputs(new)), preparation.y)
    np.testing.assert_allclose(got["mean"], wanted.mean, rtol=1e-5)
    for name, bound in zip(("lower", "upper"), wanted.interval(0.8)):
        np.testing.assert_allclose(got[name], bound, rtol=1e-5)
    as_array = {"x": np.array([[0.5, "u"], [-1.0, "w"], [2.0, ""], ["nan", "v"]], dtype=str)}  # in the fit's order
    np.testing.assert_array_equal(predict_elsewhere(tmp_path / "artifact", as_array, tmp_path)["mean"], got["mean"])
    answer = subprocess.run(
        [sys.executable, tmp_path / "artifact" / "predict.py", "--time"], check=True, capture_output=True, text=True
    )
    assert json.loads(answer.stdout)["one_row_milliseconds"] > 0
    new.to_csv(tmp_path / "new.csv", index=False)
    arguments = [sys.executable, tmp_path / "artifact" / "predict.py", tmp_path / "new.csv"]
    table = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()
    assert table[0] == "mean,lower,upper,std,epistemic_std" and len(table) == 5
    np.testing.assert_allclose(float(table[1].split(",")[0]), wanted.mean[0, 0], rtol=1e-5)
