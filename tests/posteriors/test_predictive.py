"""The predictive is the mixture over draws: against brute force, whatever the block size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import posteria as po
from posteria.errors import DataError, SettingError
from posteria.posteriors import predictive
from posteria.posteriors.draws import Draws, DrawsPosterior


def posterior_of(likelihood, outputs: int, num_draws: int = 30, num_chains: int = 2, y=None):
    """Random draws of a linear network, as if they had been sampled."""
    network = po.Network(lambda key, x: {"w": jnp.zeros((2, outputs))}, lambda params, x: x @ params["w"])
    target = po.Target(po.Model(network, likelihood), (np.zeros((3, 2), np.float32), None))
    size = sum(np.prod(leaf.shape, dtype=int) for leaf in jax.tree.leaves(target.structs))
    flat = np.random.default_rng(0).normal(size=(num_chains, num_draws // num_chains, size)).astype(np.float32)
    return DrawsPosterior(target, Draws(target.structs, flat, {}))


X = np.random.default_rng(1).normal(size=(37, 2)).astype(np.float32)
Y = np.random.default_rng(2).normal(size=(37, 2)).astype(np.float32)


@pytest.fixture(params=[2**21, 100], ids=["one block", "many blocks"])
def block(request, monkeypatch):
    monkeypatch.setattr(predictive, "BLOCK_ELEMENTS", request.param)


def components(posterior):
    """Means (draw, n, 2) and stds (draw, 1, 1) of a Gaussian posterior's mixture, by NumPy."""
    flat = posterior.stored.flat.reshape(-1, posterior.stored.flat.shape[-1]).astype(float)
    stds = np.exp(-0.5 * flat[:, 0])[:, None, None]  # "likelihood" comes before "network"
    return X @ flat[:, 1:].reshape(-1, 2, 2), stds


def test_gaussian_mixture_statistics(block):
    posterior = posterior_of(po.likelihoods.Gaussian(), 2)
    means, stds = components(posterior)
    p = posterior.predict(X)
    np.testing.assert_allclose(p.mean, means.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(p.epistemic, means.var(0), rtol=1e-4)
    np.testing.assert_allclose(p.aleatoric, np.broadcast_to((stds**2).mean(0), (37, 2)), rtol=1e-4)
    np.testing.assert_allclose(p.std**2, p.aleatoric + p.epistemic, rtol=1e-5)
    np.testing.assert_allclose(p.cdf(Y), stats.norm(means, stds).cdf(Y).mean(0), atol=1e-5)
    joint = stats.norm(means, stds).logpdf(Y).sum(-1)
    np.testing.assert_allclose(p.log_prob(Y), np.logaddexp.reduce(joint, axis=0) - np.log(30), rtol=1e-4)


def test_the_mixture_is_not_scored_as_one_gaussian():
    posterior = posterior_of(po.likelihoods.Gaussian(0.05), 1, num_draws=2)
    p = posterior.predict(X)
    moment_matched = stats.norm(p.mean, p.std).logpdf(p.mean)[:, 0]
    is_apart = np.sqrt(p.epistemic[:, 0]) > 0.3  # the mean lies in the gap between the two components
    assert (p.log_prob(p.mean)[is_apart] < moment_matched[is_apart] - 1.0).all()


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9, 0.999])
def test_quantiles_solve_the_mixtures_cdf(block, q):
    posterior = posterior_of(po.likelihoods.Gaussian(), 2)
    means, stds = components(posterior)
    quantile = posterior.predict(X).quantile(q)
    assert quantile.shape == (37, 2)
    for row, column in [(0, 0), (5, 1), (36, 0)]:
        centre, scale = means[:, row, column], stds[:, 0, 0]
        exact = optimize.brentq(lambda y: stats.norm(centre, scale).cdf(y).mean() - q, -200, 200)  # noqa: B023
        assert quantile[row, column] == pytest.approx(exact, abs=2e-3 * scale.max())


def test_quantiles_of_components_far_apart_and_heavy_tails():
    without_mean = po.likelihoods.StudentT(df=0.8, scale=0.1)
    for likelihood in (po.likelihoods.Gaussian(1e-3), po.likelihoods.StudentT(df=1.5, scale=0.1), without_mean):
        p = posterior_of(likelihood, 1, num_draws=10).predict(100 * X)
        for q in (0.001, 0.3, 0.95):
            np.testing.assert_allclose(p.cdf(p.quantile(q)), q, atol=2e-3)


def test_intervals_hold_what_they_say():
    p = posterior_of(po.likelihoods.Gaussian(), 2).predict(X)
    lower, upper = p.interval(0.8)
    np.testing.assert_allclose(p.cdf(upper) - p.cdf(lower), 0.8, atol=1e-4)
    several = p.quantile([0.1, 0.9])
    np.testing.assert_allclose(several, np.stack([lower, upper]), rtol=1e-5, atol=1e-5)


def test_counts_have_whole_quantiles():
    posterior = posterior_of(po.likelihoods.Poisson(), 1)
    flat = posterior.stored.flat.reshape(-1, 2, 1)
    rates = np.exp(X @ flat)[..., 0]  # (draw, n)
    p = posterior.predict(X)
    for q in (0.05, 0.5, 0.95):
        quantile = p.quantile(q)[:, 0]
        assert (quantile == np.round(quantile)).all()
        assert (stats.poisson(rates).cdf(quantile).mean(0) >= q - 1e-4).all()
        below = np.where(quantile > 0, stats.poisson(rates).cdf(quantile - 1).mean(0), 0.0)
        assert (below < q + 1e-4).all()


