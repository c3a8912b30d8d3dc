import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from posteria.data import check_same_length, check_x, num_rows, rows
from posteria.errors import DataError


def test_float64_becomes_float32_and_whole_numbers_stay_whole():
    assert check_x(np.ones((3, 2))).dtype == np.float32
    assert check_x(np.ones((3, 2), np.int64)).dtype == np.int32
    for dtype in (np.uint8, np.bool_, np.float16, np.int32, jnp.bfloat16):
        assert check_x(np.ones((3, 2), dtype)).dtype == dtype


def test_float64_stays_where_x64_is_enabled():
    with jax.enable_x64(True):
        assert check_x(np.ones((3, 2))).dtype == np.float64


def test_a_jax_array_passes_through_untouched():
    x = jnp.ones((3, 2))
    assert check_x(x) is x


def test_a_tree_comes_back_with_its_structure():
    x = {"tokens": np.zeros((4, 7), np.int32), "mask": np.ones((4, 7), bool)}
    checked = check_x(x)
    assert jax.tree.structure(checked) == jax.tree.structure(x)
    assert num_rows(checked) == 4
    assert rows(checked, np.array([2, 0]))["tokens"].shape == (2, 7)


def test_lists_are_arrays():
    np.testing.assert_array_equal(check_x([[1.0, 2.0], [3.0, 4.0]]), np.array([[1, 2], [3, 4]], np.float32))


def test_a_frame_of_numbers_is_one_floating_matrix():
    frame = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": pd.array([1, 2], dtype="Int64")})
    checked = check_x(frame)
    assert checked.dtype == np.float32
    np.testing.assert_array_equal(checked, [[1, 1, 1], [2, 0, 2]])
    assert num_rows(frame) == 2


def test_non_finite_values_are_refused_with_their_rows():
    x = np.zeros((100, 3))
    x[[3, 17, 20, 21, 22, 50, 99], 1] = np.nan
    x[3, 2] = np.inf
    with pytest.raises(DataError, match=r"8 NaN or infinite values \(rows 3, 17, 20, 21, 22 and 2 more\)"):
        check_x(x)
    with pytest.raises(DataError, match=r"^y has 1 NaN or infinite values \(row 0\)"):
        check_x(jnp.array([jnp.nan, 1.0]), name="y")
    with pytest.raises(DataError, match=r"x/mask has 1 NaN"):
        check_x({"mask": np.array([np.nan]), "tokens": np.array([1])})
    for bad in (np.nan, np.inf, -np.inf):  # rows in any order of memory, both widths
        for form in (np.zeros((4, 3), np.float32), np.zeros((4, 3), order="F"), np.zeros((8, 3))[::2]):
            form[2, 1] = bad
            with pytest.raises(DataError, match=r"1 NaN or infinite values \(row 2\)"):
                check_x(form)


def test_large_values_are_finite_though_their_squares_are_not():
    x = np.full((3, 2), 3e38, np.float32)
    np.testing.assert_array_equal(check_x(x), x)


def test_non_finite_values_of_a_frame_are_refused_with_their_columns():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan, 2.0], "c": pd.array([1, None], dtype="Int64")})
    with pytest.raises(DataError, match=r"rows 0, 1, columns \['b', 'c'\]"):
        check_x(frame)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((0, 3)), "empty"),
        (np.zeros((3, 0)), "empty"),
        (pd.DataFrame({"a": []}, dtype=float), "empty"),
        (np.array(["a", "b"]), "encode"),
        (np.array([1, None]), "encode"),
        (np.array([1j]), "dtype"),
        (np.array(["2020-01-01"], "datetime64[D]"), "dtype"),
        (pd.DataFrame({"a": ["u", "v"], "b": [1, 2]}), r"not numbers: \['a'\]"),
        (np.float32(3.0), "scalar"),
        (3, "scalar"),
        ({}, "no arrays"),
        (None, "no arrays"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, "x/a has 3 rows, x/b has 4"),
        ([[1.0], [1.0, 2.0]], "ragged"),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), "masked"),
        (np.array([1.0, 1e39]), r"too large for float32 \(row 1\)"),
        (np.array([2**31]), "too large for int32"),
    ],
)
def test_what_cannot_be_used_is_refused(x, message):
    with pytest.raises(DataError, match=message):
        check_x(x)


def test_unequal_lengths_of_x_and_y_are_refused():
    check_same_length(np.zeros((5, 2)), np.zeros(5))
    with pytest.raises(DataError, match="x has 506 rows, y has 505"):
        check_same_length(np.zeros((506, 2)), np.zeros(505))


def test_importing_the_package_imports_nothing_heavy():
    heavy = "{'pandas', 'sklearn', 'urllib.request', 'matplotlib', 'flax'}"
    code = f"import sys, posteria.data; sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
