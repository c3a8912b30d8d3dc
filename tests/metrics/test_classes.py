"""Held against scikit-learn, loops over points and pairs, and cases worked by hand."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from posteria.errors import DataError, SettingError
from posteria.metrics import accuracy, agreement, auroc, brier, ece, negative_log_likelihood, total_variation

rng = np.random.default_rng(0)
PROBS = rng.dirichlet(np.ones(4), 300)
Y = rng.integers(0, 4, 300)


def binary(confidence):
    """Two-class rows whose class 1 has the given probability."""
    confidence = np.asarray(confidence, float)
    return np.stack([1 - confidence, confidence], axis=1)


def test_accuracy_brier_and_log_loss_agree_with_scikit_learn():
    assert accuracy(PROBS, Y) == pytest.approx(accuracy_score(Y, PROBS.argmax(1)))
    assert brier(PROBS, Y) == pytest.approx(brier_score_loss(Y, PROBS, labels=range(4), scale_by_half=False))
    log_prob = np.log(PROBS[np.arange(300), Y])
    assert negative_log_likelihood(log_prob) == pytest.approx(log_loss(Y, PROBS))


def test_brier_of_two_classes_is_twice_that_of_one():
    p, y = rng.uniform(size=50), rng.integers(0, 2, 50)
    assert brier(binary(p), y) == pytest.approx(2 * brier_score_loss(y, p, scale_by_half=True))


def test_the_sign_of_the_negative_log_likelihood():
    """More probable is smaller, and a point held impossible costs everything."""
    assert negative_log_likelihood(np.log([0.5, 0.5])) == pytest.approx(np.log(2))
    assert negative_log_likelihood([-0.1]) < negative_log_likelihood([-0.2])
    assert negative_log_likelihood([0.0, -np.inf]) == np.inf


def ece_by_loops(probs, y, edges):
    """Bins (edges[k], edges[k+1]], the first one closed below."""
    total = 0.0
    for k, (low, high) in enumerate(itertools.pairwise(edges)):
        members = [i for i, p in enumerate(probs) if low < p.max() <= high or (k == 0 and p.max() == low)]
        if members:
            hit = np.mean([probs[i].argmax() == y[i] for i in members])
            total += len(members) / len(y) * abs(hit - np.mean([probs[i].max() for i in members]))
    return total


@pytest.mark.parametrize("bins", [1, 2, 10, 15])
def test_ece_of_equal_width_agrees_with_loops(bins):
    assert ece(PROBS, Y, bins) == pytest.approx(ece_by_loops(PROBS, Y, np.arange(bins + 1) / bins), abs=1e-14)


def test_ece_of_equal_mass_agrees_with_loops_over_slices():
    order = PROBS.max(1).argsort()
    gaps = [(PROBS[i].max(1) - (PROBS[i].argmax(1) == Y[i])).sum() for i in np.split(order, 15)]
    assert ece(PROBS, Y, mode="mass") == pytest.approx(np.abs(gaps).sum() / 300, abs=1e-14)


@pytest.mark.parametrize("mode", ["width", "mass"])
def test_ece_counts_confidence_one(mode):
    """Ten predictions, all certain, four of them wrong: 0.4, not 0."""
    y = np.array([1] * 6 + [0] * 4)
    assert ece(binary(np.ones(10)), y, mode=mode) == pytest.approx(0.4)
    assert ece(binary(np.ones(10, np.float32)).astype(np.float32), y, mode=mode) == pytest.approx(0.4)


def test_ece_puts_an_edge_into_the_bin_below():
    """Of four bins, the confidence 0.75 is in one with 0.6, where their errors cancel, and in none with 0.8."""
    assert ece(binary([0.6, 0.75]), [1, 0], bins=4) == pytest.approx(abs(0.4 - 0.75) / 2)
    assert ece(binary([0.75, 0.8]), [0, 1], bins=4) == pytest.approx((0.75 + 0.2) / 2)
    assert ece(binary([0.5, 0.6]), [0, 1], bins=4) == pytest.approx((0.5 + 0.4) / 2)


@pytest.mark.parametrize("mode", ["width", "mass"])
def test_ece_does_not_depend_on_the_order_of_tied_points(mode):
    probs = binary(rng.choice([0.6, 0.7, 0.9, 1.0], 101))
    y = rng.integers(0, 2, 101)
    values = [ece(probs[i], y[i], bins=7, mode=mode) for i in (rng.permutation(101) for _ in range(20))]
    np.testing.assert_allclose(values, values[0], atol=1e-14)


@pytest.mark.parametrize("mode", ["width", "mass"])
def test_ece_of_calibrated_predictions_vanishes(mode):
    """To the noise of 15 bins: a bin's gap has a standard deviation of at most 0.5 / sqrt(points in it)."""
    confidence = rng.uniform(0.5, 1, 100_000)
    y = (rng.uniform(size=100_000) < confidence).astype(int)
    largest_std = 0.5 * np.sqrt(15 / 100_000)
    # mean and standard deviation of |N(0, 1)| are 0.80 and 0.60; 15 bins are averaged
    assert ece(binary(confidence), y, mode=mode) < (0.80 + 4 * 0.60 / np.sqrt(15)) * largest_std


