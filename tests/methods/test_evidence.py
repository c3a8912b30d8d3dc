"""The evidence against closed forms."""

import numpy as np
import pytest
from scipy import special, stats

import posteria as po
from posteria.errors import DataError, SettingError
from posteria.methods.chains import tempered_smc
from posteria.methods.chains.tempered_smc import TemperedSMC
from posteria.testing import linear_regression

SMC = TemperedSMC(num_particles=200)


def closed_form(known, noise=0.5, prior_std=0.7):
    x, y = known.data
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    covariance = prior_std**2 * design @ design.T + noise**2 * np.eye(len(x))
    return stats.multivariate_normal(np.zeros(len(x)), covariance).logpdf(y)


def test_smc_is_within_three_standard_errors_of_linear_regression():
    known = linear_regression()
    evidence = po.log_evidence(known.model, known.data, SMC)
    assert evidence.standard_error < 0.2
    assert abs(evidence.value - closed_form(known)) < 3 * evidence.standard_error


def test_runs_are_averaged_as_evidences_with_the_error_of_their_mean(monkeypatch):
    known, logs = linear_regression(), iter([-40.0, -41.0, -39.5])
    monkeypatch.setattr(tempered_smc, "_smc_run", lambda *_: lambda *_: next(logs))
    evidence = po.log_evidence(known.model, known.data, TemperedSMC(num_runs=3))
    values = np.exp([-40.0, -41.0, -39.5])
    assert evidence.value == pytest.approx(np.log(values.mean()))
    assert evidence.standard_error == pytest.approx(stats.sem(values) / values.mean())


@pytest.mark.slow
def test_smc_with_inferred_noise_agrees_with_the_closed_form_of_a_student_t():
    """Outputs that are zero whatever the weights: y is a multivariate t under the noise's Gamma prior."""
    shape, rate, num = 3.0, 2.0, 25
    y = np.random.default_rng(0).normal(size=num).astype(np.float32)
    known = linear_regression()
    model = po.Model(known.model.network, po.likelihoods.Gaussian(shape=shape, rate=rate), po.priors.Normal(1e-4))
    x = np.zeros((num, 3), np.float32)
    exact = special.gammaln(shape + num / 2) - special.gammaln(shape) + shape * np.log(rate)
    exact -= (shape + num / 2) * np.log(rate + 0.5 * np.sum(y.astype(float) ** 2)) + num / 2 * np.log(2 * np.pi)
    evidence = po.log_evidence(model, (x, y), SMC)
    assert evidence.standard_error < 0.2
    assert abs(evidence.value - exact) < 3 * evidence.standard_error


def test_laplace_is_exact_on_linear_regression():
    known = linear_regression()
    evidence = po.log_evidence(known.model, known.data, "laplace")
    assert evidence.value == pytest.approx(closed_form(known), abs=1e-3)
    assert evidence.standard_error is None


def test_expectation_propagation_gives_the_evidence_of_linear_regression():
    known = linear_regression()
    evidence = po.log_evidence(known.model, known.data, po.ExpectationPropagation(num_passes=1))
    assert evidence.value == pytest.approx(closed_form(known), abs=1e-3)
    assert evidence.standard_error is None


def test_what_has_no_evidence_is_refused_by_name():
    known = linear_regression(temperature=0.5)
    for method in ("laplace", "smc"):
        with pytest.raises(SettingError, match=r"temperature 0\.5"):
            po.log_evidence(known.model, known.data, method)
    known = linear_regression()
    with pytest.raises(DataError, match="no y"):
        po.log_evidence(known.model, (known.data[0], None))
    with pytest.raises(SettingError, match="has no evidence"):
        po.log_evidence(known.model, known.data, po.MAP(num_epochs=1))
    with pytest.raises(SettingError, match="guess"):
        po.log_evidence(known.model, known.data, "guess")
    with pytest.raises(SettingError, match="num_runs"):
        TemperedSMC(num_runs=1)
