"""A user's own convolutions as slices and a matmul: the same function, and no XLA convolution left."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from posteria.trace.linear import fast_on_cpu, holds_convolution

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="other backends keep XLA's convolution")


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def network(**settings):
    settings = {"window_strides": (1, 1), "padding": "SAME", **settings}
    return lambda kernel, x: jnp.tanh(lax.conv_general_dilated(x, kernel, **settings))


def standardised(kernel, x):
    return network()(kernel / kernel.std(), x)


def scanned(kernel, x):
    return lax.scan(lambda h, _: (network()(kernel, h), None), x, None, length=3)[0]


def looped(kernel, x):
    return lax.fori_loop(0, 3, lambda _, h: network()(kernel, h), x)


def branched(kernel, x):
    return lax.cond(x.sum() > 0, lambda h: network()(kernel, h), lambda h: network()(-kernel, h), x)


SQUARE, X = (4, 4, 3, 3), (2, 4, 6, 5)  # kernel (out, in, height, width) and x (n, in, height, width), lax's own layout
REPLACED = {
    "plain": (network(), (6, 4, 3, 3), X),
    "strides": (network(window_strides=(2, 1), padding="VALID"), (6, 4, 3, 2), X),
    "explicit padding": (network(padding=((2, 0), (-1, 3))), (6, 4, 3, 2), X),
    "dilated": (network(rhs_dilation=(2, 1)), (6, 4, 3, 2), X),
    "groups": (network(feature_group_count=2), (6, 2, 3, 2), X),
    "channels last": (network(dimension_numbers=("NHWC", "HWIO", "NHWC")), (3, 2, 4, 6), (2, 6, 5, 4)),
    "odd layout": (network(dimension_numbers=("WNCH", "IWOH", "HCWN")), (4, 2, 6, 3), (5, 2, 4, 6)),
    "one dimension": (network(window_strides=(1,)), (6, 4, 3), (2, 4, 7)),
    "precision": (network(precision=lax.Precision.HIGHEST), SQUARE, X),
    "not a parameter": (standardised, SQUARE, X),
    "nested": (jax.jit(jax.checkpoint(network())), SQUARE, X),
    "scan": (scanned, SQUARE, X),
    "while": (looped, SQUARE, X),
    "cond": (branched, SQUARE, X),
}


@pytest.mark.parametrize("name", REPLACED)
def test_outputs_and_gradients_are_unchanged_and_no_convolution_is_left(name):
    apply, kernel_shape, x_shape = REPLACED[name]
    fast, args = fast_on_cpu(apply), (draw(*kernel_shape) / 6, draw(*x_shape, seed=1))
    assert holds_convolution(apply, *args)

    assert not holds_convolution(fast, *args)

    def values(function):
        if name == "while":  # it has no reverse mode
            return jax.jvp(function, args, jax.tree.map(jnp.cos, args))
        y, pull = jax.vjp(function, *args)
        return y, *pull(jnp.cos(y))

    ours, xlas = jax.jit(lambda: (values(fast), values(apply)))()
    for a, b in zip(ours, xlas):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * max(1.0, float(jnp.abs(b).max())))


def test_no_convolution_is_left_in_the_gradient():
    fast = fast_on_cpu(scanned)
    assert not holds_convolution(jax.grad(lambda *args: fast(*args).sum()), draw(*SQUARE), draw(*X))


@pytest.mark.parametrize(
    "apply, kernel_shape, x_shape",
    [
        (network(lhs_dilation=(2, 2), padding=((1, 1), (1, 2))), SQUARE, X),
        (network(batch_group_count=2), SQUARE, X),
        (network(padding="VALID"), (4, 4, 7, 3), X),
    ],
    ids=["transposed", "batch groups", "empty"],
)
def test_what_cannot_be_sliced_stays_as_it_was(apply, kernel_shape, x_shape):
    args = draw(*kernel_shape), draw(*x_shape)
    np.testing.assert_array_equal(jax.jit(fast_on_cpu(apply))(*args), jax.jit(apply)(*args))


def test_kernels_and_data_may_be_mapped_over():
    kernels, x = draw(3, *SQUARE), draw(*X)
    fast = jax.jit(jax.vmap(fast_on_cpu(network()), (0, None)))(kernels, x)
    np.testing.assert_allclose(fast, lax.map(lambda k: network()(k, x), kernels), rtol=1e-5, atol=1e-5)


def test_a_network_without_convolutions_is_called_itself():
    calls = []

    def apply(w, x):
        calls.append(type(x))
        return x @ w

    w, x = np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)
    fast = fast_on_cpu(apply)
    fast(w, x)
    fast(w, x)
    assert calls[1:] == [np.ndarray, np.ndarray]  # traced once, to look; then called with what it was given


def test_a_second_call_does_not_trace_again():
    calls = []

    def apply(kernel, x):
        calls.append(1)
        return network()(kernel, x)

    fast, args = fast_on_cpu(apply), (draw(*SQUARE), draw(*X))
    fast(*args)
    num_traces = len(calls)
    fast(*args)
    assert len(calls) == num_traces


def test_derivative_rules_of_ones_own_are_kept():
    @jax.custom_jvp
    def straight_through(x):
        return jnp.sign(x)

    straight_through.defjvps(lambda t, _, x: t)

    def apply(kernel, x):
        return straight_through(network()(kernel, x))

    args = draw(*SQUARE), draw(*X)
    gradients = [jax.jit(jax.grad(lambda k, x, f=f: f(k, x).sum()))(*args) for f in (fast_on_cpu(apply), apply)]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-4)
    assert np.any(gradients[0] != 0)
