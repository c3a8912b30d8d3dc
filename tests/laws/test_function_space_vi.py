"""Function-space variational inference is exact in its family where the network is linear."""

import numpy as np
import pytest

import posteria as po
from posteria.errors import DataError, SettingError
from posteria.testing import FamilyOptimumLaws, linear_regression
from posteria.testing.laws import _fitted, gaussian_divergence
from posteria.testing.targets import log_evidence


class TestFunctionSpaceVI(FamilyOptimumLaws):
    """Context points that outnumber the weights determine them: the divergence of functions is that of weights."""

    method = po.FunctionSpaceVI(num_epochs=2500, num_context=8, learning_rate=0.02)
    cheap = po.FunctionSpaceVI(num_epochs=100, num_context=8)
    reports_bound = False  # to rounding: what is added to the covariances is seen in it, below

    @pytest.mark.parametrize("temperature", [1.0, 0.25])
    def test_the_bound_is_the_evidence_less_the_divergence(self, temperature):
        known, posterior = _fitted(self.method, "linear_regression", temperature=temperature)
        wanted = log_evidence(known) - gaussian_divergence(known, *self.gaussian(posterior))
        assert abs(posterior.facts["elbo"] - wanted) < 4 * posterior.facts["elbo_error"] + 0.01  # nats, of the jitter


def test_a_linear_network_under_a_linear_kernel_has_the_same_posterior():
    """k(x, x') = 0.49 (x . x' + 1) is the prior N(0, 0.7^2) of the weights, said of functions."""
    known = linear_regression()
    method = po.FunctionSpaceVI(po.functions.Linear(0.7, 0.7), num_epochs=1500, num_context=8, learning_rate=0.03)
    posterior = po.fit(known.model, known.data, method, progress=False)
    optimum = np.diag(1 / np.diag(np.linalg.inv(known.covariance)))
    least = gaussian_divergence(known, known.mean, optimum)
    assert gaussian_divergence(known, posterior.mean, posterior.spread.covariance()) - least < 0.01
    assert "prior over functions" in " ".join(posterior.facts["notes"])


def test_what_it_cannot_use_is_refused():
    known = linear_regression()
    with pytest.raises(DataError, match="context"):
        po.fit(known.model, known.data, po.FunctionSpaceVI(context=np.zeros((5, 2))), progress=False)
    heavy = po.Model(known.model.network, prior=po.priors.Laplace())
    with pytest.raises(SettingError, match="closed form"):
        po.fit(heavy, known.data, po.FunctionSpaceVI(), progress=False)
