"""Shifts of tables: what they change, by how much, and what they leave alone."""

import numpy as np
import pandas as pd
import pytest

import posteria as po
from posteria.shift import table_shifts

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": RNG.normal(10, 2, 500),
        "price": RNG.lognormal(size=500),
        "rooms": RNG.integers(1, 6, 500),
        "town": RNG.choice(["a", "b", "c"], 500),
        "is_new": RNG.integers(0, 2, 500).astype(bool),
    }
)
ARRAY = RNG.normal(size=(2000, 6))


@pytest.mark.parametrize("table", [FRAME, ARRAY], ids=["frame", "array"])
@pytest.mark.parametrize("name", table_shifts.TABLE_SHIFTS)
def test_shifts_are_by_key_and_leave_what_was_given(name, table):
    if name == "unseen" and table is ARRAY:
        with pytest.raises(po.errors.DataError):
            po.shift.shift_table(table, name, 1)
        return
    before = table.copy()
    first, again = (po.shift.shift_table(table, name, 3, key=1) for _ in range(2))
    other = po.shift.shift_table(table, name, 3, key=2)
    assert type(first.x) is type(table) and first.x.shape == table.shape
    pd.testing.assert_frame_equal(pd.DataFrame(first.x), pd.DataFrame(again.x))
    assert not pd.DataFrame(first.x).equals(pd.DataFrame(other.x)) or name == "drift"
    pd.testing.assert_frame_equal(pd.DataFrame(before), pd.DataFrame(table))


def test_noise_is_in_units_of_the_columns_spread():
    change = po.shift.shift_table(ARRAY, "noise", 5).x - ARRAY
    np.testing.assert_allclose(change.std(0) / ARRAY.std(0), 1.0, atol=4 / 4000**0.5)


def test_missing_values_come_in_runs_of_the_share_that_is_said():
    found = np.isnan(po.shift.shift_table(ARRAY, "missing", 5).x)
    hit = found.any(0)
    assert hit.sum() == 2 and (found.mean(0)[hit] == 0.5).all()
    assert (np.abs(np.diff(found[:, hit].astype(int), axis=0)).sum(0) <= 2).all()
    frame = po.shift.shift_table(FRAME, "missing", 2, key=3).x
    assert frame.isna().sum().sum() == 2 * 50


def test_drift_multiplies_a_third_of_the_columns():
    ratio = po.shift.shift_table(ARRAY, "drift", 4).x / ARRAY
    np.testing.assert_allclose(np.sort(ratio.mean(0)), [1, 1, 1, 1, 2, 2])


def test_an_unseen_category_is_in_words_alone():
    found = po.shift.shift_table(FRAME, "unseen", 5, key=1).x
    hit = [column for column in FRAME if (found[column] == table_shifts.NEVER_SEEN).any()]
    assert len(hit) == 1 and hit[0] in ("town", "is_new") and (found[hit[0]] == table_shifts.NEVER_SEEN).all()


def test_tilted_rows_are_rows_of_the_table_with_another_mean():
    found = po.shift.shift_table(ARRAY, "tilt", 3)
    np.testing.assert_array_equal(found.x, ARRAY[found.rows])
    moved = found.x.mean(0) / ARRAY.std(0)
    assert abs(np.linalg.norm(moved) - 1.0) < 0.2  # exp(t z) moves the mean of a Normal by t


TWICE = pd.concat([FRAME, FRAME[["size"]]], axis=1)


@pytest.mark.parametrize(
    "x, name, severity, key",
    [
        (ARRAY, "rain", 1, 0),
        (ARRAY, ["noise"], 1, 0),
        (ARRAY, "noise", 0, 0),
        (ARRAY, "noise", 3.0, 0),
        (ARRAY, "noise", np.True_, 0),
        (ARRAY, "noise", 1, -1),
        (ARRAY, "noise", 1, "a"),
        (ARRAY[:0], "noise", 1, 0),
        (ARRAY[:, :0], "noise", 1, 0),
        (FRAME[["town"]], "drift", 1, 0),
        (TWICE, "noise", 1, 0),
        ([[1.0], [1.0, 2.0]], "missing", 1, 0),
    ],
)
def test_what_is_no_shift_is_refused(x, name, severity, key):
    with pytest.raises(po.errors.PosteriaError):
        po.shift.shift_table(x, name, severity, key)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["noise", "drift", "tilt"])
def test_columns_without_values_and_infinite_ones_stay_as_they_are(name):
    frame = FRAME.assign(empty=np.nan, far=np.where(np.arange(500) < 5, np.inf, FRAME["size"]))
    found = po.shift.shift_table(frame, name, 5)
    assert found.x["empty"].isna().all()
    np.testing.assert_array_equal(np.isinf(found.x["far"]), np.isinf(frame["far"].iloc[found.rows]))
    assert not found.x["far"].isna().any()


def test_dates_and_durations_are_neither_numbers_nor_categories():
    dates = pd.date_range("2020-01-01", periods=500)
    frame = pd.DataFrame({"day": dates, "lasts": dates - dates[0], "size": FRAME["size"], "town": FRAME["town"]})
    for name in ("noise", "drift", "unseen"):
        found = po.shift.shift_table(frame, name, 5).x
        assert found["day"].equals(frame["day"]) and found["lasts"].equals(frame["lasts"])
    types = [po.shift.shift_table(frame, "missing", 5, key).x.dtypes for key in range(9)]
    assert all((each[["day", "lasts"]] == frame.dtypes[["day", "lasts"]]).all() for each in types)
