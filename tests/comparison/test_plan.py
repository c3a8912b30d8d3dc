"""What is understood of a table, how its rows are split, and what is said of it."""

import inspect
import shlex

import numpy as np
import pandas as pd
import pytest

import posteria as po
from posteria.cli import comparisons
from posteria.cli.set_option import build_method
from posteria.comparison import api
from posteria.comparison.api import plan
from posteria.comparison.ask import ask
from posteria.comparison.tell.sentences import commands
from posteria.data import sets
from posteria.errors import DataError, SettingError

MAP = {"map": po.MAP(num_epochs=50)}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    size = 120
    frame = pd.DataFrame(
        {
            "floor area, m2": rng.normal(100, 20, size),
            "town": rng.choice(["Ulm", "Bonn"], size),
            "year": rng.integers(1990, 2020, size),
        }
    )
    frame.loc[3, "floor area, m2"] = np.nan
    frame["price"] = 10 * frame["floor area, m2"].fillna(100) + 50 * (frame["town"] == "Ulm") + rng.normal(0, 30, size)
    return frame


def test_it_says_what_it_understood(frame):
    made = plan(frame, "price", methods=MAP, seeds=2)
    assert made.text.startswith(
        "120 rows, 3 columns (1 categorical), regression; random split, noise inferred; 1 method and"
    )
    assert "capped at 10 min (--minutes)" in made.text
    ((problem, entries),) = made.problems
    names = [entry.name for entry in entries if entry.name not in ("catboost", "ngboost", "tabpfn")]  # if installed
    assert names == ["linear", "map", "boosting", "nuts-reference"]
    assert problem.data["categorical"] == 1 and problem.data["train_rows"] == 96
    said = commands(problem, MAP["map"], entries[1].settings)
    assert said["fit"].endswith("--method map --network mlp:50,50 --seed 0 --set num_epochs=50 --out runs/map")
    assert said["predict"].startswith("posteria predict runs/map new.csv")


def test_a_reference_that_was_made_elsewhere_takes_no_time(frame, tmp_path):
    np.savez(tmp_path / "given.npz", samples=np.zeros((5, 24)))
    text = plan(frame, "price", methods=MAP, reference=tmp_path / "given.npz").text
    assert "; given.npz (reference)" in text and "capped" not in text


def test_python_and_the_command_line_have_one_set_of_defaults():
    """What either can say: where both can, they mean the same when nothing is said."""
    compare, planned, asked, said = (
        {name: parameter.default for name, parameter in inspect.signature(each).parameters.items()}
        for each in (api.compare, api.plan, ask, comparisons.compare)
    )
    said["split"] = said.pop("splits")
    said["minutes"] = planned["minutes"] if said["minutes"] is None else said["minutes"]  # not said: not handed on
    said["ignore"] = said["ignore"] or ()
    shared = {"methods", "reference", "baselines", "budget", "tune", "minutes"}
    assert {name: compare[name] for name in shared} == {name: planned[name] for name in shared}
    assert {name: said[name] for name in shared} == {name: planned[name] for name in shared}
    both = {"target", "kind", "network", "temperature", "seeds", "split", "group", "time", "test", "ignore"}
    assert {name: said[name] for name in both} == {name: asked[name] for name in both}
    assert {name: compare[name] for name in ("seeds", "test")} == {name: asked[name] for name in ("seeds", "test")}


def test_arrays_with_a_model_are_split_as_a_file_of_them_is(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)).astype(np.float32), rng.normal(size=300)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    arrays = ask((x, y), model=po.Model(po.nn.mlp(())), seeds=[0, 3])
    file = ask(tmp_path / "rows.npz", seeds=[0, 3])
    for mine, theirs in zip(arrays.folds, file.folds, strict=True):
        np.testing.assert_allclose(mine.y_test[:, 0], theirs.y_test, rtol=1e-6)
        np.testing.assert_array_equal(mine.far["extremes"], theirs.far["extremes"])
        assert mine.preparation is None and mine.scale is None
        np.testing.assert_array_equal(mine.x_test, x[theirs.test_rows])
    assert arrays.setting["split"] == file.setting["split"] == "random, 80% to learn from"
    given = ask((x[:40], y[:40]), model=po.Model(po.nn.mlp(())), test=(x[40:60], y[40:60]))
    np.testing.assert_array_equal(given.folds[0].x_test, x[40:60])
    assert (given.data["rows"], given.data["train_rows"], given.data["test_rows"]) == (60, 40, 20)
    assert given.splits.kind == "given" and arrays.splits.kind == "random"
    with pytest.raises(DataError, match="the same shape"):
        ask((x, y), model=po.Model(po.nn.mlp(())), test=(x[:, :1], y))


