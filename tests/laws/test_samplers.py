"""HMC, NUTS, Barker's and Metropolis-Hastings are exact."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria.methods.chains.barker import barker_sampler, log_acceptance
from posteria.testing import ExactLaws, correlated_gaussian
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value, uniform_p_value
from posteria.testing.targets import linear_network


class TestHMC(ExactLaws):
    method = po.HMC(num_draws=1000, num_warmup=200)
    cheap = po.HMC(num_chains=2, num_draws=30, num_warmup=20, start="prior")


class TestNUTS(ExactLaws):
    method = po.NUTS(num_draws=1000, num_warmup=300, start="prior")
    cheap = po.NUTS(num_chains=2, num_draws=30, num_warmup=30, start="prior")


class TestMetropolisHastings(ExactLaws):
    method = po.MetropolisHastings(num_draws=1000, num_warmup=2000, thinning=10, start="prior")
    cheap = po.MetropolisHastings(num_chains=2, num_draws=30, num_warmup=1000, thinning=10, start="prior")


class TestBarker(ExactLaws):
    method = po.Barker(num_draws=1000, num_warmup=1000, start="prior")
    cheap = po.Barker(num_chains=2, num_draws=30, num_warmup=300, start="prior")

    def test_its_acceptance_is_that_of_blackjax(self):
        """Which is an implementation of its own."""
        from blackjax.mcmc import barker

        log_density, mean, _ = correlated_gaussian(3)
        key, state = jax.random.key(0), barker.init(jnp.asarray(mean, jnp.float32), log_density)
        state, info = jax.jit(barker.build_kernel(), static_argnums=2)(key, state, log_density, 0.5)
        ours = barker_sampler().init(jnp.asarray(mean, jnp.float32), log_density)
        theirs = barker_sampler().init(info.proposal.position, log_density)
        np.testing.assert_allclose(np.exp(log_acceptance(ours, theirs)), info.acceptance_rate, rtol=1e-4)
        assert 0.01 < info.acceptance_rate < 0.99


SAMPLERS = {
    "hmc": po.HMC(num_draws=1000, num_warmup=300, trajectory=2.0),
    "nuts": po.NUTS(num_draws=1000),
    "metropolis-hastings": po.MetropolisHastings(num_draws=500, thinning=500, num_warmup=20000),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_correlated_gaussian_has_its_moments(name):
    log_density, mean, covariance = correlated_gaussian(20)
    draws = po.sample(log_density, jnp.zeros(20), SAMPLERS[name], key=1, progress=False)
    assert moments_p_value(draws.flat, mean, covariance) > LEAST_P_VALUE


FOR_FUNNELS = {
    "hmc": po.HMC(num_draws=2000, num_warmup=300, trajectory=3.0, target_acceptance=0.95),
    "nuts": po.NUTS(num_draws=2000, target_acceptance=0.95),
    "metropolis-hastings": po.MetropolisHastings(num_draws=2000, thinning=30),
}


@pytest.mark.parametrize("name", FOR_FUNNELS)
def test_a_funnel_has_its_moments(name):
    """Neal's: scale ~ N(0, 1.5^2) and x ~ N(0, exp(scale)), so that x / exp(scale / 2) is N(0, 1)."""

    def log_density(position):
        scale, x = position["scale"], position["x"]
        return -0.5 * (scale / 1.5) ** 2 - 0.5 * jnp.sum(x**2 * jnp.exp(-scale) + scale)

    start = {"scale": jnp.zeros(()), "x": jnp.zeros(2)}
    draws = po.sample(log_density, start, FOR_FUNNELS[name], key=2, progress=False)
    assert draws.params["x"].shape == (4, 2000, 2)
    scale = draws.params["scale"][..., None]
    standard = np.concatenate([scale, draws.params["x"] * np.exp(-0.5 * scale)], axis=-1)
    assert moments_p_value(standard, np.zeros(3), np.diag([1.5**2, 1.0, 1.0])) > LEAST_P_VALUE


EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(position):
    """Non-centred; mu ~ N(0, 5), tau ~ half-Cauchy(5), as log tau."""
    tau = jnp.exp(position["log_tau"])
    theta = position["mu"] + tau * position["z"]
    log_prior = -0.5 * (position["mu"] / 5.0) ** 2 - 0.5 * jnp.sum(position["z"] ** 2)
    log_prior += position["log_tau"] - jnp.log1p((tau / 5.0) ** 2)
    return log_prior - 0.5 * jnp.sum(((EFFECTS - theta) / ERRORS) ** 2)


def eight_schools_by_integration():
    """E[mu] and E[log tau], with theta and mu integrated in closed form and log tau on a grid."""
    log_tau = np.linspace(-12.0, 6.0, 4001)
    tau = np.exp(log_tau)
    variances = ERRORS**2 + tau[:, None] ** 2
    precision = (1 / variances).sum(1) + 1 / 25.0
    mean = (EFFECTS / variances).sum(1) / precision
    log_evidence = -0.5 * np.log(variances).sum(1) - 0.5 * np.log(precision)
    log_evidence += -0.5 * (EFFECTS**2 / variances).sum(1) + 0.5 * mean**2 * precision
    log_weights = log_evidence + log_tau - np.log1p((tau / 5.0) ** 2)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return weights @ mean, weights @ log_tau


