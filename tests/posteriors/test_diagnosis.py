"""The verdict says what has not converged and what to do."""

import numpy as np
import pytest

import posteria as po
from posteria.posteriors.diagnosis import diagnose
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
