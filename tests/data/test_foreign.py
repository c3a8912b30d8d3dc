"""Images as no one has seen them, and what is foreign to which data set."""

import numpy as np

from posteria.data import foreign, load, sets


def test_scrambled_and_shifted_digits():
    images = np.arange(2 * 8 * 8, dtype=np.float32).reshape(2, 8, 8, 1)
    scrambled = foreign.scrambled(images)
    assert (np.sort(scrambled.reshape(2, -1)) == images.reshape(2, -1)).all() and (scrambled != images).any()
    shifted = foreign.shifted(images)
    assert (shifted[:, :, 3:] == images[:, :, :5]).all() and (shifted[:, :, :3] == 0).all()


def test_digits_are_compared_with_their_own_scrambled_and_shifted_and_others_with_nothing():
    x = load("digits").x[:20]
    found = sets.foreign_to("digits", x)
    assert list(found) == ["scrambled", "shifted"]
    np.testing.assert_array_equal(found["shifted"], foreign.shifted(x))
    assert sets.foreign_to("iris", load("iris").x) == {}
