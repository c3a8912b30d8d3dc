"""Inside a subspace the density is the whole model's; elliptical slices are exact."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.comparison.judge import grades
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.posteriors.draws import forward
from posteria.posteriors.restricted import Plane, restricted
from posteria.testing import ExactLaws, ProcedureLaws, linear_regression
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value

TRAJECTORY = po.SWAG(po.MAP(num_epochs=50), num_snapshots=6, rank=3, batch_size=10)
SLICES = po.EllipticalSlice(num_draws=400, num_warmup=100)


class TestEllipticalSlice(ExactLaws):
    method = po.EllipticalSlice(num_draws=600, num_warmup=300, thinning=10, start="prior")
    cheap = po.EllipticalSlice(num_draws=30, num_warmup=30, start="prior")


@pytest.mark.slow
class TestSubspace(ProcedureLaws):
    method = po.Subspace(po.EllipticalSlice(num_draws=30, num_warmup=30), rank=2, swag=TRAJECTORY)


@pytest.mark.parametrize(
    "inner", [SLICES, pytest.param(po.NUTS(num_draws=400, num_warmup=200), marks=pytest.mark.slow)]
)
def test_with_all_directions_an_exact_method_is_exact(inner):
    known = linear_regression()
    method = po.Subspace(inner, basis="random", rank=4, swag=TRAJECTORY)
    posterior = po.fit(known.model, known.data, method, progress=False)
    assert moments_p_value(posterior.stored.flat, known.mean, known.covariance) > LEAST_P_VALUE


@pytest.mark.parametrize("basis, temperature", [pytest.param("random", 1.0, marks=pytest.mark.slow), ("pca", 2.0)])
def test_with_fewer_it_is_the_gaussian_restricted_to_them(basis, temperature):
    known = linear_regression(temperature=temperature)
    method = po.Subspace(SLICES, basis=basis, rank=2, swag=TRAJECTORY)
    posterior = po.fit(known.model, known.data, method, progress=False)
    directions, centre = (np.asarray(part, np.float64) for part in (posterior.plane.directions, posterior.plane.centre))
    precision = np.linalg.inv(known.covariance)
    inside = directions.T @ precision @ directions
    mean = np.linalg.solve(inside, directions.T @ precision @ (known.mean - centre))
    z = posterior.inner.stored.flat
    assert moments_p_value(z, mean, np.linalg.inv(inside)) > LEAST_P_VALUE
    np.testing.assert_allclose(inside, np.eye(2), atol=1e-3)  # coordinates have unit curvature
    np.testing.assert_allclose(posterior.stored.flat, centre + z @ directions.T, atol=1e-5)


def test_mean_field_inside_finds_the_restricted_gaussian():
    """Whose covariance is the identity: the family holds it."""
    known = linear_regression()
    method = po.Subspace(po.MeanField(num_epochs=4000), basis="random", rank=2, swag=TRAJECTORY)
    posterior = po.fit(known.model, known.data, method, progress=False)
    directions, centre = (np.asarray(part, np.float64) for part in (posterior.plane.directions, posterior.plane.centre))
    precision = np.linalg.inv(known.covariance)
    mean = directions.T @ precision @ (known.mean - centre)
    np.testing.assert_allclose(posterior.inner.mean, mean, atol=0.1)
    np.testing.assert_allclose(posterior.inner.spread.variances, 1.0, rtol=0.2)  # four standard errors of its ascent


X = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
MODEL = po.Model(po.nn.mlp((5,)), temperature=0.5)
DATA = (X, np.sin(3 * X))


def test_the_density_inside_is_the_whole_models():
    target = po.Target(MODEL, DATA)
    whole = target.init(jax.random.key(0))
    size = tree.size(target.structs["network"])
    directions = jax.random.normal(jax.random.key(1), (size, 3))
    plane = Plane(target.structs["network"], tree.ravel(whole["network"]), directions)
    inside = restricted(target, plane, DATA)
    z = jnp.asarray([0.1, -0.2, 0.05])
    own = {"likelihood": whole["likelihood"]}
    batch = jax.tree.map(lambda leaf: leaf[:7], target.data)
    for data in (None, batch):
        got = inside.log_density({"network": z} | own, data)
        np.testing.assert_allclose(got, target.log_density({"network": plane.params(z)} | own, data), rtol=1e-5)
    np.testing.assert_allclose(
        inside.log_likelihood({"network": z} | own, batch),
        target.log_likelihood({"network": plane.params(z)} | own, batch),
        rtol=1e-5,
    )


def test_it_predicts_with_the_whole_network():
    method = po.Subspace(po.EllipticalSlice(num_draws=20, num_warmup=20), rank=2, swag=TRAJECTORY)
    posterior = po.fit(MODEL, DATA, method, progress=False)
    flat = posterior.stored.flat.reshape(posterior.num_draws, -1)
    outputs, own = forward(po.Target(MODEL, (X, None)))(flat, X)
    means, variances = jax.vmap(MODEL.likelihood.moments)(own, outputs)
    assert grades.chain_arrays(posterior, SimpleNamespace(x_test=X))["trace"].shape == (4, 20)  # shown in a comparison
    np.testing.assert_allclose(posterior.predict(X).mean, means.mean(0), atol=1e-5)
    np.testing.assert_allclose(posterior.predict(X).std ** 2, variances.mean(0) + means.var(0), rtol=1e-3)


def test_an_inner_gaussian_is_a_gaussian_of_low_rank():
    method = po.Subspace(po.SWAG(None, 5, 2, batch_size=10), rank=2, swag=TRAJECTORY)
    posterior = po.fit(linear_regression().model, linear_regression().data, method, progress=False)
    offsets = np.asarray(jax.vmap(tree.ravel)(posterior.sample(0, 20))) - posterior.plane.centre
    assert np.linalg.matrix_rank(offsets, tol=1e-4 * np.linalg.norm(offsets)) == 2
    with pytest.raises(AttributeError):
        _ = posterior.stored


@pytest.mark.slow
def test_a_curves_plane_holds_both_its_ends():
    method = po.Subspace(po.EllipticalSlice(num_draws=5, num_warmup=5), "curve", swag=TRAJECTORY)
    target = po.Target(MODEL, DATA)
    posterior = po.fit(MODEL, DATA, method, key=2, progress=False)
    key = jax.random.split(jax.random.split(jax.random.key(2))[0])[0]
    ends = TRAJECTORY.follow(key, target, None, Run(), 2).mean(1)
    plane = posterior.plane
    for end in ends:
        network = tree.ravel(tree.unraveller(target.structs)(jnp.asarray(end))["network"])
        offset = np.asarray(network - plane.centre, np.float64)
        _, residual, *_ = np.linalg.lstsq(np.asarray(plane.directions, np.float64), offset)
        assert residual < 1e-6 * (offset @ offset)


@pytest.mark.parametrize(
    "make",
    [
        lambda: po.Subspace(po.NUTS),
        lambda: po.Subspace(basis="axes"),
        lambda: po.Subspace(rank=0),
        lambda: po.Subspace(rank=40),
        lambda: po.Subspace(swag=po.MAP()),
        lambda: po.EllipticalSlice(num_chains=0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(SettingError):
        make()
