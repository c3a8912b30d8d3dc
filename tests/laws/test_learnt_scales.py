"""Scales that are learnt with the weights: of a linear model, the posterior of its scale is a numerical integral."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria import diagnostics
from posteria.testing.statistics import LEAST_P_VALUE, uniform_p_value

NUM_DATA, NUM_INPUTS, NOISE = 15, 6, 0.5
NETWORK = po.Network(lambda key, x: {"w": jnp.zeros((x.shape[-1], 1))}, lambda p, x: x @ p["w"])
MODEL = po.Model(NETWORK, po.likelihoods.Gaussian(NOISE), po.priors.FanIn(scale=po.infer))
SAMPLERS = {
    "nuts": po.NUTS(num_draws=1500, num_warmup=400),
    "hmc": po.HMC(num_draws=1500, num_warmup=300, trajectory=2.0, start="prior"),
}


@cache
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(NUM_DATA, NUM_INPUTS)).astype(np.float32)
    y = x @ rng.normal(size=NUM_INPUTS) * 0.4 + NOISE * rng.normal(size=NUM_DATA)
    return x, y.astype(np.float32)


class Exact:
    """p(log scale | y) on a grid, the weights integrated out: y ~ N(0, noise^2 + scale^2 x x^T / fan-in)."""

    def __init__(self, x, y, noise=NOISE, temperature=1.0):
        self.grid = np.linspace(-9, 4, 4001)
        kernel = x.astype(np.float64) @ x.T / x.shape[1]
        values, vectors = np.linalg.eigh(kernel)
        turned = vectors.T @ y
        variances = noise**2 + np.exp(2 * self.grid)[:, None] * values
        self.log_evidence = stats.norm(0, np.sqrt(variances)).logpdf(turned).sum(1)
        log_density = self.log_evidence + stats.halfnorm(scale=2.0).logpdf(np.exp(self.grid)) + self.grid
        self.log_total = float(
            np.log(np.trapezoid(np.exp(log_density - log_density.max()), self.grid)) + log_density.max()
        )
        self.density = np.exp(log_density - self.log_total)
        self.mean = np.trapezoid(self.density * self.grid, self.grid)
        self.std = np.sqrt(np.trapezoid(self.density * (self.grid - self.mean) ** 2, self.grid))

    def cdf(self, value):
        total = np.concatenate([[0], np.cumsum((self.density[1:] + self.density[:-1]) / 2 * np.diff(self.grid))])
        return np.interp(value, self.grid, total)

    @property
    def best(self):
        """Of the evidence alone."""
        return self.grid[self.log_evidence.argmax()]


def log_scales(posterior):
    return np.asarray(posterior.stored.params["prior"]["w"]["scale"], np.float64)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_posterior_of_a_scale_is_numerical_integration(name):
    exact, draws = Exact(*data()), log_scales(po.fit(MODEL, data(), SAMPLERS[name], key=1, progress=False))
    errors = [
        (draws.mean() - exact.mean) / diagnostics.mcse_mean(draws[..., None])[0],
        ((draws - exact.mean) ** 2).mean() - exact.std**2,
    ]
    errors[1] /= diagnostics.mcse_mean(((draws - exact.mean) ** 2)[..., None])[0]
    assert stats.chi2.sf(np.sum(np.square(errors)), 2) > LEAST_P_VALUE
    thinned = draws[:, ::15].ravel()
    assert stats.kstest(thinned, exact.cdf).pvalue > LEAST_P_VALUE


def test_without_data_the_prior_comes_back():
    """The scales half-normal, and the weights what a normal times a half-normal is: heavy in the tails."""
    x, _ = data()
    posterior = po.fit(MODEL, (x, None), po.NUTS(num_draws=1000, num_warmup=300), key=2, progress=False)
    scales = np.exp(log_scales(posterior))[:, ::10].ravel()
    assert stats.kstest(scales, stats.halfnorm(scale=2.0).cdf).pvalue > LEAST_P_VALUE
    weights = posterior.params["w"][:, ::10, 0, 0].ravel() * np.sqrt(NUM_INPUTS)
    reference = 2.0 * np.random.default_rng(0).normal(size=(2, 200_000)).prod(0)
    assert stats.ks_2samp(weights, reference).pvalue > LEAST_P_VALUE
    # the funnel: small scales hold all of their weights small
    draws, log = posterior.params["w"].reshape(-1, NUM_INPUTS), log_scales(posterior).ravel()
    assert np.corrcoef(np.log(np.square(draws).mean(1)), log)[0, 1] > 0.9


def test_a_layer_with_no_signal_shrinks():
    """Of two inputs' weights, in leaves of their own, one has nothing to say."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 8)).astype(np.float32)
    y = (x[:, :4] @ rng.normal(size=4) + 0.3 * rng.normal(size=60)).astype(np.float32)
    network = po.Network(
        lambda key, x: {"signal": jnp.zeros((4, 1)), "none": jnp.zeros((4, 1))},
        lambda p, x: x[:, :4] @ p["signal"] + x[:, 4:] @ p["none"],
    )
    model = po.Model(network, prior=po.priors.FanIn(scale=po.infer))
    posterior = po.fit(model, (x, y), po.NUTS(num_chains=2, num_draws=500), progress=False)
    scales = posterior.facts["prior_scales"]
    assert scales["none"]["q95"] < scales["signal"]["q05"]
    assert scales["none"]["mean"] < 0.4 < 1.0 < scales["signal"]["mean"]


