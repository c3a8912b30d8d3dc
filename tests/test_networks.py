import json
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import posteria as po
from posteria import tree
from posteria.errors import NetworkError
from posteria.networks import Network, as_batch_of_one, check_is_function_of_one_datum, fingerprint, network, structure

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
KEY = jax.random.key(0)


# ---- one MLP (3, 5, 2) in every framework


class NNXNet(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(3, 5, rngs=rngs), nnx.Linear(5, 2, rngs=rngs)])

    def __call__(self, x):
        return self.layers[1](jnp.tanh(self.layers[0](x)))


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = jnp.tanh(linen.Dense(5)(x))
        return linen.Dense(2)(x)


def plain_init(key, x):
    keys = jax.random.split(key)
    return [
        (jax.random.normal(keys[0], (x.shape[1], 5)), jnp.zeros(5)),
        (jax.random.normal(keys[1], (5, 2)), jnp.zeros(2)),
    ]


def plain_apply(params, x):
    (a, b), (c, d) = params
    return jnp.tanh(x @ a + b) @ c + d


def nnx_builder(key):
    return NNXNet(nnx.Rngs(key))


def equinox_builder(key):
    return eqx.nn.MLP(3, 2, 5, 1, activation=jnp.tanh, key=key)


WEIGHTS = plain_init(KEY, X)
FRAMEWORKS = {
    "nnx": (nnx_builder, lambda a, b, c, d: {"layers": {"0": {"kernel": a, "bias": b}, "1": {"kernel": c, "bias": d}}}),
    "linen": (
        LinenNet(),
        lambda a, b, c, d: {"Dense_0": {"kernel": a, "bias": b}, "Dense_1": {"kernel": c, "bias": d}},
    ),
    "equinox": (
        equinox_builder,
        lambda a, b, c, d: {"layers": {"0": {"weight": a.T, "bias": b}, "1": {"weight": c.T, "bias": d}}},
    ),
    "pair": ((plain_init, plain_apply), lambda a, b, c, d: [(a, b), (c, d)]),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_same_network_in_every_framework_is_the_same_function(name):
    source, to_params = FRAMEWORKS[name]
    net = network(source)
    (a, b), (c, d) = WEIGHTS
    params = to_params(a, b + 0.3, c, d - 0.2)
    assert jax.tree.structure(net.init(KEY, X[:1])) == jax.tree.structure(params)

    def loss(apply, params):
        return (apply(params, X) ** 2).sum()

    expected = plain_apply([(a, b + 0.3), (c, d - 0.2)], X)
    np.testing.assert_allclose(jax.jit(net.apply)(params, X), expected, rtol=1e-5, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda p: loss(net.apply, p)))(params)
    (ga, gb), (gc, gd) = jax.grad(lambda p: loss(plain_apply, p))([(a, b + 0.3), (c, d - 0.2)])
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), gradient, to_params(ga, gb, gc, gd)
    )
    check_is_function_of_one_datum(net, params, X)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_init_is_a_pure_function_of_the_key(name):
    net = network(FRAMEWORKS[name][0])
    keys = jax.random.split(KEY, 3)
    batched = jax.jit(jax.vmap(lambda key: net.init(key, X[:1])))(keys)
    for i, key in enumerate(keys):
        one = net.init(key, X[:1])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), one, tree.index(batched, i))
    kernels = [leaf for leaf in jax.tree.leaves(batched) if leaf.ndim == 3]
    assert all((kernel[0] != kernel[1]).all() for kernel in kernels)
    assert not net.trained
    outputs = jax.vmap(net.apply, in_axes=(0, None))(batched, X)
    np.testing.assert_allclose(outputs[1], net.apply(tree.index(batched, 1), X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("build", "call"), [(nnx_builder, lambda m, x: m(x)), (equinox_builder, lambda m, x: jax.vmap(m)(x))]
)
def test_a_builder_keeps_its_own_initialiser(build, call):
    net = network(build)
    np.testing.assert_array_equal(net.apply(net.init(KEY, None), X), call(build(KEY), X))


def test_params_are_plain_nested_dicts_with_simple_paths():
    assert tree.paths(network(nnx_builder).init(KEY, None)) == [
        f"layers/{i}/{leaf}" for i in (0, 1) for leaf in ("bias", "kernel")
    ]
    assert tree.paths(network(equinox_builder).init(KEY, None)) == [
        f"layers/{i}/{leaf}" for i in (0, 1) for leaf in ("bias", "weight")
    ]
    assert type(network(nnx_builder).init(KEY, None)["layers"]) is dict


def test_a_network_passes_through():
    net = Network(plain_init, plain_apply)
    assert network(net) is net
    assert network((plain_init, plain_apply)) == net
    assert hash(Network(plain_init, plain_apply, {"name": "x"})) == hash(net)


# ---- state that is not a parameter


class Everything(nnx.Module):
    """Statistics, dropout's keys, an integer buffer and frozen constants, beside parameters."""

    def __init__(self, rngs):
        self.dense = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.order = nnx.Param(jnp.array([2, 0, 1, 3]))
        self.features = nnx.Variable(rngs.normal((4, 4)))

    def __call__(self, x):
        return self.dropout(self.norm(self.dense(x)))[:, self.order[...]] @ self.features[...]


def trained_everything():
    module = Everything(nnx.Rngs(1))
    for _ in range(3):
        module(X)  # moves the statistics and dropout's count
    return module


def snapshot(module):
    graph, state = nnx.split(module)
    return graph, jax.tree.map(
        lambda v: np.asarray(jax.random.key_data(v) if jnp.issubdtype(v.dtype, jax.dtypes.prng_key) else v), state
    )


def test_a_trained_nnx_module_is_used_in_evaluation_mode_and_left_alone():
    module = trained_everything()
    graph, state = snapshot(module)
    net = network(module)
    params = net.init(KEY, None)
    outputs = jax.jit(net.apply)(params, X)
    check_is_function_of_one_datum(net, params, X)
    graph_after, state_after = snapshot(module)
    assert graph == graph_after
    jax.tree.map(np.testing.assert_array_equal, state, state_after)
    assert net.trained
    assert tree.paths(params) == ["dense/bias", "dense/kernel", "norm/bias", "norm/scale"]
    module.eval()
    np.testing.assert_allclose(outputs, module(X), rtol=1e-5, atol=1e-6)


def test_training_on_does_not_move_a_network_taken_before():
    module = trained_everything()
    net = network(module)
    params = net.init(KEY, None)
    before = net.apply(params, X)
    module(10.0 * X)
    for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)):
        leaf.delete()  # what a donating training step does to the old buffers
    np.testing.assert_array_equal(net.apply(net.init(KEY, None), X), before)


