"""Where cold is better the words name the model's fault, with what was measured; not where chance explains it."""

import jax.numpy as jnp
import numpy as np

import posteria as po
from posteria.comparison.tell.sentences import temperature_words

ROWS = np.random.default_rng(0).normal(size=400)


def test_cold_that_is_better_is_underfitting():
    said = temperature_words({0.1: ROWS + 0.3, 1.0: ROWS + 0.1 * ROWS[::-1]}, "classes", {0.1: -0.05, 1.0: -0.4})
    assert "T = 0.1" in said and "underfits" in said and "NoisyDirichlet" in said
    assert "-0.400 nats at T = 1, -0.050 at T = 0.1" in said
    ahead = ROWS + 0.3 - (ROWS + 0.1 * ROWS[::-1])
    assert f"by {ahead.mean():.3f} ± {ahead.std() / 20:.3f} nats a row" in said
    assert "inferred" in temperature_words({0.1: ROWS + 0.3, 1.0: ROWS}, "regression")


def test_what_chance_explains_is_not_said_to_be_better():
    noise = np.random.default_rng(1).normal(size=400)
    said = temperature_words({0.3: ROWS + noise - noise.mean() + 0.02, 1.0: ROWS}, "classes")
    assert "within chance" in said and "underfit" not in said
    assert "best of 0.3, 1" in temperature_words({0.3: ROWS - 1, 1.0: ROWS}, "classes")


def test_hot_that_is_better_is_told_apart():
    said = temperature_words({1.0: ROWS, 3.0: ROWS + 0.3}, "classes")
    assert "surer" in said and "underfit" not in said


def test_one_temperature_or_none_that_is_1_says_nothing():
    assert temperature_words({1.0: ROWS}, "classes") == temperature_words({0.1: ROWS, 3.0: ROWS}, "classes") == ""


def test_graded_posteriors_of_several_temperatures_are_told_about():
    x = np.random.default_rng(2).normal(size=(60, 2)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    network = po.Network(lambda key, x: jnp.zeros((2, 1)), lambda weights, x: x @ weights)

    def fitted(temperature, noise=0.5):
        likelihood = po.likelihoods.Gaussian(noise)
        model = po.Model(network, likelihood, po.priors.Normal(1.0), temperature=temperature)
        return po.fit(model, (x[:30], y[:30]), po.Laplace(structure="full"), key=0, progress=False)

    cold, warm = fitted(0.01), fitted(1.0)
    said = po.grade({"cold": cold, "warm": warm}, data=(x[30:], y[30:])).remarks
    assert len(said) == 1 and "T = 1" in said[0]
    assert po.grade({"a": fitted(1.0, 0.2), "b": cold}, data=(x[30:], y[30:])).remarks == ()  # two models
