"""Laws of mini-batches. Chi-square tests have fixed keys and fail below p = 1e-3."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from posteria.data import batch_indices, num_steps_per_epoch, take
from posteria.data.batches import permute
from posteria.errors import SettingError

SMALLEST_P = 1e-3


def batches(key, num_steps, num_data, batch_size, start=0):
    steps = jnp.arange(start, start + num_steps)
    return np.asarray(jax.lax.map(lambda step: batch_indices(key, step, num_data, batch_size), steps))


@pytest.mark.parametrize("num_data", [1, 2, 3, 9, 506, 1025])
def test_a_permutation_hits_every_row_once(num_data):
    image = np.asarray(permute(jax.random.key(0), jnp.arange(num_data), num_data))
    np.testing.assert_array_equal(np.sort(image), np.arange(num_data))


@pytest.mark.parametrize(("num_data", "batch_size"), [(12, 3), (506, 46), (7, 7), (5, 1)])
def test_every_row_comes_exactly_once_an_epoch(num_data, batch_size):
    per_epoch = num_steps_per_epoch(num_data, batch_size)
    drawn = batches(jax.random.key(1), 4 * per_epoch, num_data, batch_size).reshape(4, num_data)
    np.testing.assert_array_equal(np.sort(drawn, axis=1), np.tile(np.arange(num_data), (4, 1)))
    if num_data > 5:
        assert not (drawn[0] == drawn[1]).all()  # another epoch, another order


@pytest.mark.parametrize(("num_data", "batch_size"), [(10, 4), (506, 100), (9, 5)])
def test_a_remainder_is_filled_up_without_repeats_in_a_batch(num_data, batch_size):
    per_epoch = num_steps_per_epoch(num_data, batch_size)
    drawn = batches(jax.random.key(2), 5 * per_epoch, num_data, batch_size)
    assert all(len(set(batch)) == batch_size for batch in drawn)
    for epoch in drawn.reshape(5, -1):
        counts = np.bincount(epoch, minlength=num_data)
        assert counts.min() == 1
        assert counts.max() <= 2


@pytest.mark.parametrize(("num_data", "batch_size"), [(10, 4), (506, 100), (9, 5)])
def test_an_epochs_last_batch_is_filled_up_with_its_first_rows(num_data, batch_size):
    per_epoch = num_steps_per_epoch(num_data, batch_size)
    for epoch in batches(jax.random.key(8), 3 * per_epoch, num_data, batch_size).reshape(3, -1):
        np.testing.assert_array_equal(epoch[num_data:], epoch[: len(epoch) - num_data])


@pytest.mark.parametrize("num_data", [3, 4, 5, 6, 7])
def test_all_orders_of_a_few_rows_are_equally_likely(num_data):
    keys = jax.random.split(jax.random.key(3), 20 * math.factorial(num_data) + 2000)
    images = np.asarray(jax.jit(jax.vmap(lambda key: permute(key, jnp.arange(num_data), num_data)))(keys))
    orders = np.unique(images @ num_data ** np.arange(num_data), return_counts=True)[1]
    assert len(orders) == math.factorial(num_data)
    assert chisquare(orders).pvalue > SMALLEST_P


@pytest.mark.parametrize("num_data", [9, 50])
def test_pairs_of_rows_in_a_batch_are_equally_likely(num_data):
    first = jnp.array([0, 1])
    keys = jax.random.split(jax.random.key(4), 20000)
    pairs = np.asarray(jax.jit(jax.vmap(lambda key: permute(key, first, num_data)))(keys))
    counts = np.bincount(pairs @ [num_data, 1], minlength=num_data**2).reshape(num_data, num_data)
    assert chisquare(counts[~np.eye(num_data, dtype=bool)]).pvalue > SMALLEST_P


@pytest.mark.parametrize(("num_data", "batch_size"), [(10, 4), (100, 10)])
def test_a_row_is_in_a_given_step_equally_often_over_keys(num_data, batch_size):
    last = num_steps_per_epoch(num_data, batch_size) - 1  # the batch that is filled up
    keys = jax.random.split(jax.random.key(5), 20000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: batch_indices(key, last, num_data, batch_size)))(keys))
    for position in (0, batch_size - 1):
        assert chisquare(np.bincount(drawn[:, position], minlength=num_data)).pvalue > SMALLEST_P


def test_batches_do_not_depend_on_how_steps_are_chunked():
    key = jax.random.key(6)
    whole = batches(key, 30, 506, 32)
    chunked = np.concatenate([batches(key, 7, 506, 32), batches(key, 23, 506, 32, start=7)])
    one_by_one = np.stack([batch_indices(key, step, 506, 32) for step in range(30)])
    np.testing.assert_array_equal(whole, chunked)
    np.testing.assert_array_equal(whole, one_by_one)


def test_late_steps_of_a_large_set_stay_in_range():
    drawn = np.asarray(batch_indices(jax.random.key(7), 2**31 - 1, 2**31 - 1, 1000))
    assert drawn.dtype == np.int32
    assert drawn.min() >= 0
    drawn = np.asarray(batch_indices(jax.random.key(7), 2**31 - 1, 50_000, 128))
    assert drawn.min() >= 0 and drawn.max() < 50_000


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(SettingError, match="batch_size=11"):
        batch_indices(jax.random.key(0), 0, 10, 11)
    with pytest.raises(SettingError, match="batch_size=0"):
        batch_indices(jax.random.key(0), 0, 10, 0)


def test_take_picks_the_same_rows_of_every_leaf():
    data = ({"tokens": jnp.arange(12).reshape(4, 3)}, jnp.arange(4.0))
    x, y = jax.jit(take)(data, jnp.array([3, 1]))
    np.testing.assert_array_equal(x["tokens"], [[9, 10, 11], [3, 4, 5]])
    np.testing.assert_array_equal(y, [3.0, 1.0])
