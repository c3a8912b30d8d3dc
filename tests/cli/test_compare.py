"""`posteria compare`: a CSV no one prepared, broken ones, and a method that another package brings."""

import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.cli import app
from posteria.cli.set_option import with_settings
from posteria.errors import SettingError

QUICK = ("--methods", "map,constant-guess", "--reference", "none", "--network", "mlp:4", "--quiet")

PACKAGE = '''
"""A method in a package of its own."""
from dataclasses import dataclass
from typing import ClassVar
from posteria.posteriors.draws import Draws, DrawsPosterior
import posteria as po


@dataclass(frozen=True)
class ConstantGuess:
    """Zeros, whatever the data: a test of the doors, not of inference."""

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "nobody 2026"

    def fit(self, key, target, start, run):
        size = sum(leaf.size for leaf in __import__("jax").tree.leaves(target.structs))
        import numpy as np
        info = {"log_density": np.zeros((1, 1))}
        return DrawsPosterior(target, Draws(target.structs, np.zeros((1, 1, size), np.float32), info))
'''
LAWS = """
from guesses import ConstantGuess
from posteria.testing import ProcedureLaws


class TestConstantGuess(ProcedureLaws):
    method = ConstantGuess()
"""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_settings_of_methods_are_those_of_the_one_that_is_named():
    names, pairs = (
        ["map", "ensemble", "sghmc"],
        ["ensemble.method.num_epochs=3", "sghmc.step_size=0.1", "ensemble.size=2"],
    )
    found = with_settings(names, pairs)
    assert found == [po.MAP(), po.Ensemble(po.MAP(num_epochs=3), 2), po.SGHMC(step_size=0.1)]
    assert with_settings(["sghmc"], ["sghmc.start.num_epochs=3"]) == [po.SGHMC(start=po.MAP(num_epochs=3))]
    with pytest.raises(SettingError, match="first --set start=map"):
        with_settings(["mean-field"], ["mean-field.start.num_epochs=3"])  # which starts from "init"
    found = with_settings(["mean-field"], ["mean-field.start=map", "mean-field.start.num_epochs=3"])
    assert found == [po.MeanField(start=po.MAP(num_epochs=3))]
    for wrong in ("num_epochs=3", "swag.rank=3", "map=3"):
        with pytest.raises(SettingError, match="METHOD one of"):
            with_settings(names, [wrong])
    refused = invoke("compare", "diabetes", *QUICK, "--methods", "map", "--set", "map.epochs=3")
    assert refused.exit_code == 1 and "no setting 'epochs'" in refused.output


