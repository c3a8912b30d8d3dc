"""Images as no one has seen them, the furthest rows of a table, and what is foreign to which data set."""

import numpy as np

from posteria.data import load, sets, splits


def test_scrambled_and_shifted_digits():
    images = np.arange(2 * 8 * 8, dtype=np.float32).reshape(2, 8, 8, 1)
    scrambled = sets.scrambled(images)
    assert (np.sort(scrambled.reshape(2, -1)) == images.reshape(2, -1)).all() and (scrambled != images).any()
    shifted = sets.shifted(images)
    assert (shifted[:, :, 3:] == images[:, :, :5]).all() and (shifted[:, :, :3] == 0).all()


def test_digits_are_compared_with_their_own_scrambled_and_shifted_and_others_with_nothing():
    x = load("digits").x[:20]
    found = sets.foreign_to("digits", x)
    assert list(found) == ["scrambled", "shifted"]
    np.testing.assert_array_equal(found["shifted"], sets.shifted(x))
    assert sets.foreign_to("iris", load("iris").x) == {}


def test_extremes_are_the_furthest_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)) * [1.0, 100.0, 0.01]
    test = rng.normal(size=(50, 3)) * [1.0, 100.0, 0.01]
    test[7] = [9.0, 0.0, 0.0]
    test[8] = [0.0, 0.0, 0.09]
    mask = splits.extremes(x, test)["extremes"]
    assert mask.sum() == 5 and mask[7] and mask[8]
    assert splits.extremes(x, test[:20]) == {}
    assert splits.extremes(np.zeros((5, 2, 2)), np.zeros((50, 2, 2))) == {}
