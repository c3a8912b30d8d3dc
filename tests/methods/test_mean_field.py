"""Estimators of the ELBO, priors without a closed form, families, frameworks, and a small table."""

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posteria as po
from posteria import tree
from posteria.errors import NetworkError, SettingError
from posteria.methods.variational.bound import Bound
from posteria.methods.variational.families import (
    DiagonalFamily,
    FullFamily,
    LowRankFamily,
    family,
    softplus_inverse,
)
from posteria.models.densities import softplus
from posteria.models.target import Target
from posteria.random import fast_normal
from posteria.testing import linear_regression

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3)).astype(np.float32)
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(20, 1)).astype(np.float32)
MODEL = po.Model(po.nn.mlp((6,)), po.likelihoods.Gaussian(0.3))


def at_random(model=MODEL, std=0.2):
    target = Target(model, (X, Y))
    diagonal = family(target.without_data(), "diagonal")
    mean = target.init(jax.random.key(0))
    return target, diagonal, diagonal.init(jax.random.key(1), mean, jax.tree.map(lambda m: jnp.full_like(m, std), mean))


KEYS = jax.random.split(jax.random.key(2), 3000)


def test_all_estimators_have_one_expectation_and_local_the_least_variance():
    """Of gradients, where a weight meets each datum once."""
    target, diagonal, phi = at_random()

    def gradients(estimator):
        bound = Bound(target.without_data(), diagonal, estimator)
        one = jax.grad(lambda phi, key: bound(phi, key, target.data))
        return np.asarray(jax.jit(lambda keys: jax.lax.map(lambda key: tree.ravel(one(phi, key)), keys))(KEYS))

    found = {estimator: gradients(estimator) for estimator in ("local", "flipout", "weights")}
    directions = np.random.default_rng(1).normal(size=(found["local"].shape[1], 5))
    for estimator in ("flipout", "weights"):
        a, b = found["local"] @ directions, found[estimator] @ directions
        error = np.sqrt((a.var(0) + b.var(0)) / len(KEYS))
        assert (np.abs(a.mean(0) - b.mean(0)) < 4 * error).all(), estimator
    total = {estimator: gradient.var(0).sum() for estimator, gradient in found.items()}
    assert total["local"] < total["flipout"] < total["weights"]
    assert total["local"] < total["weights"] / 2


def test_closed_form_moments_are_the_limit_of_sampling():
    """Exact for one hidden layer of ReLUs."""
    target, diagonal, phi = at_random()

    def of(estimator):
        bound = Bound(target.without_data(), diagonal, estimator)
        return np.asarray(jax.jit(jax.vmap(lambda key: bound.log_likelihood(phi, key, target.data).sum()))(KEYS))

    by_moments, by_draws = of("moments"), of("local")
    np.testing.assert_allclose(by_moments, by_moments[0], rtol=1e-6)  # nothing is drawn
    assert abs(by_draws.mean() - by_moments[0]) < 4 * by_draws.std() / np.sqrt(len(KEYS))


@pytest.mark.parametrize(
    "prior",
    [
        po.priors.FanIn(),
        po.priors.ScaleMixture(),
        {"layers/0/kernel": po.priors.Laplace(0.5), "*": po.priors.Normal(0.7)},
    ],
)
def test_the_priors_part_is_its_expectation(prior):
    target, diagonal, phi = at_random(po.Model(MODEL.network, po.likelihoods.Gaussian(), prior))
    at_draws = jax.jit(jax.vmap(lambda key: target.log_prior(diagonal.draw(phi, key))))
    sampled = np.asarray(at_draws(jax.random.split(jax.random.key(9), 3000)), np.float64)
    for estimator in ("weights", "local"):  # at the draw of the likelihood; at weights that share their noise
        bound = Bound(target.without_data(), diagonal, estimator)
        ours = np.asarray(jax.jit(jax.vmap(lambda key: bound.expected_log_prior(phi, key)))(KEYS))  # noqa: B023
        error = np.sqrt((ours.var() + sampled.var()) / len(KEYS))
        assert abs(ours.mean() - sampled.mean()) < 4 * error
        if isinstance(prior, po.priors.FanIn):
            assert ours.std() < 0.2 * sampled.std()  # weights in closed form; only the noise of the data is drawn
        elif isinstance(prior, dict) and estimator == "weights":
            assert ours.std() < sampled.std()  # one leaf is drawn


def test_entropies_and_densities_of_the_families_agree():
    """E[-log q] at draws is the entropy."""
    target, _, _ = at_random()
    bare, mean = target.without_data(), target.init(jax.random.key(0))
    std = jax.tree.map(lambda m: 0.1 + jnp.abs(m), mean)
    for q in (DiagonalFamily(bare), FullFamily(bare), LowRankFamily(bare, 3)):
        phi = q.init(jax.random.key(1), mean, std)
        if "factor" in phi:
            phi["factor"] += 0.05 * jax.random.normal(jax.random.key(2), phi["factor"].shape)
        draws = jax.jit(jax.vmap(lambda key, q=q, phi=phi: -q.log_prob(phi, q.draw(phi, key))))(KEYS)
        assert abs(draws.mean() - q.entropy(phi)) < 4 * draws.std() / np.sqrt(len(KEYS)), type(q)
        marginal = tree.ravel(q.marginals(phi)[1])
        centre, spread = q.normal(phi)
        np.testing.assert_allclose(marginal**2, spread.variances, rtol=1e-4)
        np.testing.assert_allclose(spread.variances, np.diag(spread.covariance()), rtol=1e-4)
        assert centre.shape == marginal.shape


