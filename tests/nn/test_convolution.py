"""Slices and a matmul are XLA's convolution, and tiles are its pooling."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from posteria.networks import kept_whole
from posteria.nn.convolution import Maps, convolution, max_pool
from posteria.trace.linear import holds_convolution

LAYOUT = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NHWDC", "HWDIO", "NHWDC")}
SETTINGS = [
    dict(),
    dict(padding="VALID"),
    dict(strides=(2, 2)),
    dict(strides=(3, 1), padding="VALID"),
    dict(dilation=(2, 1)),
    dict(strides=(2, 3), dilation=(1, 2), padding=((2, 0), (1, 3))),
    dict(groups=2),
    dict(groups=4, strides=(2, 1), padding="VALID"),
    dict(groups=2, dilation=(2, 2), padding=((1, 1), (0, 2))),
    dict(padding=((-1, 0), (0, -2))),
]


def reference(x, kernel, strides=None, padding="SAME", dilation=None, groups=1):
    rank = kernel.ndim - 2
    return lax.conv_general_dilated(
        x,
        kernel,
        strides or (1,) * rank,
        padding,
        rhs_dilation=dilation or (1,) * rank,
        dimension_numbers=LAYOUT[rank],
        feature_group_count=groups,
    )


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_same(a, b, num_terms):
    # float32 sums of num_terms products in two orders
    tolerance = 4 * np.finfo(np.float32).eps * num_terms * max(1.0, float(jnp.abs(b).max()))
    np.testing.assert_allclose(a, b, atol=tolerance, rtol=0)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_outputs_and_gradients_are_those_of_xla(settings):
    x = draw(2, 9, 8, 4)
    kernel = draw(3, 2, 4 // settings.get("groups", 1), 8, seed=1)

    @partial(jax.jit, static_argnums=0)
    def value_and_gradients(function):
        y, pull = jax.vjp(lambda x, k: function(x, k, **settings), x, kernel)
        return y, *pull(jnp.sin(jnp.arange(y.size)).reshape(y.shape))

    y, *gradients = value_and_gradients(convolution)
    expected, *expected_gradients = value_and_gradients(reference)
    assert_same(y, expected, num_terms=24)
    for gradient, expected_gradient in zip(gradients, expected_gradients):
        assert_same(gradient, expected_gradient, num_terms=y.size // 8)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_any_number_of_dimensions(rank, padding):
    x, kernel = draw(2, *(5, 6, 7)[:rank], 3), draw(*(3, 2, 4)[:rank], 3, 5, seed=1)
    y, expected = (
        jax.jit(partial(f, padding=padding, strides=(2,) * rank))(x, kernel) for f in (convolution, reference)
    )
    assert_same(y, expected, num_terms=72)


def test_one_kernel_a_draw_under_vmap():
    x, kernels = draw(2, 6, 6, 3), draw(4, 3, 3, 3, 5, seed=1)
    y = jax.jit(jax.vmap(lambda k: convolution(x, k)))(kernels)
    assert_same(y, jax.lax.map(lambda k: reference(x, k), kernels), num_terms=27)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_dtype_is_kept(dtype):
    x, kernel = draw(1, 4, 4, 2).astype(dtype), draw(3, 3, 2, 2).astype(dtype)
    assert jax.eval_shape(convolution, x, kernel).dtype == dtype


@pytest.mark.parametrize("shape, window", [((2, 8, 6, 3), (2, 2)), ((2, 9, 7, 3), (2, 3)), ((2, 11, 3), (4,))])
def test_pooling_and_its_gradient_are_those_of_xla(shape, window):
    def reference(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, *window, 1), (1, *window, 1), "VALID")

    @partial(jax.jit, static_argnums=0)
    def value_and_gradient(function):
        y, pull = jax.vjp(function, x)
        return y, *pull(y)

    x = draw(*shape)
    ours, xlas = value_and_gradient(lambda x: max_pool(x, window)), value_and_gradient(reference)
    for a, b in zip(ours, xlas):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other backends run XLA's convolution")
def test_whole_convolutions_do_not_leak_out_of_their_context_through_jits_cache():
    step = jax.jit(lambda x, kernel: convolution(x, kernel))
    args = draw(1, 5, 5, 2), draw(3, 3, 2, 2)
    with kept_whole(True):
        assert holds_convolution(step, *args)
    assert not holds_convolution(step, *args)


# ---- maps with the data innermost


def both_ways(function, x, *others):
    """Value, gradients and a directional derivative of function(maps, ...) -> (n, ...), the data first, then last."""

    def computed(data_last):
        def of(x, *others):
            maps = Maps(x.transpose(3, 1, 2, 0) if data_last else x, data_last)
            return function(maps, *others)

        y, pull = jax.vjp(of, x, *others)
        weight = draw(*y.shape, seed=9)
        moved = jax.jvp(of, (x, *others), jax.tree.map(jnp.cos, (x, *others)))[1]
        return y, *pull(weight), moved

    return jax.jit(computed, static_argnums=0)(False), jax.jit(computed, static_argnums=0)(True)


@pytest.mark.parametrize("window, stride, padding", [(5, 1, "VALID"), (3, 1, "SAME"), (3, 2, "SAME"), (1, 2, "SAME")])
def test_a_convolution_with_the_data_last_is_the_same(window, stride, padding):
    def convolved(maps, kernel):
        return maps.convolution(kernel, (stride, stride), padding).flat()

    first, last = both_ways(convolved, draw(4, 9, 8, 3), draw(window, window, 3, 5, seed=1))
    for a, b in zip(first, last):
        assert_same(b, a, num_terms=4 * 72)


@pytest.mark.parametrize("window", [(2, 2), (2, 3)])
def test_pooling_with_the_data_last_is_the_same_also_among_equals(window):
    x = jnp.round(2 * draw(5, 9, 7, 3))
    for a, b in zip(*both_ways(lambda maps: maps.max_pool(window).flat(), x)):
        np.testing.assert_array_equal(a, b)


def test_what_stands_beside_the_maps_meets_its_channel():
    def layers(maps, bias):
        maps = maps.each(lambda values, b: jnp.tanh(values) * b, bias)
        return jnp.concatenate([maps.mean(), maps.flat()], axis=1)

    first, last = both_ways(layers, draw(4, 5, 6, 3), draw(3, seed=2))
    for a, b in zip(first, last):
        assert_same(b, a, num_terms=4 * 30)
