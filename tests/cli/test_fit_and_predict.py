"""A CSV to a folder to predictions, as a person at a terminal does it."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.cli import app

TARGET = "price, EUR"
QUICK = ("--method", "metropolis-hastings", "--set", "num_draws=20", "--set", "num_warmup=5", "--network", "mlp:4")


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def houses(num_rows: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size (m, wide)": random.normal(size=num_rows),
            "colour": random.choice(["red", "blue", "green"], num_rows),
            "age": random.integers(1, 90, num_rows).astype(float),
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame[TARGET] = 100 + 20 * frame["size (m, wide)"] + 10 * (frame["colour"] == "red") + random.normal(size=num_rows)
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a finished fit; the table is beside it."""
    path = tmp_path_factory.mktemp("cli")
    houses(80).to_csv(path / "houses.csv", index=False)
    answer = invoke("fit", path / "houses.csv", "--target", TARGET, *QUICK, "-o", path / "run", "--json", "--quiet")
    assert answer.exit_code == 0, answer.output
    summary = json.loads(answer.stdout)
    assert summary["method"] == "metropolis-hastings" and summary["draws"] == 80 and summary["is_whole"]
    return path / "run"


def predictions(folder, frame, *options):
    frame.to_csv(folder.parent / "new.csv", index=False)
    answer = invoke("predict", folder, folder.parent / "new.csv", *options)
    assert answer.exit_code == 0, answer.output
    return pd.read_csv(io.StringIO(answer.stdout)), answer.stderr


def test_predictions_stand_beside_the_input_and_equal_those_of_python(folder):
    new = houses(6, seed=1)
    table, _ = predictions(folder, new)
    assert list(table.columns[:4]) == list(new.columns)
    preparation = po.data.Preparation.from_table(houses(80), TARGET)
    predictive = po.load(folder).predict(preparation.inputs(new))
    mean = predictive.mean[:, 0] * preparation.y.std + preparation.y.mean
    np.testing.assert_allclose(table["mean"], mean, rtol=1e-5)
    lower, _ = predictive.interval(0.9)
    np.testing.assert_allclose(table["lower"], lower[:, 0] * preparation.y.std + preparation.y.mean, rtol=1e-5)
    np.testing.assert_allclose(
        table["epistemic_std"], np.sqrt(predictive.epistemic[:, 0]) * preparation.y.std, rtol=1e-4, atol=1e-6
    )


def test_columns_match_by_name_and_odd_ones_are_told(folder):
    new = houses(4, seed=2)
    plain, _ = predictions(folder, new)
    odd = new[["age", TARGET, "colour", "size (m, wide)"]].assign(note="x")
    reordered, said = predictions(folder, odd)
    np.testing.assert_array_equal(plain["mean"], reordered["mean"])
    assert "columns not used: note" in said
    strange, said = predictions(
        folder, new.assign(colour=["pink", *new["colour"][1:]], **{"size (m, wide)": [0, 99, 0, 0]})
    )
    assert "'pink' not seen in the fit" in said and "2 of 4 rows lie outside" in said
    assert strange["features_outside"].tolist() == [1, 1, 0, 0]


def test_columns_of_the_input_come_out_as_they_went_in(folder):
    new = houses(3, seed=2).assign(zip=["01067", "00001", "10115"], exact=["52.520006600", "1234567890", ""])
    path = folder.parent / "exact.csv"
    new.to_csv(path, index=False)
    answer = invoke("predict", folder, path)
    assert answer.exit_code == 0, answer.output
    for line, given in zip(answer.stdout.splitlines(), path.read_text().splitlines()):
        assert line.startswith(f"{given},")


def test_fewer_draws_and_another_interval(folder):
    new = houses(4, seed=3)
    wide, _ = predictions(folder, new, "--interval", "0.99")
    narrow, _ = predictions(folder, new, "--interval", "0.5", "--draws", "7")
    assert ((wide["upper"] - wide["lower"]) > (narrow["upper"] - narrow["lower"])).all()


def test_an_output_column_never_hides_one_of_the_input(folder):
    table, _ = predictions(folder, houses(3).assign(mean=[7, 8, 9]))
    assert table["mean"].tolist() == [7, 8, 9] and "predicted_mean" in table


def test_classes_get_probabilities_and_entropy(tmp_path):
    houses(60).to_csv(tmp_path / "h.csv", index=False)
    answer = invoke("fit", tmp_path / "h.csv", "--target", "colour", *QUICK, "-o", tmp_path / "r", "-q")
    assert answer.exit_code == 0, answer.output
    answer = invoke("predict", tmp_path / "r", tmp_path / "h.csv", "-o", tmp_path / "out.csv", "-q")
    table = pd.read_csv(tmp_path / "out.csv")
    probs = table[["p(blue)", "p(green)", "p(red)"]].to_numpy()
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)
    assert (table["predicted"] == np.array(["blue", "green", "red"])[probs.argmax(1)]).all()
    assert (table["entropy"] >= table["mutual_information"]).all() and answer.stdout == ""