def test_the_density_of_a_full_covariance_at_its_own_draw_is_exact_where_it_is_nearly_singular():
    """Found again from the draw, the noise would be lost to rounding; its gradient along the draw is the density's."""
    target, _, _ = at_random()
    q = FullFamily(target.without_data())
    mean = target.init(jax.random.key(0))
    phi = q.init(jax.random.key(1), mean, jax.tree.map(lambda m: jnp.full_like(m, 0.1), mean))
    key = jax.random.key(3)
    for size, is_singular in ((0.1, False), (3.0, True)):
        phi["factor"] += size * jnp.tril(jax.random.normal(jax.random.key(2), phi["factor"].shape), -1)
        assert (np.linalg.cond(q.factor(phi)) > 1e7) == is_singular
        draw = q.draw(phi, key)
        white = np.asarray(fast_normal(key, phi["mean"].shape), np.float64)
        diagonal = np.asarray(jnp.diagonal(q.factor(phi)), np.float64)
        exact = (-0.5 * white**2 - np.log(diagonal) - 0.5 * np.log(2 * np.pi)).sum()
        assert q.log_prob_at_draw(phi, key, draw) == pytest.approx(exact, rel=1e-5)
        if not is_singular:
            ours = jax.grad(lambda w: q.log_prob_at_draw(phi, key, w))(draw)
            theirs = jax.grad(lambda w: q.log_prob(phi, w))(draw)
            np.testing.assert_allclose(tree.ravel(ours), tree.ravel(theirs), rtol=1e-3, atol=1e-2)


@pytest.mark.slow
def test_a_full_covariance_of_a_network_has_the_elbo_that_its_draws_say():
    """Steps that are large beside the standard deviations used to make it singular."""
    model = po.Model(po.nn.mlp((5,)), po.likelihoods.Gaussian(0.1), temperature=0.25)
    posterior = po.fit(model, (X, Y), po.MeanField(family="full", num_epochs=500), progress=False)
    factor = np.asarray(posterior.spread.factor, np.float64)
    assert np.linalg.cond(factor) < 1e4
    entropy = np.log(np.diag(factor)).sum() + 0.5 * len(factor) * (1 + np.log(2 * np.pi))
    params = posterior.sample_params(jax.random.key(1), 1000)
    values = np.asarray(jax.vmap(Target(model, (X, Y)).log_density)(params), np.float64)
    error = np.hypot(values.std() / np.sqrt(len(values)), posterior.facts["elbo_error"])
    assert abs(values.mean() + entropy - posterior.facts["elbo"]) < 4 * error


def test_softplus_is_accurate_where_standard_deviations_live():
    rho = jnp.linspace(-30.0, 15.0, 200)
    exact = np.log1p(np.exp(np.asarray(rho, np.float64)))
    np.testing.assert_allclose(jax.jit(softplus)(rho), exact, rtol=5e-7)
    np.testing.assert_allclose(softplus_inverse(softplus(rho)), rho, rtol=1e-4, atol=1e-4)
    slopes = jax.vmap(jax.grad(softplus))(rho)
    np.testing.assert_allclose(slopes, 1 / (1 + np.exp(-np.asarray(rho, np.float64))), rtol=4e-6)


def test_rank_one_noise_has_its_moments_and_its_file_holds_the_weights_once(tmp_path):
    posterior = po.fit(MODEL, (X, Y), po.MeanField(family="rank-one", num_epochs=300), progress=False)
    draws = np.asarray(posterior.spread.sample(jax.random.key(0), 20000), np.float64)
    variances = np.asarray(posterior.spread.variances)
    assert (np.abs(draws.mean(0)) < 5 * np.sqrt(variances / len(draws))).all()
    np.testing.assert_allclose(draws.var(0), variances, rtol=0.15)
    np.testing.assert_allclose(np.diag(posterior.spread.covariance()), variances, rtol=1e-4)
    correlation = np.cov(draws.T) - posterior.spread.covariance()
    assert np.abs(correlation).max() < 0.1 * variances.max()
    assert "elbo" not in posterior.facts
    method = po.MeanField(family="rank-one")
    assert method.model_differs in posterior.facts["notes"] and not po.MeanField().model_differs
    assert not hasattr(po.Regressor(method), "partial_fit") and hasattr(po.Regressor(po.MeanField()), "partial_fit")
    posterior.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(X).mean, posterior.predict(X).mean)
    _, arrays = posterior.state()
    num_weights = tree.size(posterior.target.structs)
    assert sum(a.size for a in arrays.values()) < 2 * num_weights + 50


