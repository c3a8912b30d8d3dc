"""Expectation propagation is exact on linear regression, and on ReLU networks it is probabilistic backpropagation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import posteria as po
from posteria.errors import NetworkError, SettingError
from posteria.methods.gaussians.probabilistic_backprop import backprop_kernel, first_means
from posteria.models.densities import Gamma, matched_precision
from posteria.models.target import Target
from posteria.testing import ExactLaws, ProcedureLaws, linear_regression

EP = po.ExpectationPropagation


class TestExpectationPropagation(ExactLaws, ProcedureLaws):
    """Its draws on linear models are exact; the sharper laws are below."""

    method = EP(num_passes=3)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_mean_and_covariance_of_linear_regression_to_float_precision(temperature):
    known = linear_regression(temperature=temperature)
    posterior = po.fit(known.model, known.data, EP(num_passes=1), progress=False)
    std = np.sqrt(np.diag(known.covariance))
    np.testing.assert_allclose(posterior.mean, known.mean, atol=1e-4 * std.min())
    np.testing.assert_allclose(posterior.spread.covariance(), known.covariance, atol=1e-5 * std.max() ** 2, rtol=1e-4)


def evidence_of_linear_regression(known, noise=0.5, prior_std=0.7):
    x, y = known.data
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    covariance = prior_std**2 * design @ design.T + noise**2 * np.eye(len(x))
    return stats.multivariate_normal(np.zeros(len(x)), covariance).logpdf(y)


def test_evidence_of_linear_regression():
    known = linear_regression()
    posterior = po.fit(known.model, known.data, EP(num_passes=1), progress=False)
    assert posterior.log_evidence() == pytest.approx(evidence_of_linear_regression(known), abs=1e-3)


def test_evidence_is_refused_at_another_temperature():
    known = linear_regression(temperature=0.5)
    posterior = po.fit(known.model, known.data, EP(num_passes=1), progress=False)
    with pytest.raises(SettingError, match=r"temperature 0\.5"):
        posterior.log_evidence()


def test_predictions_of_linear_regression_are_closed_form():
    known = linear_regression()
    x, y = known.data
    posterior = po.fit(known.model, known.data, EP(num_passes=1), progress=False)
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    variance = np.einsum("ni,ij,nj->n", design, known.covariance, design)
    predictive = posterior.predict(x)
    np.testing.assert_allclose(predictive.mean[:, 0], design @ known.mean, atol=1e-4)
    np.testing.assert_allclose(predictive.epistemic[:, 0], variance, rtol=1e-3)
    exact = stats.norm(design @ known.mean, np.sqrt(variance + 0.25)).logpdf(y)
    np.testing.assert_allclose(predictive.log_prob(y), exact, atol=2e-3)


def test_outputs_that_are_the_same_function_have_predictions():
    """Their covariance is singular: there is no Cholesky factor of it."""

    def twice(params, x):
        return jnp.concatenate([x @ params["w"], x @ params["w"]], axis=1)

    network = po.Network(lambda key, x: {"w": jnp.zeros((3, 1))}, twice)
    model = po.Model(network, po.likelihoods.Gaussian(0.5), po.priors.Normal(0.7))
    known = linear_regression()
    x, y = known.data
    posterior = po.fit(model, (x, np.stack([y, y], 1)), EP(num_passes=1), progress=False)
    precision = 2 * x.T @ x / 0.25 + np.eye(3) / 0.49  # each datum is seen twice
    variance = np.einsum("ni,ij,nj->n", x, np.linalg.inv(precision), x)
    np.testing.assert_allclose(posterior.predict(x).epistemic, np.stack([variance, variance], 1), rtol=1e-3)


_PINNED = po.Network(lambda key, x: {"w": jnp.zeros((1, 1))}, lambda params, x: x @ params["w"])


def test_logistic_regression_is_close_to_numerical_integration():
    """One weight: EP matches the posterior's moments and evidence to a few hundredths of a standard deviation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 1)).astype(np.float32)
    labels = (rng.uniform(size=20) < special.expit(2 * x[:, 0])).astype(int)
    model = po.Model(_PINNED, po.likelihoods.Bernoulli(), po.priors.Normal(2.0))
    posterior = po.fit(model, (x, labels), EP(num_passes=10), progress=False)

    def density(w):
        return stats.norm(0, 2).pdf(w) * np.prod(special.expit(np.where(labels, 1, -1) * x[:, 0] * w))

    moments = [integrate.quad(lambda w, k=k: w**k * density(w), -15, 15, limit=200)[0] for k in range(3)]
    mean, second = moments[1] / moments[0], moments[2] / moments[0]
    std = np.sqrt(second - mean**2)
    assert abs(float(posterior.mean[0]) - mean) < 0.03 * std
    assert float(posterior.spread.factor[0, 0]) == pytest.approx(std, rel=0.03)
    assert posterior.log_evidence() == pytest.approx(np.log(moments[0]), abs=0.01)


