"""How a table is read: the plan of awkward files, of types, and of what one asks for; in words and as JSON."""

import importlib.util
import json
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from data.awkward import MAKERS
from posteria.data import TablePlan, plan_table
from posteria.data.origin import read_origin
from posteria.data.table_file import read_frame
from posteria.data.table_target import is_counted
from posteria.errors import DataError, SettingError


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_awkward_files_are_planned_right(make, tmp_path):
    if make.__name__ == "parquet" and importlib.util.find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    file = make(tmp_path)
    source = read_origin(str(file.path), file.target)
    assert {column.name: column.taken for column in source.plan.columns} == file.taken
    assert (source.kind, source.num_rows, source.plan.rows) == (file.kind, file.rows, file.rows)
    text = source.plan.text()
    assert max(map(len, text.splitlines())) <= 80
    assert all(each in " ".join(text.split()) for each in file.said), text
    assert TablePlan.from_json(json.loads(json.dumps(source.plan.to_json()))) == source.plan


def plan_of(values, asked=None, name="c", **settings):
    frame = pd.DataFrame({name: values})
    return plan_table(frame, as_={} if asked is None else {name: asked}, **settings).columns[0]


@pytest.mark.parametrize(
    ("values", "name", "taken"),
    [
        (pd.Categorical(["u", "v"] * 20), "c", "category"),
        (pd.Categorical(["lo", "hi"] * 20, categories=["lo", "hi"], ordered=True), "c", "ordered"),
        (pd.date_range("2020-01-01", periods=40), "c", "date"),
        (pd.date_range("2020-01-01", periods=40, tz="Europe/Paris"), "c", "date"),
        ([True, False] * 20, "c", "number"),
        (pd.array([1, None, 3] * 10, dtype="Int64"), "c", "number"),
        (["$1,200.50", "$900", "$3", "4"] * 9, "c", "number"),
        (["$1,200.50", "$900", "€3"] * 9, "c", "category"),
        (["12 %", "7.5 %"] * 9, "c", "number"),
        (["1.200,5", "900,25"] * 9, "c", "number"),
        (["9:15", "23:59", "0:07 am"] * 9, "c", "date"),
        ([20240101 + i for i in range(28)], "c", "date"),
        ([10115 + 7 * (i % 9) for i in range(90)], "zip_code", "category"),
        ([10115 + 7 * (i % 9) for i in range(90)], "height", "number"),
        ([1_700_000_000 + 86_400 * i for i in range(40)], "stamp", "number"),  # since 1970: only where it is asked for
        (list(range(40)), "t", "number"),
        (list(range(1, 41)), "case", "id"),
        (list(range(40, 80)), "case", "number"),
        ([f"Mr {i} of Ghent, {w} merchant" for i in range(30) for w in ("wine", "cloth")], "c", "text"),
        ([f"k{i}" for i in range(60)], "c", "id"),
        ([f"k{i % 40}" for i in range(160)], "c", "category"),
        ([None] * 5, "c", "constant"),
        ([None, "u"] * 5, "c", "category"),  # whether it is missing says something
    ],
)
def test_types_and_values_tell(values, name, taken):
    assert plan_of(values, name=name).taken == taken


def test_day_and_month_are_told_apart_or_it_is_said():
    assert plan_of(["13/02/2024", "01/02/2024"] * 5).spelling == "day-month-year"
    assert plan_of(["02/13/2024", "01/02/2024"] * 5).spelling == "month-day-year"
    either = plan_table(pd.DataFrame({"d": ["03/02/2024", "01/02/2024"] * 5}))
    assert either.columns[0].spelling == "month-day-year"
    assert "--as d=date:day-month-year" in either.notes[0]
    assert plan_of(["3.2.2024", "1.2.2024"] * 5).spelling == "day-month-year"
    assert plan_of(["03/02/2024", "01/02/2024"] * 5, "date:day-month-year").spelling == "day-month-year"


