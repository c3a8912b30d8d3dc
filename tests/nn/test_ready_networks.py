import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from posteria import nn, tree
from posteria.errors import NetworkError, SettingError
from posteria.network import check_is_function_of_one_datum

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(3, 13)).astype(np.float32)
MNIST = RNG.normal(size=(2, 28, 28, 1)).astype(np.float32)
CIFAR = RNG.normal(size=(2, 32, 32, 3)).astype(np.float32)
TOKENS = RNG.integers(0, 30, size=(3, 27))
SMALL_TEXT = {"vocabulary": 30, "embedding": 6, "filters": 5, "cells": 4}

# each small enough to differentiate in a test
READY = {
    "mlp": (nn.mlp((5, 4), outputs=2), TABLE),
    "linear": (nn.mlp((), outputs=2), TABLE),
    "mlp on images": (nn.mlp((5,), outputs=2, activation="tanh"), MNIST),
    "lenet-300-100": (nn.lenet_300_100(outputs=2), MNIST),
    "lenet5": (nn.lenet5(outputs=2), MNIST[:, :16, :16]),
    "resnet20-frn": (nn.resnet20_frn(outputs=2, width=2), CIFAR[:, :8, :8]),
    "cnn-lstm": (nn.cnn_lstm(**SMALL_TEXT), TOKENS),
    "cnn-lstm, masked": (
        nn.cnn_lstm(**SMALL_TEXT),
        {"tokens": TOKENS, "mask": np.arange(27) < np.array([[9], [20], [27]])},
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


@pytest.mark.parametrize("name", READY)
def test_a_ready_network_is_a_smooth_function_of_one_datum_under_every_transformation(name):
    net, x = READY[name]
    keys = jax.random.split(KEY, 2)
    draws = jax.jit(jax.vmap(lambda key: net.init(key, one_datum(x))))(keys)
    params = tree.index(draws, 0)
    outputs = jax.jit(net.apply)(params, x)
    assert outputs.shape == (tree.length(x), 2)
    assert outputs.dtype == jnp.float32
    many = jax.jit(jax.vmap(net.apply, in_axes=(0, None)))(draws, x)
    np.testing.assert_allclose(many[0], outputs, rtol=1e-4, atol=1e-5)
    assert (np.abs(many[1] - many[0]) > 1e-3).any()
    gradient = jax.jit(jax.grad(lambda p: (net.apply(p, x) ** 2).sum()))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(gradient))
    check_is_function_of_one_datum(net, params, x)


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
    [("relu", jax.nn.relu, 2.0), ("tanh", jnp.tanh, 1.0), ("swish", jax.nn.swish, 2.0), (jnp.sin, jnp.sin, 1.0)],
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


def test_inputs_given_need_no_datum_and_are_checked():
    net = nn.mlp((5,), inputs=13)
    params = net.init(KEY, None)
    assert net.apply(params, TABLE).shape == (3, 1)
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


def moved(params):
    """Parameters in general position: no bias is zero, no scale is one."""
    leaves, treedef = jax.tree.flatten(params)
    return treedef.unflatten(
        leaf + 0.1 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, jax.random.split(KEY, len(leaves)))
    )


