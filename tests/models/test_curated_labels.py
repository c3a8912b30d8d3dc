"""Likelihoods for curated labels: label smoothing, and the noisy Dirichlet observation model of Kapoor et al. 2022."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import posteria as po
from posteria.models.likelihoods import factor_of

CONCENTRATION = 0.05
LIKELIHOOD = po.likelihoods.NoisyDirichlet(CONCENTRATION)
NETWORK = po.Network(lambda key, x: jnp.zeros((2, 3)), lambda weights, x: x @ weights)


def rows(num_rows=40):
    random = np.random.default_rng(0)
    x = random.normal(size=(num_rows, 2)).astype(np.float32)
    return x, (x @ random.normal(size=(2, 3))).argmax(1)


def test_the_outputs_are_lognormal_with_the_moments_of_gammas():
    mean, variance = (np.asarray(each, np.float64) for each in LIKELIHOOD.latent(jnp.asarray([2]), 3))
    gammas = CONCENTRATION + np.array([[0, 0, 1]])
    np.testing.assert_allclose(np.exp(mean + variance / 2), gammas, rtol=1e-5)
    np.testing.assert_allclose(np.expm1(variance) * np.exp(2 * mean + variance), gammas, rtol=1e-5)


def test_their_softmax_is_near_the_dirichlet():
    """Not exact: where concentrations are large, means and deviations agree to their standard errors' order."""
    likelihood = po.likelihoods.NoisyDirichlet(20.0)
    mean, variance = (np.asarray(each)[0] for each in likelihood.latent(jnp.asarray([0]), 3))
    outputs = np.random.default_rng(1).normal(mean, np.sqrt(variance), (200_000, 3))
    probs, exact = special.softmax(outputs, -1), stats.dirichlet([21.0, 20.0, 20.0])
    np.testing.assert_allclose(probs.mean(0), exact.mean(), atol=0.002)
    np.testing.assert_allclose(probs.std(0), np.sqrt(exact.var()), rtol=0.02)


def test_a_row_contributes_the_normal_density_of_its_outputs():
    outputs, y = np.random.default_rng(2).normal(size=(5, 3)), np.array([0, 1, 2, 2, 1])
    mean, variance = (np.asarray(each, np.float64) for each in LIKELIHOOD.latent(jnp.asarray(y), 3))
    wanted = stats.norm(mean, np.sqrt(variance)).logpdf(outputs).sum(1)
    np.testing.assert_allclose(factor_of(LIKELIHOOD, {}, jnp.asarray(outputs), jnp.asarray(y)), wanted, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_of_a_linear_network_the_posterior_is_that_of_regression(temperature):
    """Each class is a regression on its own noise: Laplace is exact, and NumPy has the answer."""
    x, y = rows()
    model = po.Model(NETWORK, LIKELIHOOD, po.priors.Normal(2.0), temperature=temperature)
    posterior = po.fit(model, (x, y), po.Laplace(structure="full"), key=0, progress=False)
    mean, variance = (np.asarray(each, np.float64) for each in LIKELIHOOD.latent(jnp.asarray(y), 3))
    at = np.array([[0.5, -1.0]])
    found, covariance = posterior.function_moments(at.astype(np.float32))
    for label in range(3):
        precision = x.T @ (x / variance[:, label, None]) + np.eye(2) / 4
        weights = np.linalg.solve(precision, x.T @ (mean[:, label] / variance[:, label]))
        np.testing.assert_allclose(found[0, label], at[0] @ weights, atol=2e-3)
        spread = temperature * at[0] @ np.linalg.solve(precision, at[0])
        np.testing.assert_allclose(covariance[0, label, label], spread, rtol=2e-3)


class Trap(po.likelihoods.NoisyDirichlet):
    """Nothing is fitted by `log_prob`."""

    def log_prob(self, own, outputs, y):
        raise AssertionError("log_prob was asked for in a fit")


@pytest.mark.parametrize(
    "method",
    [
        po.MAP(num_epochs=2),
        po.MeanField(num_epochs=2),
        po.MCDropout(num_epochs=2),
        po.VariationalDropout(num_epochs=2),
        po.SGHMC(num_draws=2, num_warmup=2, thinning=1, num_chains=1),
        po.Laplace(map=po.MAP(num_epochs=2)),
    ],
    ids=lambda method: type(method).__name__,
)
def test_methods_fit_by_what_a_row_contributes(method):
    po.fit(po.Model(po.nn.mlp((4,), outputs=3), Trap()), rows(), method, key=0, progress=False)


def test_drawn_labels_are_refused_for_its_curvature():
    model = po.Model(NETWORK, LIKELIHOOD, po.priors.Normal(2.0))
    with pytest.raises(po.errors.SettingError, match="ggn"):
        po.fit(model, rows(), po.Laplace(curvature="fisher"), key=0, progress=False)


def test_label_smoothing_bounds_what_a_wrong_label_costs():
    likelihood = po.likelihoods.LabelSmoothing(0.1)
    wrong = likelihood.log_prob({}, jnp.asarray([[80.0, 0.0, 0.0]]), jnp.asarray([1]))
    np.testing.assert_allclose(wrong, np.log(0.1 / 3), rtol=1e-6)
    outputs, y = jax.random.normal(jax.random.key(0), (4, 3)), jnp.asarray([0, 1, 2, 0])
    plain, none = (each.log_prob({}, outputs, y) for each in (po.likelihoods.Categorical(), LIKELIHOOD))
    np.testing.assert_array_equal(po.likelihoods.LabelSmoothing(0.0).log_prob({}, outputs, y), plain)
    np.testing.assert_array_equal(none, plain)  # a noisy Dirichlet's predictions are scored as Categorical's


@pytest.mark.parametrize("likelihood", [po.likelihoods.LabelSmoothing(0.1), LIKELIHOOD])
def test_a_store_carries_them(tmp_path, likelihood):
    x, y = rows()
    posterior = po.fit(po.Model(NETWORK, likelihood), (x, y), po.MAP(num_epochs=5), key=0, progress=False)
    posterior.save(tmp_path / "fit")
    loaded = po.load(tmp_path / "fit", network=NETWORK)
    assert loaded.model.likelihood == likelihood
    np.testing.assert_allclose(loaded.predict(x).probs, posterior.predict(x).probs, atol=1e-6)
