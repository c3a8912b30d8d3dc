import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from posteria import nn, tree
from posteria.errors import NetworkError, SettingError
from posteria.networks import check_is_function_of_one_datum
from posteria.nn.dense import unit_swish

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(2, 13)).astype(np.float32)
MNIST = RNG.normal(size=(2, 28, 28, 1)).astype(np.float32)
CIFAR = RNG.normal(size=(2, 32, 32, 3)).astype(np.float32)
TOKENS = RNG.integers(0, 30, size=(2, 27))
SMALL_TEXT = {"vocabulary": 30, "embedding": 6, "filters": 5, "cells": 4}

# each small enough to differentiate in a test
READY = {
    "mlp": (nn.mlp((5, 4), outputs=2), TABLE),
    "linear": (nn.mlp((), outputs=2), TABLE),
    "mlp with skip": (nn.mlp((5, 4), outputs=2, skip=7), TABLE),
    "mlp on images": (nn.mlp((5,), outputs=2, activation="tanh"), MNIST),
    "lenet-300-100": (nn.lenet_300_100(outputs=2), MNIST),
    "lenet5": (nn.lenet5(outputs=2), MNIST[:, :16, :16]),
    "resnet20-frn": (nn.resnet20_frn(outputs=2, width=2), CIFAR[:, :8, :8]),
    "cnn-lstm": (nn.cnn_lstm(**SMALL_TEXT), TOKENS),
    "cnn-lstm, masked": (
        nn.cnn_lstm(**SMALL_TEXT),
        {"tokens": TOKENS, "mask": np.arange(27) < np.array([[9], [20]])},
    ),
}


def one_datum(x):
    return jax.tree.map(lambda leaf: leaf[:1], x)


def num_parameters(net, x):
    return tree.size(jax.eval_shape(lambda key: net.init(key, one_datum(x)), KEY))


def test_parameter_counts_are_the_literatures():
    assert num_parameters(nn.mlp((50,), outputs=1), TABLE) == 13 * 50 + 50 + 50 + 1
    assert num_parameters(nn.lenet_300_100(), MNIST) == 266_610
    assert num_parameters(nn.lenet5(), MNIST) == 431_080

    # by hand: window**2 * in * out + out a convolution, and gamma, beta, tau a channel
    def conv(window, inputs, outputs):
        return window**2 * inputs * outputs + outputs + 3 * outputs

    stages = conv(3, 3, 16) + 6 * conv(3, 16, 16)
    stages += conv(3, 16, 32) + 5 * conv(3, 32, 32) + conv(1, 16, 32)
    stages += conv(3, 32, 64) + 5 * conv(3, 64, 64) + conv(1, 32, 64)
    assert num_parameters(nn.resnet20_frn(), CIFAR) == stages + 64 * 10 + 10 == 274_042
    by_hand = 20_000 * 128 + (5 * 128 * 64 + 64) + (64 * 512 + 128 * 512 + 512) + (128 * 2 + 2)
    assert num_parameters(nn.cnn_lstm(), TOKENS) == by_hand == 2_700_098


def in_general_position(net, x, num_draws=None):
    """Parameters of the right shapes, none of them special: no bias is zero, no scale is one."""
    rng = np.random.default_rng(1)
    lead = () if num_draws is None else (num_draws,)

    def leaf(struct):
        is_kernel = len(struct.shape) > 1
        scale = np.sqrt(2 / np.prod(struct.shape[:-1])) if is_kernel else 0.3
        return ((not is_kernel) + scale * rng.normal(size=lead + struct.shape)).astype(np.float32)

    return jax.tree.map(leaf, jax.eval_shape(lambda key: net.init(key, one_datum(x)), KEY))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "resnet20-frn" else []) for name in READY]
)
def test_a_ready_network_is_a_smooth_function_of_one_datum_under_every_transformation(name):
    net, x = READY[name]
    draws = in_general_position(net, x, num_draws=2)
    params = tree.index(draws, 0)

    @jax.jit
    @jax.value_and_grad
    def differentiated(draws):
        many = jax.vmap(net.apply, in_axes=(0, None))(draws, x)
        return (many**2).sum()

    value, gradient = differentiated(draws)
    one_by_one = [jax.jit(net.apply)(tree.index(draws, i), x) for i in range(2)]
    assert one_by_one[0].shape == (2, 2)
    assert one_by_one[0].dtype == jnp.float32
    np.testing.assert_allclose(value, sum((outputs**2).sum() for outputs in one_by_one), rtol=1e-4)
    assert all(np.isfinite(leaf).all() and (leaf != 0).any() for leaf in jax.tree.leaves(gradient))
    check_is_function_of_one_datum(net, params, x)