def test_a_data_set_with_test_rows_of_its_own_is_tested_on_them(monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(30, 4, 4, 1)).astype(np.float32)
    known = po.data.Dataset("known", "classes", images, np.arange(30) % 3, "", class_names=("a", "b", "c"), num_test=6)
    monkeypatch.setattr(sets, "load", lambda name: known)
    problem = ask("known", seeds=2)
    for fold in problem.folds:
        np.testing.assert_array_equal(fold.test_rows, np.arange(6))  # among the test rows, as a reference's `index`
        np.testing.assert_array_equal(fold.x_test, images[24:])
    assert problem.setting["split"] == "given test rows"


def test_moments_and_medians_come_from_training_rows_alone(frame):
    made = plan(frame, "price", methods=MAP, seeds=[0, 4], reference=None)
    for fold in made.problems[0][0].folds:
        x, y = fold.train
        is_number = x.std(0) > 0
        np.testing.assert_allclose(x.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(x.std(0)[is_number], 1, atol=1e-5)
        np.testing.assert_allclose([y.mean(), y.std()], [0, 1], atol=1e-5)
        assert fold.y_test.mean() > 500  # own units
        np.testing.assert_allclose(fold.scale.invert(y), fold.y_train, rtol=1e-5)


def test_groups_and_time_and_files_split_the_rows(frame, tmp_path):
    grouped = plan(frame, "price", methods=MAP, group="year", reference=None, seeds=1).problems[0][0]
    rows = {"train": set(grouped.folds[0].y_train), "test": set(grouped.folds[0].y_test)}
    years = {part: set(frame.loc[frame["price"].isin(values), "year"]) for part, values in rows.items()}
    assert not years["train"] & years["test"] and years["test"]
    assert grouped.data["columns"] == 2 and "splits the rows" in grouped.data["notes"][0]

    timed = plan(frame, "price", methods=MAP, time="year", reference=None, seeds=1).problems[0][0].folds[0]
    latest = frame.set_index("price").loc[list(timed.y_test), "year"].min()
    assert latest >= frame.set_index("price").loc[list(timed.y_train), "year"].max()

    frame[:100].to_csv(tmp_path / "train.csv", index=False)
    frame[100:].to_csv(tmp_path / "test.csv", index=False)
    given = plan(tmp_path / "train.csv", "price", methods=MAP, test=tmp_path / "test.csv", reference=None, seeds=1)
    np.testing.assert_allclose(given.problems[0][0].folds[0].y_test, frame["price"][100:])
    frame[100:101].to_csv(tmp_path / "one.csv", index=False)  # one row has one value: no reason to refuse it
    given = plan(tmp_path / "train.csv", "price", methods=MAP, test=tmp_path / "one.csv", reference=None, seeds=1)
    np.testing.assert_allclose(given.problems[0][0].folds[0].y_test, frame["price"][100:101])
    with pytest.raises(SettingError, match="one way"):
        plan(frame, "price", group="year", time="year")


def test_the_uci_splits_are_the_published_ones():
    problem = plan("diabetes", methods=MAP, split="uci", seeds=[0, 3], reference=None).problems[0][0]
    y = po.data.load("diabetes").y
    for fold, (_, test) in zip(problem.folds, np.array(po.data.uci_splits(len(y), 4), dtype=object)[[0, 3]]):
        np.testing.assert_array_equal(fold.y_test, y[test.astype(int)])


def test_a_class_in_the_test_rows_alone_is_still_a_class():
    frame = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40) % 7, "kind": ["x", "y"] * 19 + ["z", "z"]})
    problem = plan(frame, "kind", methods=MAP, time="a", reference=None, seeds=1).problems[0][0]
    assert problem.data["class_names"] == ["x", "y", "z"]
    assert problem.folds[0].y_test.max() == 2 and problem.folds[0].train[1].max() == 1


