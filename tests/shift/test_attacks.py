"""Attacks: gradients of the model average, steps that stay within their size, accuracy that falls with it."""

import jax
import numpy as np
import pytest

import posteria as po
from posteria.shift import attacks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int32)


@pytest.fixture(scope="module")
def posterior():
    model = po.Model(po.nn.mlp((8,), outputs=2), likelihood=po.likelihoods.Categorical())
    return po.fit(model, (X, Y), po.Ensemble(po.MAP(num_epochs=100), 3), progress=False)


def test_the_gradient_is_that_of_the_model_average(posterior):
    gradient = np.asarray(attacks._gradient(posterior, 3)(X[:5], Y[:5]))

    def loss(x):
        probs = np.asarray(jax.nn.softmax(posterior.functions(0, x.astype(np.float32), 3)), np.float64)
        return -np.log(probs.mean(0)[np.arange(5), Y[:5]])

    for j in range(4):
        step = np.zeros((5, 4))
        step[:, j] = 1e-2
        slope = (loss(X[:5] + step) - loss(X[:5] - step)) / 2e-2
        np.testing.assert_allclose(gradient[:, j], slope, rtol=0.03, atol=2e-4)


@pytest.mark.parametrize("steps", [1, 5])
def test_accuracy_falls_as_the_size_grows(posterior, steps):
    def accuracy(size):
        moved = po.shift.attack(posterior, X, Y, size, steps)
        assert moved.dtype == X.dtype and np.abs(moved - X).max() <= size + 1e-6
        return (posterior.predict(moved).probs.argmax(1) == Y).mean()

    found = [accuracy(size) for size in (0.0, 0.1, 0.3, 1.0)]
    assert found == sorted(found, reverse=True) and found[-1] < found[0] - 0.3
    np.testing.assert_array_equal(po.shift.attack(posterior, X, Y, 0.0), X)


def test_several_steps_are_no_worse_than_one_and_bounds_hold(posterior):
    def loss(x):
        return -np.log(posterior.predict(x).probs[np.arange(len(Y)), Y]).mean()

    assert loss(po.shift.attack(posterior, X, Y, 0.3, 10)) > loss(po.shift.attack(posterior, X, Y, 0.3)) - 1e-3
    inside = po.shift.attack(posterior, np.clip(X, 0, 1), Y, 0.5, 3, bounds=(0.0, 1.0))
    assert inside.min() >= 0 and inside.max() <= 1


def test_targets_of_a_regression_are_attacked_too():
    model = po.Model(po.nn.mlp((8,), outputs=1))
    posterior = po.fit(model, (X, X[:, 0]), po.Laplace(map=po.MAP(num_epochs=50)), progress=False)
    before, after = (
        posterior.predict(x).log_prob(X[:, 0]).mean() for x in (X, po.shift.attack(posterior, X, X[:, 0], 0.3))
    )
    assert after < before - 0.1


@pytest.mark.parametrize(
    "x, size, words",
    [(X, -1.0, "size is -1.0"), (X, float("nan"), "size is nan"), (X[:, :3], 0.1, "x has rows of"), (X[:5], 0.1, "")],
)
def test_what_cannot_be_attacked_is_refused(posterior, x, size, words):
    with pytest.raises(po.errors.PosteriaError) as caught:
        po.shift.attack(posterior, x, Y, size)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "given, words",
    [
        ({"bounds": 3}, "bounds are 3"),
        ({"bounds": (0, 1, 2)}, "bounds are"),
        ({"bounds": ("a", "b")}, "bounds are"),
        ({"bounds": (np.nan, 1.0)}, "bounds are"),
        ({"bounds": (0.0, 1.0)}, "within the bounds"),  # or x would be moved by more than its size
        ({"num_draws": 0}, "num_draws=0"),
    ],
)
def test_bounds_that_x_is_not_within_and_no_draws_are_refused(posterior, given, words):
    with pytest.raises(po.errors.PosteriaError, match=words):
        po.shift.attack(posterior, X, Y, 0.1, **given)
    with pytest.raises(po.errors.SettingError, match="a fitted posterior"):
        po.shift.attack(po.Classifier(), X, Y, 0.1)


def test_a_size_may_be_a_number_of_numpy(posterior):
    np.testing.assert_array_equal(
        po.shift.attack(posterior, X, Y, np.float32(0.25)), po.shift.attack(posterior, X, Y, 0.25)
    )
