"""Noise on the inputs of linear operations is noise in the rows of their weights, in networks of every framework."""

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import stats

import posteria as po
from posteria import tree
from posteria.errors import DataError, SettingError
from posteria.testing.statistics import LEAST_P_VALUE
from posteria.trace import dropout

eqx = pytest.importorskip("equinox")


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.out = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(self.attention(x).mean(1))


class Recurrent(nnx.Module):
    def __init__(self, rngs):
        self.recurrent = nnx.RNN(nnx.LSTMCell(3, 4, rngs=rngs))
        self.out = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(self.recurrent(x)[:, -1])


class Convolutions(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(2, 4, (3, 3), rngs=rngs)
        self.grouped = nnx.Conv(4, 4, (2, 2), feature_group_count=2, rngs=rngs)
        self.out = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.grouped(jnp.tanh(self.first(x)))).mean((1, 2)))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(jnp.tanh(linen.Dense(5)(x)))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key)
        self.first, self.second = eqx.nn.Linear(3, 5, key=keys[0]), eqx.nn.Linear(5, 2, key=keys[1])

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


NETWORKS = {
    "nnx attention": (lambda: po.network(lambda key: Attention(nnx.Rngs(key))), (5, 4)),
    "nnx lstm": (lambda: po.network(lambda key: Recurrent(nnx.Rngs(key))), (5, 3)),
    "nnx convolutions": (lambda: po.network(lambda key: Convolutions(nnx.Rngs(key))), (4, 4, 2)),
    "linen": (lambda: po.network(Linen()), (3,)),
    "equinox": (lambda: po.network(Equinox), (3,)),
    "ready": (lambda: po.nn.mlp((6,), outputs=2), (3,)),
}


def network_and_params(name):
    build, shape = NETWORKS[name]
    network = build()
    x = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    params = network.init(jax.random.key(1), x[:1])
    return network, params, x


@pytest.mark.parametrize("name", ["nnx attention", "nnx lstm", "nnx convolutions"])
def test_training_and_prediction_draw_from_the_same_distribution(name, noise="bernoulli"):
    """Means, variances and the covariance of two outputs, of noisy inputs and of noisy weights."""
    network, params, x = network_and_params(name)
    selected, _ = dropout.select(network, params, x[:1], None)
    strengths = {path: jnp.asarray(0.3) for path in selected}
    num = 2000

    @jax.jit
    def draw(key):
        keys_train, keys_predict = jax.random.split(key, (2, num))

        def train(key):
            return dropout.noisy_outputs(network, noise, key, params, x[:1], selected, strengths)[0]

        def predict(key):
            return network.apply(dropout.noisy_weights(noise, key, params, selected, strengths), x[:1])[0]

        return jax.lax.map(train, keys_train), jax.lax.map(predict, keys_predict)

    trained, predicted = (np.asarray(draws, np.float64) for draws in draw(jax.random.key(2)))

    def statistics(draws):
        centred = draws - predicted.mean(0)
        return np.concatenate([centred, centred**2, centred[:, :1] * centred[:, 1:]], axis=1)

    a, b = statistics(trained), statistics(predicted)
    difference = a.mean(0) - b.mean(0)
    covariance = (np.cov(a.T) + np.cov(b.T)) / num
    statistic = difference @ np.linalg.solve(covariance, difference)
    assert stats.chi2.sf(statistic, len(difference)) > LEAST_P_VALUE
    assert predicted.std(0).min() > 0.01


@pytest.mark.parametrize("name", NETWORKS)
def test_a_mask_on_the_inputs_is_the_same_mask_in_the_rows(name):
    """Exactly, datum by datum: the units of the rows are those of the inputs."""
    network, params, x = network_and_params(name)
    selected, _ = dropout.select(network, params, x[:1], None)
    on_inputs = {path: units for path, units in selected.items() if units.on_inputs}
    masks = dropout.draw_masks(
        "gaussian", jax.random.key(0), on_inputs, dict.fromkeys(on_inputs, jnp.asarray(0.5)), (2,)
    )
    outputs = jax.jit(lambda p, x, m: dropout.linear.interpret(network.apply, dropout._masked)(p, x, m)[0])(
        params, x, masks
    )
    leaves, treedef = jax.tree.flatten(params)
    for i in range(2):
        rows = (on_inputs[p].rows(masks[p][i]) if p in masks else 1.0 for p in tree.paths(params))
        by_hand = network.apply(treedef.unflatten(leaf * row for leaf, row in zip(leaves, rows)), x[i : i + 1])
        np.testing.assert_allclose(outputs[i : i + 1], by_hand, rtol=1e-4, atol=1e-5)


