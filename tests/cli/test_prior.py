"""`posteria prior`: what is drawn is the prior's, in the table's own units, and said in words."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.cli import app
from posteria.errors import DataError
from posteria.plots.drawn_functions import Line, before_and_after


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x, town = rng.uniform(100, 200, 40), rng.choice(["Ulm", "Bern"], 40)
    frame = pd.DataFrame({"size": x, "town": town, "price": 1e5 + 3e3 * x + rng.normal(size=40)})
    frame.to_csv(tmp_path / "houses.csv", index=False)
    return tmp_path / "houses.csv"


def run(*words):
    result = CliRunner().invoke(app, ["prior", *map(str, words)])
    return result.exit_code, result.output


def test_the_prior_is_pictured_before_any_data(table, tmp_path):
    out = tmp_path / "prior.png"
    code, text = run(table, "--target", "price", "--network", "mlp:8", "--draws", 20, "--out", out, "--json", "-q")
    found = json.loads(text)["columns"]
    assert code == 0 and out.read_bytes()[:4] == b"\x89PNG"
    assert [each["column"] for each in found] == ["size", "town"]
    data = pd.read_csv(table)["price"].std(ddof=0)
    assert found[0]["data_std"] == pytest.approx(data, rel=1e-6)
    assert 0.2 * data < found[0]["prior_std"] < 5 * data  # fan-in: of the data's size, in its units
    assert found[0]["after_std"] is None


def test_a_prior_that_is_far_too_wide_is_said_to_be(table, tmp_path):
    words = table, "--target", "price", "--network", "mlp:8", "--draws", 20, "--column", "size"
    code, text = run(*words, "--prior", "normal:std=30", "--out", tmp_path / "wide.svg", "-q")
    assert code == 0 and "times wider than the data" in text
    assert (tmp_path / "wide.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "words, told",
    [
        (["--prior", "cauchy"], "one of"),
        (["--prior", "fan-in:size=2"], "settings of fan-in"),
        (["--column", "colour"], "one of"),
        (["--out", "prior.txt"], ".png"),
        (["--set", "num_draws=2"], "--method"),
        (["--prior", "normal", "--prior-std", "1"], "one of them"),
    ],
)
def test_mistakes_are_told_in_two_lines(table, words, told):
    code, text = run(table, "--target", "price", *words)
    assert code == 1 and told in text and "Traceback" not in text


def test_data_are_drawn_below_and_functions_over_several_inputs_refused():
    x = np.linspace(0, 1, 5)
    line = Line("x", x, np.zeros((3, 5)), np.ones((3, 5)), rows=x, y=x)
    figure = before_and_after([line], "y", "nuts")
    above, below = figure.axes
    assert "before any data" in above.get_ylabel() and "after: nuts" in below.get_ylabel()
    assert len(below.lines) == len(above.lines)  # marks of rows above, the rows themselves below
    with pytest.raises(DataError, match="one input"):
        po.plots.functions(np.zeros((5, 2)), np.zeros((3, 5)), ax=above)


def test_dollars_of_a_name_are_no_formula(tmp_path):
    x = np.linspace(0.0, 1.0, 5)
    line = Line("fee $^$ x", x, np.zeros((3, 5)))
    before_and_after([line], "price $_$").savefig(tmp_path / "drawn.png")
