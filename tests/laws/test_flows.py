"""Flows: splines that are monotone and have an inverse, bounds near the evidence where no Gaussian is."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.errors import SettingError
from posteria.methods.variational.flow_family import FlowFamily
from posteria.models import densities
from posteria.posteriors import flow
from posteria.testing import FamilyOptimumLaws, linear_regression

NETWORK = po.Network(lambda key, x: {"w": jnp.zeros(2)}, lambda params, x: x @ params["w"][:, None])
NOTHING = (np.zeros((1, 2), np.float32), None)


@dataclass(frozen=True)
class Shape:
    """A density over two weights, normalised: its evidence is 1."""

    is_proper: ClassVar[bool] = True

    def log_prob(self, value, leaf):
        return self.density(value)

    def sample(self, key, leaf):
        return jax.random.normal(key, leaf.shape)

    def unit(self, leaf):
        return 1.0


@dataclass(frozen=True)
class Apart(Shape):
    """Two Gaussians of independent weights, of shares 0.7 and 0.3: a mixture can be it."""

    def density(self, w):
        parts = (densities.normal((w - jnp.asarray(m)) / 0.5, jnp.log(0.5)).sum() for m in ((-1.5, 0.0), (1.5, 1.0)))
        return jnp.logaddexp(*(part + jnp.log(share) for part, share in zip(parts, (0.7, 0.3))))


@dataclass(frozen=True)
class Slanted(Shape):
    """A Gaussian, which the affine part alone can be."""

    def density(self, w):
        return densities.normal(w[0], 0.0) + densities.normal((w[1] - 0.9 * w[0]) / 0.3, jnp.log(0.3))


@dataclass(frozen=True)
class Banana(Shape):
    def density(self, w):
        return densities.normal(w[0], 0.0) + densities.normal((w[1] - 1.5 * (w[0] ** 2 - 1)) / 0.5, jnp.log(0.5))


@dataclass(frozen=True)
class TwoModes(Shape):
    def density(self, w):
        across = jnp.logaddexp(*(densities.normal((w[0] - m) / 0.5, jnp.log(0.5)) for m in (-1.5, 1.5))) - jnp.log(2)
        return across + densities.normal((w[1] - 0.5 * w[0]) / 0.7, jnp.log(0.7))


@lru_cache
def fitted(shape, family):
    epochs = {"flow": 2000, "full": 1000}[family]
    method = po.MeanField(family=family, num_epochs=epochs, num_samples=16, initial_std=1.0)
    return po.fit(po.Model(NETWORK, po.likelihoods.Gaussian(1.0), shape()), NOTHING, method, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [Banana, TwoModes])
def test_a_flow_comes_within_a_twentieth_of_a_nat_where_the_best_gaussian_is_far_off(shape):
    for family in ("flow", "full"):
        facts = fitted(shape, family).facts
        assert facts["elbo"] < 4 * facts["elbo_error"] + 1e-5  # never above log Z = 0
    values = bound_of(fitted(shape, "flow"), shape())
    assert -0.05 < values.mean() < 4 * values.std() / np.sqrt(len(values))
    assert fitted(shape, "full").facts["elbo"] < -0.3


@pytest.mark.slow
def test_a_flow_is_the_gaussian_where_that_is_the_truth():
    """Its splines have nothing to do: what they are moved by must vanish too."""
    values = bound_of(fitted(Slanted, "flow"), Slanted())
    assert -0.005 < values.mean() < 4 * values.std() / np.sqrt(len(values))
    assert values.std() < 0.1


def bound_of(posterior, shape, num=20_000):
    """log p - log q at many draws of what the store holds."""
    layers, factor = posterior.spread.layers, jnp.asarray(posterior.spread.factor)
    noise = jax.random.normal(jax.random.key(1), (num, 2))
    log_q = jax.vmap(lambda e: flow.log_prob_of(layers, factor, e))(noise)
    residual = jax.vmap(lambda e: flow.affine(factor, flow.through(layers, e)[0]))(noise)
    draws = residual + posterior.mean - posterior.spread.offset
    return np.asarray(jax.vmap(shape.density)(draws) - log_q, np.float64)


@pytest.mark.slow
def test_a_mixture_finds_the_mode_that_its_first_component_left_out(tmp_path):
    posterior = mixture_of(2)
    alone = po.fit(po.Model(NETWORK, po.likelihoods.Gaussian(1.0), Apart()), NOTHING, po.MeanField(), progress=False)
    assert alone.facts["elbo"] < -0.3  # the log of a share
    assert -0.02 < posterior.facts["elbo"] < 4 * posterior.facts["elbo_error"] + 1e-5  # never above log Z = 0
    spread = posterior.spread
    order = np.argsort(spread.shares)
    np.testing.assert_allclose(spread.shares[order], [0.3, 0.7], atol=0.05)
    centres = np.asarray(posterior.mean + spread.centres)[order]
    np.testing.assert_allclose(centres, [[1.5, 1.0], [-1.5, 0.0]], atol=0.1)
    draws = np.asarray(posterior.sample(0, 20_000)["w"])
    np.testing.assert_allclose(draws.mean(0), posterior.mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), spread.covariance(), atol=0.08)
    posterior.save(tmp_path / "saved")
    again = po.load(tmp_path / "saved", network=NETWORK, prior=Apart())
    np.testing.assert_array_equal(again.sample(0, 5)["w"], posterior.sample(0, 5)["w"])
    with pytest.raises(SettingError, match="num_components"):
        po.MeanField(num_components=3)


def mixture_of(num):
    method = po.MeanField(family="mixture", num_components=num, num_epochs=1000, num_samples=16, initial_std=0.5)
    return po.fit(po.Model(NETWORK, po.likelihoods.Gaussian(1.0), Apart()), NOTHING, method, progress=False)


@pytest.mark.slow
class TestFlow(FamilyOptimumLaws):
    """Its affine part holds all Gaussians."""

    method = po.MeanField(family="flow", num_epochs=1500, num_samples=16, start="map", initial_std=0.3)
    cheap = po.MeanField(family="flow", num_epochs=10)

    def optimum(self, known):
        return known.covariance


def test_a_spline_is_monotone_and_has_its_slope():
    raw = 2 * jax.random.normal(jax.random.key(0), (3 * flow.BINS - 1,))
    x = jnp.linspace(-6, 6, 401)
    y, log_slope = jax.vmap(lambda v: flow.spline(v, raw))(x)
    assert (jnp.diff(y) > -2e-6).all() and y[0] == -6.0 and y[-1] == 6.0  # flat stretches: to rounding
    np.testing.assert_allclose(log_slope, jnp.log(jax.vmap(jax.grad(lambda v: flow.spline(v, raw)[0]))(x)), atol=1e-4)
    np.testing.assert_allclose(jax.vmap(lambda v: flow.spline(v, jnp.zeros_like(raw))[0])(x), x, atol=1e-5)
    inside = jnp.asarray([-1.0, 1.0]) * (flow.REACH - 1e-5)  # beyond it the identity goes on
    np.testing.assert_allclose(jax.vmap(lambda v: flow.spline(v, raw)[0])(inside), inside, atol=1e-4)


@pytest.mark.parametrize("size", [1, 4])
def test_the_volume_is_the_jacobians(size):
    layers = flow.new_layers(jax.random.key(0), size, 3, 8)
    layers = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), layers)
    factor = jnp.tril(jax.random.normal(jax.random.key(2), (size, size))) + 3 * jnp.eye(size)
    noise = jax.random.normal(jax.random.key(3), (size,))
    jacobian = jax.jit(jax.jacobian(lambda e: flow.affine(factor, flow.through(layers, e)[0])))(noise)
    wanted = densities.normal(noise, 0.0).sum() - jnp.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(flow.log_prob_of(layers, factor, noise), wanted, atol=1e-3)
    value, slope = jax.jit(flow.log_prob_and_slope)(layers, factor, noise)
    np.testing.assert_allclose(value, wanted, atol=1e-3)
    by_noise = jax.jit(jax.grad(lambda e: flow.log_prob_of(layers, factor, e)))(noise)
    np.testing.assert_allclose(jacobian.T @ slope, by_noise, rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_inside_a_subspace_and_with_a_network_of_a_thousand_weights(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    y = np.sin(2 * x[:, :1])
    snapshots = po.SWAG(po.MAP(num_epochs=30, polish=False), num_snapshots=5, rank=3)
    inner = po.MeanField(family="flow", num_epochs=20)
    posterior = po.fit(po.Model(po.nn.mlp((6,))), (x, y), po.Subspace(inner, rank=3, swag=snapshots), progress=False)
    posterior.save(tmp_path / "saved")
    np.testing.assert_array_equal(po.load(tmp_path / "saved").predict(x).mean, posterior.predict(x).mean)
    wide = po.Model(po.nn.mlp((200,)))
    assert tree.size(po.Target(wide, (x, y)).structs) > 800
    large = po.fit(wide, (x, y), po.MeanField(family="flow", num_epochs=5), progress=False)
    assert large.spread.factor.ndim == 1 and np.isfinite(large.predict(x).log_prob(y)).all()


def test_what_a_flow_cannot_be_is_refused():
    known = linear_regression()
    with pytest.raises(SettingError, match="scales"):
        model = po.Model(known.model.network, prior=po.priors.Normal(po.infer))
        po.fit(model, known.data, po.MeanField(family="flow"), progress=False)
    with pytest.raises(SettingError, match="at most"):
        x = np.zeros((4, 300), np.float32)
        po.fit(po.Model(po.nn.mlp((50,))), (x, x[:, :1]), po.MeanField(family="flow"), progress=False)
    assert not po.MeanField(family="flow").is_updatable
    assert FlowFamily.has_elbo