@pytest.mark.parametrize(("option", "text"), [("--attack", ","), ("--attack", "much"), ("--shift-by", " , ")])
def test_sizes_and_shifts_that_name_nothing_are_refused(option, text):
    refused = invoke("compare", "diabetes", *QUICK, option, text)
    assert refused.exit_code == 1 and option in refused.output


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with nothing but an entry point, as pip would install it."""
    (tmp_path / "guesses.py").write_text(PACKAGE)
    about = tmp_path / "guesses-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: guesses\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[posteria.methods]\nconstant-guess = guesses:ConstantGuess\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def unprepared(num_rows, seed=0):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size (m, wide)": random.normal(size=num_rows),
            "colour, outside": random.choice(["red", "dark blue", "green"], num_rows),
            "age": random.integers(1, 90, num_rows).astype(float),
            "id": [f"house-{i}" for i in range(num_rows)],
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "colour, outside"] = None
    price = 100 + 20 * frame["size (m, wide)"] + 10 * (frame["colour, outside"] == "red")
    return frame.assign(**{"price, EUR": price + random.normal(size=num_rows)})


def test_a_method_from_another_package_is_everywhere_without_a_line_changed(installed):
    listed = json.loads(invoke("methods", "--json").stdout)
    assert {"name": "constant-guess", "paper": "nobody 2026"}.items() <= next(
        each for each in listed if each["name"] == "constant-guess"
    ).items()
    unprepared(60).to_csv(installed / "houses.csv", index=False)
    answer = invoke(
        "fit", installed / "houses.csv", "--target", "price, EUR", "--method", "constant-guess", "-o", installed / "r"
    )
    assert answer.exit_code == 0, answer.output
    out = installed / "out"
    answer = invoke("compare", installed / "houses.csv", "--target", "price, EUR", *QUICK, "-o", out)
    assert answer.exit_code == 0, answer.output
    results = json.loads((out / "results.json").read_text())
    rows = {row["name"]: row for row in results["problems"][0]["rows"]}
    assert rows["constant-guess"]["status"] == "done"
    assert rows["map"]["scores"]["rmse"]["value"] < rows["constant-guess"]["scores"]["rmse"]["value"]
    assert "ConstantGuess" in (out / "index.html").read_text()
    assert "constant-guess" in (out / "results.csv").read_text()


@pytest.mark.slow
def test_a_method_from_another_package_is_held_to_the_laws_from_there(installed):
    (installed / "test_guess.py").write_text(LAWS)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "key or round_trips", "test_guess.py"],
        cwd=installed,
        capture_output=True,
        text=True,
    )
    assert re.search(r"[1-9]\d* passed", answer.stdout), answer.stdout + answer.stderr


def test_a_method_that_fails_is_a_row_with_its_reason_and_the_plan_is_told(installed):
    unprepared(60).to_csv(installed / "houses.csv", index=False)
    broken = installed / "guesses.py"
    broken.write_text(PACKAGE.replace("        size =", "        raise RuntimeError('no luck today')\n        size ="))
    sys.modules.pop("guesses", None)
    options = ("--methods", "map,constant-guess", "--reference", "none", "--network", "mlp:", "--no-baselines")
    answer = invoke(
        "compare", installed / "houses.csv", "--target", "price, EUR", *options, "-o", installed / "o", "--json"
    )
    sys.modules.pop("guesses", None)
    assert answer.exit_code == 0, answer.output
    assert "60 rows" in answer.stderr and "regression" in answer.stderr
    rows = {row["name"]: row for row in json.loads(answer.stdout)["problems"][0]["rows"]}
    assert rows["constant-guess"]["status"] == "failed" and "no luck today" in rows["constant-guess"]["reason"]
    assert rows["map"]["status"] == "done"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n2,3\n", "no column 'y'"),
        ("", "empty"),
        ("a,y\n1,5\n2,5\n3,5\n", "5.0 in every row"),
        ("a,y\n1,u\n2,u\n3,u\n", "'u' in every row"),
        ("a,y\n" + "".join(f"{i / 7},{i / 3}\n" for i in range(30)) + "wide,1.5\n", "'a' is mostly numbers"),
    ],
)
def test_a_broken_table_gets_one_clear_line(tmp_path, content, said):
    (tmp_path / "t.csv").write_text(content)
    answer = invoke("compare", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "o")
    lines = answer.stderr.splitlines()
    assert answer.exit_code == 1 and said in lines[0] and len(lines) <= 2
    assert not (tmp_path / "o").exists()


def test_a_row_of_a_comparison_predicts_new_rows(installed):
    unprepared(60).to_csv(installed / "houses.csv", index=False)
    arguments = (installed / "houses.csv", "--target", "price, EUR", *QUICK, "-o", installed / "o", "--json")
    row = next(
        row for row in json.loads(invoke("compare", *arguments).stdout)["problems"][0]["rows"] if row["name"] == "map"
    )
    unprepared(5, seed=1).drop(columns="price, EUR").to_csv(installed / "new.csv", index=False)
    answer = invoke("predict", installed / "o" / row["runs"][0], installed / "new.csv", "-o", installed / "p.csv")
    assert answer.exit_code == 0, answer.output
    assert np.isfinite(pd.read_csv(installed / "p.csv")["mean"]).all()
