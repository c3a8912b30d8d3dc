"""Laplace's approximation is the posterior where the model is linear and Gaussian; its evidence too."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import posteria as po
from posteria.curvature.jacobian import subset_paths
from posteria.curvature.measure import Settings
from posteria.errors import SettingError
from posteria.methods.points.tuning import fit_scales
from posteria.methods.watch import hold_out
from posteria.models.target import Target
from posteria.testing import ExactLaws, linear_regression
from posteria.testing.laws import _fitted

QUICK = po.MAP(num_epochs=50)


class TestLaplace(ExactLaws):
    method = po.Laplace(map=po.MAP(num_epochs=300))  # "auto" is "full" here, and its Newton steps end at the mode
    cheap = po.Laplace(map=QUICK)


def log_evidence(known, prior_std, noise=0.5):
    """Of linear regression, in closed form."""
    x, y = known.data
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1).astype(np.float64)
    covariance = noise**2 * np.eye(len(y)) + prior_std**2 * design @ design.T
    return stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)


@pytest.mark.parametrize("structure", ["full", "lowrank"])
def test_mean_covariance_and_evidence_are_exact_to_rounding(structure):
    known = linear_regression()
    start = {"bias": known.mean[:1], "weight": known.mean[1:, None]}
    posterior = po.fit(known.model, known.data, po.Laplace(structure), start=start, progress=False)
    np.testing.assert_allclose(posterior.spread.covariance(), known.covariance, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(posterior.log_evidence(), log_evidence(known, 0.7), rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.25, 2.0])
@pytest.mark.parametrize("structure", ["kron", "diagonal"])
def test_the_covariance_of_every_structure_scales_with_temperature(structure, temperature):
    covariances = []
    for t in (1.0, temperature):
        known = linear_regression(temperature=t)
        start = {"bias": known.mean[:1], "weight": known.mean[1:, None]}
        posterior = po.fit(known.model, known.data, po.Laplace(structure), start=start, progress=False)
        covariances.append(posterior.spread.covariance())
        draws = posterior.sample(0, 2000)["weight"][..., 0]
        variances = np.diag(covariances[-1])[1:]
        assert (np.abs(np.var(draws, axis=0) / variances - 1) < 5 * np.sqrt(2 / 2000)).all()
    np.testing.assert_allclose(covariances[1], temperature * covariances[0], rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_inferred_noise_is_as_wide_as_its_tempered_closed_form(temperature):
    """With a mean function pinned at zero, -log density is (shape + n/2)(exp(l) - l) around the mode of the log
    precision, so that its variance there is T / (shape + n/2): in the spread, in draws, and in predictions."""
    y = 0.4 * np.random.default_rng(3).normal(size=(25, 1)).astype(np.float32)
    x = np.ones((25, 1), np.float32)
    pinned = po.Network(lambda key, x: {"w": jnp.zeros((1, 1))}, lambda params, x: 0.0 * (x @ params["w"]))
    model = po.Model(pinned, po.likelihoods.Gaussian(shape=2.0, rate=0.1), temperature=temperature)
    posterior = po.fit(model, (x, y), po.Laplace("full"), start={"w": np.zeros((1, 1))}, progress=False)
    variance = temperature / (2.0 + 12.5)
    np.testing.assert_allclose(posterior.spread.variances[0], variance, rtol=1e-3)
    np.testing.assert_allclose(posterior.spread.covariance()[0, 0], variance, rtol=1e-3)
    drawn = posterior.sample_params(jax.random.key(0), 4000)["likelihood"]["log_precision"]
    assert abs(np.var(drawn) / variance - 1) < 4 * np.sqrt(2 / 4000)
    functions = posterior.draws(jax.random.key(0), x[:1], 4000)[1]["log_precision"]
    assert abs(np.var(functions) / variance - 1) < 4 * np.sqrt(2 / 4000)
    noise_variance = np.exp(-posterior.mean[0] + variance / 2)  # the mean of exp(-l), by points that are spread evenly
    np.testing.assert_allclose(posterior.predict(x[:1]).aleatoric, noise_variance, rtol=2e-3)


def test_the_evidence_at_another_temperature_is_refused():
    _, posterior = _fitted(TestLaplace.method, "linear_regression", temperature=2.0)
    with pytest.raises(SettingError, match="temperature"):
        posterior.log_evidence()


def test_predictions_are_the_closed_form_without_sampling_noise():
    known, posterior = _fitted(TestLaplace.method, "linear_regression")
    x = known.data[0]
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    variance = np.einsum("np,pq,nq->n", design, known.covariance, design)
    predicted = posterior.predict(x)
    np.testing.assert_allclose(predicted.mean[:, 0], design @ known.mean, atol=1e-4)
    np.testing.assert_allclose(predicted.epistemic[:, 0], variance, rtol=1e-4)
    np.testing.assert_allclose(predicted.aleatoric[:, 0], 0.25, rtol=1e-5)
    exact = stats.norm(design @ known.mean, np.sqrt(variance + 0.25))
    np.testing.assert_allclose(predicted.quantile(0.95)[:, 0], exact.ppf(0.95), atol=0.01)


def test_functions_have_the_covariance_between_inputs():
    known, posterior = _fitted(TestLaplace.method, "linear_regression")
    x = known.data[0][:2]
    design = np.concatenate([np.ones((2, 1)), x], axis=1)
    wanted = design @ known.covariance @ design.T
    draws = np.asarray(posterior.functions(0, x, 4000))[..., 0]
    error = np.sqrt((wanted[0, 0] * wanted[1, 1] + wanted[0, 1] ** 2) / 4000)
    assert abs(np.cov(draws.T)[0, 1] - wanted[0, 1]) < 4 * error


# ---- the evidence as a guide


def test_the_tuned_prior_scale_is_the_closed_forms_optimum():
    known = linear_regression()
    best = optimize.minimize_scalar(lambda s: -log_evidence(known, np.exp(s)), bounds=(-3, 3), method="bounded")
    method = po.MAP(num_epochs=1200, tune="evidence", tune_every=60, learning_rate=0.02)
    posterior = po.fit(known.model, known.data, method, progress=False)
    tuned = {posterior.model.prior.unit(leaf) for leaf in posterior.target.leaves}
    assert len(tuned) == 1
    np.testing.assert_allclose(tuned.pop(), np.exp(best.x), rtol=0.05)


def test_the_tuned_noise_is_that_of_the_marginal_posterior_not_of_the_joint_mode():
    """10 weights for 20 data: the joint mode has too little noise by a factor of about sqrt(2)."""
    known = linear_regression(num_data=20, num_features=9, prior_std=3.0)
    likelihood = po.likelihoods.Gaussian()
    model = dataclasses.replace(known.model, likelihood=likelihood)

    def negative(log_precision):
        own = {"log_precision": jnp.asarray(log_precision)}
        return -log_evidence(known, 3.0, np.exp(-0.5 * log_precision)) - float(likelihood.log_prior(own))

    best = np.exp(-0.5 * optimize.minimize_scalar(negative, bounds=(-3, 6), method="bounded").x)
    method = po.MAP(num_epochs=3000, learning_rate=0.02, tune="noise", tune_every=75)
    tuned = po.fit(model, known.data, method, progress=False)
    joint = po.fit(model, known.data, dataclasses.replace(method, tune=None), progress=False)
    tuned_noise, joint_noise = (
        float(likelihood.noise_std(p.stored.params["likelihood"])[0, 0]) for p in (tuned, joint)
    )
    np.testing.assert_allclose(tuned_noise, best, rtol=0.03)
    assert joint_noise < 0.85 * best


def test_one_scale_a_layer_shrinks_the_layer_that_is_not_needed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2)).astype(np.float32)

    def apply(params, x):
        return x[:, :1] @ params["used"] + x[:, 1:] @ params["idle"]

    network = po.Network(lambda key, x: {"used": jnp.ones((1, 1)), "idle": jnp.ones((1, 1))}, apply)
    model = po.Model(network, po.likelihoods.Gaussian(0.3), po.priors.Normal(1.0))
    y = 2 * x[:, :1] + 0.3 * rng.normal(size=(100, 1))
    method = po.MAP(num_epochs=600, tune="layers", tune_every=50, learning_rate=0.05)
    posterior = po.fit(model, (x, y), method, progress=False)
    stds = {leaf.path: posterior.model.prior.unit(leaf) for leaf in posterior.target.leaves}
    np.testing.assert_allclose(stds["used"], 2.0, rtol=0.1)  # gamma is nearly 1: |w|
    assert stds["idle"] < 0.2


def test_tuning_is_refused_where_there_is_no_evidence():
    known = linear_regression(temperature=0.5)
    with pytest.raises(SettingError, match="temperature"):
        po.fit(known.model, known.data, po.MAP(tune="evidence"), progress=False)
    model = dataclasses.replace(linear_regression().model, prior=po.priors.StudentT())
    with pytest.raises(SettingError, match="constant curvature"):
        po.fit(model, known.data, po.MAP(tune="evidence"), progress=False)


# ---- after training


def test_a_trained_network_in_three_lines_keeps_its_weights():
    from flax import nnx

    trained = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    known = linear_regression()
    model = po.Model(po.network(trained))
    posterior = po.fit(model, known.data, po.Laplace(), progress=False)
    np.testing.assert_array_equal(posterior.mean_params["kernel"], trained.kernel.get_value())
    residual = np.asarray(trained(known.data[0]))[:, 0] - known.data[1]
    noise = model.likelihood.noise_std(posterior.sample_params(jax.random.key(0), 500)["likelihood"])
    assert 0.8 < np.median(noise) / residual.std() < 1.3  # of the given weights, not the initial 1


def test_it_resumes_and_an_ensemble_of_it_is_a_mixture(tmp_path):
    known = linear_regression()
    method = po.Ensemble(po.Laplace(map=QUICK), 2)
    posterior = po.fit(known.model, known.data, method, out=tmp_path / "run", progress=False)
    again = po.resume(tmp_path / "run", data=known.data, network=known.model.network, progress=False)
    np.testing.assert_array_equal(posterior.predict(known.data[0]).mean, again.predict(known.data[0]).mean)
    assert len(posterior.members) == 2


# ---- the prior's scale, after training


@pytest.fixture(scope="module")
def given():
    """A model, data, and weights that are no mode of it: (model, data, start)."""
    known = linear_regression()
    start = {"bias": known.mean[:1] * 0.9, "weight": 1.1 * known.mean[1:, None]}
    return known.model, known.data, start


def stds_of(posterior):
    return [posterior.model.prior.unit(leaf) for leaf in posterior.target.leaves]


def test_one_scale_after_training_has_the_largest_evidence(given):
    model, data, start = given
    posterior = po.fit(model, data, po.Laplace("full", tune_prior="evidence"), start=start, progress=False)

    def negative_evidence(log_std):
        other = dataclasses.replace(model, prior=po.priors.Normal(float(np.exp(log_std))))
        return -po.fit(other, data, po.Laplace("full"), start=start, progress=False).log_evidence()

    best = np.exp(optimize.minimize_scalar(negative_evidence, bounds=(-2, 2), method="bounded").x)
    np.testing.assert_allclose(stds_of(posterior), best, rtol=5e-3)
    np.testing.assert_array_equal(posterior.mean_params["weight"], np.float32(start["weight"]))
    by_leaf = po.fit(model, data, po.Laplace("full", tune_prior="layers"), start=start, progress=False)
    assert by_leaf.log_evidence() > posterior.log_evidence() > -negative_evidence(np.log(0.7))


def test_the_evidences_scales_are_one_or_one_a_leaf(given):
    model, data, start = given
    target = Target(model, data)
    params = {"network": start, "likelihood": target.model.likelihood.init(jax.random.key(0))}
    for by_leaf in (False, True):
        found, _ = fit_scales(target, params, Settings("full", subset_paths(target, "all")), by_leaf, jax.random.key(0))
        one, other = (found.model.prior.unit(leaf) for leaf in found.leaves)
        assert (one != pytest.approx(other, rel=1e-3)) == by_leaf


def test_by_validation_held_out_rows_are_predicted_best(given, tmp_path):
    model, data, start = given
    tuned = po.fit(model, data, po.Laplace("full", tune_prior="validation"), start=start, key=3, progress=False)
    found = stds_of(tuned)[0]
    key, _ = jax.random.split(jax.random.key(3))
    part, held = hold_out(key, po.Target(model, data), 0.2)

    def score(std):
        other = dataclasses.replace(model, prior=po.priors.Normal(std))
        posterior = po.fit(other, part.data, po.Laplace("full"), start=start, progress=False)
        return float(posterior.predict(held.left_out[0]).log_prob(held.left_out[1]).mean())

    assert score(found) > max(score(std) for std in np.geomspace(0.01, 10, 7)) - 1e-3
    assert "held-out rows" in " ".join(tuned.facts["notes"])
    tuned.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved", network=model.network)
    np.testing.assert_array_equal(loaded.spread.covariance(), tuned.spread.covariance())


def test_a_scale_is_not_tuned_where_nothing_is_given_or_nothing_tells_it(given):
    model, data, start = given
    method = po.Laplace(tune_prior="evidence")
    with pytest.raises(SettingError, match="MAP"):
        po.fit(model, data, method, progress=False)
    with pytest.raises(SettingError, match="without data"):
        po.fit(model, (data[0], None), method, start=start, progress=False)
    for other, said in {
        "temperature": dataclasses.replace(model, temperature=0.5),
        "a Normal one": dataclasses.replace(model, prior=po.priors.Laplace(1.0)),
        "by the evidence already": dataclasses.replace(model, prior=po.priors.Normal(po.infer)),
    }.items():
        with pytest.raises(SettingError, match=other):
            po.fit(said, data, method, start=start, progress=False)
