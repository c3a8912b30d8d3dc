"""Curves go where the density is high, on densities whose shape is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria.errors import SettingError
from posteria.landscape.connect import weights
from posteria.models.target import Density
from posteria.testing import linear_regression

WIDTH = 0.1


def ring(w: jax.Array) -> jax.Array:
    """A ring of radius 1: between two points of it, the straight line is a chord."""
    return -0.5 * ((jnp.sqrt(w @ w + 1e-9) - 1.0) / WIDTH) ** 2


def on_ring(degrees: float) -> np.ndarray:
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], np.float32)


@pytest.mark.parametrize("form, num_bends", [("bezier", 1), ("polygonal", 3)])
def test_a_curve_follows_a_ring_where_the_chord_leaves_it(form, num_bends):
    ends = on_ring(0.0), on_ring(120.0)
    curve = po.connect(*ends, Density(ring, ends[0]), form=form, num_bends=num_bends, num_steps=1500)
    np.testing.assert_allclose(curve.barrier(), 0.5 * (0.5 / WIDTH) ** 2, rtol=1e-3)  # the chord's middle is at 1/2
    assert curve.excess() < curve.barrier() / 20
    np.testing.assert_allclose(curve(0.0), ends[0], atol=1e-6)
    np.testing.assert_allclose(curve(1.0), ends[1], atol=1e-6)
    angles = np.degrees(np.arctan2(*np.asarray(curve.flat(np.linspace(0, 1, 21))).T[::-1]))
    assert (np.diff(angles) > 0).all()


def test_between_permuted_copies_of_a_network_there_is_a_way_around_the_barrier():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(60, 1)).astype(np.float32)
    model = po.Model(po.nn.mlp((6,), activation="tanh"), po.likelihoods.Gaussian(0.2), po.priors.FanIn(5.0))
    target = po.Target(model, (x, np.sin(2 * x)))
    mode = po.fit(model, (x, np.sin(2 * x)), po.MAP(num_epochs=800), progress=False)
    first = jax.tree.map(lambda leaf: leaf[0, 0], mode.params)
    hidden, output = first["layers"]["0"], first["layers"]["1"]
    order = np.roll(np.arange(6), 1)
    second = {
        "layers": {
            "0": {"kernel": hidden["kernel"][:, order], "bias": hidden["bias"][order]},
            "1": {"kernel": output["kernel"][order], "bias": output["bias"]},
        }
    }
    curve = po.connect(first, second, target, num_steps=1500)
    ends = curve.losses([0.0, 1.0])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-4)
    assert curve.barrier() > 1.0
    assert curve.excess() < curve.barrier() / 5


def test_losses_along_a_curve_are_the_targets_own():
    known = linear_regression()
    target = po.Target(known.model, known.data)
    ends = [target.init(jax.random.key(0)), {"bias": np.ones(1), "weight": np.ones((3, 1))}]
    curve = po.connect(*ends, target, form="polygonal", num_bends=2, num_steps=5, batch_size=10)
    for place, got in zip([0.1, 0.6], curve.losses([0.1, 0.6])):
        np.testing.assert_allclose(got, -target.log_likelihood(curve(place), target.data).mean(), rtol=1e-5)
    x, y = known.data
    other = (jnp.asarray(x[:5]), jnp.asarray(y[:5, None]))
    np.testing.assert_allclose(
        curve.losses(0.3, (x[:5], y[:5]))[0], -target.log_likelihood(curve(0.3), other).mean(), rtol=1e-5
    )
    found = curve.straight.losses(np.linspace(0, 1, 61))
    np.testing.assert_allclose(curve.barrier(), found.max() - max(found[0], found[-1]), atol=1e-6)


def test_curves_are_those_of_the_textbook():
    points = np.random.default_rng(0).normal(size=(4, 3))
    for t in (0.0, 0.3, 0.5, 0.9, 1.0):
        rest = points
        while len(rest) > 1:  # de Casteljau's construction
            rest = (1 - t) * rest[:-1] + t * rest[1:]
        np.testing.assert_allclose(weights("bezier", 4, jnp.asarray(t)) @ points, rest[0], atol=1e-6)
        line = [np.interp(3 * t, np.arange(4), column) for column in points.T]
        np.testing.assert_allclose(weights("polygonal", 4, jnp.asarray(t)) @ points, line, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [{"form": "spline"}, {"num_bends": 0}, {"num_steps": 0}, {"batch_size": -1}, {"batch_size": 0}]
    + [{"learning_rate": rate} for rate in (0.0, -1.0, np.nan)],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(SettingError):
        po.connect(on_ring(0), on_ring(90), Density(ring, on_ring(0)), **settings)
