import json

import numpy as np
import pytest

from posteria.data import Standardiser
from posteria.errors import DataError

X = np.random.default_rng(0).normal(5.0, [1.0, 100.0, 1e-3], (200, 3))


def test_columns_get_mean_zero_and_std_one():
    z = Standardiser.fit(X).apply(X)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(z.std(axis=0), 1.0, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_invert_undoes_apply_in_the_same_dtype(dtype, rtol):
    x = X.astype(dtype)
    standardiser = Standardiser.fit(x)
    back = standardiser.invert(standardiser.apply(x))
    assert back.dtype == dtype
    np.testing.assert_allclose(back, x, rtol=rtol, atol=rtol * np.abs(x).max())


def test_a_constant_column_becomes_exactly_zero():
    x = np.column_stack([np.full(7, 0.1), np.arange(7)])
    standardiser = Standardiser.fit(x)
    assert standardiser.std[0] == 1.0
    np.testing.assert_array_equal(standardiser.apply(x)[:, 0], 0.0)


def test_a_vector_target_standardises_and_inverts_draws_of_any_leading_shape():
    y = X[:, 1]
    standardiser = Standardiser.fit(y)
    assert standardiser.mean.shape == ()
    np.testing.assert_allclose(standardiser.invert(np.zeros((4, 200, 1))), y.mean())


def test_whole_numbers_are_not_truncated():
    standardiser = Standardiser.fit(np.array([1, 2, 4]))
    np.testing.assert_allclose(standardiser.apply(np.array([1, 2, 4])).std(), 1.0)


def test_json_round_trips_exactly():
    standardiser = Standardiser.fit(X)
    back = Standardiser.from_json(json.loads(json.dumps(standardiser.to_json())))
    np.testing.assert_array_equal(back.apply(X), standardiser.apply(X))


def test_other_columns_than_fitted_and_bad_values_are_refused():
    with pytest.raises(DataError, match="as when fitted"):
        Standardiser.fit(X).apply(X[:, :2])
    with pytest.raises(DataError, match="NaN"):
        Standardiser.fit(np.array([1.0, np.nan]))
    with pytest.raises(DataError, match="nothing"):
        Standardiser.fit(np.zeros((0, 2)))