def test_a_builder_freezes_its_state_the_same_way_every_time():
    build = lambda key: Everything(nnx.Rngs(key))  # noqa: E731
    params = network(build).init(jax.random.key(5), None)
    np.testing.assert_array_equal(network(build).apply(params, X), network(build).apply(params, X))


class LinenNorm(linen.Module):
    use_running_average: bool = True

    @linen.compact
    def __call__(self, x):
        x = linen.BatchNorm(use_running_average=self.use_running_average, momentum=0.5)(linen.Dense(8)(x))
        return linen.Dense(1, kernel_init=linen.initializers.zeros)(jnp.tanh(x))


def test_linen_state_is_frozen_also_when_first_seen_inside_a_trace():
    net = network(LinenNorm())
    params = net.init(KEY, X[:1])
    assert not any("mean" in path or "var" in path for path in tree.paths(params))
    traced = jax.jit(jax.vmap(net.apply, in_axes=(None, 0)))(params, X[:, None])
    variables = LinenNorm().init(KEY, X[:1])
    np.testing.assert_allclose(traced[:, 0], LinenNorm().apply(variables, X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net.apply(params, X), traced[:, 0], rtol=1e-5, atol=1e-6)
    check_is_function_of_one_datum(net, params, X)


def test_a_bound_linen_module_is_trained():
    variables = LinenNorm().init(KEY, X[:1])
    variables["params"]["Dense_1"]["kernel"] += 1.0
    _, updates = LinenNorm(False).apply(variables, X, mutable=["batch_stats"])
    variables = {**variables, **updates}
    net = network(LinenNorm().bind(variables))
    assert net.trained
    np.testing.assert_allclose(net.apply(net.init(KEY, None), X), LinenNorm().apply(variables, X), rtol=1e-5, atol=1e-6)


def test_a_trained_equinox_module_has_dropout_off_and_integers_frozen():
    class Net(eqx.Module):
        linear: eqx.nn.Linear
        dropout: eqx.nn.Dropout
        order: jax.Array

        def __call__(self, x):
            return self.dropout(self.linear(x))[self.order]

    module = Net(eqx.nn.Linear(3, 2, key=KEY), eqx.nn.Dropout(0.9), jnp.array([1, 0]))
    net = network(module)
    params = net.init(KEY, None)
    assert net.trained
    assert tree.paths(params) == ["linear/bias", "linear/weight"]
    np.testing.assert_allclose(net.apply(params, X), jax.vmap(module.linear)(X)[:, ::-1], rtol=1e-6)
    assert not module.dropout.inference


def test_shared_weights_are_one_parameter():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 3, rngs=rngs)
            self.second = self.first

        def __call__(self, x):
            return self.second(self.first(x))

    net = network(lambda key: Tied(nnx.Rngs(key)))
    params = net.init(KEY, None)
    assert tree.size(params) == 12
    np.testing.assert_array_equal(net.apply(params, X), Tied(nnx.Rngs(KEY))(X))


