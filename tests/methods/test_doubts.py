"""What is odd about a mode is said: one that is a constant, and noise that weights may have learnt by heart."""

import warnings

import numpy as np
import pytest

import posteria as po

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(24, 2)).astype(np.float32)
Y = (X @ [1.0, -1.0])[:, None].astype(np.float32)


def notes(posterior):
    return " ".join(posterior.facts["notes"])


@pytest.mark.parametrize("scale, is_constant", [(1e-3, True), (3.0, False)])
def test_a_mode_that_is_a_constant_is_called_so(scale, is_constant):
    model = po.Model(po.nn.mlp((4,)), po.likelihoods.Gaussian(noise=0.5), po.priors.FanIn(scale=scale))
    posterior = po.fit(model, (X, Y), po.MAP(num_epochs=300))
    assert ("same for every row" in notes(posterior)) == is_constant == posterior.facts["is_constant"]


def test_rows_that_are_all_the_same_are_no_sign_of_it():
    model = po.Model(po.nn.mlp((4,)), po.likelihoods.Gaussian(noise=0.5))
    posterior = po.fit(model, (np.ones_like(X), Y), po.MAP(num_epochs=20))
    assert "same for every row" not in notes(posterior)


def test_an_estimator_warns_of_it():
    """The prior gains more at 0 than thirty rows of a sine lose."""
    x = RANDOM.uniform(-2, 2, (30, 1))
    model = po.Regressor(method="laplace")
    with pytest.warns(UserWarning, match="same for every row"):
        model.fit(x, np.sin(2 * x[:, 0]) + 0.1 * RANDOM.normal(size=30))
    assert np.std(model.predict(x)) < 0.01


@pytest.mark.parametrize("width, is_told", [(50, True), (1, False)])
def test_noise_that_weights_may_have_learnt_is_doubted(width, is_told):
    model = po.Model(po.nn.mlp((width,)), po.likelihoods.Gaussian(), po.priors.FanIn(scale=2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = po.fit(model, (X, Y), po.Laplace(map=po.MAP(num_epochs=50)))
    assert ("too narrow" in notes(posterior)) == is_told
