"""The prior of the weights that is matched to a process has its functions."""

import numpy as np
import pytest

import posteria as po
from posteria.errors import SettingError
from posteria.testing.targets import linear_network

X = np.random.default_rng(0).uniform(-2, 2, size=(100, 1)).astype(np.float32)


def test_a_linear_network_gets_the_scales_of_its_kernel():
    """f = w x + b is the process of k(x, x') = 0.25 x x' + 4 where w ~ N(0, 0.5^2) and b ~ N(0, 2^2)."""
    prior = po.priors.matched(linear_network(), po.functions.Linear(0.5, 2.0), X, num_steps=400)
    stds = dict((path, leaf.std) for path, leaf in prior.priors)
    np.testing.assert_allclose([stds["weight"], stds["bias"]], [0.5, 2.0], rtol=0.08)


def test_functions_of_a_network_come_near_to_the_process_and_serve_any_method(tmp_path):
    network, kernel = po.nn.mlp((30,), activation="tanh"), po.functions.RBF(length=0.6)
    line = np.linspace(-2, 2, 15, dtype=np.float32)[:, None]

    def error(prior):
        drawn = np.asarray(po.Model(network, prior=prior).prior_functions(0, line, 2000))[..., 0]
        return float(np.abs(drawn.T @ drawn / 2000 - np.asarray(kernel(line, line))).mean())

    prior = po.priors.matched(network, kernel, X, num_steps=400)
    assert error(prior) < 0.5 * error(po.priors.FanIn())
    y = np.sin(3 * X[:30, 0])
    posterior = po.fit(po.Model(network, prior=prior), (X[:30], y), po.MAP(num_epochs=20), progress=False)
    posterior.save(tmp_path / "saved")
    assert po.load(tmp_path / "saved").model.prior == prior  # it is written down, leaf by leaf


def test_what_is_no_kernel_is_refused():
    with pytest.raises(SettingError, match="prior over functions"):
        po.priors.matched(linear_network(), "periodic", X)
    with pytest.raises(SettingError, match="num_steps"):
        po.priors.matched(linear_network(), po.functions.RBF(), X, num_steps=0)