def test_x_may_be_a_tree():
    x = {"a": X, "b": np.ones((6, 2), np.int32)}
    net = Network(lambda key, x: jnp.ones((x["a"].shape[1], 1)), lambda w, x: x["a"] @ w + x["b"].sum(1, keepdims=True))
    assert jax.tree.map(np.shape, as_batch_of_one(x)) == {"a": (1, 3), "b": (1, 2)}
    check_is_function_of_one_datum(net, net.init(KEY, as_batch_of_one(x)), x)
    assert len(fingerprint(net, x)) == 8


# ---- a function of one datum


class NNXTrainingNorm(nnx.Module):
    def __init__(self, rngs):
        self.dense, self.norm = nnx.Linear(3, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.dense(x), use_running_average=False)


@pytest.mark.parametrize(
    "source",
    [
        LinenNorm(use_running_average=False),  # whose output layer starts at zero
        lambda key: NNXTrainingNorm(nnx.Rngs(key)),
        (lambda key, x: jnp.ones((3, 1)), lambda w, x: (x - x.mean(0)) @ w),
        (lambda key, x: jnp.ones((3, 1)), lambda w, x: x @ w / jnp.abs(x).max()),
        (lambda key, x: jnp.ones((3, 3)), lambda w, x: jax.nn.softmax(x @ w @ x.T) @ x),
    ],
    ids=["linen", "nnx", "centred", "scaled", "attention over data"],
)
def test_a_network_that_mixes_data_is_refused_with_the_way_out(source):
    net = network(source)
    with pytest.raises(NetworkError, match=r"rest of its batch.*frozen statistics.*filter response"):
        check_is_function_of_one_datum(net, net.init(KEY, X[:1]), X[:1])


def test_integer_data_that_mix_are_refused():
    net = Network(lambda key, x: jnp.ones((9, 1)), lambda w, x: w[x].sum(1) * x.sum())
    tokens = np.array([[3, 8, 1]])
    with pytest.raises(NetworkError, match="rest of its batch"):
        check_is_function_of_one_datum(net, net.init(KEY, tokens), tokens)


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda w, x: x[0] @ w, r"\(1,\).*keep the leading axis|for x of"),
        (lambda w, x: (x @ w).squeeze(), "keep the leading axis"),
        (lambda w, x: (x @ w)[:, :, None], "flatten the rest"),
        (lambda w, x: (x @ w, x), "one array"),
        (lambda w, x: (x @ w).astype(int), "floating-point outputs"),
        (lambda w, x: x @ w @ w, "raised TypeError"),
    ],
)
def test_outputs_that_are_no_outputs_are_refused(apply, message):
    net = Network(lambda key, x: jnp.ones((3, 1)), apply)
    with pytest.raises(NetworkError, match=message):
        check_is_function_of_one_datum(net, net.init(KEY, X[:1]), X)