def test_a_precision_that_is_seen_directly_gets_its_conjugate_update():
    """With no other variance, a Gamma precision after one residual is Gamma(shape + 1/2, rate + residual^2 / 2)...

    ... to the order in 1/shape at which Z is taken as normal with the mean variance.
    """
    shape, rate, residual = 2000.0, 1500.0, 1.3
    _, matched = matched_precision(Gamma(jnp.asarray(shape), jnp.asarray(rate)), jnp.zeros(1), jnp.asarray([residual]))
    assert float(matched.shape) - shape == pytest.approx(0.5, abs=0.01)
    assert float(matched.rate) - rate == pytest.approx(0.5 * residual**2, abs=0.01)


@pytest.mark.parametrize("shape", [6.0, 50.0, 5e4])
def test_the_matched_precision_agrees_with_the_published_formula_in_double_precision(shape):
    rate, variance, residual = 0.8 * shape, 0.3, 0.9
    totals = [variance + rate / (shape + k) for k in (-1, 0, 1)]
    z0, z1, z2 = (stats.norm(0, np.sqrt(total)).pdf(residual) for total in totals)
    wanted_shape = 1 / (z2 * z0 / z1**2 * (shape + 1) / shape - 1)
    wanted_rate = 1 / (z2 / z1 * (shape + 1) / rate - z1 / z0 * shape / rate)
    log_z, matched = matched_precision(
        Gamma(jnp.asarray(shape), jnp.asarray(rate)), jnp.asarray([variance]), jnp.asarray([residual])
    )
    assert float(log_z) == pytest.approx(np.log(z0), rel=1e-5)
    assert float(matched.shape) == pytest.approx(wanted_shape, rel=2e-6)
    assert float(matched.rate) == pytest.approx(wanted_rate, rel=2e-6)


def test_inferred_noise_of_a_linear_model_is_near_its_posterior():
    """Against Gibbs sampling, whose two conditionals are known, under the same Gamma prior."""
    known = linear_regression(num_data=100)
    model = po.Model(known.model.network, po.likelihoods.Gaussian(), po.priors.Normal(0.7))
    posterior = po.fit(model, known.data, EP(num_passes=5), progress=False)

    x, y = known.data
    design, rng, draws, precision = np.concatenate([np.ones((100, 1)), x], axis=1), np.random.default_rng(0), [], 1.0
    for _ in range(6000):
        factor = np.linalg.cholesky(precision * design.T @ design + np.eye(4) / 0.49)
        mean = np.linalg.solve(factor.T, np.linalg.solve(factor, precision * design.T @ y))
        weights = mean + np.linalg.solve(factor.T, rng.normal(size=4))
        precision = rng.gamma(6 + 50, 1 / (6 + 0.5 * np.sum((y - design @ weights) ** 2)))
        draws.append([np.log(precision), *weights])
    draws = np.array(draws[100:])
    assert (np.abs(posterior.mean - draws.mean(0)) < 0.05 * draws.std(0)).all()
    np.testing.assert_allclose(np.sqrt(posterior.spread.variances), draws.std(0), rtol=0.03)


# ---- networks


def published_pass(x, y, order, mean, variance, sites, noise, prior):
    """One pass of probabilistic backpropagation as published, in NumPy and double precision, for one hidden layer.

    Gradients by central differences of log Z; weights (inputs + 1, units) then (units + 1,), bias last.
    """
    num_inputs, num_units = x.shape[1], (len(mean) - 1) // (x.shape[1] + 2)
    cut = (num_inputs + 1) * num_units

    def log_normal(residual, variance):
        return -0.5 * np.log(2 * np.pi * variance) - 0.5 * residual**2 / variance

    def moments(mean, variance, row):
        z = np.append(row, 1.0)
        m, v = (part[:cut].reshape(num_inputs + 1, num_units) for part in (mean, variance))
        a_mean, a_var = z @ m / np.sqrt(num_inputs + 1), z**2 @ v / (num_inputs + 1)
        alpha = a_mean / np.sqrt(a_var)
        above = special.ndtr(alpha)
        gamma = np.exp(-0.5 * alpha**2) / np.sqrt(2 * np.pi) / above
        lifted = a_mean + np.sqrt(a_var) * gamma
        b_mean = above * lifted
        b_var = b_mean * lifted * (1 - above) + above * a_var * (1 - gamma * (gamma + alpha))
        b_mean, b_var = np.append(b_mean, 1.0), np.append(b_var, 0.0)
        m, v = mean[cut:], variance[cut:]
        return b_mean @ m / np.sqrt(num_units + 1), (b_mean**2 @ v + b_var @ m**2 + b_var @ v) / (num_units + 1)

    def log_z(mean, variance, row, target, noise_variance):
        m, v = moments(mean, variance, row)
        return log_normal(target - m, v + noise_variance)

    def gamma_update(gamma, logs):
        a, b = gamma
        z0, z1, z2 = np.exp(logs)
        return 1 / (z2 * z0 / z1**2 * (a + 1) / a - 1), 1 / (z2 / z1 * (a + 1) / b - z1 / z0 * a / b)

    def slope(fn, at):
        steps = 1e-5 * np.eye(len(at))
        return np.array([(fn(at + step) - fn(at - step)) / 2e-5 for step in steps])

    for i in order:
        a, b = noise
        by_mean = slope(lambda m: log_z(m, variance, x[i], y[i], b / (a - 1)), mean)  # noqa: B023
        by_variance = slope(lambda v: log_z(mean, v, x[i], y[i], b / (a - 1)), variance)  # noqa: B023
        noise = gamma_update(noise, [log_z(mean, variance, x[i], y[i], b / (a + k)) for k in (-1, 0, 1)])
        new = variance - variance**2 * (by_mean**2 - 2 * by_variance)
        mean, variance = np.where(new > 0, mean + variance * by_mean, mean), np.where(new > 0, new, variance)
    for j in range(len(mean)):
        precision, shift = 1 / variance[j] - sites[j, 0], mean[j] / variance[j] - sites[j, 1]
        a, b = prior[0] - sites[j, 2], prior[1] - sites[j, 3]
        v, m = 1 / precision, shift / precision
        if not (v > 0 and v < 1e5 and a > 1 and b > 0):
            continue
        prior = gamma_update((a, b), [log_normal(m, v + b / (a + k)) for k in (-1, 0, 1)])
        sites[j] = (a - 1) / b, 0.0, prior[0] - a, prior[1] - b
        variance[j] = 1 / (precision + sites[j, 0])
        mean[j] = variance[j] * shift
    return mean, variance, sites, noise, prior


