"""Directions of the inputs without variance: counted against the rank, said in words, kept as a small fact."""

import numpy as np
import pytest

import posteria as po
from posteria.data.directions import flat_directions, in_words


def table(num_rows: int = 200) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(num_rows, 5))


def test_as_many_as_the_rank_lacks():
    x = table()
    assert flat_directions(x) is None
    summed = np.concatenate([x, x[:, :1] + x[:, 1:2], np.full((200, 2), 3.0)], 1)
    found = flat_directions(summed)
    assert found == {"inputs": 8, "flat": 3, "constant": 2, "rows": 200}
    assert found["flat"] == 8 - np.linalg.matrix_rank(summed - summed.mean(0))
    assert flat_directions(summed.astype(np.float32))["flat"] == 3
    assert flat_directions(table(4))["flat"] == 5 - 3  # four rows have three directions


def test_one_hot_columns_always_sum_to_one():
    labels = np.arange(60) % 3
    assert flat_directions(np.eye(3)[labels])["flat"] == 1


def test_images_count_where_they_meet_a_dense_layer_at_once():
    images = np.random.default_rng(0).uniform(size=(300, 8, 8, 1)).astype(np.float32)
    images[:, 0] = 0.0
    assert flat_directions(images, [(64, 10)])["constant"] == 8
    assert flat_directions(images, [(3, 3, 1, 6), (96, 10)]) is None
    assert flat_directions(np.zeros((5, 3), np.int32)) is None  # tokens


def test_the_words_say_why_and_what_helps():
    told = in_words({"inputs": 8, "flat": 3, "constant": 1, "rows": 200})
    assert "3 of 8 directions" in told and "1 input is the same" in told and "sums of others" in told
    assert "EmpiricalCovariance" in told and "the posterior is the prior" in told
    assert "fewer rows than inputs" in in_words({"inputs": 50, "flat": 31, "constant": 0, "rows": 20})
    assert in_words(None) == ""


@pytest.mark.parametrize("is_flat", [True, False])
def test_a_fit_keeps_the_fact_and_diagnose_says_it(is_flat, tmp_path):
    x = table(40)[:, :2]
    x = (np.concatenate([x, x[:, :1] - x[:, 1:]], 1) if is_flat else x).astype(np.float32)
    y = x[:, 0] + 0.1 * np.random.default_rng(1).normal(size=40)
    method = po.HMC(num_chains=2, num_draws=25, num_warmup=25, num_leapfrog=3)
    posterior = po.fit(po.Model(po.nn.mlp(())), (x, y), method, key=0, progress=False)
    posterior.save(tmp_path / "out")
    for each in (posterior, po.load(tmp_path / "out")):
        assert each.facts.get("flat_directions") == flat_directions(x)
        assert ("directions of the inputs have no variance" in each.diagnose(x).verdict) == is_flat
    if is_flat:
        prior = po.priors.EmpiricalCovariance(x)
        mended = po.fit(po.Model(po.nn.mlp(()), prior=prior), (x, y), po.MAP(num_epochs=20), key=0, progress=False)
        assert "flat_directions" not in mended.facts


def test_units_of_the_inputs_make_none_of_them_constant():
    random = np.random.default_rng(1)
    x = np.stack([random.normal(5e4, 2e4, 500), random.uniform(size=500)], 1)
    assert flat_directions(x) is None


def test_an_input_that_seldom_differs_is_not_called_constant():
    x = np.random.default_rng(2).normal(size=(20_000, 2))
    x[:, 1] = 0.0
    assert flat_directions(x)["constant"] == 1
    x[7, 1] = 1.0  # a row that is not among those looked at
    assert flat_directions(x) is None