@pytest.mark.parametrize(
    "method",
    [
        po.NUTS(num_draws=2000, target_acceptance=0.9),
        po.HMC(num_draws=2000, trajectory=2.5),
        po.MetropolisHastings(num_draws=2000, thinning=200),
    ],
    ids=["nuts", "hmc", "metropolis-hastings"],
)
def test_eight_schools_agrees_with_numerical_integration(method):
    start = {"mu": jnp.zeros(()), "log_tau": jnp.zeros(()), "z": jnp.zeros(8)}
    draws = po.sample(eight_schools, start, method, key=0, progress=False)
    for name, truth in zip(("mu", "log_tau"), eight_schools_by_integration()):
        values = draws.params[name]
        assert abs(values.mean() - truth) < 4 * po.diagnostics.mcse_mean(values), name


@pytest.mark.parametrize("method", [po.HMC(num_chains=1), po.NUTS(num_chains=1)])
def test_simulation_based_calibration_ranks_are_uniform(method):
    """Parameters from the prior, data from them: their ranks among the posterior's draws are uniform.

    Talts et al. 2018.
    """
    num_draws = 19  # ranks 0 to 19
    method = replace(method, num_draws=num_draws, num_warmup=100, thinning=5)
    likelihood = po.likelihoods.Gaussian(shape=3.0, rate=1.0)
    model = po.Model(_LINEAR, likelihood, po.priors.Normal(1.0))
    rng = np.random.default_rng(5)
    x = rng.normal(size=(10, 2)).astype(np.float32)
    ranks = []
    for i in range(100):
        weight, bias, precision = rng.normal(size=2), rng.normal(), rng.gamma(3.0, 1.0)
        y = x @ weight + bias + rng.normal(size=10) / np.sqrt(precision)
        posterior = po.fit(model, (x, y), method, key=i, progress=False)
        draws = posterior.stored.flat[0]  # log precision, bias, weights
        truth = [np.log(precision), bias, *weight]
        ranks.append((draws < truth).sum(0))
    for column in np.array(ranks).T:
        assert uniform_p_value(column, num_draws + 1) > LEAST_P_VALUE


_LINEAR = linear_network()


@pytest.mark.parametrize("method", [po.HMC(num_draws=1000, start="prior"), po.NUTS(num_draws=1000, start="prior")])
def test_inferred_noise_has_its_closed_form_posterior(method):
    """With a mean function pinned at zero, 1/noise^2 ~ Gamma(shape + n/2, rate + sum(y^2)/2)."""
    y = 0.4 * np.random.default_rng(3).normal(size=(25, 1)).astype(np.float32)
    pinned = po.Network(lambda key, x: {"w": jnp.zeros((1, 1))}, lambda params, x: 0.0 * (x @ params["w"]))
    model = po.Model(pinned, po.likelihoods.Gaussian(shape=2.0, rate=0.1))
    posterior = po.fit(model, (np.ones((25, 1), np.float32), y), method, progress=False)
    log_precision = posterior.stored.params["likelihood"]["log_precision"]
    exact = stats.gamma(2.0 + 12.5, scale=1 / (0.1 + 0.5 * np.sum(y**2)))
    uniform = exact.cdf(np.exp(log_precision))
    for values, truth in ((uniform, 1 / 2), (uniform**2, 1 / 3), (uniform**3, 1 / 4)):
        assert abs(values.mean() - truth) < 4 * po.diagnostics.mcse_mean(values)


def test_a_rejection_counts_the_current_state_again():
    log_density, _, _ = correlated_gaussian(3)
    draws = po.sample(log_density, jnp.zeros(3), po.HMC(step_size=0.23, num_warmup=0, num_draws=200), progress=False)
    is_repeat = (np.diff(draws.flat, axis=1) == 0).all(-1)
    assert 0 < is_repeat.mean() < 1
    assert is_repeat.mean() == pytest.approx(1 - draws.info["acceptance"].mean(), abs=0.1)


def test_the_cap_on_leapfrogs_is_kept_and_reported():
    log_density, _, _ = correlated_gaussian(3)
    draws = po.sample(
        log_density, jnp.zeros(3), po.HMC(step_size=0.01, num_warmup=0, num_draws=20, max_leapfrog=10), progress=False
    )
    assert draws.info["num_gradients"].max() == 10
    assert any("cut at the cap" in note for note in draws.facts["notes"])


@pytest.mark.parametrize("num_leapfrog, jitter", [(1500, None), (7, None), (1500, 0.0)])
def test_a_stated_number_of_leapfrogs_is_taken(num_leapfrog, jitter):
    log_density, _, _ = correlated_gaussian(3)
    method = po.HMC(num_chains=2, num_draws=3, num_warmup=0, step_size=0.01, num_leapfrog=num_leapfrog, jitter=jitter)
    draws = po.sample(log_density, jnp.zeros(3), method, progress=False)
    assert (draws.info["num_gradients"] == num_leapfrog).all()
    assert draws.facts["gradients"] == 2 * 3 * num_leapfrog
    assert not draws.facts["notes"]


def test_jitter_that_is_stated_stretches_a_stated_number_too():
    log_density, _, _ = correlated_gaussian(3)
    method = po.HMC(num_draws=50, num_warmup=0, step_size=0.01, num_leapfrog=40, jitter=0.25)
    taken = po.sample(log_density, jnp.zeros(3), method, progress=False).info["num_gradients"]
    assert 30 <= taken.min() < 34 and 46 < taken.max() <= 50
