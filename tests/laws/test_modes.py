"""What climbs ends at a mode, or says how far from one it is: MAP, and Laplace in every structure."""

import dataclasses
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import posteria as po
from posteria import tree
from posteria.curvature.decrement import ENOUGH, decrement
from posteria.errors import SettingError
from posteria.models.target import Target
from posteria.testing import linear_regression
from posteria.testing.targets import KnownPosterior, log_evidence

METHODS = {
    "map": po.MAP(),
    "full": po.Laplace("full"),
    "kron": po.Laplace("kron"),
    "diagonal": po.Laplace("diagonal"),
    "lowrank": po.Laplace("lowrank"),
    "last": po.Laplace(subset="last"),
}


@lru_cache
def logistic_regression(num_data: int = 200) -> KnownPosterior:
    """Its mode, and the covariance of Laplace's approximation there, in float64."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(num_data, 3)) + rng.normal(size=(num_data, 1))
    y = (x @ [1.0, -2.0, 0.5] + 0.3 + rng.logistic(size=num_data) > 0).astype(np.int32)
    linear = linear_regression().model.network
    network = po.Network(linear.init, lambda w, x: jnp.concatenate([jnp.zeros((len(x), 1)), linear.apply(w, x)], 1))
    model = po.Model(network, po.likelihoods.Categorical(), po.priors.Normal(0.7))
    design = np.concatenate([np.ones((num_data, 1)), x.astype(np.float32)], axis=1)

    def negative(w):
        logits = design @ w
        return (np.logaddexp(0, logits) - y * logits).sum() + 0.5 * (w**2).sum() / 0.49

    def slope(w):
        return design.T @ (1 / (1 + np.exp(-design @ w)) - y) + w / 0.49

    mode = optimize.minimize(negative, np.zeros(4), jac=slope, method="BFGS", options={"gtol": 1e-9}).x
    p = 1 / (1 + np.exp(-design @ mode))
    covariance = np.linalg.inv((design.T * (p * (1 - p))) @ design + np.eye(4) / 0.49)
    return KnownPosterior(model, (x.astype(np.float32), y), mode, covariance)


def weights(posterior):
    return np.asarray(posterior.stored.flat[0, 0] if hasattr(posterior, "stored") else posterior.mean, np.float64)


def distance(known, flat):
    """From the mode, in standard deviations along the direction."""
    return np.sqrt((flat - known.mean) @ np.linalg.solve(known.covariance, flat - known.mean))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("problem", [linear_regression, logistic_regression], ids=["linear", "logistic"])
def test_with_its_defaults_it_stands_on_the_mode(problem, name):
    known = problem()
    posterior = po.fit(known.model, known.data, METHODS[name], progress=False)
    assert distance(known, weights(posterior)) < 0.01
    assert posterior.facts["decrement"] < 1e-4 and not posterior.facts["decrement_is_estimate"]
    assert not posterior.facts["notes"]


@pytest.mark.parametrize("structure", ["kron", "diagonal"])
def test_so_does_laplace_after_mini_batches(structure):
    known = logistic_regression(3000)
    posterior = po.fit(known.model, known.data, po.Laplace(structure), progress=False)
    assert distance(known, weights(posterior)) < 0.01
    assert posterior.facts["decrement"] < 1e-4 and posterior.facts["decrement_is_estimate"]  # 2,048 rows' curvature


@pytest.mark.parametrize("structure", ["full", "lowrank", "kron"])
def test_evidence_from_the_defaults_is_the_closed_forms(structure):
    """Kronecker factors are exact for one layer without a bias, which is a block of its own."""
    known = linear_regression()
    if structure == "kron":
        x, y = known.data
        network = po.Network(lambda key, x: {"weight": jnp.zeros((3, 1))}, lambda w, x: x @ w["weight"])
        precision = x.T.astype(float) @ x / 0.25 + np.eye(3) / 0.49
        mean = np.linalg.solve(precision, x.T.astype(float) @ y / 0.25)
        model = dataclasses.replace(known.model, network=network)
        known = KnownPosterior(model, known.data, mean, np.linalg.inv(precision))
    posterior = po.fit(known.model, known.data, po.Laplace(structure), progress=False)
    assert abs(posterior.log_evidence() - log_evidence(known)) < 0.02
    np.testing.assert_allclose(posterior.spread.covariance(), known.covariance, rtol=1e-3, atol=1e-5)


def test_a_smooth_network_ends_at_a_stationary_point():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3)).astype(np.float32)
    y = np.sin(2 * x[:, :1]) * x[:, 1:2] + 0.1 * rng.normal(size=(100, 1))
    model = po.Model(po.nn.mlp((20,), activation="tanh"), prior=po.priors.FanIn())
    plain, polished = (
        po.fit(model, (x, y), po.MAP(num_epochs=500, polish=each), progress=False) for each in (False, None)
    )
    assert polished.facts["decrement"] < ENOUGH < plain.facts["decrement"]
    assert polished.info["log_density"] > plain.info["log_density"]
    assert not polished.facts["notes"]
    (note,) = plain.facts["notes"]
    assert f"{plain.facts['decrement']:.2g} nats" in note and "polish=True" in note


def test_where_held_out_rows_chose_the_epoch_nothing_moves():
    known = linear_regression()
    methods = (po.MAP(num_epochs=50, validation=0.2, polish=each) for each in (None, False))
    first, second = (po.fit(known.model, known.data, method, progress=False) for method in methods)
    np.testing.assert_array_equal(first.stored.flat, second.stored.flat)
    assert "held-out rows" in first.facts["notes"][0]
    with pytest.raises(SettingError, match="validation"):
        po.MAP(validation=0.2, polish=True)


def test_noise_that_the_evidence_set_stays():
    known = linear_regression()
    model = dataclasses.replace(known.model, likelihood=po.likelihoods.Gaussian())
    methods = (po.MAP(200, tune="noise", tune_every=20, polish=each) for each in (None, False))
    polished, plain = (po.fit(model, known.data, method, progress=False) for method in methods)
    np.testing.assert_allclose(polished.stored.flat[0, 0, 0], plain.stored.flat[0, 0, 0], rtol=1e-6)
    assert polished.facts["decrement"] < 1e-4 < plain.facts["decrement"]


def test_an_ensemble_tells_of_the_member_that_is_furthest():
    known = linear_regression()
    method = po.Ensemble(po.MAP(num_epochs=30, polish=False), 3)
    posterior = po.fit(known.model, known.data, method, progress=False)
    exact = [distance(known, flat) ** 2 / 2 for flat in posterior.stored.flat[:, 0].astype(np.float64)]
    np.testing.assert_allclose(posterior.facts["decrement"], max(exact), rtol=0.11)  # a tenth may be left unknown


# ---- the measure


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_the_decrement_is_half_the_squared_distance_from_a_gaussians_mode(temperature):
    known = linear_regression(temperature=temperature)
    target = Target(known.model, known.data)
    for seed in range(3):
        flat = known.mean + np.random.default_rng(seed).normal(size=4)
        found = decrement(target, tree.unraveller(target.structs)(jnp.asarray(flat, jnp.float32)))
        exact = distance(known, flat) ** 2 / 2
        assert 0.999 * exact < found.nats < 1.11 * exact  # what is left unknown is counted in


def test_own_parameters_count_unless_they_are_held():
    """With a mean function pinned at zero, (shape + n/2) (exp(l) - l) is minus the density of the log precision l."""
    y = 0.4 * np.random.default_rng(3).normal(size=(25, 1)).astype(np.float32)
    pinned = po.Network(lambda key, x: {"w": jnp.zeros((1, 1))}, lambda params, x: 0.0 * (x @ params["w"]))
    likelihood = po.likelihoods.Gaussian(shape=2.0, rate=0.1)
    target = Target(po.Model(pinned, likelihood), (np.ones((25, 1), np.float32), y))
    mode = np.log(14.5 / (0.1 + 0.5 * float((y**2).sum())))
    for offset in (-0.3, 0.2):
        params = {"network": {"w": jnp.zeros((1, 1))}, "likelihood": {"log_precision": jnp.full(1, mode + offset)}}
        params = tree.unraveller(target.structs)(tree.ravel(params))
        exact = 0.5 * 14.5 * (1 - np.exp(offset)) ** 2 / np.exp(offset)
        np.testing.assert_allclose(decrement(target, params).nats, exact, rtol=1e-3)
        assert decrement(target, params, held=("likelihood",)).nats == 0.0


def test_at_a_kink_there_is_nothing_to_gain():
    """The data ask for less than |w| can be: the mode is 0, where the gradient jumps from one side to the other."""
    network = po.Network(lambda key, x: {"w": jnp.ones((1, 1))}, lambda params, x: x @ jnp.abs(params["w"]))
    data = np.ones((10, 1), np.float32), -np.ones((10, 1), np.float32)
    target = Target(po.Model(network, po.likelihoods.Gaussian(0.5), po.priors.Normal(1.0)), data)
    near, far = (decrement(target, {"network": {"w": jnp.full((1, 1), w)}, "likelihood": {}}).nats for w in (1e-4, 0.5))
    assert near < 0.01 and far > 1.0


# ---- given weights


def test_laplace_climbs_on_from_given_weights_where_a_map_is_stated_and_else_says_how_far_they_are():
    known = linear_regression()
    flat = known.mean + 3 * np.sqrt(np.diag(known.covariance))
    start = {"bias": flat[:1], "weight": flat[1:, None]}
    kept = po.fit(known.model, known.data, po.Laplace("kron"), start=start, progress=False)
    np.testing.assert_allclose(weights(kept), flat, rtol=1e-6)
    exact = distance(known, flat) ** 2 / 2
    assert 0.999 * exact < kept.facts["decrement"] < 1.11 * exact and "given" in kept.facts["notes"][0]
    climb = po.MAP(num_epochs=100, learning_rate=1e-3)
    climbed = po.fit(known.model, known.data, po.Laplace("kron", map=climb), start=start, progress=False)
    assert distance(known, weights(climbed)) < 0.01 and not climbed.facts["notes"]
    few = dataclasses.replace(climb, num_epochs=1, polish=False)
    near = po.fit(known.model, known.data, po.Laplace("kron", map=few), start=start, progress=False)
    assert 0 < np.abs(weights(near) - flat).max() < 2e-3  # one step of Adam


def test_so_it_does_on_a_trained_network():
    from flax import nnx

    trained = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    known = linear_regression()
    model = dataclasses.replace(known.model, network=po.network(trained))
    climbed = po.fit(model, known.data, po.Laplace(map=po.MAP(num_epochs=300)), progress=False)
    assert distance(known, weights(climbed)) < 0.01


# ---- variational optima


@pytest.mark.parametrize("num_data, num_features", [(25, 2), (30, 3), (200, 3)])
@pytest.mark.parametrize("family", ["diagonal", "full"])
def test_with_its_defaults_mean_fields_variances_are_the_optimums(family, num_data, num_features):
    known = linear_regression(num_data=num_data, num_features=num_features)
    best = np.diag(known.covariance) if family == "full" else 1 / np.diag(np.linalg.inv(known.covariance))
    posterior = po.fit(known.model, known.data, po.MeanField(family=family), progress=False)
    np.testing.assert_allclose(posterior.spread.variances, best, rtol=0.03)
    assert abs(posterior.facts["drift"]) < ENOUGH and not posterior.facts["notes"]


@pytest.mark.parametrize("method", [po.MeanField(200), po.MeanField(200, family="full")], ids=["diagonal", "full"])
def test_a_variational_fit_that_is_not_done_says_so(method):
    known = linear_regression()
    posterior = po.fit(known.model, known.data, method, progress=False)
    assert posterior.facts["drift"] > ENOUGH
    (note,) = posterior.facts["notes"]
    assert f"rose by {posterior.facts['drift']:.2g} nats" in note


DROPOUT = [po.MCDropout(), po.ConcreteDropout(), po.VariationalDropout("weight"), po.SparseVariationalDropout()]


@pytest.mark.parametrize("method", DROPOUT, ids=lambda method: type(method).__name__)
def test_so_does_dropout(method):
    """A small step from afar: what is left of the way shows in the bound, by the same noise at both ends."""
    known = linear_regression()
    posterior = po.fit(
        known.model, known.data, dataclasses.replace(method, num_epochs=100, learning_rate=1e-3), progress=False
    )
    assert posterior.facts["drift"] > max(ENOUGH, 2 * posterior.facts["drift_error"])
    assert f"rose by {posterior.facts['drift']:.2g} nats" in " ".join(posterior.facts["notes"])


def test_dropout_that_is_done_has_no_drift():
    known = linear_regression()
    posterior = po.fit(known.model, known.data, po.MCDropout(), progress=False)
    assert abs(posterior.facts["drift"]) < ENOUGH and not posterior.facts["notes"]
