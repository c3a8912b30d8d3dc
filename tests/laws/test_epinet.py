"""An epinet's head is the one that its fixed head and its noise have in closed form; on linear models its functions are
those of the posterior as indices grow."""

import jax
import numpy as np
import pytest

import posteria as po
from posteria.errors import SettingError, TooLargeError
from posteria.methods.ensembles import epinet
from posteria.models.target import Target
from posteria.testing import ProcedureLaws, linear_regression

QUICK = po.MAP(num_epochs=30)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)).astype(np.float32)


class TestEpinet(ProcedureLaws):
    method = po.Epinet(QUICK, num_indices=5, num_hidden=0, num_epochs=100)


@pytest.fixture(scope="module")
def linear():
    known = linear_regression()
    method = po.Epinet(po.MAP(num_epochs=100), num_indices=40, num_hidden=0, num_epochs=3000, learning_rate=0.03)
    return known, po.fit(known.model, known.data, method, key=4, progress=False)


def test_without_a_hidden_layer_it_is_the_closed_form_of_its_own_fixed_head_and_noise(linear):
    """(P + H) = A^-1 (P / prior variance + X' C / noise), A the posterior's precision."""
    known, posterior = linear
    keys = jax.random.split(jax.random.key(4), 5)
    target = Target(known.model, known.data)
    params = {"network": jax.tree.map(np.asarray, posterior.target.init(keys[0])["network"]), "likelihood": {}}
    (_, features, noise), *_ = epinet._prepared(keys[3], target, params, 40)
    np.testing.assert_allclose(np.linalg.norm(noise[:, 0], axis=-1), 0.5, rtol=1e-5)
    design = np.concatenate([np.ones((30, 1)), features], axis=1)
    fixed = np.concatenate([posterior.fixed["out_bias"][None], posterior.fixed["out"]])
    learnt = np.concatenate([posterior.learnt["out_bias"][None], posterior.learnt["out"]])
    wanted = known.covariance @ (fixed / 0.49 + design.T @ np.asarray(noise)[:, 0] / 0.25)
    std = np.sqrt(np.diag(known.covariance))[:, None]
    np.testing.assert_allclose((fixed + learnt) / std, wanted / std, atol=0.01)


def test_the_functions_have_nearly_the_posteriors_covariance(linear):
    """Of 40 indices, W W' of a matrix whose columns are 40 draws: a Wishart's own error."""
    known, posterior = linear
    weights = np.concatenate([posterior.fixed["out_bias"][None], posterior.fixed["out"]])
    weights = weights + np.concatenate([posterior.learnt["out_bias"][None], posterior.learnt["out"]])
    root = np.linalg.cholesky(known.covariance)
    white = np.linalg.solve(root, weights)
    error = white @ white.T - np.eye(4)
    assert np.abs(error).max() < 4 * np.sqrt(2 / 40)
    outputs = np.asarray(posterior.functions(0, known.data[0], 2000))[..., 0]
    design = np.concatenate([np.ones((30, 1)), known.data[0]], axis=1)
    np.testing.assert_allclose(outputs.std(0), np.sqrt(((design @ weights) ** 2).sum(1)), rtol=0.08)


def test_a_network_with_classes_is_sure_near_its_data_and_less_so_far_away():
    y = (X[:, 0] > 0).astype(np.int32)
    model = po.Model(po.nn.mlp((8,), outputs=2), po.likelihoods.Categorical())
    method = po.Epinet(po.MAP(num_epochs=50, polish=False), num_epochs=200, num_samples=4)
    posterior = po.fit(model, (X, y), method, progress=False)
    assert any("labels" in note for note in posterior.facts["notes"])
    near, far = (np.asarray(posterior.functions(0, x, 50)).std(0).mean() for x in (X, 5 * X))
    assert far > 1.5 * near


@pytest.mark.parametrize("types", [(np.int32, np.float32), (np.float32, np.int32)])
def test_rows_of_another_type_than_in_the_fit_are_the_same_rows(types):
    """Whether x itself is among the features is a matter of the fit."""
    fitted, asked = (np.round(2 * X).astype(each) for each in types)
    posterior = po.fit(po.Model(po.nn.mlp((4,))), (fitted, X[:, :1]), po.Epinet(QUICK, num_epochs=5), progress=False)
    np.testing.assert_allclose(posterior.functions(0, asked, 3), posterior.functions(0, fitted, 3), rtol=1e-6)


def test_a_network_without_features_is_refused():
    scaled = po.Network(lambda key, x: {"w": np.ones(1, np.float32)}, lambda params, x: params["w"] * x)
    with pytest.raises(SettingError, match="linear operation"):
        po.fit(po.Model(scaled, prior=po.priors.Normal()), (X[:, :1], X[:, :1]), po.Epinet(QUICK), progress=False)


@pytest.mark.parametrize("settings", [{"num_hidden": 10**9}, {"num_hidden": 10**5, "num_indices": 10**5}])
def test_a_head_that_this_machine_has_no_room_for_is_refused_before_the_climb(settings):
    known = linear_regression()
    with pytest.raises(TooLargeError, match="hidden units"):
        po.fit(known.model, known.data, po.Epinet(po.MAP(num_epochs=10**6), **settings), progress=False)