def test_class_probabilities_and_their_entropies(block):
    posterior = posterior_of(po.likelihoods.Categorical(), 3)
    logits = X @ posterior.stored.flat.reshape(-1, 2, 3)
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    p = posterior.predict(X)
    entropy = -(probs.mean(0) * np.log(probs.mean(0))).sum(-1)
    expected = -(probs * np.log(probs)).sum(-1).mean(0)
    np.testing.assert_allclose(p.probs, probs.mean(0), rtol=1e-4)
    np.testing.assert_allclose(p.entropy, entropy, rtol=1e-4)
    np.testing.assert_allclose(p.aleatoric, expected, rtol=1e-4)
    np.testing.assert_allclose(p.epistemic, entropy - expected, atol=1e-5)
    np.testing.assert_allclose(p.mutual_information, p.entropy - p.aleatoric, atol=1e-6)
    labels = np.arange(37) % 3
    np.testing.assert_allclose(p.log_prob(labels), np.log(probs.mean(0)[np.arange(37), labels]), rtol=1e-4)


def test_two_classes_have_two_columns():
    p = posterior_of(po.likelihoods.Bernoulli(), 1).predict(X)
    assert p.probs.shape == (37, 2)
    np.testing.assert_allclose(p.probs.sum(1), 1.0, rtol=1e-5)


def test_samples_follow_the_mixture():
    posterior = posterior_of(po.likelihoods.Gaussian(), 2)
    p = posterior.predict(X)
    samples = p.sample(0, 6000)
    assert samples.shape == (6000, 37, 2)
    standard_error = p.std / np.sqrt(6000)
    assert (np.abs(samples.mean(0) - p.mean) < 5 * standard_error).all()
    uniform = p.cdf(samples[0])
    assert stats.kstest(np.concatenate([p.cdf(s) for s in samples[:20]]).ravel(), "uniform").pvalue > 1e-4
    assert uniform.shape == (37, 2)
    np.testing.assert_array_equal(samples, p.sample(0, 6000))


def test_predictions_are_deterministic_and_of_one_chunk_or_many(block):
    posterior = posterior_of(po.likelihoods.Gaussian(), 2)
    np.testing.assert_array_equal(posterior.predict(X).mean, posterior.predict(X).mean)
    np.testing.assert_allclose(posterior.predict(X[5:6]).mean[0], posterior.predict(X).mean[5], rtol=1e-5, atol=1e-6)


def test_stored_draws_are_spread_over_chains_and_repeated_only_past_their_number():
    posterior = posterior_of(po.likelihoods.Gaussian(1.0), 1, num_draws=12, num_chains=3)
    rows = {tuple(row): chain for chain in range(3) for row in posterior.stored.flat[chain]}
    picked = posterior.stored.pick(jax.random.key(0), 6)
    assert sorted(rows[tuple(row)] for row in picked) == [0, 0, 1, 1, 2, 2]
    assert len({tuple(row) for row in posterior.stored.pick(jax.random.key(1), 12)}) == 12
    many = posterior.stored.pick(jax.random.key(2), 24)
    assert all(np.sum((many == np.array(row)).all(1)) == 2 for row in rows)
    assert posterior.sample(0, 24)["w"].shape == (24, 2, 1)


def test_what_a_likelihood_does_not_have_is_refused_with_the_way_out():
    regression = posterior_of(po.likelihoods.Gaussian(), 1).predict(X)
    classes = posterior_of(po.likelihoods.Categorical(), 3).predict(X)
    for ask in (lambda: regression.probs, lambda: regression.entropy, lambda: classes.quantile(0.5)):
        with pytest.raises(SettingError, match="use"):
            ask()
    assert hasattr(classes, "probs") and not hasattr(regression, "probs")
    with pytest.raises(SettingError):
        regression.quantile(1.5)
    with pytest.raises(SettingError):
        regression.interval(0.0)
    for num_draws in (0, -1, 2.5):
        with pytest.raises(SettingError):
            posterior_of(po.likelihoods.Gaussian(), 1).predict(X, num_draws)
    with pytest.raises(DataError):
        regression.log_prob(np.zeros(5))


def test_one_statistic_of_many_inputs_stays_small():
    """Draws x inputs are never held: 400 draws x 20,000 inputs x 2 outputs would be 64 MB a copy."""
    posterior = posterior_of(po.likelihoods.Gaussian(), 2, num_draws=400)
    p = posterior.predict(np.repeat(X, 541, axis=0))
    size = p._block_size(400)
    assert size * 400 * 2 * 4 <= 4 * predictive.BLOCK_ELEMENTS
    assert p.quantile(0.9).shape == (37 * 541, 2)


def test_functions_have_draws_in_front():
    posterior = posterior_of(po.likelihoods.Gaussian(), 2)
    assert posterior.functions(0, X, 7).shape == (7, 37, 2)
    everything = posterior.draws(None, X, None)[0]
    np.testing.assert_allclose(everything.mean(0), posterior.predict(X).mean, rtol=1e-4, atol=1e-5)
