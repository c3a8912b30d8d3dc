"""An MLflow model predicts what the posterior does, where Posteria is not installed, and notices damage."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import posteria as po
from posteria.errors import PosteriaError
from posteria.posteriors.exported import posteria_pyfunc
from serve.tables import houses, rows_of

READ = """
import json, sys, mlflow, pandas as pd
model = mlflow.pyfunc.load_model(sys.argv[1])
frame = pd.read_csv(sys.argv[2])
told = [model.predict(frame).to_dict("list"), model.predict(frame, params={"level": 0.5}).to_dict("list")]
assert "posteria" not in sys.modules
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def houses_fit():
    table = houses(80)
    return po.Regressor(po.MAP(num_epochs=100), "mlp:4").fit(table[["size", "colour"]], table["price"])


def test_what_mlflow_calls_predicts_what_the_estimator_does(houses_fit, tmp_path):
    houses_fit.posterior_.export(tmp_path / "export")
    frame = pd.DataFrame(rows_of(7), index=range(10, 17))
    told = posteria_pyfunc._load_pyfunc(str(tmp_path / "export")).predict(frame, {"level": 0.5})
    mean, std = houses_fit.predict(frame, return_std=True)
    np.testing.assert_allclose(told["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(told["std"], std, rtol=1e-5)
    lower, upper = houses_fit.interval(frame, 0.5)
    np.testing.assert_allclose(told[["lower", "upper"]].to_numpy(), np.stack([lower, upper], 1), rtol=1e-4)
    assert list(told.index) == list(frame.index)


def test_classes_are_named(tmp_path):
    table = houses(80)
    labels = np.where(table["price"] > 100, "dear", "cheap")
    estimator = po.Classifier(po.MAP(num_epochs=50), "mlp:4").fit(table[["size", "colour"]], labels)
    estimator.posterior_.export(tmp_path / "export")
    frame = pd.DataFrame(rows_of(6))
    told = posteria_pyfunc._load_pyfunc(str(tmp_path / "export")).predict(frame)
    assert (told["predicted"] == estimator.predict(frame)).all()
    probs = told[["probability cheap", "probability dear"]].to_numpy()
    np.testing.assert_allclose(probs, estimator.predict_proba(frame), atol=1e-6)


@pytest.mark.parametrize("name", ["predict.py", "function.bin", "artifact.json", "cells.py"])
def test_a_damaged_file_is_noticed_before_it_is_used(houses_fit, tmp_path, name):
    houses_fit.posterior_.export(tmp_path / "export")
    path = tmp_path / "export" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"SHA-256|cannot be read"):
        posteria_pyfunc._load_pyfunc(str(tmp_path / "export"))


def test_what_is_not_fitted_is_refused():
    pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    with pytest.raises(PosteriaError, match="fitted"):
        po.mlflow.save_model(po.Regressor(), "nowhere")


def test_a_logged_model_is_found_again(houses_fit, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    po.mlflow.save_model(houses_fit, tmp_path / "model")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = po.mlflow.log_model(houses_fit, "houses")
    assert mlflow.pyfunc.load_model(logged.model_uri).metadata.signature == logged.signature
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    frame = pd.DataFrame(rows_of(5))
    np.testing.assert_allclose(loaded.predict(frame)["mean"], houses_fit.predict(frame), rtol=1e-5)
    assert loaded.metadata.metadata["posteria"]["num_data"] == 80
    files = [path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert files and not {".pkl", ".pickle", ".joblib", ".cloudpickle"} & set(files)


@pytest.mark.slow
def test_a_logged_model_round_trips_in_a_fresh_environment(houses_fit, tmp_path):
    """A new environment with what the model says it needs, and no Posteria."""
    pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    po.mlflow.save_model(houses_fit, tmp_path / "model")
    frame = pd.DataFrame(rows_of(9))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    python = str(tmp_path / "fresh" / "bin" / "python")
    requirements = str(tmp_path / "model" / "requirements.txt")
    subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run([python, "-c", "import posteria"], env=environment, capture_output=True, cwd=tmp_path)
    assert found.returncode != 0  # it is not there
    words = [python, "-c", READ, str(tmp_path / "model"), str(tmp_path / "rows.csv")]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    at_90, at_50 = json.loads(told.stdout.splitlines()[-1])
    mean, std = houses_fit.predict(frame, return_std=True)
    np.testing.assert_allclose(at_90["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(at_90["std"], std, rtol=1e-5)
    for level, said in ((0.9, at_90), (0.5, at_50)):
        np.testing.assert_allclose(said["lower"], houses_fit.interval(frame, level)[0], rtol=1e-4)
    size = sum(path.stat().st_size for path in Path(tmp_path / "model").rglob("*") if path.is_file())
    print(f"the model takes {size / 1e6:.2f} MB")
