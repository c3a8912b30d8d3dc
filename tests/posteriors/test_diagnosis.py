"""The verdict says what has not converged and what to do."""

import numpy as np
import pytest

import posteria as po
from posteria.posteriors.diagnosis import ESS_WANTED, diagnose
from posteria.testing import linear_regression

RNG = np.random.default_rng(0)
INFO = {"acceptance": np.full((4, 200), 0.8), "num_divergent": np.zeros((4, 200), int)}


def test_independent_chains_have_converged():
    verdict = diagnose(RNG.normal(size=(4, 200, 10)), INFO, "functions")
    assert verdict.has_converged and verdict.verdict.startswith("Converged")


def test_chains_apart_have_not():
    apart = RNG.normal(size=(4, 200, 10)) + 5 * np.arange(4)[:, None, None]
    diagnosis = diagnose(apart, INFO, "functions")
    assert not diagnosis.has_converged and "NOT CONVERGED" in diagnosis.verdict


def test_a_stuck_chain_is_never_called_converged():
    stuck = np.zeros((4, 200, 3))
    diagnosis = diagnose(stuck, INFO, "functions")
    assert np.isnan(diagnosis.ess).all()
    assert not diagnosis.has_converged and "did not move" in diagnosis.verdict


def test_one_chain_divergences_and_notes_are_mentioned():
    info = {"acceptance": np.full((1, 200), 0.05), "num_divergent": np.ones((1, 200), int)}
    verdict = diagnose(RNG.normal(size=(1, 200, 2)), info, "weights", ["something happened"]).verdict
    for word in ("One chain", "diverged", "Acceptance", "something happened"):
        assert word in verdict


def test_one_chain_alone_has_not_converged_however_well_it_moves():
    diagnosis = diagnose(
        RNG.normal(size=(1, 2000, 10)), {name: values[:1] for name, values in INFO.items()}, "functions"
    )
    assert diagnosis.share_converged == 1.0 and diagnosis.share_sampled == 1.0
    assert not diagnosis.has_converged and "Converged" not in diagnosis.verdict


def test_few_effective_draws_in_the_tails_alone_are_not_convergence():
    """Chains that go to both tails once in each half, for a few draws in a row."""
    is_far = np.abs(np.arange(160) % 80 - 40) < 4
    chains = RNG.normal(size=(2, 160, 10)) * np.where(is_far, 20.0, 1.0)[:, None]
    diagnosis = diagnose(chains, INFO, "functions")
    assert (diagnosis.rhat < 1.05).all()
    assert (diagnosis.ess_bulk > ESS_WANTED).all() and (diagnosis.ess_tail < ESS_WANTED).mean() > 0.5
    assert not diagnosis.has_converged
    assert diagnosis.verdict.startswith("NOT CONVERGED") and "in the tails" in diagnosis.verdict


@pytest.mark.parametrize("hot, is_biased", [(1.0, False), (1.04, False), (1.3, True)])
def test_heat_is_judged_beside_mixing(hot, is_biased):
    info = INFO | {"virial": hot + 0.1 * RNG.normal(size=(4, 200)), "step_size": np.full((4, 200), 0.01)}
    diagnosis = diagnose(RNG.normal(size=(4, 200, 10)), info, "functions")
    assert diagnosis.has_converged != is_biased
    assert ("BIASED" in diagnosis.verdict) == is_biased
    assert diagnosis.verdict.startswith("BIASED" if is_biased else "Converged")


def test_heat_that_chance_explains_is_no_bias():
    info = INFO | {"virial": 1.3 + 5.0 * RNG.normal(size=(4, 200))}
    assert diagnose(RNG.normal(size=(4, 200, 10)), info, "functions").has_converged


def test_what_was_cut_in_warm_up_or_has_too_few_draws_is_called_that_first():
    converged = RNG.normal(size=(4, 200, 10))
    cut = diagnose(converged, INFO, "functions", cut=["warm-up"])
    assert cut.verdict.startswith("CUT IN WARM-UP") and not cut.has_converged
    few = diagnose(converged[:, :5], {name: values[:, :5] for name, values in INFO.items()}, "functions")
    assert few.verdict.startswith("TOO FEW DRAWS") and not few.has_converged
    one = diagnose(converged[:, :1], {name: values[:, :1] for name, values in INFO.items()}, "functions")
    assert one.verdict.startswith("TOO FEW DRAWS")
    point = diagnose(converged[:, :1], {"log_density": np.zeros((4, 1))}, "functions")
    assert point.verdict.startswith("A point")


def test_chains_that_time_cut_in_warm_up_say_so():
    known = linear_regression()
    method = po.HMC(num_warmup=1_000_000, num_draws=1_000_000, start="prior")
    posterior = po.fit(known.model, known.data, method, max_seconds=1.0, progress=False)
    assert posterior.facts["cut"] == ["warm-up"]
    diagnosis = posterior.diagnose(known.data[0])
    assert diagnosis.verdict.startswith("CUT IN WARM-UP") and not diagnosis.has_converged


def test_a_biased_langevin_chain_is_not_called_converged_and_a_fine_one_is():
    """Full batches: nothing but the step biases it."""
    known = linear_regression()
    settings = {"num_chains": 4, "num_draws": 400, "num_warmup": 500, "thinning": 40, "batch_size": None}
    coarse = po.fit(known.model, known.data, po.SGLD(**settings), progress=False)
    variances, directions = np.linalg.eigh(known.covariance)
    z = ((coarse.stored.flat - known.mean) @ directions[:, 0]) ** 2 / variances[0]
    assert (z.mean() - 1) / po.diagnostics.mcse_mean(z) > 5  # standard errors that its least variance is off
    verdict = coarse.diagnose(known.data[0])
    assert not verdict.has_converged and "BIASED" in verdict.verdict and "Converged" not in verdict.verdict
    step = float(coarse.info["step_size"].mean())
    fine = po.fit(known.model, known.data, po.SGLD(**settings, step_size=step / 20), progress=False)
    assert fine.diagnose(known.data[0]).has_converged


def test_a_fit_is_diagnosed_in_function_and_weight_space():
    known = linear_regression()
    posterior = po.fit(known.model, known.data, po.HMC(num_draws=100, num_warmup=100), progress=False)
    functions, weights = posterior.diagnose(known.data[0]), posterior.diagnose()
    assert functions.rhat.shape == (30,) and weights.rhat.shape == (4,)
    assert functions.has_converged
    assert "R-hat" in str(functions)


def test_to_arviz_has_the_draws():
    pytest.importorskip("arviz_base")
    known = linear_regression()
    posterior = po.fit(known.model, known.data, po.HMC(num_chains=2, num_draws=10, num_warmup=10), progress=False)
    exported = posterior.to_arviz()
    np.testing.assert_array_equal(exported["posterior"]["network.weight"].values, posterior.params["weight"])
    assert "acceptance" in exported["sample_stats"]
