"""The joint log-loss: by brute force, at its limits, and best for exact inference."""

import itertools

import numpy as np
import pytest

import posteria as po
from posteria.errors import DataError
from posteria.metrics import joint_log_loss, neighbours

RNG = np.random.default_rng(0)


def test_it_is_what_brute_force_gives():
    """Of classes: the probability of every joint outcome sums to 1, and its log is the loss."""
    probs = RNG.dirichlet(np.ones(3), size=(4, 5))  # (draw, row, class)
    groups, size = np.array([[0, 1, 2], [4, 2, 0]]), 3
    total = dict.fromkeys(range(2), 0.0)
    for y in itertools.product(range(3), repeat=5):
        log_probs = np.log(probs[:, np.arange(5), y])
        for number, group in enumerate(groups):
            if all(y[row] == 0 for row in set(range(5)) - set(group)):  # each outcome of the group once
                direct = np.mean([np.prod([probs[s, row, y[row]] for row in group]) for s in range(4)])
                loss = joint_log_loss(log_probs, group[None])
                np.testing.assert_allclose(loss, -np.log(direct) / size, rtol=1e-12)
                total[number] += np.exp(-size * loss)
    np.testing.assert_allclose(list(total.values()), 1.0)


def test_of_single_rows_it_is_the_negative_log_likelihood_and_of_one_draw_always():
    log_probs = RNG.normal(size=(6, 8))
    mixture = np.log(np.exp(log_probs).mean(0))
    np.testing.assert_allclose(joint_log_loss(log_probs, np.arange(8)[:, None]), -mixture.mean())
    np.testing.assert_allclose(joint_log_loss(log_probs[:1], np.arange(8).reshape(2, 4)), -log_probs[0].mean())
    assert joint_log_loss(np.array([[-np.inf, 0.0], [0.0, 0.0]]), [[0, 1]]) == pytest.approx(np.log(2) / 2)


def test_on_a_linear_gaussian_testbed_exact_inference_is_best():
    """Data from the prior, 200 times; against a point, the prior, half and twice the variance, and marginals alone."""
    gains: dict[str, list[float]] = {}
    rng = np.random.default_rng(1)
    for _ in range(200):
        w, x, new = rng.normal(size=3), rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
        y, y_new = x @ w + 0.3 * rng.normal(size=4), new @ w + 0.3 * rng.normal(size=6)
        covariance = np.linalg.inv(x.T @ x / 0.09 + np.eye(3))
        mean, root = covariance @ x.T @ y / 0.09, np.linalg.cholesky(covariance)
        noise = rng.normal(size=(2000, 3))
        rivals = {
            "exact": (mean + noise @ root.T) @ new.T,
            "point": np.tile(new @ mean, (1, 1)),
            "prior": noise @ new.T,
            "narrow": (mean + 0.7 * noise @ root.T) @ new.T,
            "wide": (mean + 1.4 * noise @ root.T) @ new.T,
        }
        rivals["marginals"] = np.stack([rng.permutation(column) for column in rivals["exact"].T], 1)
        losses = {
            name: joint_log_loss(-0.5 * ((y_new - f) / 0.3) ** 2 - np.log(0.3) - 0.919, np.arange(6)[None])
            for name, f in rivals.items()
        }
        for name in rivals:
            gains.setdefault(name, []).append(losses[name] - losses["exact"])
    for name in set(gains) - {"exact"}:
        assert np.mean(gains[name]) > 3 * np.std(gains[name]) / np.sqrt(200), name


def test_neighbours_are_the_nearest_rows_each_with_itself_first():
    x = np.array([0.0, 10.0, 0.1, 10.2, 0.3, 10.1])
    groups = neighbours(x, size=3, num_groups=6)
    assert {tuple(sorted(group)) for group in groups.tolist()} == {(0, 2, 4), (1, 3, 5)}
    assert sorted(groups[:, 0]) == list(range(6))
    np.testing.assert_array_equal(groups, neighbours(x, size=3, num_groups=6))


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(DataError, match=r"\(draw, n\)"):
        joint_log_loss(np.zeros(3), [[0]])
    with pytest.raises(DataError, match="groups name rows"):
        joint_log_loss(np.zeros((2, 3)), [[0, 3]])
    with pytest.raises(DataError, match="nan"):
        joint_log_loss(np.full((2, 3), np.nan), [[0, 1]])
    for groups in ([0.5], [0, 1], [[0.5, 1.0]], np.zeros((0, 2), int), np.zeros((2, 0), int)):
        with pytest.raises(DataError, match="row numbers"):
            joint_log_loss(np.zeros((2, 3)), groups)
    with pytest.raises(DataError, match="groups of 9"):
        neighbours(np.zeros((3, 1)), size=9)
    assert po.metrics.joint_log_loss is joint_log_loss
