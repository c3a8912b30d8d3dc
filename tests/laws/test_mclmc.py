"""MCLMC's bias is set by its energy error, adjusted MCLMC has none; parallel tempering crosses between modes; SVGD."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria.errors import SettingError
from posteria.methods.chains.parallel_tempering import powers
from posteria.testing import AsymptoticLaws, ExactLaws, ProcedureLaws, correlated_gaussian, linear_regression
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value


@pytest.mark.slow
class TestMCLMC(AsymptoticLaws):
    method = po.MCLMC(num_chains=2, num_draws=500, num_warmup=3000, thinning=20, start="prior")
    cheap = po.MCLMC(num_chains=2, num_draws=30, num_warmup=300, thinning=5, start="prior")
    fine, coarse = 5e-4, 0.5

    def with_step(self, step, narrowest):
        return replace(self.method, energy_variance=step)


@pytest.mark.slow
class TestAdjustedMCLMC(ExactLaws):
    method = po.AdjustedMCLMC(num_chains=2, num_draws=500, num_warmup=1500, thinning=5, start="prior")
    cheap = po.AdjustedMCLMC(num_chains=2, num_draws=30, num_warmup=300, thinning=5, start="prior")


@pytest.mark.slow
class TestParallelTempering(ExactLaws):
    method = po.ParallelTempering(num_draws=500, num_warmup=100, num_replicas=4, max_leapfrog=20, start="prior")
    cheap = po.ParallelTempering(num_draws=30, num_warmup=30, num_replicas=3, max_leapfrog=10, start="prior")


@pytest.mark.slow
def test_adjusted_mclmc_samples_any_density():
    log_density, mean, covariance = correlated_gaussian(10, 0.5)
    method = po.AdjustedMCLMC(num_chains=2, num_draws=500, num_warmup=1500)
    draws = po.sample(log_density, jnp.zeros(10), method, progress=False)
    assert moments_p_value(draws.flat, mean, covariance) > LEAST_P_VALUE


def test_a_density_that_is_narrow_and_far_from_zero_has_its_spread():
    """Of E[z^2] - E[z]^2, in 32 bits, nothing would be left."""
    centre, std = 100.0, 0.01
    method = po.MCLMC(num_chains=2, num_draws=200, num_warmup=1500, thinning=5)
    draws = po.sample(lambda z: -0.5 * jnp.sum(((z - centre) / std) ** 2), jnp.full(10, centre), method, progress=False)
    np.testing.assert_allclose(draws.flat.std(), std, rtol=0.15)  # 4,000 numbers, a tenth of them independent: 4 errors


@pytest.mark.parametrize("method", [po.MCLMC(), po.AdjustedMCLMC()])
def test_one_parameter_is_refused(method):
    with pytest.raises(SettingError, match="direction"):
        po.sample(lambda z: -0.5 * z[0] ** 2, jnp.zeros(1), method, progress=False)


# ---- parallel tempering


NOISE = 0.1


def curve(w):
    """Equal to 1.5 at about -1.33 and 1.13, which the prior does not weigh equally."""
    return w**2 + 0.2 * w


TWO_MODES = po.Model(
    po.Network(lambda key, x: {"w": jnp.ones(())}, lambda params, x: curve(params["w"]) + 0.0 * x),
    po.likelihoods.Gaussian(NOISE),
    po.priors.Normal(1.0),
)


def test_parallel_tempering_visits_both_modes_in_the_right_shares():
    grid = np.linspace(-5.0, 5.0, 200_001)
    log_density = -0.5 * grid**2 - 0.5 * ((1.5 - curve(grid)) / NOISE) ** 2
    weights = np.exp(log_density - log_density.max())
    truth = weights[grid > 0].sum() / weights.sum()
    assert abs(truth - 0.5) > 0.05
    assert log_density.max() - log_density[np.abs(grid).argmin()] > 100  # nats: no chain crosses by itself
    data = (np.zeros((1, 1), np.float32), np.full(1, 1.5, np.float32))
    method = po.ParallelTempering(num_draws=2000, num_warmup=100, max_leapfrog=20, start="prior")
    draws = po.fit(TWO_MODES, data, method, progress=False).params["w"]  # (chain, draw)
    is_right = (draws > 0).astype(float)
    assert (np.abs(np.diff(is_right, axis=1)).sum(1) > 20).all()
    assert abs(is_right.mean() - truth) < 4 * po.diagnostics.mcse_mean(is_right)


def test_the_ladder_goes_from_the_posterior_to_the_prior():
    ladder = powers(8)
    assert ladder[0] == 1.0 and ladder[-1] == 0.0 and (np.diff(ladder) < 0).all()


@pytest.mark.slow
def test_replicas_too_far_apart_are_reported():
    known = linear_regression(num_data=30, noise=0.01)
    method = po.ParallelTempering(num_draws=40, num_warmup=20, num_replicas=2, max_leapfrog=10, start="prior")
    posterior = po.fit(known.model, known.data, method, progress=False)
    assert any("exchanged in only" in note for note in posterior.facts["notes"])


def test_a_bare_density_has_no_likelihood_to_temper():
    with pytest.raises(SettingError, match="bare"):
        po.sample(lambda z: -0.5 * z @ z, jnp.zeros(2), po.ParallelTempering(), progress=False)


# ---- SVGD


class TestSVGD(ProcedureLaws):
    method = po.SVGD(size=10, num_epochs=2000)
    cheap = po.SVGD(size=5, num_epochs=100)

    def test_at_the_end_the_stein_direction_vanishes(self):
        known = linear_regression()
        posterior = po.fit(known.model, known.data, self.method, progress=False)
        unit = known.model.prior.std
        particles = posterior.stored.flat[:, 0] / unit
        gradients = -(particles - known.mean / unit) @ np.linalg.inv(known.covariance / unit**2)
        differences = particles[:, None] - particles  # (j, i, size)
        squares = (differences**2).sum(-1)
        scale = np.median(squares[np.tril_indices(10, -1)]) / np.log(10)
        weights = np.exp(-squares / scale)
        attraction = np.einsum("ji,jd->id", weights, gradients)
        repulsion = np.einsum("ji,jid->id", weights, -2 / scale * differences)
        assert np.abs(attraction + repulsion).max() < 0.02 * np.abs(repulsion).max()

    def test_a_single_particle_is_the_mode(self):
        known = linear_regression()
        posterior = po.fit(known.model, known.data, replace(self.method, size=1), progress=False)
        std = np.sqrt(np.diag(known.covariance))
        np.testing.assert_array_less(np.abs(posterior.stored.flat[0, 0] - known.mean) / std, 0.02)

    def test_particles_that_start_together_part(self):
        known = linear_regression()
        start = {"bias": jnp.zeros(1), "weight": jnp.zeros((3, 1))}
        posterior = po.fit(known.model, known.data, self.cheap, start=start, progress=False)
        assert jax.tree.leaves(posterior.params)[0].std() > 0
