"""A reference from a file: probabilities of ten classes, in any order that an index column gives."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.cli.app import app
from posteria.comparison.enter import given
from posteria.errors import DataError

NUM_ROWS, NUM_CLASSES = 6, 10
RANDOM = np.random.default_rng(0)
PROBS = RANDOM.dirichlet(np.ones(NUM_CLASSES), NUM_ROWS)
NAMES = [str(number) for number in range(NUM_CLASSES)]


def found(arrays, test_rows=None):
    return given.predictions(arrays, "classes", test_rows, NAMES).predictive.probs


def test_rows_come_in_any_order():
    shuffled = RANDOM.permutation(NUM_ROWS)
    np.testing.assert_allclose(found({"probs": PROBS[shuffled], "index": shuffled}), PROBS)
    np.testing.assert_allclose(found({"probs": PROBS}), PROBS)


def test_rows_that_are_not_tested_on_may_be_there():
    some = np.array([4, 0, 3])
    shuffled = RANDOM.permutation(NUM_ROWS)
    np.testing.assert_allclose(found({"probs": PROBS[shuffled], "index": shuffled}, some), PROBS[some])


def test_quantiles_have_an_index_too():
    values = np.sort(RANDOM.normal(size=(20, NUM_ROWS)), axis=0)
    shuffled = RANDOM.permutation(NUM_ROWS)
    mixed, plain = (
        given.predictions(arrays, "regression").predictive.quantile(0.3)
        for arrays in ({"quantiles": values[:, shuffled], "index": shuffled}, {"quantiles": values})
    )
    np.testing.assert_allclose(mixed, plain)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"probs": PROBS, "index": np.array([0, 1, 2, 3, 4, 4])}, "index has 4 2 times"),
        ({"probs": PROBS, "index": np.arange(1, NUM_ROWS + 1)}, "lacks 1 of 6 test rows, the first 0"),
        ({"probs": PROBS, "index": np.arange(NUM_ROWS) + 0.5}, "whole numbers"),
        ({"probs": PROBS[:, :4]}, r"\(6, 4\).* wanted 10, one for each"),
        ({"probs": PROBS, "classes": [*NAMES[:9], "Index"]}, "'Index'.* name no class"),
        ({"probs": PROBS[:, :9], "classes": NAMES[:9]}, "9 columns beside 'index'"),
        ({"probs": 2 * PROBS}, "6 of 6 rows of probs are no distribution, the first is row 0: its sum is 2"),
        ({"samples": PROBS}, "probs"),
    ],
)
def test_what_is_wrong_is_named(arrays, said):
    with pytest.raises(DataError, match=said):
        found(arrays)


def write(path, columns, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])


def test_a_csv_names_its_classes(tmp_path):
    columns = [*NAMES[::-1], "index"]
    write(tmp_path / "hmc.csv", columns, [[*PROBS[row][::-1], row] for row in (3, 1, 0, 2, 5, 4)])
    np.testing.assert_allclose(found(given.read(tmp_path / "hmc.csv")), PROBS)
    write(tmp_path / "short.csv", columns, [[1.0, 2.0]])
    with pytest.raises(DataError, match="a name for each column"):
        given.read(tmp_path / "short.csv")
    with pytest.raises(DataError, match="no file"):
        given.read(tmp_path / "none.csv")


def test_the_command_line_grades_against_such_a_file(tmp_path):
    """Digits with given test rows: truth in a shuffled file, of which a perfect copy has total variation 0."""
    digits = po.data.load("digits")
    x, y = digits.x[:150].astype(np.float32), digits.y[:150]
    for name, part in (("train", slice(0, 110)), ("test", slice(110, 150))):
        np.savez(tmp_path / f"{name}.npz", x=x[part], y=y[part])
    probs, order = RANDOM.dirichlet(np.ones(10), 40), RANDOM.permutation(40)
    files = {"any.csv": order, "own.csv": np.arange(40)}
    found = {}
    for name, rows in files.items():
        write(tmp_path / name, ["index", *NAMES], [[row, *probs[row]] for row in rows])
        words = ["compare", str(tmp_path / "train.npz"), "--test", str(tmp_path / "test.npz"), "--methods", "map"]
        words += ["--reference", str(tmp_path / name), "--network", "mlp:4", "--no-baselines"]
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / name.replace(".csv", ""))])
        assert done.exit_code == 0, done.output
        results = json.loads((tmp_path / name.replace(".csv", "") / "results.json").read_text())
        rows = {row["name"]: row for row in results["problems"][0]["rows"]}
        assert rows["given-reference"]["status"] == "done"
        found[name] = rows["map"]["scores"]["tv"]["value"]
    assert found["any.csv"] == pytest.approx(found["own.csv"], abs=1e-9)
    assert 0.1 < found["any.csv"] < 1


def test_an_index_of_another_length_or_kind_is_refused():
    for index in (np.arange(3), np.arange(9), np.array(list("abcdef"))):
        with pytest.raises(DataError, match="index"):
            found({"probs": PROBS, "index": index})


def test_a_csv_as_spreadsheets_write_it(tmp_path):
    path = tmp_path / "given.csv"
    lines = ["index," + ",".join(NAMES), *(f"{i}," + ",".join(map(str, row)) for i, row in enumerate(PROBS)), ""]
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    np.testing.assert_allclose(found(given.read(path)), PROBS)
    path.write_bytes("index,é".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        given.read(path)
