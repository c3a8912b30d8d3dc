"""Noise for each datum has the distribution that draws of the weights give it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posteria as po
from posteria import tree
from posteria.posteriors.rank_one import matrix_shape
from posteria.random import fast_normal
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value
from posteria.trace.local import BIAS, EACH_DATUM, FLIPOUT, LOCAL, SHARED, noisy, treatments

NUM_DRAWS = 4000


class Dense(nnx.Module):
    def __init__(self, key):
        self.linear = nnx.Linear(4, 3, rngs=nnx.Rngs(key))

    def __call__(self, x):
        return self.linear(x)


class Pooled(nnx.Module):
    """Linear in its weights, which meet a datum at nine positions."""

    def __init__(self, key):
        self.conv = nnx.Conv(2, 3, (2, 2), padding="VALID", rngs=nnx.Rngs(key))

    def __call__(self, x):
        return self.conv(x).mean((1, 2))


class Reader(nnx.Module):
    def __init__(self, key):
        rngs = nnx.Rngs(key)
        self.embed = nnx.Embed(7, 4, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.recurrent = nnx.RNN(nnx.LSTMCell(4, 3, rngs=rngs))
        self.out = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, tokens):
        h = self.embed(tokens)
        return self.out(self.recurrent(self.norm(h + self.attention(h)))[:, -1])


def problem(build, x):
    network = po.network(build)
    means = network.init(jax.random.key(0), x[:1])
    stds = jax.tree.map(lambda leaf: 0.1 + 0.2 * jnp.abs(leaf), means)
    return network.apply, means, stds


def p_value(build, x, estimator):
    """That outputs have the mean and covariance of the weights' draws, and none between data."""
    apply, means, stds = problem(build, x)
    keys = jax.random.split(jax.random.key(1), NUM_DRAWS)
    outputs = jax.jit(jax.vmap(lambda key: noisy(apply, estimator)(means, stds, x, key)))(keys)
    unravel, flat = tree.unraveller(means), tree.ravel(means)
    slopes = jax.jacobian(lambda flat: apply(unravel(flat), x))(flat)  # (datum, output, weight)
    covariances = np.einsum("nik,k,njk->nij", slopes, tree.ravel(stds) ** 2, slopes)
    covariance = np.asarray(jax.scipy.linalg.block_diag(*covariances))
    mean = np.asarray(apply(means, x)).ravel()
    return moments_p_value(np.asarray(outputs).reshape(1, NUM_DRAWS, -1), mean, covariance)


X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
IMAGES = np.random.default_rng(0).normal(size=(2, 4, 4, 2)).astype(np.float32)


@pytest.mark.parametrize("estimator", ["local", "flipout", "local-independent"])
def test_a_dense_layer_has_the_distribution_of_weight_draws(estimator):
    assert p_value(Dense, X, estimator) > LEAST_P_VALUE


def test_a_convolution_has_it_by_flipout_and_not_with_independent_noise():
    assert p_value(Pooled, IMAGES, "local") > LEAST_P_VALUE  # which takes flipout for it
    assert p_value(Pooled, IMAGES, "local-independent") < LEAST_P_VALUE


def test_what_is_done_with_each_leaf():
    tokens = np.zeros((1, 5), np.int32)
    apply, means, stds = problem(Reader, tokens)
    how = treatments(apply, means, tokens, "local")
    assert how["out/kernel"] == LOCAL
    assert how["attention/query/kernel"] == how["attention/out/kernel"] == FLIPOUT
    assert how["norm/scale"] == EACH_DATUM and how["out/bias"] == BIAS
    assert how["embed/embedding"] == SHARED
    assert {how[path] for path in how if path.startswith("recurrent") and path.endswith("kernel")} == {SHARED}
    outputs = jax.jit(noisy(apply, "local"))(means, stds, np.zeros((3, 5), np.int32), jax.random.key(0))
    assert outputs.shape == (3, 2) and len(np.unique(outputs[:, 0])) == 3


def test_a_datum_of_zeros_has_finite_gradients():
    apply, means, stds = problem(Dense, X)
    no_bias = jax.tree.map(jnp.zeros_like, stds)
    outputs = noisy(apply, "local")
    gradient = jax.jit(jax.grad(lambda stds: outputs(means, stds, 0 * X, jax.random.key(0)).sum()))(no_bias)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_fast_normals_are_normal_and_independent():
    from scipy import stats

    keys = jax.random.split(jax.random.key(3), 4)
    draws = np.asarray(jax.vmap(lambda key: fast_normal(key, (50, 1000)))(keys)).reshape(4, -1)
    for row in draws:
        assert stats.kstest(row, "norm").pvalue > LEAST_P_VALUE
    numbers = draws.size
    assert abs(draws.mean()) < 4 / np.sqrt(numbers)
    assert abs((draws**4).mean() - 3) < 4 * np.sqrt(96 / numbers)
    for lag in (1, 2, 16, 1000):
        assert abs((draws[:, lag:] * draws[:, :-lag]).mean()) < 4 / np.sqrt(numbers)
        squares = draws**2 - 1
        assert abs((squares[:, lag:] * squares[:, :-lag]).mean()) < 4 * 2 / np.sqrt(numbers)
    correlations = np.corrcoef(draws)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(draws.shape[1])
    of_steps = jax.vmap(lambda i: fast_normal(jax.random.fold_in(keys[0], i), (1,))[0])(jnp.arange(3000))
    assert stats.kstest(np.asarray(of_steps), "norm").pvalue > LEAST_P_VALUE


def test_rank_one_vectors_are_as_short_as_they_can_be():
    assert matrix_shape((5, 5, 20, 50)) == (500, 50)  # NNX's convolution
    assert matrix_shape((50, 20, 5, 5)) == (50, 500)  # Equinox's
    assert matrix_shape((7,)) == (0, 0)


@pytest.mark.parametrize("estimator", ["local", "flipout", "weights"])
def test_inputs_that_are_whole_numbers_are_as_good_as_others(estimator):
    """A type of numbers would have been that of the noise: none of it is left in whole ones."""

    def apply(params, x):
        return x @ params["kernel"]

    x = np.arange(12).reshape(4, 3) - 5
    params = {"kernel": jax.random.normal(jax.random.key(1), (3, 2))}
    stds = {"kernel": jnp.full((3, 2), 0.3)}
    found = [
        noisy(apply, estimator)(params, stds, jnp.asarray(rows), jax.random.key(0))
        for rows in (x.astype(np.int32), x.astype(np.float32))
    ]
    np.testing.assert_allclose(*found, rtol=1e-6)
    assert np.abs(found[0] - x @ params["kernel"]).min() > 1e-4
