"""Kernels of functions are covariances, with sums and products, and what they say of functions holds."""

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as peers

import posteria as po
from posteria import functions
from posteria.errors import PosteriaError, SettingError

RNG = np.random.default_rng(0)
X, OTHER = RNG.normal(size=(20, 2)), RNG.normal(size=(5, 2))
PAIRS = {
    "rbf": (functions.RBF(0.7, 1.3), 1.69 * peers.RBF(0.7)),
    "matern": (functions.Matern(0.7, 1.3), 1.69 * peers.Matern(0.7, nu=2.5)),
    "rough": (functions.Matern(0.7, order="1/2"), peers.Matern(0.7, nu=0.5)),
    "bent": (functions.Matern(0.7, order="3/2"), peers.Matern(0.7, nu=1.5)),
    "linear": (functions.Linear(2.0, 0.5), 4 * peers.DotProduct(0.25)),
    "sum": (functions.RBF(2.0) + functions.Linear(), peers.RBF(2.0) + peers.DotProduct(1.0)),
    "product": (functions.RBF(2.0) * functions.Linear(), peers.RBF(2.0) * peers.DotProduct(1.0)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_kernel_is_that_of_scikit_learn(name):
    mine, peer = PAIRS[name]
    with jax.enable_x64(True):
        np.testing.assert_allclose(mine(X, OTHER), peer(X, OTHER), rtol=1e-5)
        np.testing.assert_allclose(mine.diagonal(X), np.diag(peer(X)), rtol=1e-5)


def test_periodic_functions_repeat():
    """With one input it is scikit-learn's; of several it sums their angles, and repeats along each."""
    kernel = functions.Periodic(0.8, 1.5, inputs=(1,))
    with jax.enable_x64(True):
        np.testing.assert_allclose(kernel(X, OTHER), peers.ExpSineSquared(1.5, 0.8)(X[:, 1:], OTHER[:, 1:]), rtol=1e-9)
        both = functions.Periodic(0.8)
        np.testing.assert_allclose(both(X, OTHER), both(X + np.array([1.6, -0.8]), OTHER), rtol=1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_a_kernel_is_written_down_and_read_again(name):
    kernel = PAIRS[name][0]
    assert functions.from_json(functions.to_json(kernel)) == kernel


def test_what_is_no_kernel_is_refused():
    with pytest.raises(SettingError, match="positive"):
        po.functions.RBF(length=-1.0)
    with pytest.raises(SettingError, match="prior over functions"):
        po.functions.RBF() + 3
    with pytest.raises(PosteriaError, match="columns"):
        po.functions.RBF(inputs=(5,))(X, X)
    with pytest.raises(SettingError, match="kernel"):
        po.FunctionSpaceVI(prior="periodic")
    with pytest.raises(SettingError, match="prior over functions"):
        po.FunctionSpaceVI(prior=po.functions.RBF)