def test_which_leaves_carry_noise_and_how_many_units_they_have():
    def units(name):
        network, params, x = network_and_params(name)
        return {path: (u.count, u.on_inputs) for path, u in dropout.select(network, params, x[:1], None)[0].items()}

    assert units("nnx convolutions") == {
        "first/kernel": (2, True),
        "grouped/kernel": (4, True),
        "out/kernel": (4, True),
    }
    attention = units("nnx attention")
    assert attention["attention/query/kernel"] == (4, True)  # tokens share their feature's unit
    assert attention["attention/out/kernel"] == (4, True)  # 2 heads x 2 coordinates
    recurrent = units("nnx lstm")
    assert recurrent.pop("out/kernel") == (4, True)
    assert all(not on_inputs for _, on_inputs in recurrent.values()) and len(recurrent) >= 2


def test_noise_has_mean_one_and_the_stated_variance():
    for noise, strength, variance in (("bernoulli", 0.2, 0.25), ("gaussian", 0.25, 0.25)):
        draws = np.asarray(dropout.NOISES[noise](jax.random.key(0), jnp.asarray(strength), (40_000,)))
        assert abs(draws.mean() - 1) < 4 * np.sqrt(variance / 40_000)
        assert abs(draws.var() - variance) < 4 * np.sqrt(np.var((draws - 1) ** 2) / 40_000)
    smooth = np.asarray(dropout.concrete(jax.random.key(0), jnp.asarray(0.2), (40_000,)))
    assert abs((smooth < 0.5 / 0.8).mean() - 0.2) < 4 * np.sqrt(0.16 / 40_000)  # half of the way to dropped


def test_where_selects_layers():
    network, params, x = network_and_params("linen")
    assert list(dropout.select(network, params, x[:1], "Dense_1/*")[0]) == ["Dense_1/kernel"]
    assert list(dropout.select(network, params, x[:1], "Dense_0/kernel, Dense_1/kernel")[0]) == [
        "Dense_0/kernel",
        "Dense_1/kernel",
    ]


def test_a_leaf_that_cannot_carry_noise_is_named():
    network, params, x = network_and_params("linen")
    with pytest.raises(SettingError, match="Dense_0/bias, which is used by add"):
        dropout.select(network, params, x[:1], "Dense_0/bias")
    with pytest.raises(SettingError, match="no leaf"):
        dropout.select(network, params, x[:1], "dense")
    with pytest.raises(DataError):
        dropout.select(network, params, None, None)

    def tied(params, x):
        return jnp.tanh(x @ params["w"]) @ params["w"].T @ params["v"]

    both = po.Network(lambda key, x: {"v": jnp.ones((3, 2)), "w": jnp.ones((3, 4))}, tied)
    selected, note = dropout.select(both, both.init(None, None), x[:1], None)
    assert list(selected) == ["v"] and note == "no noise on w (used with different inputs)"
    with pytest.raises(SettingError, match="w, which is used with different inputs"):
        dropout.select(both, both.init(None, None), x[:1], "w")


def test_a_layer_used_twice_has_one_mask():
    def twice(params, x):
        return jnp.tanh(x @ params["w"]) @ params["w"]

    network = po.Network(lambda key, x: {"w": jax.random.normal(key, (3, 3))}, twice)
    params, x = network.init(jax.random.key(0), None), np.ones((1, 3), np.float32)
    selected, _ = dropout.select(network, params, x, None)
    masks = {"w": jnp.asarray([[2.0, 0.5, 0.0]])}
    outputs, _ = dropout.linear.interpret(twice, dropout._masked)(params, x, masks)
    expected = twice({"w": params["w"] * selected["w"].rows(masks["w"][0])}, x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)


# ---- every method on every network, none of which knows of dropout

METHODS = {
    "mc": po.MCDropout(num_epochs=2),
    "gaussian": po.GaussianDropout(num_epochs=2),
    "variational, unit": po.VariationalDropout("unit", num_epochs=2),
    "variational, weight": po.VariationalDropout("weight", num_epochs=2),
    "sparse": po.SparseVariationalDropout(num_epochs=2),
    "concrete": po.ConcreteDropout(num_epochs=2),
}
QUICK = {
    ("mc", "nnx lstm"),
    ("sparse", "nnx attention"),
}
PAIRS = [
    pytest.param(method, name, marks=[] if (method, name) in QUICK else pytest.mark.slow)
    for method in METHODS
    for name in NETWORKS
]


@pytest.mark.parametrize(("method", "name"), PAIRS)
def test_a_network_without_dropout_layers_is_fitted_as_it_is(method, name):
    network, params, x = network_and_params(name)
    y = np.ones((2, 2), np.float32)
    posterior = po.fit(po.Model(network), (x, y), METHODS[method], start=params, progress=False)
    outputs = posterior.functions(0, x, 5)
    assert outputs.shape == (5, 2, 2)
    assert np.isfinite(outputs).all() and np.asarray(outputs).std(0).min() > 0