def test_a_fit_cut_short_goes_on_and_ends_as_an_uninterrupted_one(folder, tmp_path):
    data = folder.parent / "houses.csv"
    answer = invoke("fit", data, "--target", TARGET, *QUICK, "-o", tmp_path / "r", "--minutes", "1e-6", "-q", "--json")
    assert not json.loads(answer.stdout)["is_whole"]
    answer = invoke("resume", tmp_path / "r", "-q", "--json")
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["draws"] == 80


@pytest.mark.parametrize(
    ("content", "target", "said"),
    [
        ("a,b\n1,2\n2,3\n", "c", "no column 'c'"),
        ("", "y", "empty"),
        ("a,y\n", "y", "no rows"),
        ("a,y\n1,5\n2,5\n3,5\n", "y", "5.0 in every row"),
        ("a,y\n1,u\n2,u\n3,u\n", "y", "'u' in every row"),
        ("a,y\n" + "".join(f"{i / 7},{i / 3}\n" for i in range(30)) + "wide,1.5\n", "y", "'a' is mostly numbers"),
        ("a,y\n1,\n2,\n3,\n", "y", "missing in every row"),
    ],
)
def test_a_broken_table_gets_one_clear_line_and_a_hint_at_most(tmp_path, content, target, said):
    (tmp_path / "t.csv").write_text(content)
    answer = invoke("fit", tmp_path / "t.csv", "--target", target, "-o", tmp_path / "r")
    assert answer.exit_code == 1
    lines = answer.stderr.splitlines()
    assert said in lines[0] and len(lines) <= 2
    assert not (tmp_path / "r").exists()


def test_an_unknown_setting_lists_those_there_are(folder):
    answer = invoke("fit", folder.parent / "houses.csv", "--target", TARGET, "--method", "hmc", "--set", "num_drws=3")
    assert answer.exit_code == 1 and "'num_draws'" in answer.stderr


def test_an_own_network_and_method_by_module_and_name(folder, tmp_path, monkeypatch):
    (tmp_path / "cli_own.py").write_text(
        "import posteria as po\nfrom dataclasses import dataclass\n"
        "def build(outputs):\n    net = po.nn.mlp((3,), outputs=outputs)\n    return po.Network(net.init, net.apply)\n"
        "@dataclass(frozen=True)\nclass OwnCliMethod(po.MAP):\n    'A point.'\n    num_epochs: int = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--network", "cli_own:build", "--method", "cli_own:OwnCliMethod", "-o", tmp_path / "r")
    answer = invoke("fit", folder.parent / "houses.csv", "--target", TARGET, *options)
    assert answer.exit_code == 0, answer.output
    assert "NEW.csv --network cli_own:build -o" in answer.stderr
    table, _ = predictions(tmp_path / "r", houses(3), "--network", "cli_own:build")
    assert np.isfinite(table["mean"]).all()


def test_without_a_method_a_table_gets_a_recipe_and_its_coverage_is_told(tmp_path):
    houses(120).to_csv(tmp_path / "h.csv", index=False)
    answer = invoke("fit", tmp_path / "h.csv", "--target", TARGET, "--network", "mlp:4", "-o", tmp_path / "r", "--json")
    assert answer.exit_code == 0, answer.output
    assert "10 networks in folds" in answer.stderr
    summary = json.loads(answer.stdout)
    assert summary["method"] == "folds" and 0.8 <= summary["coverage"]["0.9"]["after"] <= 1
    new = houses(200, seed=1)
    table, said = predictions(tmp_path / "r", new)
    assert "of 120 rows that were not fitted to, 90% intervals hold" in said
    assert ((table["lower"] <= new[TARGET]) & (new[TARGET] <= table["upper"])).mean() > 0.8
    assert invoke("fit", tmp_path / "h.csv", "--target", TARGET, "--set", "size=3").exit_code == 1


def test_calibrate_holds_within_groups_and_predict_takes_them_from_the_table(folder):
    place = folder.parent / "calibrated"
    houses(400, seed=5).to_csv(folder.parent / "held.csv", index=False)
    answer = invoke("calibrate", folder, folder.parent / "held.csv", "--groups", "colour", "-o", place)
    assert answer.exit_code == 0 and "of 400 rows that were not fitted to" in answer.stdout, answer.output
    new = houses(600, seed=6)
    table, _ = predictions(place, new)
    inside = (table["lower"] <= new[TARGET]) & (new[TARGET] <= table["upper"])
    assert all(abs(share - 0.9) < 0.08 for share in inside.groupby(new["colour"]).mean())
    answer = invoke("calibrate", folder, folder.parent / "held.csv", "--groups", "city", "-o", place)
    assert answer.exit_code == 1 and "lacks the columns ['city']" in answer.stderr


