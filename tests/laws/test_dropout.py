"""Dropout methods maximise the bound they say, and their draws have the noise they were trained under.

On linear regression every expectation over the noise is known: E (y - x w)^2 = (y - x mean)^2 + x^2 variance.
"""

from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

import posteria as po
from posteria import tree
from posteria.methods.dropout import concrete_dropout, sparse_variational_dropout, variational_dropout
from posteria.methods.dropout import fixed_rate as dropout
from posteria.testing import ProcedureLaws, linear_regression
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value

NOISE, PRIOR_STD = 0.5, 0.7  # of linear_regression
CENTER = np.array([0.2, -0.4, 0.9, 0.3])  # bias, weights: anywhere


def log_normal(residual, std):
    return stats.norm.logpdf(residual, scale=std)


def expected_log_likelihood(data, center, variance):
    """Of weights with these variances, independent of each other."""
    x, y = np.asarray(data[0], np.float64), np.asarray(data[1], np.float64)
    mean = center[0] + x @ center[1:]
    return log_normal(y - mean, NOISE).sum() - (x**2 @ variance).sum() / (2 * NOISE**2)


def expected_log_prior(center, variance):
    return log_normal(center, PRIOR_STD).sum() - variance.sum() / (2 * PRIOR_STD**2)


def exact_negative_kl(log_alpha):
    """By quadrature: -log(alpha) / 2 + E log|1 + sqrt(alpha) z|, less its limit for alpha -> infinity."""

    def integrand(z):
        return stats.norm.pdf(z) * np.log(np.abs(1 + np.exp(log_alpha / 2) * z))

    pole = -np.exp(-log_alpha / 2)
    ends = np.unique(np.clip([-12.0, pole, 12.0], -12.0, 12.0))
    mean = sum(integrate.quad(integrand, a, b, limit=400)[0] for a, b in pairwise(ends))
    limit = -(np.euler_gamma + np.log(2)) / 2  # E log|z|
    return limit - (mean - log_alpha / 2)


@pytest.mark.parametrize("log_alpha", np.linspace(-8, 8, 33))
def test_the_divergence_is_within_a_hundredth_of_its_integral(log_alpha):
    approximate = -float(variational_dropout.log_uniform_kl(jnp.asarray(log_alpha)))
    assert abs(approximate - exact_negative_kl(log_alpha)) < 0.01


def test_the_learned_prior_variance_is_the_one_that_makes_the_divergence_least():
    def kl(log_prior_variance, mean=0.6, std=1.1):
        v = np.exp(log_prior_variance)
        return 0.5 * ((mean**2 + std**2) / v - 1 + np.log(v / std**2))

    least = optimize.minimize_scalar(kl).fun
    log_alpha = jnp.asarray(2 * np.log(1.1 / 0.6))
    np.testing.assert_allclose(sparse_variational_dropout.ard_kl(log_alpha), least, rtol=1e-5)


# ---- the objectives, whatever the optimiser makes of them


def params_of(center):
    center = jnp.asarray(center, jnp.float32)
    return {"network": {"bias": center[:1], "weight": center[1:, None]}, "likelihood": None}


def concrete_moments(rate):
    """Mean and second moment of the smooth mask, by quadrature over its logistic noise."""

    def moment(power):
        def integrand(u):
            kept = 1 / (1 + np.exp(-(np.log((1 - rate) / rate) + np.log(u / (1 - u))) / 0.1))
            return (kept / (1 - rate)) ** power

        return integrate.quad(integrand, 0, 1, limit=200, points=[rate])[0]

    return moment(1), moment(2)


def fixed_noise(noise, temperature):
    alpha = 0.25
    strength = 0.2 if noise == "bernoulli" else alpha
    known = linear_regression(temperature=temperature)
    objective = dropout._expected_log_density(po.Target(known.model, known.data).without_data(), noise, strength, None)
    variance = alpha * CENTER[1:] ** 2
    total = expected_log_likelihood(known.data, CENTER, variance) + expected_log_prior(CENTER, variance)
    return known, objective, lambda params: params, total / temperature


def concrete(temperature):
    rate = 0.3
    known = linear_regression(temperature=temperature)
    objective = concrete_dropout._objective(po.Target(known.model, known.data).without_data(), None)
    first, second = concrete_moments(rate)
    mean = np.concatenate([CENTER[:1], first * CENTER[1:]])
    variance = (second - first**2) * CENTER[1:] ** 2
    total = expected_log_likelihood(known.data, mean, variance) + expected_log_prior(mean, variance)
    entropy = 3 * -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    logits = {"weight": jnp.asarray(np.log(rate / (1 - rate)), jnp.float32)}
    return known, objective, lambda p: {"params": p, "logit_rate": logits}, total / temperature + entropy


