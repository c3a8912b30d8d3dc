"""Closed-form moments against sampling, against exact cases, and their refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import posteria as po
from posteria import tree
from posteria.errors import NetworkError
from posteria.testing.targets import linear_network
from posteria.trace.moments import is_affine, moments, rectified

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3)).astype(np.float32)


def spread(network, x=X, variance=0.1):
    params = network.init(jax.random.key(1), x)
    return params, jax.tree.map(lambda leaf: jnp.full(leaf.shape, variance), params)


def sampled(network, params, variances, x=X, num=20_000):
    """Mean and variance by drawing weights, with the standard errors of both."""
    mean, variance = tree.ravel(params), tree.ravel(variances)
    unravel = tree.unraveller(params)

    @jax.jit
    def outputs(keys):
        def one(key):
            return network.apply(unravel(mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape)), x)

        return jax.lax.map(one, keys, batch_size=1000)

    draws = np.asarray(outputs(jax.random.split(jax.random.key(2), num)), float)
    centred = draws - draws.mean(0)
    kurtosis = (centred**4).mean(0) - centred.var(0) ** 2
    return draws.mean(0), draws.var(0), draws.std(0) / np.sqrt(num), np.sqrt(kurtosis / num)


@pytest.mark.parametrize("mean", [-3.0, -0.5, 0.0, 0.7, 4.0])
def test_rectified_gaussian_agrees_with_numerical_integration(mean):
    std = 0.8
    density = stats.norm(mean, std).pdf
    first, second = (integrate.quad(lambda z, k=k: z**k * density(z), 0, mean + 12 * std)[0] for k in (1, 2))
    got = rectified(jnp.asarray(mean), jnp.asarray(std**2))
    np.testing.assert_allclose(got, (first, second - first**2), rtol=1e-4, atol=1e-7)


def test_rectified_keeps_its_variance_far_from_zero_and_its_gradient_without_variance():
    """A naive E[z^2] - E[z]^2 has no digits left at a mean of a thousand standard deviations."""
    _, variance = rectified(jnp.asarray(10.0), jnp.asarray(1e-4))
    assert float(variance) == pytest.approx(1e-4, rel=1e-5)
    for mean in (-1.0, 1.0):
        slope = jax.grad(lambda m: rectified(m, jnp.zeros(()))[0])(mean)
        assert float(slope) == float(mean > 0)
        assert np.isfinite(jax.grad(lambda v, m=mean: sum(rectified(jnp.asarray(m), v)))(0.0))


def test_one_hidden_layer_has_the_mean_and_variance_of_sampling():
    network = po.nn.mlp((6,), outputs=2)
    params, variances = spread(network)
    mean, variance = moments(network.apply)(params, variances, X)
    wanted_mean, wanted_variance, mean_error, variance_error = sampled(network, params, variances)
    assert (np.abs(mean - wanted_mean) < 4.5 * mean_error).all()
    assert (np.abs(variance - wanted_variance) < 4.5 * variance_error).all()


def test_two_hidden_layers_are_close_to_sampling_with_small_variances():
    """Independence of units is an approximation: its error is of second order in the weights' variance."""
    network = po.nn.mlp((6, 6))
    errors = []
    for scale in (1e-3, 1e-1):
        params, variances = spread(network, variance=scale)
        mean, variance = moments(network.apply)(params, variances, X)
        wanted_mean, wanted_variance, *_ = sampled(network, params, variances)
        errors.append(np.abs(mean - wanted_mean).max() / np.sqrt(wanted_variance).mean())
        np.testing.assert_allclose(variance, wanted_variance, rtol=0.5)
    assert errors[0] < 0.02


def test_a_linear_model_is_exact():
    network = linear_network(1.0)
    params, variances = spread(network)
    mean, variance = moments(network.apply)(params, variances, X)
    np.testing.assert_allclose(mean, network.apply(params, X), rtol=1e-5)
    np.testing.assert_allclose(variance[:, 0], 0.1 * (1 + (X**2).sum(1)), rtol=1e-5)


def test_the_ways_a_network_may_be_written_agree():
    """jit, remat, einsum, a bias as an input, scaled weights, a datum that is a scalar output."""

    def init(key, x):
        keys = jax.random.split(key, 2)
        return {"a": jax.random.normal(keys[0], (3, 5)), "b": jax.random.normal(keys[1], (5,)), "c": jnp.ones((1, 5))}

    def one(params, x):
        weights = jnp.concatenate([params["a"], params["c"]])
        hidden = jnp.maximum(jnp.concatenate([x, jnp.ones_like(x[:, :1])], 1) @ weights / 2.0, 0)
        return hidden @ params["b"]

    def two(params, x):
        @jax.checkpoint
        def layer(a, c, x):
            return jax.nn.relu(jnp.einsum("ni,ij->nj", x, a * 0.5) - -0.5 * c[0])

        return jnp.sum(jax.jit(layer)(params["a"], params["c"], x)[:, ::-1] * params["b"][::-1], axis=1)

    params, variances = spread(po.Network(init, one))
    for got, wanted in zip(moments(two)(params, variances, X), moments(one)(params, variances, X)):
        assert got.shape == (4, 1)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_convolution_has_its_exact_marginal_moments():
    def apply(params, x):
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, params["kernel"], (1, 1), "SAME", dimension_numbers=dims)

    x = RNG.normal(size=(2, 4, 4, 1)).astype(np.float32)
    params = {"kernel": jax.random.normal(jax.random.key(0), (3, 3, 1, 2))}
    variances = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.1), params)
    mean, variance = moments(apply)(params, variances, x)
    np.testing.assert_allclose(mean, apply(params, x), atol=1e-5)
    np.testing.assert_allclose(variance, apply(variances, x**2), rtol=1e-4)


def test_an_operation_that_cannot_be_followed_is_named():
    params = {"w": jnp.ones((3, 3))}
    cases = {
        "tanh": lambda p, x: jnp.tanh(x @ p["w"]),
        "exp": lambda p, x: x @ jnp.exp(p["w"]),
        "divides": lambda p, x: x / (x @ p["w"]),
        "both depend on w": lambda p, x: x @ p["w"] + jax.nn.relu(x @ p["w"]),
        "larger of two": lambda p, x: jnp.maximum(x @ p["w"], p["v"]),
    }
    for message, apply in cases.items():
        own = params | ({"v": jnp.ones(3)} if message == "larger of two" else {})
        with pytest.raises(NetworkError, match=message):
            jax.eval_shape(moments(apply), own, own, X)


def test_models_linear_in_their_weights_are_told_from_others():
    w = {"w": jnp.ones((3, 1)), "v": jnp.ones((1, 1))}
    assert is_affine(lambda p, x: x @ p["w"] + jnp.sin(x) @ p["w"] - 2.0, w, X)
    assert not is_affine(lambda p, x: x @ p["w"] @ p["v"], w, X)
    assert not is_affine(lambda p, x: jax.nn.relu(x @ p["w"]), w, X)
    assert not is_affine(lambda p, x: jnp.tanh(x @ p["w"]), w, X)