@pytest.mark.parametrize("name", ["mlp", "lenet5", pytest.param("resnet20-frn", marks=pytest.mark.slow), "cnn-lstm"])
def test_fresh_weights_differ_by_key_and_give_outputs_of_moderate_size(name):
    net, x = READY[name]
    keys = jax.random.split(KEY, 2)
    draws = tree.stack([net.init(key, one_datum(x)) for key in keys])
    batched = jax.eval_shape(jax.vmap(lambda key: net.init(key, one_datum(x))), keys)
    assert tree.signature(batched) == tree.signature(draws)
    for path, leaf in zip(tree.paths(draws), jax.tree.leaves(draws)):
        is_constant = path.endswith(("bias", "beta", "gamma", "tau"))
        assert (leaf[0] == leaf[1]).all() == is_constant
    outputs = jax.jit(net.apply)(tree.index(draws, 0), x)
    assert 1e-3 < np.abs(outputs).max() < 30.0


@pytest.mark.parametrize("name", READY)
def test_a_spec_rebuilds_the_same_network(name):
    net, _ = READY[name]
    assert nn.build(json.loads(json.dumps(net.spec))) is net  # so that compiled code is shared


def test_specs_know_the_defaults():
    for constructor in (nn.mlp, nn.lenet_300_100, nn.lenet5, nn.resnet20_frn, nn.cnn_lstm):
        assert nn.build({"name": constructor.__name__}) is constructor()
    assert nn.mlp([5]) is nn.mlp((5,))
    assert nn.mlp((5,), activation=jnp.sin).spec is None


def test_command_line_spellings():
    assert nn.parse("mlp:50,20", outputs=3) is nn.mlp((50, 20), outputs=3)
    assert nn.parse("mlp", outputs=3) is nn.mlp(outputs=3)
    assert nn.parse("mlp:", outputs=3) is nn.mlp((), outputs=3)
    assert nn.parse("resnet20-frn:4", outputs=3) is nn.resnet20_frn(3, width=4)
    for text, constructor in {
        "lenet-300-100": nn.lenet_300_100,
        "lenet5": nn.lenet5,
        "resnet20-frn": nn.resnet20_frn,
        "cnn-lstm": nn.cnn_lstm,
    }.items():
        assert nn.parse(text, outputs=7) is constructor(outputs=7)


def test_a_linear_model_is_linear():
    net = nn.mlp((), outputs=2)
    params = net.init(KEY, TABLE[:1])
    layer = params["layers"]["0"]
    np.testing.assert_allclose(net.apply(params, TABLE), TABLE @ layer["kernel"] + layer["bias"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "function", "gain"),
    [
        ("relu", jax.nn.relu, 2.0),
        ("tanh", jnp.tanh, 1.0),
        ("swish", jax.nn.swish, 2.0),
        ("sin", jnp.sin, 1.0),
        ("unit_swish", lambda x: 1.6765 * jax.nn.swish(x), 1.0),
        (jnp.sin, jnp.sin, 1.0),
    ],
)
def test_an_mlp_is_its_formula(activation, function, gain):
    net = nn.mlp((400,), outputs=1, activation=activation)
    params = net.init(KEY, TABLE[:1])
    first, last = params["layers"]["0"], params["layers"]["1"]
    expected = function(TABLE @ first["kernel"] + first["bias"]) @ last["kernel"] + last["bias"]
    np.testing.assert_allclose(net.apply(params, TABLE), expected, rtol=1e-5, atol=1e-5)
    assert (first["bias"] == 0).all()
    size = first["kernel"].size
    # a sample variance of `size` numbers is off by less than 4 sqrt(2 / size) of itself
    assert abs(first["kernel"].var() * 13 / gain - 1) < 4 * np.sqrt(2 / size)