def test_amounts_as_text_may_be_calibrated_and_scored(folder, tmp_path):
    """A target in dollars was fitted, and then neither calibrated nor scored: could not convert string to float."""
    for name, seed in {"fit": 0, "held": 1}.items():
        frame = houses(60, seed=seed)
        frame[TARGET] = [f"${value:,.2f}" for value in 50 * frame[TARGET]]
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    run, held = tmp_path / "run", tmp_path / "held.csv"
    assert invoke("fit", tmp_path / "fit.csv", "--target", TARGET, *QUICK, "-o", run, "-q").exit_code == 0
    answer = invoke("calibrate", run, held)
    assert answer.exit_code == 0 and "of 60 rows that were not fitted to" in answer.stdout, answer.output
    answer = invoke("publish", run, tmp_path / "published", "--test", held)
    assert answer.exit_code == 0, answer.output
    answer = invoke("calibrate", run, tmp_path / "fit.csv", "-o", tmp_path / "own")
    assert answer.exit_code == 1 and "are those that were fitted to" in answer.stderr


def test_a_published_folder_predicts_as_the_fit_does(folder):
    published = folder.parent / "published"
    answer = invoke("publish", folder, published)
    assert answer.exit_code == 0, answer.output
    new = houses(6, seed=1)
    (table, _), (again, _) = predictions(folder, new), predictions(published, new)
    pd.testing.assert_frame_equal(table, again)
    draws = published / "draws.safetensors"
    draws.write_bytes(draws.read_bytes()[:-1] + b"?")
    refused = invoke("predict", published, folder.parent / "new.csv")
    assert refused.exit_code != 0 and "draws.safetensors" in refused.output + str(refused.stderr)


def test_rows_may_be_piped_in_and_predictions_out(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    houses(5, seed=2).to_csv("new.csv", index=False)
    plain = invoke("predict", folder, "new.csv")
    piped = CliRunner().invoke(app, ["predict", str(folder), "-", "-o", "-"], input=(tmp_path / "new.csv").read_bytes())
    assert piped.exit_code == 0 and piped.stdout == plain.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]  # there was a file called "-"
    empty = CliRunner().invoke(app, ["predict", str(folder), "-"], input=b"")
    assert empty.exit_code == 1 and "standard input.csv is empty" in empty.stderr


def test_rows_of_a_group_are_left_out_together(tmp_path):
    random = np.random.default_rng(0)
    patient = np.repeat(np.arange(12), 6)
    rows = {
        "patient": [f"P{i}" for i in patient],
        "age": random.normal(size=12)[patient],
        "dose": random.normal(size=72),
    }
    frame = pd.DataFrame(rows)
    frame["y"] = frame["dose"] + frame["age"] + random.normal(size=72)
    frame.to_csv(tmp_path / "t.csv", index=False)
    network = ("--network", "mlp:2", "--set", "num_epochs=2", "-q")
    asked = ("fit", tmp_path / "t.csv", "--target", "y", "--group", "patient", "-o", tmp_path / "run")
    answer = invoke(*asked, "--method", "map", *network)
    assert answer.exit_code == 1 and "hint: --calibrate beside it" in answer.stderr
    answer = invoke(*asked, "--method", "map", "--calibrate", *network)
    assert answer.exit_code == 0, answer.output
    assert po.load(tmp_path / "run").facts["method"]["settings"]["groups"][:7] == [0] * 6 + [1]
    assert invoke("resume", tmp_path / "run", "-q").exit_code == 0
    frame.drop(columns="patient").to_csv(tmp_path / "new.csv", index=False)
    assert invoke("predict", tmp_path / "run", tmp_path / "new.csv").exit_code == 0


def test_a_plan_is_of_what_a_fit_would_do(folder):
    """It planned HMC where nothing was named, and the fit is of networks in folds."""
    houses_csv = folder.parent / "houses.csv"
    plan = invoke("plan", houses_csv, "--target", TARGET, "--no-rehearse")
    assert plan.exit_code == 0 and plan.stdout.startswith("Folds: 80 rows"), plan.output
    plan = invoke("plan", houses_csv, "--target", TARGET, "--no-rehearse", "--quality", "best", "--as", "age=category")
    assert plan.exit_code == 0 and plan.stdout.startswith("MCLMC: 80 rows"), plan.output
    assert invoke("plan", houses_csv, "--target", TARGET, "--set", "num_draws=3").exit_code == 1
