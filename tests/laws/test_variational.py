"""Mean field and online Newton reach the optimum of their family; sequential updating is Bayes' rule."""

from dataclasses import replace

import numpy as np
import pytest

import posteria as po
from posteria.testing import FamilyOptimumLaws, linear_regression
from posteria.testing.laws import gaussian_divergence
from posteria.testing.targets import log_evidence

LONG = po.MeanField(num_epochs=3000)
FULL = po.MeanField(num_epochs=6000, family="full")


class TestMeanField(FamilyOptimumLaws):
    method = LONG
    cheap = po.MeanField(num_epochs=30)


class TestVariationalOnlineNewton(FamilyOptimumLaws):
    method = po.VariationalOnlineNewton(num_samples=4)
    cheap = po.VariationalOnlineNewton(num_epochs=300)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_any_covariance_reaches_the_posterior_and_its_elbo_the_log_evidence(temperature):
    known = linear_regression(temperature=temperature)
    posterior = po.fit(known.model, known.data, FULL, progress=False)
    assert gaussian_divergence(known, posterior.mean, posterior.spread.covariance()) < 1e-3
    assert posterior.facts["elbo_error"] < 1e-3  # at the posterior, log joint - log q is a constant
    assert posterior.facts["elbo"] == pytest.approx(log_evidence(known), abs=1e-3)


@pytest.mark.parametrize("settings", [{"estimator": "flipout"}, {"estimator": "weights", "num_samples": 8}])
def test_every_estimator_has_the_same_optimum(settings):
    known = linear_regression()
    optimum = np.diag(1 / np.diag(np.linalg.inv(known.covariance)))
    posterior = po.fit(known.model, known.data, replace(LONG, **settings), progress=False)
    gap = gaussian_divergence(known, posterior.mean, posterior.spread.covariance())
    assert gap - gaussian_divergence(known, known.mean, optimum) < FamilyOptimumLaws.TOLERANCE


def test_closed_form_moments_find_it_to_float_precision():
    known = linear_regression()
    posterior = po.fit(known.model, known.data, replace(LONG, estimator="moments"), progress=False)
    np.testing.assert_allclose(posterior.mean, known.mean, atol=1e-4)
    np.testing.assert_allclose(posterior.spread.std, np.diag(np.linalg.inv(known.covariance)) ** -0.5, rtol=1e-3)


def test_a_low_rank_covariance_of_full_rank_is_the_posterior():
    """Four weights, diagonal plus rank three: every covariance is in the family."""
    known = linear_regression()
    posterior = po.fit(known.model, known.data, replace(LONG, family="lowrank", rank=3), progress=False)
    assert gaussian_divergence(known, posterior.mean, posterior.spread.covariance()) < FamilyOptimumLaws.TOLERANCE
    assert abs(posterior.facts["elbo"] - log_evidence(known)) < FamilyOptimumLaws.TOLERANCE


def test_mini_batches_have_the_same_optimum_with_either_weights_of_the_kl():
    known = linear_regression(num_data=64)
    optimum = np.diag(1 / np.diag(np.linalg.inv(known.covariance)))
    least = gaussian_divergence(known, known.mean, optimum)
    for kl_weights in ("even", "blundell"):
        method = po.MeanField(num_epochs=2000, batch_size=16, kl_weights=kl_weights)
        posterior = po.fit(known.model, known.data, method, progress=False)
        gap = gaussian_divergence(known, posterior.mean, posterior.spread.covariance()) - least
        assert gap < FamilyOptimumLaws.TOLERANCE, kl_weights


def test_halves_one_after_the_other_are_the_posterior_of_all_data():
    known = linear_regression()
    x, y = known.data
    first = po.fit(known.model, (x[:15], y[:15]), FULL, progress=False)
    model = po.Model(known.model.network, known.model.likelihood, po.priors.FromPosterior(first))
    second = po.fit(model, (x[15:], y[15:]), FULL, progress=False)
    assert gaussian_divergence(known, second.mean, second.spread.covariance()) < FamilyOptimumLaws.TOLERANCE


@pytest.mark.slow
def test_a_diagonal_posterior_without_new_data_is_itself_again():
    """Also the inferred noise, whose posterior is the prior now."""
    known = linear_regression()
    model = po.Model(known.model.network)
    first = po.fit(model, known.data, LONG, progress=False)
    model = po.Model(known.model.network, prior=po.priors.FromPosterior(first))
    again = po.fit(model, (known.data[0][:1], None), LONG, progress=False)
    assert (np.abs(again.mean - first.mean) < 0.02 * np.asarray(first.spread.std)).all()
    np.testing.assert_allclose(again.spread.std, first.spread.std, rtol=0.02)
