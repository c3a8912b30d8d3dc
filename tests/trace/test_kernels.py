"""The kernel that is read off a network is the covariance of wide networks drawn from their prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria.errors import NetworkError, SettingError
from posteria.models.limit import limit_kernel
from posteria.models.target import Target
from posteria.trace.expectations import Form, Scalar, second_moment

WIDTH, CHANNELS, OUTPUTS, NUM_DRAWS = 256, 64, 64, 40
PRIOR = po.priors.FanIn(1.3, 0.4)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(4, 3)).astype(np.float32)
IMAGES = RNG.normal(size=(3, 6, 6, 2)).astype(np.float32)


def convolve(x, kernel, stride=1):
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=layout)


def pooled(x):
    sums = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return sums / 4


def dense(activation):
    return lambda p, x: activation(activation(x @ p["in"] + p["bias"]) @ p["inner"]) @ p["out"]


def residual(p, x):
    h = x @ p["in"] + p["bias"]
    h = h + jax.nn.relu(h) @ p["inner"]
    return jax.nn.relu(h + 0.5 * (jnp.tanh(h) @ p["other"])) @ p["out"]


def after_activation(p, x):
    """A sum of what is not Gaussian, which only a layer of weights then sees."""
    h = jax.nn.relu(x @ p["in"] + p["bias"])
    return (h + jax.nn.relu(h @ p["inner"]) @ p["other"]) @ p["out"]


def shared(p, x):
    """Two sums that share an addend."""
    h = x @ p["in"] + p["bias"]
    h = (h + jax.nn.relu(h) @ p["inner"]) + (h + jnp.tanh(h) @ p["other"])
    return jax.nn.relu(h) @ p["out"]


def flattened(p, x):
    h = jax.nn.relu(convolve(x, p["first"]) + p["shift"])
    h = jax.nn.relu(convolve(h, p["second"], stride=2))
    return h.reshape(len(h), -1) @ p["flat"]


def averaged(p, x):
    h = pooled(jax.nn.relu(convolve(x, p["first"]) + p["shift"]))
    h = h[:, :2] + 0.0
    return jax.nn.relu(convolve(h, p["second"]) + p["shift2"]).mean((1, 2)) @ p["last"]


def residual_convolutions(p, x):
    h = convolve(x, p["first"]) + p["shift"]
    return jax.nn.relu(h + convolve(jax.nn.relu(h), p["second"])).mean((1, 2)) @ p["last"]


SHAPES = {
    "in": (3, WIDTH),
    "bias": (WIDTH,),
    "inner": (WIDTH, WIDTH),
    "other": (WIDTH, WIDTH),
    "out": (WIDTH, OUTPUTS),
    "first": (3, 3, 2, CHANNELS),
    "shift": (CHANNELS,),
    "second": (3, 3, CHANNELS, CHANNELS),
    "shift2": (CHANNELS,),
    "flat": (9 * CHANNELS, OUTPUTS),
    "last": (CHANNELS, OUTPUTS),
}


def network(apply):
    """With the parameters that `apply` uses."""
    names = [name for name in SHAPES if name in jaxpr_names(apply)]
    return po.Network(lambda key, x: {name: jnp.zeros(SHAPES[name]) for name in names}, apply)


def jaxpr_names(apply):
    used = set()

    class Spy(dict):
        def __missing__(self, name):
            used.add(name)
            return jnp.zeros(SHAPES[name])

    jax.eval_shape(lambda x: apply(Spy(), x), ROWS if apply in ON_ROWS else IMAGES)
    return used


ON_ROWS = [residual, after_activation, shared, *(dense(f) for f in (jax.nn.relu, jnp.sin))]
ON_IMAGES = [flattened, averaged, residual_convolutions]


SLOW = {after_activation, shared, flattened, residual_convolutions, ON_ROWS[-1]}


@pytest.mark.parametrize(
    "apply",
    [pytest.param(apply, marks=[pytest.mark.slow] * (apply in SLOW)) for apply in ON_ROWS + ON_IMAGES],
    ids=lambda apply: apply.__name__,
)
def test_it_is_the_covariance_of_wide_networks(apply):
    """Within 3 standard errors at every pair: averaged over outputs, which have one kernel, and over draws."""
    x = ROWS if apply in ON_ROWS else IMAGES
    model = po.Model(network(apply), prior=PRIOR)
    kernel, note = limit_kernel(Target(model, (x, None)), "walk")
    assert not note
    drawn = np.asarray(model.prior_functions(0, x, NUM_DRAWS), np.float64)  # (draw, n, output)
    products = np.einsum("dno,dmo->dnm", drawn, drawn) / drawn.shape[-1]
    errors = products.std(0, ddof=1) / np.sqrt(NUM_DRAWS)
    matrix = kernel.cross(x, x)
    assert (np.abs(products.mean(0) - matrix) < 3 * errors).all()
    assert errors.max() < 0.1 * np.diag(matrix).max()  # a test that could fail
    np.testing.assert_allclose(kernel.diagonal(x), np.diag(matrix), rtol=1e-9)
    np.testing.assert_allclose(kernel.cross(x[:2], x), matrix[:2], rtol=1e-9)


def test_relu_has_the_published_recursion():
    """Lee et al. 2018, equation 11, in NumPy."""
    model = po.Model(po.nn.mlp((7, 7)), prior=po.priors.FanIn(1.3, 0.4))
    k = 1.3**2 * ROWS.astype(float) @ ROWS.T / 3 + 0.16
    for _ in range(2):
        norm = np.sqrt(np.outer(np.diag(k), np.diag(k)))
        angle = np.arccos(np.clip(k / norm, -1, 1))
        k = 0.16 + 1.3**2 / (2 * np.pi) * norm * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    np.testing.assert_allclose(limit_kernel(Target(model, (ROWS, None)))[0].cross(ROWS, ROWS), k, rtol=1e-7)


FUNCTIONS = {
    "relu": Scalar(jax.nn.relu),
    "leaky": Scalar(jax.nn.leaky_relu),
    "abs": Scalar(jnp.abs),
    "erf": Scalar(jax.scipy.special.erf, Form("erf")),
    "sine": Scalar(lambda z: 1 + 2 * jnp.sin(3 * z + 0.3), Form("sin", 3.0, 0.3, 2.0, 1.0)),
    "tanh": Scalar(jnp.tanh),
    "gelu": Scalar(jax.nn.gelu),
    "shifted": Scalar(lambda z: z + 1.0, Form("line", offset=1.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_expectations_are_those_of_a_sum_over_the_plane(name):
    f = FUNCTIONS[name]
    u = np.linspace(-8, 8, 1200)  # kinks at 0 make an error of a step's square
    weights = np.exp(-(u**2) / 2) / np.exp(-(u**2) / 2).sum()
    with jax.enable_x64(True):
        for left, right, rho in [(1.0, 2.0, 0.3), (0.5, 0.5, 0.99), (2.0, 1.0, -0.8), (3.0, 3.0, 1.0)]:
            covariance = rho * np.sqrt(left * right)
            found = second_moment(f, *map(jnp.asarray, (covariance, left, right)))
            other = rho * u[:, None] + np.sqrt(1 - rho**2) * u
            values = np.asarray(f.call(jnp.asarray(np.sqrt(right) * other)))
            wanted = (weights * np.asarray(f.call(jnp.asarray(np.sqrt(left) * u)))) @ values @ weights
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


def largest(p, x):
    return jax.nn.relu(convolve(x, p["first"])).max((1, 2)) @ p["last"]


def tied(p, x):
    return jax.nn.relu(jax.nn.relu(x @ p["in"]) @ p["inner"] @ p["inner"]) @ p["out"]


def normed(p, x):
    h = x @ p["in"]
    return (h / jnp.sqrt((h**2).mean(-1, keepdims=True))) @ p["out"]


@pytest.mark.parametrize("apply", [tied, normed, largest], ids=lambda apply: apply.__name__)
def test_what_cannot_be_followed_is_said_and_estimated(apply):
    x = IMAGES if apply is largest else ROWS
    ON_ROWS.extend([] if apply is largest else [apply])
    target = Target(po.Model(network(apply), prior=PRIOR), (x, None))
    with pytest.raises(NetworkError, match="monte-carlo"):
        limit_kernel(target, "walk")
    kernel, note = limit_kernel(target, num_draws=50)
    assert "Monte Carlo" in note
    matrix = kernel.cross(x, x)
    np.testing.assert_allclose(matrix, matrix.T)
    np.testing.assert_allclose(kernel.diagonal(x), np.diag(matrix))
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


@pytest.mark.parametrize("prior", [po.priors.StudentT(2.0), po.priors.HorseshoeLike()])
def test_heavy_tails_are_refused_with_their_reason(prior):
    target = Target(po.Model(po.nn.mlp((5,)), prior=prior), (ROWS, None))
    for how in ("auto", "monte-carlo"):
        with pytest.raises(SettingError, match="stable"):
            limit_kernel(target, how)


def test_other_priors_are_estimated_where_that_is_asked_for():
    target = Target(po.Model(po.nn.mlp((5,)), prior=po.priors.Laplace(0.5)), (ROWS, None))
    with pytest.raises(SettingError, match="not Normal"):
        limit_kernel(target)
    assert limit_kernel(target, "monte-carlo", 20)[0].num_draws == 20