def test_a_network_that_is_not_finite_at_the_probe_is_not_taken_for_one_that_mixes():
    net = Network(lambda key, x: jnp.zeros((3, 1)), lambda w, x: jnp.log(x @ w))
    check_is_function_of_one_datum(net, net.init(KEY, X[:1]), X)


# ---- bad input


def first_size_of_a_datum(key, x):
    (size,) = x.shape
    return jnp.ones((size, 1))


@pytest.mark.parametrize("init", [lambda key, x: jnp.ones((x.shape[0], 1)), first_size_of_a_datum])
def test_an_init_that_takes_x_for_one_datum_is_told_that_it_is_a_batch(init):
    with pytest.raises(NetworkError, match=r"also in init\(key, x\), where it is 1: take sizes from x\.shape\[1:\]"):
        po.Target(po.Model(Network(init, lambda w, x: x @ w)), (X, np.zeros(len(X))))
    net = Network(lambda key, x: jnp.ones((x.shape[-1], 1)), lambda w, x: x @ w)
    assert po.Target(po.Model(net), (X, np.zeros(len(X)))).structs["network"].shape == (3, 1)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (3, "object of type int"),
        (NNXNet, "NNXNet"),
        (lambda: None, "raised TypeError"),
        (lambda key: 3, "builder returned an object of type int"),
        (lambda key: LinenNet(), "pass a Linen module itself"),
        (lambda key: nnx.Dropout(0.5, rngs=nnx.Rngs(key)), "no floating-point parameters"),
        (
            lambda key: nnx.Linear(2, 2, param_dtype=jnp.complex64, rngs=nnx.Rngs(key)),
            "kernel is complex64|bias is complex64",
        ),
    ],
)
def test_what_is_no_network_is_refused(obj, message):
    with pytest.raises(NetworkError, match=message):
        network(obj)


# ---- identity


def with_activation(activation):
    return Network(plain_init, lambda p, x: activation(x @ p[0][0] + p[0][1]) @ p[1][0] + p[1][1])


def test_a_fingerprint_sees_structure_and_function_but_neither_data_nor_weights():
    base = fingerprint(with_activation(jnp.tanh), X)
    assert base == fingerprint(with_activation(jnp.tanh), 5.0 * X[:2])
    assert len(base) == 8
    for other in (jax.nn.relu, jax.nn.swish, jax.nn.gelu, lambda x: x):
        assert not np.allclose(base, fingerprint(with_activation(other), X), rtol=1e-2)
    module = NNXNet(nnx.Rngs(3))
    np.testing.assert_allclose(fingerprint(network(module), X), fingerprint(network(nnx_builder), X), rtol=1e-4)


def test_a_fingerprint_sees_frozen_state():
    module = trained_everything()
    before = fingerprint(network(module), X)
    module(X + 10.0)
    assert not np.allclose(before, fingerprint(network(module), X), rtol=1e-2)


def test_structure_is_json():
    stored = structure(network(nnx_builder).init(KEY, None))
    assert json.loads(json.dumps(stored)) == stored
    assert stored[1] == ["layers/0/kernel", [3, 5], "float32"]


def test_another_process_sees_the_same_fingerprint_and_imports_no_framework():
    code = """
import sys, numpy, jax
import posteria.networks, posteria.nn
assert not {"flax", "equinox", "optax"} & set(sys.modules), "imported too early"
print(posteria.networks.fingerprint(posteria.nn.mlp((4, 4), activation="swish"), numpy.zeros((2, 3), "float32")))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    from posteria import nn

    np.testing.assert_allclose(json.loads(printed), fingerprint(nn.mlp((4, 4), activation="swish"), X), rtol=1e-3)