def test_ece_of_equal_mass_with_fewer_points_than_bins_is_the_error_of_each():
    assert ece(binary([0.6, 0.7, 0.8]), [1, 1, 0], mode="mass") == pytest.approx((0.4 + 0.3 + 0.8) / 3)


def test_auroc_agrees_with_scikit_learn_with_and_without_ties():
    inside, outside = rng.normal(size=200), rng.normal(0.5, size=150)
    truth = np.r_[np.zeros(200), np.ones(150)]
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(truth, np.r_[inside, outside]), abs=1e-12)
    inside, outside = inside.round(), outside.round()
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(truth, np.r_[inside, outside]), abs=1e-12)


def test_the_direction_of_auroc():
    assert auroc([0.0, 1.0], [2.0, 3.0]) == 1.0
    assert auroc([2.0, 3.0], [0.0, 1.0]) == 0.0
    assert auroc([1.0, 1.0], [1.0]) == 0.5


def test_agreement_and_total_variation_by_loops():
    other = rng.dirichlet(np.ones(4), 300)
    same = [int(np.argmax(a) == np.argmax(b)) for a, b in zip(PROBS, other)]
    # the largest difference in the probability of any set of classes
    variation = [sum(max(p - q, 0) for p, q in zip(a, b)) for a, b in zip(PROBS, other)]
    assert agreement(PROBS, other) == pytest.approx(np.mean(same))
    assert total_variation(PROBS, other) == pytest.approx(np.mean(variation))
    assert agreement(PROBS, PROBS) == 1 and total_variation(PROBS, PROBS) == 0
    assert total_variation(np.eye(3), np.eye(3)[[1, 2, 0]]) == 1


def test_jax_arrays_in_plain_floats_out():
    probs, y = jnp.asarray(PROBS, jnp.bfloat16), jnp.asarray(Y)
    for value in (accuracy(probs, y), brier(probs, y), ece(probs, y), agreement(probs, probs), auroc(y, y)):
        assert type(value) is float


@pytest.mark.parametrize(
    "probs, y, match",
    [
        (PROBS, Y[:-1], "300 rows"),
        (PROBS, Y[:, None], "one label a row"),
        (PROBS, Y.astype(float), "integers"),
        (PROBS, Y + 1, "labels from 1 to 4"),
        (PROBS, Y - 1, "labels from -1"),
        (np.log(PROBS), Y, "softmax"),
        (PROBS / 2, Y, "sum to 0.5"),
        (PROBS[:, 0], Y, "classes"),
        (np.ones((300, 1)), Y, "stack 1 - p and p"),
        (np.where(PROBS > 0.9, np.nan, PROBS), Y, "not finite"),
        (np.empty((0, 3)), np.empty(0, int), "empty"),
    ],
)
@pytest.mark.parametrize("metric", [accuracy, brier, ece])
def test_bad_input_is_named(metric, probs, y, match):
    with pytest.raises(DataError, match=match):
        metric(probs, y)


def test_other_bad_input_is_named():
    for metric in (agreement, total_variation):
        with pytest.raises(DataError, match="same shape"):
            metric(PROBS, PROBS[:1])
    with pytest.raises(DataError, match="scores_out is"):
        auroc([0.0], [[1.0]])
    with pytest.raises(DataError, match="empty"):
        auroc([], [1.0])
    with pytest.raises(DataError, match="not finite"):
        auroc([np.nan], [1.0])
    for bad in ([np.nan], [np.inf], [[0.0, 0.0]], [], ["a"], [1j]):
        with pytest.raises(DataError):
            negative_log_likelihood(bad)
    with pytest.raises(SettingError, match="bins"):
        ece(PROBS, Y, bins=0)
    with pytest.raises(SettingError, match="mode"):
        ece(PROBS, Y, mode="quantile")
