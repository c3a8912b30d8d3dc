"""An exported folder checks itself, runs nothing that was planted, and reads a table as the package does."""

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import posteria as po
from damage.subjects import jax_alone
from posteria.data.table_file import read_frame
from posteria.errors import DataError, StoreError
from posteria.posteriors import calibrated, export, store

MARK = "import os\nopen(os.environ['EVIL_MARK'], 'a').write(__name__ + ' ')\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """An estimator of numbers, categories and truth values, exported; new.csv beside it."""
    home = tmp_path_factory.mktemp("exported")
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "a": random.normal(size=60),
            "b": random.choice(["u", "None", "1"], 60),
            "c": random.choice([True, False], 60),
            "d": random.choice([1.0, 2.0, np.nan], 60),
        }
    )
    y = frame["a"] + 3 * (frame["b"] == "u") + frame["c"]
    with pytest.warns(UserWarning, match="median"):
        model = po.Regressor(po.MAP(num_epochs=50), "mlp:4").fit(frame, y)
    model.export(home / "artifact")
    model.save(home / "saved")
    return home


def reader(folder: Path):
    """Its module, as a user imports it."""
    spec = importlib.util.spec_from_file_location("predict", folder / "predict.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, path: Path, *options: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *options, str(folder / "predict.py"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


AWKWARD = {  # a table's texts, a column each
    "a": ["1", "+2", "007", ".5", "1e3", "-1E-3", "", "n/a", " 4", "5 ", "3.", "-.5"],
    "b": ["u", "None", "1", "1.0", "01", "NA", "", "?", "v", " u", "u ", "none"],
    "c": ["True", "false", "TRUE", "true", "False", "true", "false", "true", "false", "true", "false", "true"],
    "d": ["1", "2", "1.0", "2.0", "NaN", "null", "<NA>", "1", "2", "1", "2", "-1.#IND"],
}


def write_csv(path: Path, columns: dict) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values())])
    return path


@pytest.fixture(scope="module")
def of_everything(tmp_path_factory) -> tuple[Path, po.Regressor, pd.DataFrame]:
    """Dates, many values, words, an order, prices and a zone, exported."""
    home, random = tmp_path_factory.mktemp("everything"), np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2019-01-01", periods=300, freq="31h").strftime("%d/%m/%Y %H:%M"),
            "month": pd.date_range("2019-01-01", periods=300, freq="5D").strftime("%Y%m%d"),
            "street": random.choice([f"{i} Straße" for i in range(60)], 300),
            "about": [f"a {w} house, number {i}" for i, w in enumerate(random.choice(["red", "old", "big"], 300))],
            "size": random.choice(["S", "M", "L"], 300),
            "price": [f"${v:,.2f}" for v in random.uniform(10, 9000, 300)],
        }
    )
    asked = {"size": "ordered:S<M<L", "month": "date"}
    model = po.Regressor(po.MAP(num_epochs=20), "mlp:4", as_=asked).fit(frame, random.normal(size=300))
    model.export(home / "artifact")
    return home / "artifact", model, frame


@pytest.mark.parametrize("sep", [",", ";"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_dates_and_encodings_mean_the_same_to_an_export(of_everything, tmp_path, sep, encoding):
    folder, model, frame = of_everything
    rows = frame.sample(40, random_state=3).reset_index(drop=True)
    rows.loc[0, ["when", "street", "about"]] = [None, "new", None]
    rows.loc[1, ["when", "size", "price"]] = ["2031-01-01", "XL", None]
    path = tmp_path / "new.csv.gz"
    rows.to_csv(path, index=False, sep=sep, encoding=encoding)
    predict = reader(folder).load(folder)
    found = predict(predict.read_csv(path))["mean"][:, 0]
    np.testing.assert_allclose(found, model.predict(read_frame(path)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predict(rows)["mean"][:, 0], found, rtol=1e-6)
    assert predict(rows.assign(when=pd.Timestamp("2019-05-01")))["mean"].shape == (40, 1)
    with pytest.raises(ValueError, match="wanted dates"):
        predict(rows.assign(when="soon"))


@pytest.mark.parametrize("seed", range(8))
def test_a_csv_means_the_same_to_the_package_and_to_its_export(exported, tmp_path, seed):
    """All rows in another order each time, and few of them: so a column may be of numbers alone, or of text."""
    random = np.random.default_rng(seed)
    rows = random.permutation(12)[: [12, 1, 2, 3][seed % 4]]
    columns = {
        name: [texts[i] for i in (rows if seed % 2 else random.permutation(rows))] for name, texts in AWKWARD.items()
    }
    path = write_csv(tmp_path / "new.csv", columns)
    predictor = reader(exported / "artifact").load(exported / "artifact")
    preparation = po.Regressor.load(exported / "saved").preparation_
    levels = {column.name: getattr(column, "levels", ()) for column in preparation.encoder.columns}
    wanted = preparation.inputs(read_frame(path, levels))
    np.testing.assert_array_equal(predictor.inputs(predictor.read_csv(path)), wanted)


def test_codes_mean_the_same_to_the_package_and_to_its_export(exported):
    cells = reader(exported / "artifact").load(exported / "artifact")._cells
    for texts in (["007", "12"], ["007", None], ["7", "12"], ["007", "1.5"], ["007", "x"], ["-07", "1"], ["0", "1"]):
        frame = read_frame(write_csv(exported / "codes.csv", {"a": texts, "b": ["x"] * 2}))
        found = cells.levels(cells.of_texts(["" if text is None else text for text in texts]))
        assert found.tolist() == cells.levels(frame["a"].to_numpy()).tolist(), texts


def test_a_frame_means_the_same_to_the_package_and_to_its_export(exported, capsys):
    frames = [
        pd.DataFrame({"a": [1, 2], "b": ["u", None], "c": [True, False], "d": [1.0, np.nan]}),
        pd.DataFrame({"a": ["1", "2e3"], "b": pd.Categorical(["u", "w"]), "c": [1, 0], "d": [None, 2]}),
        pd.DataFrame({"a": [1.5, None], "b": [1, 1.0], "c": ["1", "0"], "d": ["", "2"][1:] * 2}),
        pd.DataFrame({"a": [1, 2], "b": ["NA", " u "], "c": [0, 1], "d": [1, 2]}).convert_dtypes(),
        pd.DataFrame({"a": np.float32([0.1, 3]), "b": [True, 2.5], "c": [np.True_, None], "d": [np.int8(1), 2]}),
    ]
    predictor = reader(exported / "artifact").load(exported / "artifact")
    preparation = po.Regressor.load(exported / "saved").preparation_
    for frame in frames:
        np.testing.assert_array_equal(predictor.inputs(frame), preparation.inputs(frame))
        as_dict = {name: frame[name].to_numpy(object) for name in frame}
        np.testing.assert_array_equal(predictor.inputs(as_dict), preparation.inputs(frame))
    said = capsys.readouterr()  # "w" is new to b; predictions may be piped
    assert not said.out and "values that the fit did not know" in said.err


@pytest.mark.parametrize("value", ["many", "1_000", "inf", "-Infinity", "1e200", "0x10", "true"])
def test_what_is_no_number_is_refused_by_both(exported, tmp_path, value):
    columns = {name: [texts[0], texts[1]] for name, texts in AWKWARD.items()} | {"a": ["1", value]}
    path = write_csv(tmp_path / "new.csv", columns)
    predictor = reader(exported / "artifact").load(exported / "artifact")
    with pytest.raises(ValueError, match="column 'a'"):
        predictor.inputs(predictor.read_csv(path))
    with pytest.raises(DataError, match="column 'a'"):
        po.Regressor.load(exported / "saved").preparation_.inputs(read_frame(path))


def test_the_threshold_of_an_export_is_that_of_the_package():
    levels = [1e-7, 1e-3, 0.1, 1 / 3, 0.5, 0.68, 0.8, 0.9, 0.95, 0.99, 0.999, *np.linspace(0.01, 0.99, 99)]
    for count in [2, 3, 9, 10, 19, 20, 99, 100, 999, 12_345, 99_999, 1_000_000]:
        scores = np.arange(1, count + 1, dtype=np.float64)
        for level in levels:
            got = float(export._threshold(scores, jnp.float32(level)))
            try:
                assert got == np.float32(calibrated.threshold(scores, level)), (count, level)
            except po.errors.SettingError:
                assert got == np.inf, (count, level)


def test_an_export_needs_jax_and_numpy_alone_and_lends_flatbuffers(exported, tmp_path):
    path = write_csv(tmp_path / "new.csv", AWKWARD)
    alone = run(exported / "artifact", path, "-S", PYTHONPATH=str(jax_alone(path)))
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout == run(exported / "artifact", path).stdout
    assert len(alone.stdout.splitlines()) == 13


@pytest.mark.parametrize("is_current", [True, False])
def test_nothing_planted_beside_the_reader_is_run(exported, tmp_path, is_current):
    folder = Path(shutil.copytree(exported / "artifact", tmp_path / "artifact"))
    names = ("numpy", "jax", "json", "csv", "hashlib", "types", "pathlib", "time", "importlib", "sitecustomize", "os")
    for name in names:
        (folder / f"{name}.py").write_text(MARK)
    (folder / "jax_plugins").mkdir()
    (folder / "jax_plugins" / "__init__.py").write_text(MARK)
    (folder / "flatbuffers" / "evil.py").write_text(MARK)
    path = write_csv(tmp_path / "new.csv", AWKWARD)
    mark = tmp_path / "mark"
    command = [sys.executable, "predict.py" if is_current else str(folder / "predict.py"), str(path)]
    environment = os.environ | {"EVIL_MARK": str(mark)}
    cwd = folder if is_current else tmp_path
    answer = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "grow"])
def test_a_damage_of_any_file_is_noticed_before_it_is_used(exported, tmp_path, damage):
    folder = Path(shutil.copytree(exported / "artifact", tmp_path / "artifact"))
    module = reader(folder)
    if importlib.util.find_spec("flatbuffers") is not None:  # then those that are lent are not used
        shutil.rmtree(folder / "flatbuffers")
    for number, path in enumerate(sorted(file for file in folder.rglob("*") if file.is_file())):
        if path.parent.name == "__pycache__":
            continue
        content = path.read_bytes()
        place = (104_729 * (number + 1)) % len(content)
        flipped = content[:place] + bytes([content[place] ^ 2]) + content[place + 1 :]
        if damage == "remove":
            path.unlink()
        else:
            path.write_bytes({"flip": flipped, "truncate": content[:place], "grow": content + b" "}[damage])
        if damage == "grow" and path.name == export.ABOUT:
            module.load(folder)  # white space is nothing
        else:
            with pytest.raises(ValueError, match=r"export again"):
                module.load(folder)
        path.write_bytes(content)
    module.load(folder)


def test_the_script_says_what_is_wrong_in_one_line(exported, tmp_path):
    folder = Path(shutil.copytree(exported / "artifact", tmp_path / "artifact"))
    path = write_csv(tmp_path / "new.csv", {"a": ["1"]})
    answer = run(folder, path)
    assert answer.returncode == 1 and answer.stderr == "predict.py: column 'b' is missing\n"
    about = json.loads((folder / export.ABOUT).read_text())
    about["y"]["mean"] = [1.0]
    (folder / export.ABOUT).write_text(json.dumps(about))
    answer = run(folder, path)
    assert answer.returncode == 1 and "was edited" in answer.stderr and len(answer.stderr.splitlines()) == 1


def test_an_export_of_before_checksums_is_read_and_said_to_be_unverified(exported, tmp_path, capsys):
    shutil.unpack_archive(Path(__file__).with_name("schema1.zip"), tmp_path)
    prediction = reader(exported / "artifact").load(tmp_path / "export")(np.load(tmp_path / "data.npz")["x"])
    np.testing.assert_allclose(prediction["mean"], np.load(tmp_path / "predicted.npz")["mean"], rtol=1e-5)
    assert "not verified" in capsys.readouterr().err


def test_an_export_takes_the_place_of_another_whole_or_not_at_all(exported, tmp_path, monkeypatch):
    posterior = po.Regressor.load(exported / "saved").posterior_
    folder = Path(shutil.copytree(exported / "artifact", tmp_path / "artifact"))
    before = store.digests(folder, ".")

    def interrupted(path, content):
        raise KeyboardInterrupt

    for name in ("write_bytes", "_take_place"):
        with monkeypatch.context() as patch:
            patch.setattr(export.disk, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                posterior.export(folder, if_exists="replace")
        assert store.digests(folder, ".") == before
        assert [path.name for path in tmp_path.iterdir()] == ["artifact"]
    posterior.export(folder, if_exists="replace")
    (folder / "mine.csv").write_text("a,b")
    with pytest.raises(StoreError, match=r"mine\.csv"):
        posterior.export(folder, if_exists="replace")


def test_ctrl_c_while_jax_exports_leaves_nothing(exported, tmp_path, monkeypatch):
    posterior = po.Regressor.load(exported / "saved").posterior_
    prediction = export._prediction

    def pressed(*arguments):
        os.kill(os.getpid(), export.signal.SIGINT)
        return prediction(*arguments)

    before = export.signal.signal(export.signal.SIGINT, export.signal.default_int_handler)  # a shell may ignore it
    monkeypatch.setattr(export, "_prediction", pressed)
    with pytest.raises(KeyboardInterrupt):
        posterior.export(tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()
    assert export.signal.signal(export.signal.SIGINT, before) is export.signal.default_int_handler