def published_network(num_units):
    """Weights with the bias as one more input, scaled by the root of their number."""

    def init(key, x):
        first, second = jax.random.split(key)
        return {
            "hidden": jax.random.normal(first, (x.shape[-1] + 1, num_units)),
            "output": jax.random.normal(second, (num_units + 1, 1)),
        }

    def with_one(x):
        return jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)

    return po.Network(init, lambda p, x: with_one(jax.nn.relu(with_one(x) @ p["hidden"])) @ p["output"])


def test_two_passes_over_a_network_agree_with_the_published_algorithm_in_numpy():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(8, 2)).astype(np.float32)
    y = np.sin(2 * x[:, 0]).astype(np.float32)
    target = Target(po.Model(published_network(3)), (x, y))
    precision = Gamma(jnp.asarray(6.0), jnp.asarray(6.0))
    mean = first_means(jax.random.key(0), target, None)
    kernel = backprop_kernel(target.without_data())
    state = kernel.init(jax.random.key(0), (mean, precision, precision), target.data)
    step = jax.jit(kernel.step)

    mean = np.asarray(mean, float)
    variance = np.full_like(mean, 6 / 5)
    published = mean, variance, np.stack([1 / variance, 0 * mean, 0 * mean, 0 * mean], axis=1), (6.0, 6.0), (6.0, 6.0)
    for number in range(2):
        key = jax.random.key(number)
        state, _ = step(key, state, target.data)
        published = published_pass(x.astype(float), y, np.asarray(jax.random.permutation(key, len(x))), *published)
    mean, variance, _, noise, prior = published
    np.testing.assert_allclose(state.mean, mean, atol=1e-4)
    np.testing.assert_allclose(state.variance, variance, rtol=1e-4)
    np.testing.assert_allclose(state.noise, noise, rtol=1e-4)
    np.testing.assert_allclose(state.prior, prior, rtol=1e-3)


_RELU = po.nn.mlp((10,))


def test_a_network_predicts_with_its_closed_form_moments():
    """Which for one hidden layer are those of sampling the weights."""
    x = np.linspace(-2, 2, 30, dtype=np.float32)[:, None]
    y = np.abs(x)
    posterior = po.fit(po.Model(_RELU), (x, y), EP(num_passes=10), progress=False)
    predictive = posterior.predict(x)
    draws = np.asarray(posterior.functions(0, x, 4000))[..., 0]
    error = draws.std(0) / np.sqrt(4000)
    assert (np.abs(draws.mean(0) - predictive.mean[:, 0]) < 4.5 * error).all()
    # the variance of a sample variance, its kurtosis taken from the draws
    centred = draws - draws.mean(0)
    spread = np.sqrt((centred**4).mean(0) - draws.var(0) ** 2) / np.sqrt(4000)
    assert (np.abs(draws.var(0) - predictive.epistemic[:, 0]) < 4.5 * spread).all()
    assert po.metrics.rmse(predictive.mean[:, 0], y[:, 0]) < 0.5 * y.std()
    with pytest.raises(SettingError, match="no evidence here"):
        posterior.log_evidence()


def test_what_it_cannot_do_is_refused_by_name():
    x = np.ones((5, 2), np.float32)
    y = np.ones(5, np.float32)
    cases = [
        (po.Model(po.nn.mlp((4,), activation="tanh")), y, NetworkError, "tanh"),
        (po.Model(_RELU, prior=po.priors.Laplace()), y, SettingError, "normal around zero"),
        (po.Model(_RELU, po.likelihoods.StudentT()), y, SettingError, "moment_update"),
        (po.Model(_RELU, temperature=0.5), y, SettingError, "temperature 0.5"),
    ]
    for model, targets, error, message in cases:
        with pytest.raises(error, match=message):
            po.fit(model, (x, targets), EP(), progress=False)
