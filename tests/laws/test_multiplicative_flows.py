"""Multiplicative flows: mean-field where the multipliers are 1, exact where the flow is Gaussian, a bound always."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import multivariate_normal

import posteria as po
from posteria import tree
from posteria.errors import SettingError
from posteria.methods.variational.bound import Bound
from posteria.methods.variational.families import DiagonalFamily
from posteria.methods.variational.multiplicative_family import MultiplicativeBound, MultiplicativeFamily
from posteria.testing import linear_regression
from posteria.testing.laws import gaussian_divergence
from posteria.testing.targets import log_evidence

ROWS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
DATA = ROWS, np.sin(ROWS[:, :1])


def target_of(network=None, prior=None):
    model = po.Model(network or po.nn.mlp((4,)), po.likelihoods.Gaussian(0.3), prior or po.priors.FanIn())
    return po.Target(model, DATA)


def first_phi(family, target, std=0.2):
    mean = target.init(jax.random.key(1))
    return jax.jit(family.init)(jax.random.key(2), mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, std), mean))


def moved(phi, size=0.3):
    """Flows that are no longer the identity."""
    leaves, treedef = jax.tree.flatten(phi)
    keys = jax.random.split(jax.random.key(3), len(leaves))
    return treedef.unflatten([leaf + size * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys)])


@pytest.mark.parametrize("prior", [po.priors.FanIn(), po.priors.Laplace(1.0)])
def test_with_multipliers_of_one_it_is_mean_field(prior):
    target = target_of(prior=prior)
    family, plain = MultiplicativeFamily(target), DiagonalFamily(target)
    phi = first_phi(family, target)
    phi["scale"] = jnp.zeros_like(phi["scale"])
    alone = {name: phi[name] for name in ("mean", "rho")}
    key = jax.random.key(4)
    draw = jax.jit(plain.draw)(alone, key)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), jax.jit(family.draw)(phi, key), draw)
    wanted = plain.log_prob(alone, draw)
    np.testing.assert_allclose(jax.jit(family.log_prob_at_draw)(phi, key, draw), wanted, rtol=1e-5)
    if isinstance(prior, po.priors.FanIn):  # of others each takes a draw of its own
        mine = jax.jit(MultiplicativeBound(target, family, "local"))(phi, key, DATA)
        np.testing.assert_allclose(mine, jax.jit(Bound(target, plain, "local"))(alone, key, DATA), rtol=1e-5)
    posterior = family.posterior(target, phi, {})
    np.testing.assert_allclose(posterior.mean, tree.ravel(phi["mean"]), rtol=1e-6)
    np.testing.assert_allclose(posterior.spread.variances, tree.ravel(plain.marginals(alone)[1]) ** 2, rtol=1e-5)


def test_with_a_standard_flow_the_auxiliary_density_is_exact():
    """W is then Gaussian: each unit's weights share scale^2 mean mean^T, and what stands for log q(W) is log q(W)."""
    target = target_of()
    family = MultiplicativeFamily(target)
    phi = first_phi(family, target)
    phi["scale"] = jnp.linspace(0.1, 2.0, family.num_units)
    mean, std = tree.ravel(phi["mean"]), tree.ravel(family.marginals(phi)[1])
    unit = np.asarray(family.posterior(target, phi, {}).spread.unit)
    assert family.num_units == 3 + 4 and (unit < 0).sum() == 4 + 1  # inputs and hidden units; biases have none
    joint = mean * np.where(unit < 0, 0.0, np.asarray(phi["scale"])[unit])
    covariance = np.diag(std**2) + np.outer(joint, joint) * ((unit[:, None] == unit) & (unit >= 0))

    @jax.jit
    def both(key):
        draw = family.draw(phi, key)
        wanted = multivariate_normal.logpdf(tree.ravel(draw), mean, covariance)
        return family.log_prob_at_draw(phi, key, draw), wanted

    for seed in range(3):
        np.testing.assert_allclose(*both(jax.random.key(seed)), atol=2e-3)
    spread = family.posterior(target, phi, {}).spread
    np.testing.assert_allclose(spread.variances, np.diag(covariance), rtol=0.06)  # by 10,000 draws of z
    found, scale = np.asarray(spread.covariance()), np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(np.diag(found), spread.variances, rtol=1e-4)
    np.testing.assert_allclose(found / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=0.06)


def test_both_estimates_of_the_bound_agree():
    """With noise at the operations, by the datum; and at a draw of the weights, as the fact "elbo" is estimated."""
    target = target_of()
    family = MultiplicativeFamily(target)
    phi = jax.jit(lambda: moved(first_phi(family, target)))()
    keys = jax.random.split(jax.random.key(0), 1000)
    values = [
        np.asarray(jax.jit(jax.vmap(lambda key, b=bound: b(phi, key, DATA)))(keys), np.float64)
        for bound in (MultiplicativeBound(target, family, "local"), Bound(target, family, "path"))
    ]
    error = np.hypot(*(v.std() / np.sqrt(len(v)) for v in values))
    assert abs(values[0].mean() - values[1].mean()) < 4 * error
    assert values[0].std() < values[1].std()


