"""Networks that people bring: of 16 bits, without an axis of outputs, without parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria.curvature.decrement import _conjugate_gradients
from posteria.errors import NetworkError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 3)).astype(np.float32)
Y = (X @ [1.0, 2.0, 0.0] + 0.1 * RANDOM.normal(size=40)).astype(np.float32)


def half(key, x):
    first, last = jax.random.split(key)
    draw = lambda key, *shape: 0.3 * jax.random.normal(key, shape).astype(jnp.float16)  # noqa: E731
    return {"v": draw(first, 3, 4), "w": draw(last, 4, 1)}


HALF = (half, lambda params, x: jnp.tanh(x.astype(jnp.float16) @ params["v"]) @ params["w"])


def fitted(network, method):
    return po.fit(po.Model(network, po.likelihoods.Gaussian()), (X, Y), method, key=0, progress=False)


def test_deep_kernels_of_16_bits_have_finite_weights_that_load(tmp_path):
    posterior = fitted(HALF, po.DeepKernel(num_epochs=20))
    posterior.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved", network=HALF)
    np.testing.assert_array_equal(loaded.predict(X).mean, posterior.predict(X).mean)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_curvature_that_overflows_is_not_measured_and_no_crash():
    posterior = fitted(HALF, po.Ensemble(po.MAP(num_epochs=10), 2))
    assert np.isfinite(posterior.predict(X).mean).all()
    solution, gap, number = _conjugate_gradients(lambda vector: np.inf * vector, np.ones(2), True, 5)
    assert (gap, number) == (np.inf, 1) and not solution.any()


@pytest.mark.parametrize("structure", ["kron", "full", "diagonal"])
def test_laplace_of_outputs_without_an_axis_is_that_of_one_output(structure):
    def init(key, x):
        return {"w": 0.3 * jax.random.normal(key, (3, 1))}

    one, none = (init, lambda p, x: x @ p["w"]), (init, lambda p, x: (x @ p["w"])[:, 0])
    wanted, found = (fitted(each, po.Laplace(structure=structure)).predict(X).std for each in (one, none))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_network_without_parameters_is_refused_by_name():
    with pytest.raises(NetworkError, match="no parameters; wanted some to infer"):
        fitted((lambda key, x: {}, lambda p, x: x[:, :1]), po.MAP(num_epochs=5))