def test_an_mlp_with_skip_is_the_sum_of_its_parts():
    net = nn.mlp((5,), outputs=2, skip=7)
    layers, linear = nn.apart(net)
    assert layers is nn.mlp((5,), outputs=2) and linear is nn.mlp((), outputs=2, inputs=7)
    assert nn.apart(layers) is None and nn.build(net.spec) is net
    params = net.init(KEY, TABLE[:1])
    expected = layers.apply({"layers": params["layers"]}, TABLE) + TABLE[:, :7] @ params["skip"]
    np.testing.assert_allclose(net.apply(params, TABLE), expected, rtol=1e-5, atol=1e-5)
    assert abs(params["skip"].var() * 7 - 1) < 4 * np.sqrt(2 / 14)
    with pytest.raises(NetworkError, match="at most the 13 features"):
        nn.mlp((5,), skip=14).init(KEY, TABLE[:1])


def test_unit_swish_keeps_the_scale_of_a_standard_normal():
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    after = unit_swish(jnp.asarray(nodes, jnp.float32))
    np.testing.assert_allclose(np.sum(weights * after**2) / weights.sum(), 1.0, rtol=1e-4)


def test_inputs_given_need_no_datum_and_are_checked():
    net = nn.mlp((5,), inputs=13)
    params = net.init(KEY, None)
    assert net.apply(params, TABLE).shape == (2, 1)
    with pytest.raises(NetworkError, match="12 features"):
        net.apply(params, TABLE[:, :12])
    with pytest.raises(NetworkError, match="no x"):
        nn.mlp((5,)).init(KEY, None)


# ---- against other implementations


