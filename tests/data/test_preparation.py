"""New rows are prepared as the training rows were, and come back from JSON the same."""

import json

import numpy as np
import pandas as pd
import pytest

from posteria.data.preparation import Preparation
from posteria.errors import DataError

FRAME = pd.DataFrame(
    {
        "size (m, wide)": [1.0, 2.0, np.nan, 4.0, 9.0, 2.5],
        "colour": ["red", "blue", "red", None, "blue", "red"],
        "price": [10.0, 30.0, 20.0, 50.0, 40.0, 60.0],
    }
)


def test_inputs_and_targets_are_standardised_and_new_rows_by_the_same_moments():
    preparation = Preparation.from_table(FRAME, "price")
    x, y = preparation.inputs(FRAME), preparation.targets(FRAME["price"])
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose([y.mean(), y.std()], [0, 1], atol=1e-6)
    assert x.dtype == y.dtype == np.float32
    reordered = FRAME.iloc[[3, 0]][["colour", "size (m, wide)"]]
    np.testing.assert_array_equal(preparation.inputs(reordered), x[[3, 0]])


def test_it_survives_json():
    preparation = Preparation.from_table(FRAME, "price")
    again = Preparation.from_json(json.loads(json.dumps(preparation.to_json())))
    np.testing.assert_array_equal(again.inputs(FRAME), preparation.inputs(FRAME))
    np.testing.assert_array_equal(again.targets(FRAME["price"]), preparation.targets(FRAME["price"]))


def test_classes_are_positions_in_their_names():
    preparation = Preparation.from_table(FRAME.dropna(), "colour")
    assert preparation.class_names == ("blue", "red") and preparation.num_outputs == 2
    np.testing.assert_array_equal(preparation.targets(["red", "blue "]), [1, 0])
    with pytest.raises(DataError, match="green"):
        preparation.targets(["green"])


def test_rows_outside_the_training_range_are_counted():
    preparation = Preparation.from_table(FRAME, "price")
    odd = FRAME.assign(**{"size (m, wide)": [1.0, 9.1, np.nan, 4.0, -3.0, 2.5]})
    np.testing.assert_array_equal(preparation.num_outside(preparation.encode(odd).x), [0, 1, 0, 0, 1, 0])


def test_arrays_of_images_are_left_alone():
    x = np.random.default_rng(0).uniform(size=(5, 4, 4, 1)).astype(np.float32)
    preparation = Preparation.from_arrays(x, np.array([0, 1, 2, 1, 0]), "classes")
    np.testing.assert_array_equal(preparation.inputs(x), x)
    assert preparation.class_names == ("0", "1", "2")


def test_unnamed_rows_for_a_frame_are_refused():
    with pytest.raises(DataError, match="ndarray"):
        Preparation.from_table(FRAME, "price").inputs(np.zeros((2, 2)))


def test_training_rows_are_inside_their_own_range_and_odd_values_are_counted():
    x = np.random.default_rng(0).normal(size=(50, 3))
    arrays = Preparation.from_arrays(x, x[:, 0], "regression")
    assert not arrays.num_outside(arrays.encode(x).x).any()  # also when 64 bits have become 32
    preparation = Preparation.from_table(FRAME.fillna({"size (m, wide)": 3.0}), "price")
    odd = pd.DataFrame({"size (m, wide)": [np.nan, 2.0], "colour": ["red", "mauve"]})
    encoded = preparation.encode(odd)
    assert encoded.filled == {"size (m, wide)": 1} and encoded.unseen == {"colour": ("mauve",)}
    np.testing.assert_array_equal(encoded.num_unseen, [0, 1])