def test_lenet5_is_its_description():
    net = nn.lenet5()
    p = moved(net.init(KEY, MNIST[:1]))
    x = MNIST
    for layer in (p["first"], p["second"]):
        x = xla_convolution(x, layer, padding="VALID")
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(2, -1) @ p["hidden"]["kernel"] + p["hidden"]["bias"])
    expected = x @ p["last"]["kernel"] + p["last"]["bias"]
    np.testing.assert_allclose(net.apply(p, MNIST), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_array_equal(net.apply(p, MNIST[..., 0]), net.apply(p, MNIST))


def test_resnet20_frn_is_its_description():
    net, images = nn.resnet20_frn(width=2), CIFAR[:, :8, :8]
    p = moved(net.init(KEY, images[:1]))

    def layer(x, part, stride=1):
        x = xla_convolution(x, part["convolution"], stride)
        norm = part["norm"]
        y = norm["gamma"] * x / jnp.sqrt((x**2).mean((1, 2), keepdims=True) + 1e-6) + norm["beta"]
        return jnp.maximum(y, norm["tau"])

    x = jax.nn.swish(layer(images, p["stem"]))
    for i in range(9):
        block = p["blocks"][str(i)]
        stride = 2 if i in (3, 6) else 1
        y = layer(jax.nn.swish(layer(x, block["first"], stride)), block["second"])
        shortcut = layer(x, block["shortcut"], stride) if i in (3, 6) else x
        assert ("shortcut" in block) == (i in (3, 6))
        x = jax.nn.swish(shortcut + y)
    assert x.shape == (2, 2, 2, 8)
    expected = x.mean((1, 2)) @ p["last"]["kernel"] + p["last"]["bias"]
    np.testing.assert_allclose(net.apply(p, images), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_cnn_lstm_is_flaxs_layers_in_a_row():
    net = nn.cnn_lstm(**SMALL_TEXT)
    p = moved(net.init(KEY, TOKENS[:1]))
    x = p["embedding"][TOKENS]
    x = lax.conv_general_dilated(x, p["kernel"], (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC")) + p["bias"]
    x = nnx.max_pool(jax.nn.relu(x), (4,), (4,))
    assert x.shape == (3, 5, 5)  # 27 tokens, 23 windows, 5 steps; 5 filters
    cell = nnx.OptimizedLSTMCell(5, 4, rngs=nnx.Rngs(0))
    # Flax's gates stand in the order i, f, g, o; ours, Haiku's, in i, g, f, o with 1 added to the forget gate
    i, g, f, o = np.split(np.arange(16), 4)
    order = np.concatenate([i, f, g, o])
    cell.dense_i.kernel[...] = p["lstm"]["kernel"][:, order]
    cell.dense_h.kernel[...] = p["lstm"]["recurrent_kernel"][:, order]
    cell.dense_h.bias[...] = p["lstm"]["bias"].at[f].add(1.0)[order]
    carry = (jnp.zeros((3, 4)), jnp.zeros((3, 4)))
    for step in range(5):
        carry, hidden = cell(carry, x[:, step])
    expected = hidden @ p["last"]["kernel"] + p["last"]["bias"]
    np.testing.assert_allclose(net.apply(p, TOKENS), expected, rtol=1e-4, atol=1e-5)


# ---- masks


def test_a_mask_hides_what_it_covers_and_only_that():
    net = nn.cnn_lstm(**SMALL_TEXT)
    p = moved(net.init(KEY, TOKENS[:1]))
    everything = np.ones(TOKENS.shape, bool)
    np.testing.assert_array_equal(net.apply(p, {"tokens": TOKENS, "mask": everything}), net.apply(p, TOKENS))

    def padded(tokens, left, right):
        width = ((0, 0), (left, right))
        return net.apply(p, {"tokens": np.pad(tokens, width, constant_values=7), "mask": np.pad(everything, width)})

    np.testing.assert_allclose(padded(TOKENS, 0, 40), padded(TOKENS, 0, 16), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(padded(TOKENS, 40, 0), padded(TOKENS, 8, 0), rtol=1e-5, atol=1e-6)
    hidden = everything.copy()
    hidden[:, 20:] = False
    masked = net.apply(p, {"tokens": TOKENS, "mask": hidden})
    changed = TOKENS.copy()
    changed[:, 20:] = 3
    np.testing.assert_array_equal(net.apply(p, {"tokens": changed, "mask": hidden}), masked)
    changed[:, 19] = (changed[:, 19] + 1) % 30
    assert (net.apply(p, {"tokens": changed, "mask": hidden}) != masked).all()


def test_a_token_outside_the_vocabulary_is_not_taken_for_another():
    net = nn.cnn_lstm(**SMALL_TEXT)
    p = net.init(KEY, TOKENS[:1])
    bad = TOKENS.copy()
    bad[1, 4] = 30
    assert np.isnan(net.apply(p, bad)).any(axis=1).tolist() == [False, True, False]


# ---- bad input


@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.mlp((0,)),
        lambda: nn.mlp((5.0,)),
        lambda: nn.mlp(outputs=-1),
        lambda: nn.mlp(activation="sigmoidal"),
        lambda: nn.resnet20_frn(width=0),
        lambda: nn.build({"name": "transformer", "settings": {}}),
        lambda: nn.build({"name": "mlp", "settings": {"layers": 3}}),
        lambda: nn.parse("mlp:50,,50", outputs=1),
        lambda: nn.parse("mlp:wide", outputs=1),
        lambda: nn.parse("lenet5:3", outputs=1),
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
    params = net.init(KEY, tokens[:1])
    with pytest.raises(NetworkError, match="integers of shape"):
        net.apply(params, tokens)
