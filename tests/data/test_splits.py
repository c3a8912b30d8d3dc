import hashlib

import jax
import numpy as np
import pytest

from posteria.data import train_test, uci_splits
from posteria.errors import DataError, SettingError

# SHA-256 (first 12 digits) of all index arrays: (rows, splits) of yacht, boston, energy, wine, protein
FINGERPRINTS = {
    (308, 20): "28ca596560b9",
    (506, 20): "3a0f9d6fd129",
    (768, 20): "f31dbf17d6e9",
    (1599, 20): "2321a34fc862",
    (45730, 5): "0abd139c01ad",
}


@pytest.mark.parametrize(("num_data", "num_splits"), FINGERPRINTS)
def test_uci_splits_are_the_published_recipe(num_data, num_splits):
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    recipe = [np.random.choice(range(num_data), num_data, replace=False) for _ in range(num_splits)]  # noqa: NPY002
    np.random.set_state(state)  # noqa: NPY002
    splits = uci_splits(num_data, num_splits)
    for permutation, (train, test) in zip(recipe, splits, strict=True):
        assert len(train) == round(0.9 * num_data)
        np.testing.assert_array_equal(np.concatenate([train, test]), permutation)


@pytest.mark.parametrize(("num_data", "num_splits"), FINGERPRINTS)
def test_uci_splits_do_not_change_with_numpy(num_data, num_splits):
    stacked = np.stack([np.concatenate(split) for split in uci_splits(num_data, num_splits)]).astype("<i8")
    assert hashlib.sha256(stacked.tobytes()).hexdigest()[:12] == FINGERPRINTS[num_data, num_splits]


def test_uci_splits_leave_the_global_generator_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    uci_splits(50)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("num_data", "fraction", "num_test"), [(100, 0.1, 10), (506, 0.1, 51), (2, 0.1, 1), (3, 0.9, 2)]
)
def test_train_and_test_share_no_row_and_leave_none_out(num_data, fraction, num_test):
    train, test = train_test(num_data, 0, fraction)
    assert len(test) == num_test
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(num_data))


def test_a_seed_and_its_key_give_one_split():
    for a, b in zip(train_test(50, 3), train_test(50, jax.random.key(3))):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(train_test(50, 3)[1], train_test(50, 4)[1])


def test_impossible_splits_are_refused():
    with pytest.raises(SettingError):
        train_test(10, 0, test=1.0)
    with pytest.raises(DataError):
        train_test(1, 0)