def xla_convolution(x, layer, stride=1, padding="SAME"):
    out = lax.conv_general_dilated(
        x, layer["kernel"], (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out + layer["bias"]


def assert_same_function(net, expected, x):
    params = in_general_position(net, x)
    outputs, wanted = jax.jit(net.apply)(params, x), jax.jit(expected)(params, x)
    assert np.std(wanted) > 1e-3
    np.testing.assert_allclose(outputs, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def test_lenet5_is_its_description():
    def expected(p, x):
        for layer in (p["first"], p["second"]):
            x = xla_convolution(x, layer, padding="VALID")
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(x.reshape(2, -1) @ p["hidden"]["kernel"] + p["hidden"]["bias"])
        return x @ p["last"]["kernel"] + p["last"]["bias"]

    assert_same_function(nn.lenet5(), expected, MNIST)
    params = in_general_position(nn.lenet5(), MNIST)
    one_channel = jax.jit(nn.lenet5().apply)(params, MNIST[..., 0])
    np.testing.assert_allclose(one_channel, jax.jit(nn.lenet5().apply)(params, MNIST), rtol=1e-5)


def test_resnet20_frn_is_its_description():
    def layer(x, part, stride=1):
        x = xla_convolution(x, part["convolution"], stride)
        norm = part["norm"]
        y = norm["gamma"] * x / jnp.sqrt((x**2).mean((1, 2), keepdims=True) + 1e-6) + norm["beta"]
        return jnp.maximum(y, norm["tau"])

    def expected(p, x):
        x = jax.nn.swish(layer(x, p["stem"]))
        for i in range(9):
            block = p["blocks"][str(i)]
            stride = 2 if i in (3, 6) else 1
            y = layer(jax.nn.swish(layer(x, block["first"], stride)), block["second"])
            shortcut = layer(x, block["shortcut"], stride) if i in (3, 6) else x
            assert ("shortcut" in block) == (i in (3, 6))
            x = jax.nn.swish(shortcut + y)
        assert x.shape == (2, 2, 2, 8)
        return x.mean((1, 2)) @ p["last"]["kernel"] + p["last"]["bias"]

    net, images = READY["resnet20-frn"]
    assert_same_function(net, expected, images)


def test_cnn_lstm_is_flaxs_layers_in_a_row():
    def expected(p, tokens):
        x = p["embedding"][tokens]
        x = lax.conv_general_dilated(x, p["kernel"], (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC")) + p["bias"]
        x = nnx.max_pool(jax.nn.relu(x), (4,), (4,))
        assert x.shape == (2, 5, 5)  # 27 tokens, 23 windows, 5 steps; 5 filters
        cell = nnx.OptimizedLSTMCell(5, 4, rngs=nnx.Rngs(0))
        # Flax's gates stand in the order i, f, g, o; ours, Haiku's, in i, g, f, o with 1 added to the forget gate
        i, g, f, o = np.split(np.arange(16), 4)
        order = np.concatenate([i, f, g, o])
        cell.dense_i.kernel[...] = p["lstm"]["kernel"][:, order]
        cell.dense_h.kernel[...] = p["lstm"]["recurrent_kernel"][:, order]
        cell.dense_h.bias[...] = p["lstm"]["bias"].at[f].add(1.0)[order]
        carry = (jnp.zeros((2, 4)), jnp.zeros((2, 4)))
        for step in range(5):
            carry, hidden = cell(carry, x[:, step])
        return hidden @ p["last"]["kernel"] + p["last"]["bias"]

    assert_same_function(nn.cnn_lstm(**SMALL_TEXT), expected, TOKENS)


# ---- masks


def test_a_mask_hides_what_it_covers_and_only_that():
    net = nn.cnn_lstm(**SMALL_TEXT)
    p = in_general_position(net, TOKENS)
    apply = jax.jit(net.apply)
    everything = np.ones(TOKENS.shape, bool)
    whole = apply(p, {"tokens": TOKENS, "mask": everything})
    np.testing.assert_allclose(whole, apply(p, TOKENS), rtol=1e-5, atol=1e-6)

    def padded(tokens, left, right):
        width = ((0, 0), (left, right))
        return apply(p, {"tokens": np.pad(tokens, width, constant_values=7), "mask": np.pad(everything, width)})

    np.testing.assert_allclose(padded(TOKENS, 0, 40), padded(TOKENS, 0, 16), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(padded(TOKENS, 40, 0), padded(TOKENS, 8, 0), rtol=1e-5, atol=1e-6)
    hidden = everything.copy()
    hidden[:, 20:] = False
    masked = apply(p, {"tokens": TOKENS, "mask": hidden})
    changed = TOKENS.copy()
    changed[:, 20:] = 3
    np.testing.assert_array_equal(apply(p, {"tokens": changed, "mask": hidden}), masked)
    changed[:, 19] = (changed[:, 19] + 1) % 30
    assert (apply(p, {"tokens": changed, "mask": hidden}) != masked).all()


def test_a_token_outside_the_vocabulary_is_not_taken_for_another():
    net = nn.cnn_lstm(**SMALL_TEXT)
    p = in_general_position(net, TOKENS)
    bad = TOKENS.copy()
    bad[1, 4] = 30
    assert np.isnan(jax.jit(net.apply)(p, bad)).any(axis=1).tolist() == [False, True]


# ---- bad input


@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.mlp((0,)),
        lambda: nn.mlp((5.0,)),
        lambda: nn.mlp(outputs=-1),
        lambda: nn.mlp(activation="sigmoidal"),
        lambda: nn.mlp((), skip=3),
        lambda: nn.mlp((5,), skip=-1),
        lambda: nn.resnet20_frn(width=0),
        lambda: nn.build({"name": "transformer", "settings": {}}),
        lambda: nn.build({"name": "mlp", "settings": {"layers": 3}}),
        lambda: nn.parse("mlp:50,,50", outputs=1),
        lambda: nn.parse("mlp:wide", outputs=1),
        lambda: nn.parse("lenet5:3", outputs=1),
        lambda: nn.parse("resnet20-frn:4,4", outputs=1),
        lambda: nn.parse("resnet20-frn:", outputs=1),
        lambda: nn.parse("lenet_300_100", outputs=1),
    ],
)
def test_bad_settings_are_refused(call):
    with pytest.raises(SettingError):
        call()


@pytest.mark.parametrize(
    ("net", "x"),
    [
        (nn.lenet5(), TABLE),
        (nn.lenet5(), MNIST[:, :8, :8]),
        (nn.lenet5(), None),
        (nn.resnet20_frn(), TABLE),
    ],
)
def test_data_of_the_wrong_shape_are_refused(net, x):
    with pytest.raises(NetworkError):
        net.init(KEY, x)


@pytest.mark.parametrize("tokens", [TOKENS.astype(np.float32), TOKENS[:, :7], TOKENS[0]])
def test_what_are_no_tokens_is_refused(tokens):
    net = nn.cnn_lstm(**SMALL_TEXT)
    params = in_general_position(net, TOKENS)
    with pytest.raises(NetworkError, match="integers of shape"):
        net.apply(params, tokens)