def test_digits_have_partners_and_an_npz_its_test_rows(tmp_path):
    digits = plan("digits", network="mlp:5", methods=MAP, reference=None, seeds=1).problems[0][0]
    assert list(digits.folds[0].out) == ["scrambled", "shifted"]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 2)), np.arange(50) % 3
    np.savez(tmp_path / "mine.npz", x=x[:30], y=y[:30])
    np.savez(tmp_path / "test.npz", x=x[30:], y=y[30:])
    problem = plan(tmp_path / "mine.npz", test=tmp_path / "test.npz", methods=MAP, reference=None, seeds=1).problems[0][
        0
    ]
    np.testing.assert_array_equal(problem.folds[0].y_test, y[30:])
    assert problem.kind == "classes"
    for name in ("digits", "mnist"):  # files called like a data set have neither its partners nor its test rows
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
        fold = plan(tmp_path / f"{name}.npz", methods=MAP, reference=None, seeds=1).problems[0][0].folds[0]
        assert not fold.out and len(fold.y_test) == 10
    with pytest.raises(SettingError, match="CSV"):
        plan(tmp_path / "mine.npz", group="town")
    with pytest.raises(SettingError, match="target"):
        plan(pd.DataFrame({"a": [1.0, 2.0]}))


def test_scores_are_in_the_units_of_the_data(frame):
    """The same table in other units: RMSE, CRPS, width and W1 scale, NLL shifts by the log, coverage stays."""
    factor = 1000.0
    large = frame.assign(price=factor * frame["price"])
    settings = {"methods": MAP, "network": "mlp:5", "seeds": 1, "baselines": False,
                "reference": po.MAP(num_epochs=30)}  # fmt: skip
    mine, theirs = (
        plan(table, "price", **settings).run().results["problems"][0]["rows"][0]["scores"] for table in (frame, large)
    )
    for key in ("rmse", "crps", "width_90"):
        assert theirs[key]["value"] == pytest.approx(factor * mine[key]["value"], rel=1e-4)
    assert theirs["nll"]["value"] == pytest.approx(mine["nll"]["value"] + np.log(factor), rel=1e-4)
    assert theirs["coverage_90"]["value"] == mine["coverage_90"]["value"]


@pytest.mark.parametrize(
    "method",
    [
        po.MAP(),
        po.HMC(num_draws=7, start="prior"),
        po.Laplace(map=po.MAP(num_epochs=7)),
        po.Ensemble(po.SWAG(num_snapshots=3, rank=2), 4),
    ],
    ids=repr,
)
def test_the_command_it_ends_with_fits_that_very_method(method, frame):
    made = plan(frame, "price", methods=[method], prior=po.priors.Normal(0.5), temperature=0.5, kind="regression",
                group="town", ignore=["year"], reference=None, seeds=1, baselines=False)  # fmt: skip
    ((problem, (entry,)),) = made.problems
    said = shlex.split(commands(problem, entry.method, entry.settings)["fit"])
    given = {name: [said[i + 1] for i, word in enumerate(said) if word == name] for name in said if name[:2] == "--"}
    assert build_method(given["--method"][0], given.get("--set", [])) == method
    assert (given["--kind"], given["--ignore"]) == (["regression"], ["year", "town"])
    assert (given["--prior-std"], given["--temperature"]) == (["0.5"], ["0.5"])
    assert problem.data["columns"] == 1


def test_what_the_command_line_cannot_say_it_does_not_say(frame):
    wide = plan(frame, "price", methods=MAP, prior=po.priors.FanIn(scale=2.0), reference=None, seeds=1).problems[0][0]
    assert commands(wide, MAP["map"], {}) == {}