def learned_noise(granularity, temperature):
    alpha = np.full(3, 0.3) if granularity == "layer" else np.array([0.3, 0.05, 0.7])
    known = linear_regression(temperature=temperature)
    target = po.Target(known.model, known.data).without_data()
    objective = variational_dropout._multiplicative_objective(target, granularity, None)
    variance = alpha * CENTER[1:] ** 2
    kl = np.array([float(variational_dropout.log_uniform_kl(jnp.log(a))) for a in alpha])
    log_variance = np.log(variance if granularity == "weight" else alpha)
    prior = -kl.sum() / temperature + (1 - 1 / temperature) * 0.5 * log_variance.sum()
    data = expected_log_likelihood(known.data, CENTER, variance) + log_normal(CENTER[0], PRIOR_STD)
    shape = {"layer": (), "unit": (3,), "weight": (3, 1)}[granularity]
    logits = np.log(alpha / (1 - alpha))
    logits = {"weight": jnp.asarray(logits[:1].reshape(()) if shape == () else logits.reshape(shape), jnp.float32)}
    return known, objective, lambda p: {"params": p, "logit_alpha": logits}, data / temperature + prior


def additive_noise(prior, temperature):
    variance = np.array([0.05, 0.3, 0.01])
    known = linear_regression(temperature=temperature)
    target = po.Target(known.model, known.data).without_data()
    objective = sparse_variational_dropout._additive_objective(target, prior, "local", None, 0.0)
    data = expected_log_likelihood(known.data, CENTER, variance) + log_normal(CENTER[0], PRIOR_STD)
    total = data / temperature + sparse_prior_term(prior, CENTER[1:], variance, temperature)
    logs = {"weight": jnp.asarray(np.log(variance)[:, None], jnp.float32)}
    return known, objective, lambda p: {"params": p, "log_variance": logs}, total


def sparse_prior_term(prior, mean, variance, temperature=1.0):
    kls = {"log-uniform": variational_dropout.log_uniform_kl, "ard": sparse_variational_dropout.ard_kl}
    kl = np.asarray(kls[prior](jnp.log(variance / mean**2)), np.float64)
    return -kl.sum() / temperature + (1 - 1 / temperature) * 0.5 * np.log(variance).sum()


