"""Adapters: the network as it was at 0, whatever it is made of; gradients to them alone; every method over them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.errors import NetworkError, PosteriaError
from posteria.trace import linear

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3)).astype(np.float32)
Y = np.sin(2 * X[:, :1]) + 0.1 * RNG.normal(size=(30, 1)).astype(np.float32)
MLP = po.nn.mlp((6,))
WEIGHTS = MLP.init(jax.random.key(3), X[:1])


def dense():
    return MLP, WEIGHTS, X


def convolution():
    network = po.nn.lenet5(outputs=3)
    x = RNG.normal(size=(2, 28, 28, 1)).astype(np.float32)
    return network, network.init(jax.random.key(0), x[:1]), x


def attention():
    """Two heads over five tokens, with projections of several shapes, and a residual sum."""

    def init(key, x):
        keys = jax.random.split(key, 5)
        return {
            "query": jax.random.normal(keys[0], (4, 2, 3)) / 2,
            "key": jax.random.normal(keys[1], (4, 2, 3)) / 2,
            "value": jax.random.normal(keys[2], (4, 2, 3)) / 2,
            "out": jax.random.normal(keys[3], (6, 4)) / 2,
            "head": jax.random.normal(keys[4], (4, 2)),
            "scale": jnp.ones(4),
        }

    def apply(params, x):
        q, k, v = (jnp.einsum("btd,dhe->bthe", x, params[name]) for name in ("query", "key", "value"))
        mixed = jnp.einsum("bhts,bshe->bthe", jax.nn.softmax(jnp.einsum("bthe,bshe->bhts", q, k)), v)
        x = x * params["scale"] + mixed.reshape(*mixed.shape[:2], 6) @ params["out"]
        return x.mean(1) @ params["head"]

    network = po.Network(init, apply)
    x = RNG.normal(size=(3, 5, 4)).astype(np.float32)
    return network, network.init(jax.random.key(1), x), x


@pytest.mark.parametrize("made", [dense, convolution, attention])
def test_at_zero_the_outputs_are_equal_and_adapters_add_low_rank_matrices(made):
    network, weights, x = made()
    adapted = po.adapters(network, rank=2, weights=weights)
    params = adapted.init(jax.random.key(0), x[:1])
    matrices = {path for path, leaf in linear.find(network.apply, weights, x).items() if leaf.found}
    assert set(params) == matrices
    found, wanted = jax.jit(adapted.apply)(params, x), jax.jit(network.apply)(weights, x)
    if made is convolution:  # a ready network of images sums its patches in another order for a batch than for a datum
        np.testing.assert_allclose(found, wanted, rtol=5e-6)
    else:
        np.testing.assert_array_equal(found, wanted)
    # away from it: the same network with W + down up in place of W
    params = jax.tree.map(lambda leaf: 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), params)
    by_path = dict(zip(tree.paths(weights), jax.tree.leaves(weights)))
    for path, own in params.items():
        by_path[path] = by_path[path] + (own["down"] @ own["up"]).reshape(by_path[path].shape)
    moved = jax.tree.structure(weights).unflatten(by_path.values())
    np.testing.assert_allclose(adapted.apply(params, x), network.apply(moved, x), rtol=2e-4, atol=2e-4)


def test_gradients_flow_to_adapters_alone_and_both_parts_are_found_again():
    adapted = po.adapters(MLP, rank=2, weights=WEIGHTS)
    params = adapted.init(jax.random.key(0), X[:1])
    assert tree.paths(params) == [f"layers/{i}/kernel/{part}" for i in (0, 1) for part in ("down", "up")]
    assert params["layers/1/kernel"]["down"].shape == (6, 1)  # a matrix of one column has no more
    gradient = jax.grad(lambda p: ((adapted.apply(p, X) - Y) ** 2).sum())(params)
    assert all(np.abs(own["up"]).max() > 0 and np.abs(own["down"]).max() == 0 for own in gradient.values())  # up is 0
    found = linear.find(adapted.apply, params, X)
    assert all(leaf.found for leaf in found.values())
    leaves = po.Model(adapted).leaves(X)
    assert [leaf.fan_in for leaf in leaves] == [3, 2, 6, 1]


METHODS = {
    "laplace": po.Laplace("kron", map=po.MAP(num_epochs=50)),
    "mean-field": po.MeanField(num_epochs=50),
    "newton": po.VariationalOnlineNewton(num_epochs=50),
    "swag": po.SWAG(po.MAP(num_epochs=20, polish=False), num_snapshots=4, rank=3),
    "ensemble": po.Ensemble(po.MAP(num_epochs=20, polish=False), 2),
    "sghmc": po.SGHMC(num_chains=2, num_draws=5, num_warmup=20, thinning=2, start="init"),
}
ADAPTED = po.adapters(MLP, rank=2, weights=WEIGHTS)


@pytest.mark.parametrize(
    "name", [name if name == "mean-field" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_methods_run_over_the_adapters_alone(name, tmp_path):
    model = po.Model(ADAPTED, po.likelihoods.Gaussian(0.3))
    posterior = po.fit(model, (X, Y), METHODS[name], progress=False)
    draws = posterior.sample(0, 2)
    assert jax.tree.structure(draws) == jax.tree.structure(ADAPTED.init(jax.random.key(0), X[:1]))
    posterior.save(tmp_path / "saved")
    with pytest.raises(PosteriaError, match="network="):
        po.load(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved", network=po.adapters(MLP, rank=2, weights=WEIGHTS))
    np.testing.assert_array_equal(loaded.predict(X).mean, posterior.predict(X).mean)
    others = jax.tree.map(lambda leaf: leaf + 0.1, WEIGHTS)  # another base is another network
    with pytest.raises(PosteriaError):
        po.load(tmp_path / "saved", network=po.adapters(MLP, rank=2, weights=others))


@pytest.mark.slow
def test_a_folder_of_a_fit_predicts_by_itself(tmp_path):
    posterior = po.fit(po.Model(ADAPTED), (X, Y), po.MAP(num_epochs=20), progress=False)
    assert posterior.export(tmp_path / "exported") > 0


def test_patterns_choose_and_what_cannot_be_is_refused_with_its_reason():
    only = po.adapters(MLP, where="layers/0/*", weights=WEIGHTS).init(jax.random.key(0), X[:1])
    assert set(only) == {"layers/0/kernel"}
    for where, words in (("layers/9/*", "matches no leaf"), ("layers/0/bias", "used by")):
        with pytest.raises(NetworkError, match=words):
            po.adapters(MLP, where=where, weights=WEIGHTS).init(jax.random.key(0), X[:1])
    with pytest.raises(NetworkError, match="not trained"):
        po.adapters(MLP)
    with pytest.raises(PosteriaError, match="rank"):
        po.adapters(MLP, rank=0, weights=WEIGHTS)


def test_a_table_that_is_tied_to_its_output_is_left_alone():
    def apply(params, x):
        return (params["table"][x] @ params["mix"]).sum(1) @ params["table"].T

    params = {"table": jnp.ones((7, 4)), "mix": jnp.eye(4)}
    network = po.Network(lambda key, x: params, apply)
    adapted = po.adapters(network, weights=params).init(jax.random.key(0), jnp.zeros((1, 3), int))
    assert set(adapted) == {"mix"}


def test_a_trained_module_is_its_own_base():
    from flax import nnx

    module = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    adapted = po.adapters(module, rank=1)
    params = adapted.init(jax.random.key(0), X[:1])
    np.testing.assert_array_equal(adapted.apply(params, X), module(X))


def test_weights_of_another_network_are_refused():
    for weights in (MLP.init(jax.random.key(0), X[:1, :2]), {"other": jnp.ones(3)}):
        with pytest.raises(NetworkError, match="cannot run with weights"):
            po.adapters(MLP, weights=weights).init(jax.random.key(0), X[:1])


def test_how_far_from_a_mode_is_not_measured_where_frozen_weights_make_that_dear(monkeypatch):
    """Products with the curvature pass through all frozen weights: they would take longer than the fit."""
    adapted = po.adapters(MLP, rank=2, weights=WEIGHTS)
    assert adapted.num_frozen == tree.size(WEIGHTS)
    model, method = po.Model(adapted), po.MAP(num_epochs=2, polish=False)
    assert "decrement" in po.fit(model, (X, Y), method, progress=False).facts
    monkeypatch.setattr("posteria.curvature.decrement.MOST_WORK", 12 * 20 * len(X) * adapted.num_frozen - 1)
    facts = po.fit(model, (X, Y), method, progress=False).facts
    assert "decrement" not in facts
    assert any("not measured" in note for note in facts["notes"])


def test_copies_of_large_frozen_weights_are_told_of(monkeypatch):
    assert po.adapters(MLP, weights=WEIGHTS).note == ""
    monkeypatch.setattr("posteria.trace.adapters.LARGE", tree.num_bytes(WEIGHTS) - 1)
    assert "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS=1" in po.adapters(MLP, weights=WEIGHTS).note


def test_an_adapter_of_whole_numbers_is_not_rounded():
    network = po.Network(lambda key, x: {"w": jax.random.normal(key, (3, 2))}, lambda params, x: x @ params["w"])
    weights = network.init(jax.random.key(0), np.zeros((1, 3), np.float32))
    adapted = po.adapters(network, rank=2, weights=weights)
    x = np.arange(12).reshape(4, 3)
    own = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.3), adapted.init(jax.random.key(0), x[:1]))
    whole, others = (adapted.apply(own, jnp.asarray(rows)) for rows in (x, x.astype(np.float32)))
    np.testing.assert_allclose(whole, others, rtol=1e-6)
    assert np.abs(whole - x @ weights["w"]).max() > 0.1
