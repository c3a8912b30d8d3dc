"""Awkward files, from the command line: each is compared, with its plan in results.json; a date carries its signal."""

import json

import pytest

from cli.test_fit_and_predict import invoke
from data import awkward

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("make", awkward.MAKERS, ids=lambda make: make.__name__)
def test_each_is_compared(make, tmp_path):
    if make is awkward.parquet:
        pytest.importorskip("pyarrow")
    file = make(tmp_path)
    options = ["--target", file.target, "--methods", "map", "--reference", "none", "-o", tmp_path / "out"]
    answer = invoke("compare", file.path, *options)
    assert answer.exit_code == 0, answer.stderr
    assert "taken as" in answer.stderr
    (problem,) = json.loads((tmp_path / "out" / "results.json").read_text())["problems"]
    table = problem["data"]["table"]
    assert {column["name"]: column["taken"] for column in table["columns"]} == file.taken
    assert {row["status"] for row in problem["rows"]} == {"done"}


def test_a_date_that_carries_the_signal_is_used(tmp_path):
    file = awkward.day_first_dates(tmp_path)
    errors = []
    for options in ([], ["--as", "when=ignore"]):
        out = tmp_path / f"out{len(errors)}"
        answer = invoke(
            *("compare", file.path, "--target", "y", "--methods", "laplace", "--reference", "none"),
            *("--no-baselines", "--seeds", "3", "-o", out, *options),
        )
        assert answer.exit_code == 0, answer.stderr
        (problem,) = json.loads((out / "results.json").read_text())["problems"]
        errors.append(next(row["scores"]["rmse"]["value"] for row in problem["rows"]))
    assert errors[0] < 0.7 * errors[1]