def test_what_is_asked_for_is_done_or_refused():
    assert plan_of([1, 2, 3] * 9, "category").taken == "category"
    assert plan_of([1.7e9 + i for i in range(30)], "date").spelling == "unix seconds"
    assert plan_of([1.7e12 + i for i in range(30)], "date").spelling == "unix milliseconds"
    assert plan_of(["10-20", "5-10", "100+"] * 9, "ordered").levels == ("5-10", "10-20", "100+")
    assert plan_of(["S", "L", "M"] * 9, "ordered:S<M<L").levels == ("S", "M", "L")
    lenient = plan_of([*map(str, range(30)), "wide"], "number")
    assert lenient.is_lenient and lenient.missing == 1
    assert plan_of([1, 1, 1], "ignore").taken == "ignored"
    frame = pd.DataFrame({"c": ["u", "v"], "y": [1.5, 2.5]})
    with pytest.raises(DataError, match="as dates holds"):
        plan_table(frame, as_={"c": "date"})
    with pytest.raises(DataError, match="as number holds"):
        plan_table(frame, as_={"c": "number"})
    with pytest.raises(DataError, match="whole numbers"):
        plan_table(frame, as_={"y": "count"})
    with pytest.raises(SettingError, match="also holds"):
        plan_table(frame, as_={"c": "ordered:u<w"})
    with pytest.raises(SettingError, match="one of number"):
        plan_table(frame, as_={"c": "vector"})
    with pytest.raises(SettingError, match="one of the columns"):
        plan_table(frame, as_={"d": "date"})
    with pytest.raises(SettingError, match="leave one out"):
        plan_table(frame, "y", kind="regression", as_={"y": "category"})
    assert plan_table(frame.assign(y=[0, 1]), "y", as_={"y": "number"}).target.taken == "number"


@pytest.mark.parametrize(
    ("make", "taken"),
    [
        (lambda rng: rng.poisson(1.5, 600), "count"),
        (lambda rng: rng.poisson(12, 600), "number"),  # none is 0: as well a size as a count
        (lambda rng: rng.negative_binomial(1, 0.1, 600), "count"),
        (lambda rng: rng.poisson(4, 600) * (rng.uniform(size=600) < 0.6), "count"),  # zeros of their own
        (lambda rng: rng.integers(0, 10, 600), "ordered"),  # digits
        (lambda rng: rng.choice([0, 1, 2], 600, p=[0.7, 0.2, 0.1]), "ordered"),
        (lambda rng: rng.choice(6, 600, p=[0.1, 0.4, 0.05, 0.25, 0.05, 0.15]), "ordered"),
        (lambda rng: rng.integers(1, 6, 600), "ordered"),  # ratings
        (lambda rng: rng.integers(0, 2, 600), "category"),
        (lambda rng: rng.integers(0, 1000, 600), "number"),
        (lambda rng: rng.poisson(200, 600), "number"),
        (lambda rng: rng.normal(size=600), "number"),
        (lambda rng: rng.poisson(1.5, 600) / 7, "number"),
        (lambda rng: rng.choice(["a", "b"], 600), "category"),
    ],
)
def test_counts_are_told_from_classes_and_sizes(make, taken):
    for seed in range(5):
        y = make(np.random.default_rng(seed))
        assert plan_table(pd.DataFrame({"a": np.arange(600) / 7, "y": y}), "y").target.taken == taken


def test_ordered_and_imbalanced_classes_are_said():
    frame = pd.DataFrame({"a": np.arange(100) / 7, "y": [1, 2, 3, 4] * 25})
    assert "order" in plan_table(frame, "y").notes[0]
    (note,) = plan_table(frame.assign(y=["rare"] * 3 + ["usual"] * 97), "y").notes
    assert "imbalanced" in note and "97%" in note
    assert plan_table(frame.assign(y=["u", "v"] * 50), "y").notes == ()


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".xlsx", ".csv", ".csv.xz", ".csv.bz2"])
def test_every_kind_of_file_reads_the_same(tmp_path, ending):
    needed = {".parquet": "pyarrow", ".feather": "pyarrow", ".xlsx": "openpyxl"}.get(ending, "pandas")
    pytest.importorskip(needed)
    frame = pd.DataFrame({"a": [1.5, np.nan, 3.0], "b": ["u", None, "ü"], "y": [1, 2, 3]})
    path = tmp_path / f"t{ending}"
    write = {".parquet": "to_parquet", ".feather": "to_feather", ".xlsx": "to_excel"}.get(ending, "to_csv")
    getattr(frame, write)(path, **({} if write in ("to_parquet", "to_feather") else {"index": False}))
    read = read_frame(path)
    assert list(read.columns) == ["a", "b", "y"]
    np.testing.assert_array_equal(read["a"], frame["a"])
    assert read["b"].isna().tolist() == [False, True, False] and read["b"].iloc[2] == "ü"