def ranks_of(prior, num_simulations, num_draws, seed):
    """Simulation-based calibration of the whole: the ranks of all that was drawn among its posterior draws, by name."""
    x, _ = data()
    model = po.Model(NETWORK, po.likelihoods.Gaussian(shape=3.0, rate=1.0), prior)
    method = po.NUTS(num_chains=1, num_draws=num_draws, num_warmup=400, thinning=4, start="prior")
    rng, target, ranks = np.random.default_rng(seed), po.Target(model, (x, None)), []
    for key in jax.random.split(jax.random.key(seed), num_simulations):
        key_prior, key_own, key_fit = jax.random.split(key, 3)
        truth = target.sample_prior(key_prior) | {"likelihood": model.likelihood.sample_own(key_own)}
        noise = float(model.likelihood.noise_std(truth["likelihood"]))
        y = np.asarray(model.outputs(truth["network"], x))[:, 0] + noise * rng.normal(size=len(x))
        stored = po.fit(model, (x, y.astype(np.float32)), method, key=key_fit, progress=False).stored.params
        ranks.append(
            jax.tree.map(
                lambda true, drawn: (np.asarray(drawn)[0] < np.asarray(true)).sum(0).ravel(),
                {part: truth[part] for part in stored},
                stored,
            )
        )
    columns = jax.tree.map(lambda *each: np.stack(each), *ranks)
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(columns)}


def test_a_few_simulated_scales_are_calibrated():
    ranks = ranks_of(po.priors.FanIn(scale=po.infer), num_simulations=40, num_draws=99, seed=0)
    for columns in ranks.values():
        assert uniform_p_value(columns[:, 0], 100, num_bins=4) > LEAST_P_VALUE


@pytest.mark.slow
def test_simulation_based_calibration_is_uniform():
    """Of the noise, every weight, their scale and every input's; `-s` prints the p-values."""
    ranks = ranks_of(po.priors.InputScales(po.priors.FanIn(scale=po.infer)), 400, num_draws=199, seed=1)
    p_values = {name: [uniform_p_value(c, 200, num_bins=20) for c in columns.T] for name, columns in ranks.items()}
    for name, found in p_values.items():
        print(name, *(f"{p:.3f}" for p in found))
    every = [p for found in p_values.values() for p in found]
    assert len(every) == 2 + 2 * NUM_INPUTS and min(every) > LEAST_P_VALUE


# ---- variational families


class LinearBound:
    """The best bound of a family over relative weights and log scale, by quadrature over the latter's Gaussian.

    Given the scale s, E log p(y | w) of y = s x z + noise, z ~ N(m, S), is a polynomial in s: its expectation under a
    Gaussian over log s is in closed form, E s^k = exp(k mean + k^2 variance / 2).
    """

    def __init__(self, x, y, noise=NOISE):
        self.x, self.y, self.noise = x.astype(np.float64) / np.sqrt(x.shape[1]), y.astype(np.float64), noise

    def value(self, phi):
        size = self.x.shape[1]
        mean, log_std, (centre, log_width) = phi[:size], phi[size : 2 * size], phi[2 * size :]
        first, second = (np.exp(k * centre + k**2 * np.exp(2 * log_width) / 2) for k in (1, 2))
        fitted, variances = self.x @ mean, self.x**2 @ np.exp(2 * log_std)
        squares = (self.y**2).sum() - 2 * first * self.y @ fitted + second * (fitted**2 + variances).sum()
        log_likelihood = -0.5 * squares / self.noise**2 - len(self.y) * np.log(self.noise * np.sqrt(2 * np.pi))
        divergence = 0.5 * (mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std).sum()
        log_prior = np.log(2) - np.log(2.0 * np.sqrt(2 * np.pi)) - second / 8 + centre
        return log_likelihood - divergence + log_prior + log_width + 0.5 * np.log(2 * np.pi * np.e)

    def best(self):
        from scipy.optimize import minimize

        size = self.x.shape[1]
        start = np.concatenate([np.linalg.lstsq(self.x, self.y, rcond=None)[0], np.full(size, -1.0), [0.0, -1.0]])
        return -minimize(lambda phi: -self.value(phi), start, method="BFGS", options={"gtol": 1e-6}).fun


@pytest.mark.parametrize(
    "method", [po.MeanField(num_epochs=4000), po.VariationalOnlineNewton(num_epochs=6000)], ids=["mean-field", "von"]
)
def test_a_diagonal_family_reaches_the_bound_of_its_optimum(method):
    best = LinearBound(*data()).best()
    assert best < Exact(*data()).log_total  # a bound on the evidence, scale and weights integrated out
    facts = po.fit(MODEL, data(), method, key=1, progress=False).facts
    assert facts["elbo"] == pytest.approx(best, abs=0.05 + 4 * facts["elbo_error"])


def test_the_full_family_is_between_that_and_the_evidence():
    facts = po.fit(MODEL, data(), po.MeanField(family="full", num_epochs=4000), key=1, progress=False).facts
    error = 4 * facts["elbo_error"]
    assert LinearBound(*data()).best() + error < facts["elbo"] < Exact(*data()).log_total + error