OBJECTIVES = {
    "bernoulli": (fixed_noise, "bernoulli", 1.0),
    "gaussian, cold": (fixed_noise, "gaussian", 0.25),
    "layer": (learned_noise, "layer", 1.0),
    "unit, cold": (learned_noise, "unit", 0.25),
    "weight, cold": (learned_noise, "weight", 0.25),
    "log-uniform": (additive_noise, "log-uniform", 1.0),
    "ard, cold": (additive_noise, "ard", 0.25),
    "concrete, cold": (concrete, 0.25),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_objective_is_an_unbiased_estimate_of_its_closed_form(name):
    build, *settings = OBJECTIVES[name]
    known, objective, with_params, exact = build(*settings)
    data = jax.tree.map(jnp.asarray, po.Target(known.model, known.data).data)
    structs = po.Target(known.model, known.data).structs
    params = params_of(CENTER) | {"likelihood": jax.tree.map(lambda s: jnp.zeros(s.shape), structs["likelihood"])}
    keys = jax.random.split(jax.random.key(0), 2000)
    values = jax.jit(jax.vmap(lambda key: objective(key, with_params(params), data, jnp.asarray(0.0))))(keys)
    values = np.asarray(values, np.float64)
    assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(len(values)) + 1e-4 * abs(exact)  # float32


# ---- the methods


@cache
def fitted(method):
    known = linear_regression()
    return po.fit(known.model, known.data, method, progress=False)


def flat_center(posterior):
    return np.asarray(posterior.center, np.float64)


class FixedRateLaws(ProcedureLaws):
    alpha = 0.25

    def test_the_weights_are_those_of_ridge_regression_with_the_noise_as_penalty(self):
        """E (y - x w)^2 adds alpha w^2 sum x^2: Wager, Wang & Liang 2013; the prior's term grows by 1 + alpha."""
        known = linear_regression()
        x, y = (np.asarray(part, np.float64) for part in known.data)
        posterior = fitted(self.method)
        design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
        penalty = np.concatenate([[0.0], self.alpha * (x**2).sum(0)]) / NOISE**2
        penalty += np.array([1.0, *np.full(3, 1 + self.alpha)]) / PRIOR_STD**2
        precision = design.T @ design / NOISE**2 + np.diag(penalty)
        exact = np.linalg.solve(precision, design.T @ y / NOISE**2)
        error = flat_center(posterior) - exact
        assert 0.5 * error @ precision @ error < 0.05  # nats below the best: what the decaying steps' noise leaves

    def test_its_draws_have_the_variance_of_the_noise(self):
        posterior = fitted(self.method)
        draws = np.asarray(jax.vmap(tree.ravel)(posterior.sample(1, 4000)), np.float64)[None]
        center = flat_center(posterior)
        np.testing.assert_allclose(draws[0, :, 0], center[0], rtol=1e-6)
        covariance = np.diag(self.alpha * center[1:] ** 2)
        assert moments_p_value(draws[..., 1:], center[1:], covariance) > LEAST_P_VALUE


class TestMCDropout(FixedRateLaws):
    method = po.MCDropout(rate=0.2, num_epochs=2000, learning_rate=0.02)
    cheap = po.MCDropout(rate=0.2, num_epochs=300, learning_rate=0.05)


@pytest.mark.slow
class TestGaussianDropout(FixedRateLaws):
    method = po.GaussianDropout(alpha=0.25, num_epochs=2000, learning_rate=0.02)
    cheap = po.GaussianDropout(alpha=0.25, num_epochs=300, learning_rate=0.05)


class TestSparseVariationalDropout(ProcedureLaws):
    method = po.SparseVariationalDropout(num_epochs=3000)
    cheap = po.SparseVariationalDropout(num_epochs=300, learning_rate=0.05)

    def test_its_bound_is_the_best_that_an_independent_optimiser_finds(self):
        known = linear_regression()
        posterior = po.fit(known.model, known.data, self.method, progress=False)

        def kl(log_alpha):
            k1, k2, k3 = 0.63576, 1.87320, 1.48695
            return k1 - k1 / (1 + np.exp(-k2 - k3 * log_alpha)) + 0.5 * np.log1p(np.exp(-log_alpha))

        def negative_bound(variables):
            center, log_variance = variables[:4], variables[4:]
            data = expected_log_likelihood(known.data, center, np.exp(log_variance))
            log_alpha = log_variance - np.log(center[1:] ** 2 + 1e-30)
            return -(data + log_normal(center[0], PRIOR_STD) - kl(log_alpha).sum())

        found = np.concatenate([np.asarray(posterior.mean), 2 * np.log(np.asarray(posterior.spread.std)[1:])])
        ols = np.concatenate([known.mean, np.full(3, -5.0)])
        best = min(
            optimize.minimize(
                negative_bound, start, method="Nelder-Mead", options={"maxiter": 20000, "fatol": 1e-6}
            ).fun
            for start in (ols, found)
        )
        assert negative_bound(found.astype(np.float64)) < best + 0.05

    def test_its_row_in_a_comparison_says_that_the_prior_differs(self):
        assert po.SparseVariationalDropout().model_differs == "log-uniform prior"
        assert "learned" in po.SparseVariationalDropout(prior="ard").model_differs
        known = linear_regression()
        given = po.fit(known.model, known.data, self.cheap, progress=False)
        assert given.facts["notes"] == ["log-uniform prior in place of the model's Normal"]
        model = po.Model(known.model.network, known.model.likelihood, po.priors.LogUniform())
        matching = po.fit(model, known.data, self.cheap, progress=False)
        assert matching.facts["notes"] == []


class TestVariationalDropout(ProcedureLaws):
    method = po.VariationalDropout(num_epochs=1500, granularity="unit")
    cheap = po.VariationalDropout(num_epochs=300, learning_rate=0.05, granularity="unit")

    def test_a_unit_that_says_nothing_gets_the_most_noise(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 3)).astype(np.float32)
        y = (x[:, 0] + 0.1 * rng.normal(size=60)).astype(np.float32)
        known = linear_regression()
        posterior = po.fit(known.model, (x, y), self.method, progress=False)
        alphas = np.asarray(posterior.strengths["weight"])
        assert alphas[0] < 0.05 and alphas[1:].min() > 0.3


class TestConcreteDropout(ProcedureLaws):
    method = po.ConcreteDropout(num_epochs=1000)
    cheap = po.ConcreteDropout(num_epochs=300, learning_rate=0.05)

    def test_the_rate_falls_with_more_data_and_is_one_half_without(self):
        rates = []
        for copies in (1, 16):
            known = linear_regression(copies=copies)
            rates.append(float(po.fit(known.model, known.data, self.method, progress=False).rates["weight"]))
        assert rates[1] < rates[0] < 0.4
        free = po.fit(known.model, (known.data[0][:1], None), self.method, progress=False)
        assert abs(float(free.rates["weight"]) - 0.5) < 0.05  # the coin with the most entropy


def test_weights_of_16_bits_learn_too():
    """An input that is zero for a datum has no variance there, and Adam's constant is 0 in 16 bits."""

    def init(key, x):
        return {"kernel": 0.5 * jax.random.normal(key, (3, 1), jnp.float16)}

    x = np.eye(3, dtype=np.float32)[np.arange(30) % 3]
    network = po.network((init, lambda params, x: x.astype(jnp.float16) @ params["kernel"]))
    model = po.Model(network, po.likelihoods.Gaussian(0.1))
    method = po.SparseVariationalDropout(num_epochs=1000)
    posterior = po.fit(model, (x, x @ np.array([[1.0], [-1.0], [0.5]], np.float32)), method, progress=False)
    np.testing.assert_allclose(posterior.mean_params["kernel"][:, 0], [1.0, -1.0, 0.5], atol=0.1)