class NNX(nnx.Module):
    def __init__(self, key):
        rngs = nnx.Rngs(key)
        self.first, self.second = nnx.Linear(3, 5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)

    def __call__(self, x):
        return self.second(nnx.relu(self.first(x)))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(5)(x)))


def equinox_builder(key):
    eqx = pytest.importorskip("equinox")
    return eqx.nn.MLP(3, 1, 5, 1, key=key)


class Sequences(nnx.Module):
    """Attention, then an LSTM."""

    def __init__(self, key):
        rngs = nnx.Rngs(key)
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.recurrent = nnx.RNN(nnx.LSTMCell(4, 3, rngs=rngs))
        self.out = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.recurrent(x + self.attention(x))[:, -1])


SEQUENCES = np.random.default_rng(1).normal(size=(20, 5, 4)).astype(np.float32)
FEW = po.MeanField(num_epochs=3)


@pytest.mark.parametrize(
    ("network", "x", "method"),
    [
        (NNX, X, FEW),
        pytest.param(Linen(), X, FEW, marks=pytest.mark.slow),
        pytest.param(equinox_builder, X, FEW, marks=pytest.mark.slow),
        pytest.param(Sequences, SEQUENCES, FEW, marks=pytest.mark.slow),
        pytest.param(Sequences, SEQUENCES, po.VariationalOnlineNewton(num_epochs=3), marks=pytest.mark.slow),
    ],
    ids=["nnx", "linen", "equinox", "sequences", "sequences-newton"],
)
def test_networks_of_every_framework_pass_unchanged(network, x, method):
    if network is equinox_builder:
        pytest.importorskip("equinox")
    posterior = po.fit(po.Model(po.network(network)), (x, Y), method, progress=False)
    prediction = posterior.predict(x)
    assert np.isfinite(prediction.mean).all() and (prediction.epistemic > 0).all()
    if network is Sequences and method is FEW:
        assert any("recurrent/cell" in note for note in posterior.facts["notes"])


@pytest.mark.slow
def test_a_small_table_is_learnt_with_the_defaults():
    """Not the prior, and not a point."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order].astype(np.float32)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    prediction = po.fit(po.Model(po.nn.mlp((50, 50))), (x[:350], y[:350]), po.MeanField(), progress=False).predict(
        x[350:]
    )
    share_explained = 1 - np.mean((prediction.mean[:, 0] - y[350:]) ** 2) / np.var(y[350:])
    assert share_explained > 0.35  # least squares reaches about 0.45 to 0.5
    assert 0.05 < np.sqrt(prediction.epistemic.mean()) < 1.0
    assert po.metrics.rmse(prediction.mean[:, 0], y[350:]) == pytest.approx(float(prediction.std.mean()), rel=0.3)


def test_a_start_at_given_weights_or_the_mode():
    known = linear_regression()
    still = po.MeanField(num_epochs=1, learning_rate=1e-9)
    given = {"bias": np.ones(1, np.float32), "weight": np.full((3, 1), 2.0, np.float32)}
    at = po.fit(known.model, known.data, still, start=given, progress=False)
    np.testing.assert_allclose(at.mean, [1, 2, 2, 2], atol=1e-5)
    mode = po.fit(known.model, known.data, still, start="map", progress=False)
    np.testing.assert_allclose(mode.mean, known.mean, atol=0.05)


@pytest.mark.parametrize(
    "make",
    [
        lambda: po.MeanField(estimator="none"),
        lambda: po.MeanField(family="none"),
        lambda: po.MeanField(family="full", estimator="local"),
        lambda: po.MeanField(num_samples=0),
        lambda: po.MeanField(initial_std=0.0),
        lambda: po.MeanField(kl_weights="odd"),
        lambda: po.VariationalOnlineNewton(hessian_decay=1.0),
        lambda: po.VariationalOnlineNewton(learning_rate=0.0),
        lambda: po.fit(po.Model(po.nn.mlp((80, 80))), (X, Y), po.MeanField(family="full"), progress=False),
        lambda: po.priors.FromPosterior(po.fit(MODEL, (X, Y), po.MAP(num_epochs=1), progress=False)),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(SettingError):
        make()


def test_moments_of_a_network_that_they_cannot_follow_are_refused():
    model = po.Model(po.nn.mlp((5,), activation="tanh"))
    with pytest.raises(NetworkError, match="tanh"):
        po.fit(model, (X, Y), po.MeanField(estimator="moments"), progress=False)


def test_a_mixture_that_was_stopped_on_its_way_says_so():
    """As a diagonal Gaussian does: its own first component is one."""
    posterior = po.fit(MODEL, (X, Y), po.MeanField(family="mixture", num_components=2, num_epochs=10), progress=False)
    assert posterior.facts["drift"] > 0.05
    assert any("not at its optimum" in note for note in posterior.facts["notes"])
