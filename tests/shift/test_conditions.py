"""Test rows after every shift at every severity, for a comparison."""

import numpy as np
import pandas as pd
import pytest

from posteria.errors import SettingError
from posteria.shift import SEVERITIES, TABLE_SHIFTS, corrupt, shift_table
from posteria.shift.conditions import AS_THEY_CAME, OF_IMAGES, Asked, asked, conditions, some_rows


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=60),
            "b": rng.gamma(2.0, size=60),
            "code": rng.integers(0, 3, 60),
            "town": ["x", "y"] * 30,
        }
    )


TAKEN = {"a": "number", "b": "number", "code": "category", "town": "category"}


def test_every_shift_at_every_severity_beside_the_rows_as_they_came():
    frame = table()
    found, left_out = conditions(frame, lambda rows: rows, (), TAKEN)
    assert [each.name for each in found] == [AS_THEY_CAME, *(name for name in TABLE_SHIFTS for _ in SEVERITIES)]
    assert not left_out
    for each in found:
        assert len(each.x) == len(each.rows) == 60
        if each.name == "tilt":  # the rows that were drawn, unchanged
            pd.testing.assert_frame_equal(each.x, frame.iloc[each.rows])
        else:
            assert (each.rows == np.arange(60)).all()


def test_columns_are_shifted_as_they_are_taken():
    """A number that is a category gets no noise, and one that was never seen."""
    frame = table()
    found, _ = conditions(frame, lambda rows: rows, ("noise", "drift", "unseen"), TAKEN)
    for each in found[1:]:
        changed = {name for name in frame if not each.x[name].equals(frame[name])}
        assert changed <= ({"code", "town"} if each.name == "unseen" else {"a", "b"}) and changed
    last = found[5]
    expected = shift_table(frame[["a", "b"]], "noise", 5).x
    np.testing.assert_array_equal(last.x[["a", "b"]], expected)


def test_what_rows_cannot_have_is_left_out_and_said():
    def inputs(rows):
        from posteria.errors import DataError

        if np.isnan(rows).any():
            raise DataError("x has nan", "finite numbers", "impute them")
        return rows

    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    found, left_out = conditions(x, inputs, ())
    assert set(left_out) == {"missing", "unseen"} and "nan" in left_out["missing"]
    assert {each.name for each in found} == {AS_THEY_CAME, "noise", "drift", "tilt"}
    assert set(conditions(x, inputs, ("fog",)).left_out) == {"fog"}


def test_images_are_corrupted():
    images = np.random.default_rng(0).uniform(size=(6, 8, 8, 1)).astype(np.float32)
    found, left_out = conditions(images, lambda x: x, ("contrast", "noise"))
    assert set(left_out) == {"noise"} and len(found) == 6
    np.testing.assert_array_equal(found[3].x, corrupt(images, "contrast", 3, 0))
    assert set(OF_IMAGES) <= set(__import__("posteria").shift.CORRUPTIONS)


def test_many_rows_are_some_of_them():
    chosen = some_rows(np.zeros((5000, 2), np.float32))
    assert len(chosen) == 1000 and (np.diff(chosen) > 0).all() and chosen.max() > 4000


@pytest.mark.parametrize("shift", ["wind", ["noise", "wind"]])
def test_a_shift_that_is_not_known_is_refused(shift):
    with pytest.raises(SettingError, match="wind"):
        asked(shift)


@pytest.mark.parametrize("size", [0.0, -1.0, True, float("inf"), float("nan"), "0.1"])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(SettingError, match="size of an attack"):
        asked(None, [size])


def test_what_is_asked():
    assert asked() is None and asked(False) is None and asked(None, []) is None
    assert asked(True) == Asked()
    assert asked("noise", 0.1) == Asked(("noise",), (0.1,))
    assert asked(None, [0.2, 0.1, 0.2]) == Asked((), (0.1, 0.2), is_shifted=False)
