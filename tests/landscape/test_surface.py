"""The loss over a plane is the loss at its points, and flatness is known on quadratics."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.errors import SettingError
from posteria.models.target import Density
from posteria.plots.plane import _ellipse, plane
from posteria.testing import correlated_gaussian, linear_regression

matplotlib.use("agg")

KNOWN = linear_regression()
TARGET = po.Target(KNOWN.model, KNOWN.data)
POINTS = [{"bias": np.full(1, i), "weight": np.array([[1.0], [i], [i**2]])} for i in (0.0, 1.0, 2.0)]


def test_it_equals_the_loss_at_every_place():
    surface = po.surface(TARGET, POINTS, num=4)
    for i in range(4):
        for j in range(4):
            params = surface.params(surface.x[i], surface.y[j])
            loss = -TARGET.log_likelihood(params, TARGET.data).mean()
            np.testing.assert_allclose(surface.losses[i, j], loss, rtol=1e-4)


def test_the_plane_holds_the_three_points_at_their_distances():
    surface = po.surface(TARGET, POINTS, num=2, margin=0.0)
    places = surface.project(surface.points)
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        distance = np.linalg.norm(surface.points[i] - surface.points[j])
        np.testing.assert_allclose(np.linalg.norm(places[i] - places[j]), distance, rtol=1e-5)
    for place, point in zip(places, surface.points):
        np.testing.assert_allclose(surface.params(*place)["network"]["bias"], point[:1], atol=1e-5)
    np.testing.assert_allclose([surface.x.min(), surface.x.max()], [places[:, 0].min(), places[:, 0].max()], atol=1e-5)


def test_on_a_quadratic_losses_and_flatness_are_in_closed_form():
    log_density, mean, covariance = correlated_gaussian(size=6)
    precision = np.linalg.inv(covariance)
    target = Density(log_density, jnp.zeros(6))
    points = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    surface = po.surface(target, points, num=3)
    for i, x in enumerate(surface.x):
        for j, y in enumerate(surface.y):
            residual = surface.origin + x * surface.axes[0] + y * surface.axes[1] - mean
            np.testing.assert_allclose(surface.losses[i, j], 0.5 * residual @ precision @ residual, rtol=1e-4)
    for found in surface.flatness:
        np.testing.assert_allclose(found.sharpness, np.linalg.eigvalsh(precision).max(), rtol=1e-3)
        assert abs(found.trace - np.trace(precision)) < 4 * found.trace_error


def test_random_directions_have_the_norms_of_the_filters():
    target = po.Target(po.Model(po.nn.mlp((5,))), (np.zeros((2, 3), np.float32), None))
    params = target.init(jax.random.key(0))
    surface = po.surface(target, [params], num=3, key=1)
    unravel = tree.unraveller(target.structs)
    for axis in surface.axes:
        direction = unravel(jnp.asarray(axis))
        for layer in ("0", "1"):
            kernels = (tree_["network"]["layers"][layer]["kernel"] for tree_ in (direction, params))
            np.testing.assert_allclose(*(np.linalg.norm(kernel, axis=0) for kernel in kernels), rtol=1e-5)
            assert not np.any(direction["network"]["layers"][layer]["bias"])
    np.testing.assert_allclose(surface.losses[1, 1], -target.log_density(params), rtol=1e-5)
    assert abs(surface.axes[0] @ surface.axes[1]) < 0.9 * (surface.axes[0] @ surface.axes[0])


def test_what_spans_no_plane_is_refused():
    line = [{"bias": np.full(1, i), "weight": np.full((3, 1), i)} for i in (0.0, 1.0, 2.0)]
    for points in (line, POINTS[:2]):
        with pytest.raises(SettingError):
            po.surface(TARGET, points)
    with pytest.raises(SettingError):
        po.surface(Density(lambda w: -w @ w, jnp.zeros(3)), [jnp.ones(3)])
    with pytest.raises(SettingError):
        po.surface(TARGET, dict(enumerate(POINTS)))
    for settings in ({"margin": -1.0}, {"margin": np.nan}, {"radius": 0.0}, {"num": 1}):
        with pytest.raises(SettingError):
            po.surface(TARGET, POINTS, **settings)


def test_weights_may_be_lists_of_arrays_or_flat_vectors():
    network = po.Network(lambda key, x: [(jnp.ones((3, 1)), jnp.ones(1))], lambda p, x: x @ p[0][0] + p[0][1])
    target = po.Target(po.Model(network, po.likelihoods.Gaussian(1.0), po.priors.Normal()), KNOWN.data)
    points = [[(np.array([[1.0], [i], [i**2]]), np.full(1, i))] for i in (0.0, 1.0, 2.0)]
    found = po.surface(target, points, num=2)
    flat = po.surface(target, list(found.points), num=2)
    np.testing.assert_array_equal(found.losses, flat.losses)
    curve = po.connect(*found.points[:2], target, num_steps=1)
    np.testing.assert_array_equal(curve.points[0], found.points[0])


def test_the_picture_leaves_out_losses_that_overflowed():
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    surface = po.surface(TARGET, POINTS, num=5)
    surface.losses.flags.writeable = True
    surface.losses[0, 0], surface.losses[4, 4] = np.inf, np.nan
    plane(surface, draws={"one": surface.points[:1]}, ax=axes)
    figure.canvas.draw()
    plt.close(figure)


def test_the_picture_shows_modes_curve_and_the_ellipse_of_draws():
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    surface = po.surface(TARGET, POINTS, num=5)
    curve = po.connect(POINTS[0], POINTS[1], TARGET, num_steps=3)
    draws = np.random.default_rng(0).normal(size=(50, 4))
    plane(surface, names=("a", "b"), curve=curve, draws={"SWAG": draws}, ax=axes)
    _, labels = axes.get_legend_handles_labels()
    assert labels == ["SWAG", "curve", "straight line"]
    assert [text.get_text() for text in axes.texts] == ["a", "b"]
    plt.close(figure)
    places = surface.project(draws)
    offsets = _ellipse(places).T - places.mean(0)
    squares = np.einsum("ni,ij,nj->n", offsets, np.linalg.inv(np.cov(places.T)), offsets)
    np.testing.assert_allclose(squares, 4.0, rtol=1e-6)  # two standard deviations
