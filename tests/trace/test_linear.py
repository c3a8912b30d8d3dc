"""What the walk finds in networks of every framework, that running through it changes nothing, and three rules."""

from functools import cache

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from posteria import tree
from posteria.nn.convolution import convolution
from posteria.trace.linear import Use, fast_on_cpu, find, interpret

eqx = pytest.importorskip("equinox")


def identity(operation, extra):
    return operation.op(operation.x, operation.weight), None


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def from_nnx(module):
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    return (lambda params, x: nnx.merge(graph, params, rest, copy=True)(x)), nnx.to_pure_dict(params)


def from_equinox(module):
    params, static = eqx.partition(module, eqx.is_inexact_array)
    return (lambda params, x: jax.vmap(eqx.combine(params, static))(x)), params


class Vision(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), strides=2, rngs=rngs)
        self.grouped = nnx.Conv(4, 4, (2, 2), feature_group_count=2, rngs=rngs)
        self.dense = nnx.Linear(4 * 9, 2, rngs=rngs)

    def __call__(self, x):
        h = nnx.relu(self.grouped(nnx.relu(self.conv(x))))
        return self.dense(h.reshape(len(h), -1))


class Language(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(7, 4, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.recurrent = nnx.RNN(nnx.LSTMCell(4, 3, rngs=rngs))
        self.out = nnx.Linear(3, 4, rngs=rngs)

    def __call__(self, tokens):
        h = self.embed(tokens)
        h = self.norm(h + self.attention(h))
        h = self.out(self.recurrent(h)[:, -1])
        return self.embed.attend(h)


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = linen.relu(linen.Conv(4, (3,))(x))
        return linen.Dense(2)(h.reshape(len(h), -1))


class Equinox(eqx.Module):
    conv: eqx.nn.Conv2d
    dense: eqx.nn.Linear

    def __init__(self, key):
        self.conv = eqx.nn.Conv2d(3, 4, 3, key=key)
        self.dense = eqx.nn.Linear(4, 2, key=key)

    def __call__(self, x):
        return self.dense(jax.nn.relu(self.conv(x)).mean((1, 2)))


def plain_network(params, x):
    inner = jax.checkpoint(jax.jit(lambda w, h: jnp.tanh(h @ w.T.astype(jnp.float32))))
    h = inner(params["first"], x)
    h = jnp.einsum("ni,gio->ngo", h, params["heads"].reshape(4, 2, 3).transpose(1, 0, 2))
    return h.reshape(len(x), -1) + params["bias"]


def linen_network(x):
    module = Linen()
    return (lambda params, x: module.apply({"params": params}, x)), module.init(jax.random.key(0), x)["params"]


NETWORKS = {
    "nnx vision": cache(lambda: (*from_nnx(Vision(nnx.Rngs(0))), draw(3, 6, 6, 3))),
    "nnx language": cache(lambda: (*from_nnx(Language(nnx.Rngs(0))), jnp.arange(15).reshape(3, 5) % 7)),
    "linen": cache(lambda: (*linen_network(draw(3, 5, 2)), draw(3, 5, 2))),
    "equinox": cache(lambda: (*from_equinox(Equinox(jax.random.key(0))), draw(3, 3, 5, 5))),
    "plain": lambda: (
        plain_network,
        {"first": draw(4, 5), "heads": draw(8, 3, seed=1), "bias": draw(6, seed=2)},
        draw(3, 5, seed=3),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_identity_rule_changes_nothing(name):
    apply, params, x = NETWORKS[name]()

    @jax.jit
    def values_and_gradients(params, x):
        outputs, pull = jax.vjp(lambda params: interpret(apply, identity)(params, x)[0], params)
        expected, expected_pull = jax.vjp(lambda params: apply(params, x), params)
        return (outputs, pull(expected)[0]), (expected, expected_pull(expected)[0])

    (outputs, gradient), (expected, expected_gradient) = values_and_gradients(params, x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * max(1.0, float(jnp.abs(b).max())))


def test_without_convolutions_the_outputs_are_equal_to_the_last_bit():
    apply, params, x = NETWORKS["plain"]()
    np.testing.assert_array_equal(jax.jit(interpret(apply, identity))(params, x)[0], jax.jit(apply)(params, x))


def test_draws_of_the_parameters_may_be_mapped_over():
    apply, params, x = NETWORKS["nnx vision"]()
    draws = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    outputs = jax.jit(jax.vmap(lambda p: interpret(apply, identity)(p, x)[0]))(draws)
    np.testing.assert_allclose(outputs[1], jax.jit(apply)(tree.index(draws, 1), x), rtol=1e-5, atol=1e-5)


def test_what_is_found_in_an_nnx_convolutional_network():
    leaves = find(*NETWORKS["nnx vision"]())
    assert leaves["conv/kernel"].uses == (Use("conv_general_dilated", (0, 1, 2), fan_in=27, positions=9),)
    assert leaves["grouped/kernel"].uses == (Use("conv_general_dilated", (0, 1, 2), fan_in=8, positions=9),)
    assert leaves["dense/kernel"].uses == (Use("dot_general", (0,), fan_in=36, positions=1),)
    assert {path for path, leaf in leaves.items() if leaf.found} == {"conv/kernel", "grouped/kernel", "dense/kernel"}
    assert leaves["conv/bias"].reason == leaves["dense/bias"].reason == "used by add"


def test_what_is_found_in_an_nnx_language_network():
    leaves = find(*NETWORKS["nnx language"]())
    found = {path for path, leaf in leaves.items() if leaf.found}
    assert found == {"out/kernel", *(f"attention/{name}/kernel" for name in ("query", "key", "value", "out"))}
    assert leaves["attention/query/kernel"].uses == (Use("dot_general", (0,), fan_in=4, positions=5),)
    assert leaves["attention/out/kernel"].uses == (Use("dot_general", (0, 1), fan_in=4, positions=5),)
    assert leaves["embed/embedding"].reason == "used by gather"  # tied: its other use is a linear one
    assert leaves["norm/scale"].reason == "used by mul"
    assert leaves["recurrent/cell/hi/kernel"].reason == "inside scan"
    assert leaves["recurrent/cell/hi/kernel"].uses == (Use("dot_general", (0,), fan_in=3, positions=5),)


def test_what_is_found_in_a_linen_network():
    leaves = find(*NETWORKS["linen"]())
    assert leaves["Conv_0/kernel"].uses == (Use("conv_general_dilated", (0, 1), fan_in=6, positions=5),)
    assert leaves["Dense_0/kernel"].uses == (Use("dot_general", (0,), fan_in=20, positions=1),)
    assert {path for path, leaf in leaves.items() if leaf.found} == {"Conv_0/kernel", "Dense_0/kernel"}


def test_what_is_found_in_an_equinox_network_whose_weights_are_out_by_in():
    leaves = find(*NETWORKS["equinox"]())
    assert leaves["conv/weight"].uses == (Use("conv_general_dilated", (1, 2, 3), fan_in=27, positions=9),)
    assert leaves["dense/weight"].uses == (Use("dot_general", (1,), fan_in=4, positions=1),)
    assert {path for path, leaf in leaves.items() if leaf.found} == {"conv/weight", "dense/weight"}


def test_a_leaf_is_found_through_jit_remat_transpose_reshape_and_a_change_of_type():
    leaves = find(*NETWORKS["plain"]())
    assert leaves["first"].uses == (Use("dot_general", (1,), fan_in=5, positions=1),)
    assert leaves["heads"].reason == "reshaped across the dims that are summed over"
    assert leaves["bias"].reason == "used by add"


ELSEWHERE = {
    "multiplied by another parameter": lambda p, x: x @ (p["w"] @ p["w"]),
    "used by mul": lambda p, x: x @ (2.0 * p["w"]),
    "used by sub": lambda p, x: x @ p["w"] + (p["w"] - 1.0).sum(),
    "inside scan": lambda p, x: lax.scan(lambda h, _: (h @ p["w"], None), x, None, length=2)[0],
    "inside while": lambda p, x: lax.while_loop(lambda h: h.sum() < 0, lambda h: h @ p["w"], x),
    "inside cond": lambda p, x: lax.cond(x.sum() < 0, lambda h: h @ p["w"], lambda h: h, x),
    "inside custom_jvp_call": lambda p, x: x @ jax.nn.relu(p["w"]),
    "returned as an output": lambda p, x: (x @ p["w"], p["w"][None]),
    "not used": lambda p, x: x,
}


@pytest.mark.parametrize("reason", ELSEWHERE)
def test_a_leaf_with_any_other_use_is_not_found_and_the_reason_is_given(reason):
    assert find(ELSEWHERE[reason], {"w": draw(3, 3)}, draw(2, 3))["w"].reason == reason


def test_tied_uses_are_counted():
    leaf = find(lambda p, x: jnp.tanh(x @ p["w"]) @ p["w"].T, {"w": draw(3, 2)}, draw(4, 3))["w"]
    assert leaf.found and leaf.positions == 2
    assert [use.contracted for use in leaf.uses] == [(0,), (1,)]


def test_a_batch_may_be_a_tree():
    def apply(params, x):
        return (jnp.where(x["mask"][..., None], x["tokens"], 0.0) @ params["w"]).sum(1)

    x = {"tokens": draw(3, 5, 2), "mask": jnp.arange(15).reshape(3, 5) % 2 == 0}
    params = {"w": draw(2, 4)}
    assert find(apply, params, x)["w"].positions == 5
    np.testing.assert_allclose(interpret(apply, identity)(params, x)[0], apply(params, x), rtol=1e-6, atol=1e-6)


def test_posterias_own_convolution_is_seen_as_one_and_not_as_its_slices():
    apply = fast_on_cpu(lambda params, x: convolution(x, params["kernel"]).sum((1, 2)))
    params, x = {"kernel": draw(3, 3, 2, 4)}, draw(3, 5, 5, 2)
    assert find(apply, params, x)["kernel"].uses == (Use("conv_general_dilated", (0, 1, 2), fan_in=18, positions=25),)
    outputs, expected = jax.jit(interpret(apply, identity))(params, x)[0], jax.jit(apply)(params, x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


def test_local_reparameterisation_has_the_moments_of_random_weights():
    """y = x W with W ~ N(mean, std^2) is N(x mean, x^2 std^2), independent over data and outputs. Kingma 2015."""
    mean, std = draw(2, 3), jnp.abs(draw(2, 3, seed=1))  # (out, in): the operand is a transpose of the leaf
    x, num_draws = draw(4, 3, seed=2), 4000

    def rule(operation, key):
        y = operation.op(operation.x, operation.weight)
        variance = operation.op(operation.x**2, operation.as_operand(std) ** 2)
        return y + jnp.sqrt(variance) * jax.random.normal(key, y.shape), None

    @jax.jit
    def draws(key):
        keys = jax.random.split(key, (num_draws, len(x)))
        return jax.vmap(lambda k: interpret(lambda p, x: x @ p["w"].T, rule)({"w": mean}, x, k)[0])(keys)

    y = np.asarray(draws(jax.random.key(3)), np.float64).reshape(num_draws, -1)
    expected_mean, expected_variance = (x @ mean.T).ravel(), (x**2 @ (std**2).T).ravel()
    z = (y - expected_mean) / np.sqrt(expected_variance)
    dims = z.shape[1]
    # chi-square statistics of 8 means and of 36 second moments, against their own mean + 4 standard deviations
    assert num_draws * (z.mean(0) ** 2).sum() < dims + 4 * np.sqrt(2 * dims)
    second = z.T @ z / num_draws - np.eye(dims)
    pairs = dims * (dims + 1) / 2
    statistic = num_draws * (np.triu(second, 1) ** 2).sum() + num_draws * (np.diag(second) ** 2).sum() / 2
    assert statistic < pairs + 4 * np.sqrt(2 * pairs)


def test_recorded_inputs_and_output_gradients_give_each_datums_gradient():
    """As KFAC needs: the gradient of a weight is the outer product of its input and the gradient of its output."""
    params = {"first": draw(3, 4), "second": draw(4, 2, seed=1)}
    x = draw(5, 3, seed=2)

    def apply(params, x):
        return jnp.tanh(x @ params["first"]) @ params["second"]

    def rule(operation, perturbations):
        y = operation.op(operation.x, operation.weight)
        return y + perturbations[operation.path], operation.x

    def loss(perturbations):
        outputs, inputs = interpret(apply, rule)(params, x, perturbations)
        return (outputs**3).sum(), inputs

    zeros = {"first": jnp.zeros((5, 1, 4)), "second": jnp.zeros((5, 1, 2))}
    output_gradients, inputs = jax.jit(jax.grad(loss, has_aux=True))(zeros)
    each = jax.jit(jax.vmap(jax.grad(lambda p, datum: (apply(p, datum[None]) ** 3).sum()), (None, 0)))(params, x)
    for path, expected in each.items():
        product = jnp.einsum("nti,nto->nio", inputs[path][0], output_gradients[path])
        np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-5)


MASKED = {
    "dot": (lambda p, x: jnp.einsum("nti,oi->nto", x, p["w"]), (5, 4), (3, 6, 4)),
    "matched dims": (lambda p, x: jnp.einsum("ntgi,goi->ntgo", x, p["w"]), (2, 5, 4), (3, 6, 2, 4)),
    "convolution": (lambda p, x: convolution(x, p["w"], strides=(2, 2)), (3, 3, 4, 5), (3, 6, 6, 4)),
    "groups": (lambda p, x: convolution(x, p["w"], groups=2), (3, 3, 2, 6), (3, 5, 5, 4)),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_on_the_inputs_covers_all_positions_and_is_a_mask_on_the_weights(name):
    apply, weight_shape, x_shape = MASKED[name]
    params, x = {"w": draw(*weight_shape)}, draw(*x_shape, seed=1)

    def rule(operation, key):
        mask = jax.random.bernoulli(key, 0.5, operation.unit_shape).astype(jnp.float32)
        return operation.op(operation.x * mask, operation.weight), (mask, operation.rows(mask))

    keys = jax.random.split(jax.random.key(2), len(x))
    outputs, records = jax.jit(interpret(apply, rule))(params, x, keys)
    [(masks, rows)] = records["w"]
    channels = x_shape[-1] if name != "matched dims" else x_shape[-1] * x_shape[-2]
    assert masks[0].size == channels
    assert len(np.unique(masks.reshape(3, -1), axis=0)) > 1  # not one mask for all data
    expected = jax.jit(jax.vmap(lambda rows, datum: apply({"w": params["w"] * rows}, datum[None])[0]))(rows, x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


def test_records_come_out_of_remat():
    apply, params, x = NETWORKS["plain"]()
    _, records = jax.jit(interpret(apply, lambda operation, _: (identity(operation, _)[0], operation.x)))(params, x)
    np.testing.assert_array_equal(records["first"][0][:, 0], x)
