"""What a Laplace posterior predicts, in its three ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import posteria as po
from posteria.errors import SettingError
from posteria.posteriors import linearised
from posteria.posteriors.linearised import spread_points

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2)).astype(np.float32)


def fitted(predictive, likelihood, outputs, y):
    network = po.nn.mlp((5,), outputs=outputs)
    start = network.init(jax.random.key(0), X[:1])
    model = po.Model(network, likelihood)
    return po.fit(model, (X, y), po.Laplace("kron", predictive=predictive), start=start, progress=False)


@pytest.mark.parametrize(("num", "size"), [(100, 1), (100, 10)])
def test_points_have_the_moments_of_a_standard_normal(num, size):
    points = spread_points(num, size)
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(points.T @ points / num, np.eye(size), atol=1e-6)
    assert np.abs(np.sort(points[:, 0])[[4, 49, 94]] - [-1.645, 0.0, 1.645]).max() < 0.25


def test_draws_of_functions_have_the_moments_that_predictions_use():
    posterior = fitted("linearised", po.likelihoods.Gaussian(0.3), 1, np.sin(X[:, 0]))
    mean, covariance = posterior.function_moments(X[:4])
    draws = np.asarray(posterior.functions(0, X[:4], 4000))[..., 0]
    std = np.sqrt(covariance[:, 0, 0])
    assert (np.abs(draws.mean(0) - mean[:, 0]) < 4.5 * std / np.sqrt(4000)).all()
    assert (np.abs(draws.var(0) / std**2 - 1) < 4.5 * np.sqrt(2 / 4000)).all()
    np.testing.assert_allclose(posterior.predict(X[:4]).epistemic, covariance[:, 0], rtol=1e-3)


@pytest.mark.slow
def test_where_outputs_are_many_functions_are_drawn_from_the_same_gaussian(monkeypatch):
    posterior = fitted("linearised", po.likelihoods.Categorical(), 3, RNG.integers(0, 3, 30))
    exact = posterior.predict(X).probs
    monkeypatch.setattr(linearised, "MOST_OUTPUTS", 2)
    drawn = posterior.predict(X, num_draws=2000).probs
    assert 0 < np.abs(drawn - exact).max() < 4.5 * 0.5 / np.sqrt(2000)  # a probability varies by at most 1/2


def test_sampled_predictions_are_those_of_draws_of_the_weights():
    posterior = fitted("sampled", po.likelihoods.Gaussian(0.3), 1, np.sin(X[:, 0]))
    key = jax.random.key(3)
    params = posterior.sample_params(key, 5)["network"]
    outputs = jax.vmap(lambda p: posterior.model.outputs(p, X[:4]))(params)
    np.testing.assert_allclose(posterior.functions(key, X[:4], 5), outputs, atol=1e-5)


def test_probit_is_mackays_formula_and_near_the_linearised_average():
    y = (X[:, 0] > 0).astype(int)
    probit = fitted("probit", po.likelihoods.Bernoulli(), 1, y)
    mean, covariance = probit.function_moments(X)
    wanted = 1 / (1 + np.exp(-mean[:, 0] / np.sqrt(1 + np.pi / 8 * covariance[:, 0, 0])))
    np.testing.assert_allclose(probit.predict(X).probs[:, 1], wanted, rtol=1e-4)
    average = fitted("linearised", po.likelihoods.Bernoulli(), 1, y)
    np.testing.assert_allclose(average.predict(X).probs[:, 1], wanted, atol=0.02)  # the formula's own error
    with pytest.raises(SettingError, match="probit"):
        fitted("probit", po.likelihoods.Gaussian(0.3), 1, X[:, 0])


def test_inferred_noise_varies_as_its_own_posterior():
    posterior = fitted("linearised", po.likelihoods.Gaussian(), 1, np.sin(X[:, 0]))
    own = posterior.sample_params(jax.random.key(0), 4000)["likelihood"]["log_precision"]
    assert abs(np.var(own) / (1 / (30 / 2)) - 1) < 0.35  # 1 / (n / 2), where weights explain little of the data
    np.testing.assert_allclose(posterior.spread.variances[0], np.var(own), rtol=0.15)


@pytest.mark.parametrize("subset", ["all", "last"])
def test_after_training_the_noise_is_the_evidences_for_the_weights_that_vary(subset):
    """It maximises log p(y | f, noise) - tr(cov(f) H(noise)) / 2 + log p(noise), the outputs' covariance given."""
    network, likelihood = po.nn.mlp((5,)), po.likelihoods.Gaussian()
    start, y = network.init(jax.random.key(0), X[:1]), np.sin(X[:, 0])
    method = po.Laplace("kron", subset=subset)
    posterior = po.fit(po.Model(network, likelihood), (X, y), method, start=start, progress=False)
    mean, covariance = (np.asarray(part, float).reshape(-1) for part in posterior.function_moments(X))

    def negative(log_precision):
        fit = stats.norm(mean, np.exp(-0.5 * log_precision)).logpdf(y).sum()
        own = {"log_precision": jnp.asarray(log_precision)}
        return 0.5 * np.exp(log_precision) * covariance.sum() - fit - float(likelihood.log_prior(own))

    best = optimize.minimize_scalar(negative, bounds=(-4, 4), method="bounded").x
    np.testing.assert_allclose(posterior.mean[0], best, atol=0.005)