def test_files_that_cannot_be_read_say_so(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match=r"Parquet"):
        read_frame(tmp_path / "t.parquet")
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x8b\x08broken")
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_frame(tmp_path / "t.csv.gz")
    (tmp_path / "t.csv").write_bytes("a,b\n1,ü\n".encode("latin-1"))
    with pytest.raises(DataError, match="not in utf-8"):
        read_frame(tmp_path / "t.csv", encoding="utf-8")
    with pytest.raises(DataError, match="wanted an encoding"):
        read_frame(tmp_path / "t.csv", encoding="latin-99")
    (tmp_path / "t.csv").write_bytes(bytes(range(256)) * 20)
    with pytest.raises(DataError, match="not text"):
        read_frame(tmp_path / "t.csv")
    monkeypatch.setitem(sys.modules, "openpyxl", None)  # as where it is not installed
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as file:  # by which pandas knows its kind
        file.writestr("xl/workbook.xml", "")
    with pytest.raises(DataError, match="openpyxl") as error:
        read_frame(tmp_path / "t.xlsx")
    assert "pip install" in error.value.fix


def test_comments_and_excels_own_line_above_the_header_are_read_over(tmp_path):
    (tmp_path / "t.csv").write_text("# made by a machine\nsep=|\na|b\n1|2\n")
    assert read_frame(tmp_path / "t.csv").to_dict("list") == {"a": [1], "b": [2]}


def test_what_a_reader_should_look_at_is_said():
    rng = np.random.default_rng(0)
    y = rng.choice(["yes", "no", "No"], 90)
    frame = pd.DataFrame({"temp": np.where(np.arange(90) % 20 == 3, -999, rng.normal(size=90)), "y": y})
    frame["again"] = np.where(y == "yes", "lived", np.where(y == "no", "died", "fell"))
    frame["two\nlines"] = [f"{v:,} sq ft" for v in rng.integers(500, 4000, 90)]
    plan = plan_table(frame, "y")
    said = " ".join(plan.notes)
    assert "-999 (5 rows)" in said and "'No', 'no' differ" in said and "again tells the target exactly" in said
    assert plan.columns[2].taken == "number" and "two lines" in plan.text()
    assert not any("exactly" in note for note in plan_table(frame.drop(columns="again"), "y").notes)
    assert plan_of(["3 kg", "4 lb"] * 20).taken == "category"
    assert plan_of([f"2024-01-{1 + i % 28} 10:00 GMT+1" for i in range(60)]).taken == "date"


def test_the_target_on_another_scale_is_told():
    rng = np.random.default_rng(0)
    y = pd.Series(rng.gamma(2, 1, 200), index=np.arange(200)[::-1], name="y")
    values = y.to_numpy()
    frame = pd.DataFrame({"net": np.log(values), "near": values + 0.1 * rng.normal(size=200), "y": values})
    frame.loc[3, "net"] = np.nan
    told = "net tells the target exactly"
    (note,) = (note for note in plan_table(frame, "y").notes if "exactly" in note)
    assert note.startswith(told)
    assert any(note.startswith(told) for note in plan_table(frame.drop(columns="y"), y=y).notes)
    assert not any("exactly" in note for note in plan_table(frame[["net", "y"]], "y").notes)  # nothing else to go by


def test_amounts_with_a_zero_are_no_counts():
    y = np.random.default_rng(0).poisson(1.5, 600) / 7  # as an estimator asks, of values alone
    assert not is_counted(*np.unique(y, return_counts=True))
    assert is_counted(*np.unique(7 * y, return_counts=True))


def test_what_a_fit_takes_at_its_word_about_a_target_is_told():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=200)})

    def notes(y):
        return " ".join(plan_table(frame.assign(y=y), "y").notes)

    usual = random.normal(size=200)
    assert notes(usual) == "" and notes(np.exp(2 * usual)) == ""  # of a log scale they are not far
    assert "(--quality balanced) gives them less say" in notes(np.r_[usual[:-1], 1e5])
    assert "3 values lie far from all others" in notes(np.r_[usual[:-3], 1e5, -2e5, 1e5]) and "-2e+05" in notes(
        np.r_[usual[:-1], -2e5]
    )
    assert "the target: -999 (2 rows) looks like a word for missing" in notes(np.r_[usual[:-2], -999.0, -999.0])
    assert "is within 0 and 1" in notes(random.beta(1, 1, size=200)) and notes(0.4 + 0.1 * random.random(200)) == ""
    assert "is never below 0" in notes(np.maximum(usual, 0.0)) and notes(10 + usual) == ""