def test_its_gradient_is_that_of_finite_differences():
    target = target_of()
    family = MultiplicativeFamily(target)
    phi = jax.jit(lambda: moved(first_phi(family, target), 0.1))()
    bound = MultiplicativeBound(target, family, "local")
    treedef, keys = jax.tree.structure(phi), jax.random.split(jax.random.key(5), 4)

    @jax.jit
    def along(step, key):
        flat, back = jax.flatten_util.ravel_pytree(phi)
        direction = jax.random.normal(key, flat.shape) / np.sqrt(len(flat))
        return bound(back(flat + step * direction), jax.random.key(0), DATA)

    assert treedef.num_leaves == 4 + 4 + 1 + 2 * 8 + 3
    slopes = jax.vmap(jax.grad(along), (None, 0))(0.0, keys)
    steps = 0.02
    differences = jax.vmap(lambda key: (along(steps, key) - along(-steps, key)) / (2 * steps))(keys)
    np.testing.assert_allclose(slopes, differences, rtol=0.02, atol=0.02 * float(jnp.abs(slopes).max()))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_on_a_linear_model_it_is_between_mean_field_and_the_evidence(temperature):
    """Its flow correlates the columns' weights, which mean-field cannot."""
    known = linear_regression(temperature=temperature)
    method = po.MeanField(family="multiplicative", num_epochs=1000, num_samples=4, start="map", initial_std=0.3)
    facts = po.fit(known.model, known.data, method, progress=False).facts
    alone = np.diag(1 / np.diag(np.linalg.inv(known.covariance)))
    mean_field = log_evidence(known) - gaussian_divergence(known, known.mean, alone)
    assert mean_field - 0.02 < facts["elbo"] + 4 * facts["elbo_error"]
    assert facts["elbo"] - 4 * facts["elbo_error"] < log_evidence(known)


def a_product():
    """Of two weights, which alone meets the data: (a, b) and (-a, -b) are alike, two modes; and log p(y), by a grid."""

    def init(key, x):
        a, b = jax.random.normal(key, (2, 1, 1))
        return {"a": a, "b": b}

    network = po.Network(init, lambda params, x: x @ params["a"] @ params["b"])
    x = np.linspace(0.5, 1.5, 5, dtype=np.float32)[:, None]
    model, data = po.Model(network, po.likelihoods.Gaussian(0.5), po.priors.Normal(1.0)), (x, 1.2 * x)
    target, line = po.Target(model, data), jnp.linspace(-6, 6, 400)

    def density(a, b):
        params = {"network": {"a": a.reshape(1, 1), "b": b.reshape(1, 1)}, "likelihood": {}}
        return target.log_density(params, data)

    values = np.asarray(jax.vmap(jax.vmap(density, (None, 0)), (0, None))(line, line), np.float64)
    return model, data, float(np.log(np.exp(values).sum()) + 2 * np.log(12 / 399))


@pytest.mark.slow
def test_on_two_modes_it_is_nearer_to_the_evidence_than_mean_field():
    model, data, evidence = a_product()
    gaps = {}
    for family in ("diagonal", "multiplicative"):
        method = po.MeanField(family=family, num_epochs=3000, num_samples=8)
        facts = po.fit(model, data, method, progress=False).facts
        gaps[family], error = evidence - facts["elbo"], facts["elbo_error"]
        assert gaps[family] > -4 * error
    print(f"nats below the evidence: {gaps}")
    assert gaps["multiplicative"] < gaps["diagonal"] - 0.3


def test_it_is_saved_and_loaded(tmp_path):
    model = po.Model(po.nn.mlp((4,)))
    method = po.MeanField(family="multiplicative", num_epochs=3)
    posterior = po.fit(model, DATA, method, progress=False)
    posterior.save(tmp_path / "saved")
    again = po.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(ROWS).mean, posterior.predict(ROWS).mean)
    assert not method.is_updatable
    draws = posterior.sample_params(jax.random.key(0), 400)
    flat = np.asarray(jax.vmap(tree.ravel)(draws))
    error = np.sqrt(posterior.spread.variances / len(flat) + posterior.spread.variances / 10_000)
    assert (np.abs(flat.mean(0) - posterior.mean) < 4.5 * error).all()
    np.testing.assert_allclose(np.diag(posterior.spread.covariance()), posterior.spread.variances, rtol=1e-4)
    with pytest.raises(SettingError, match="scales"):
        po.fit(replace(model, prior=po.priors.Normal(po.infer)), DATA, method, progress=False)


@pytest.mark.slow
def test_convolutions_have_a_multiplier_a_channel():
    images = np.random.default_rng(0).normal(size=(4, 28, 28, 1)).astype(np.float32)
    model = po.Model(po.nn.lenet5(outputs=3), po.likelihoods.Categorical())
    target = po.Target(model, (images, np.array([0, 1, 2, 0])))
    family = MultiplicativeFamily(target)
    assert min(units.count for units in family.rows.values()) == 1  # the image's one channel
    posterior = po.fit(model, target.data, po.MeanField(family="multiplicative", num_epochs=2), progress=False)
    assert np.isfinite(posterior.predict(images).probs).all()
