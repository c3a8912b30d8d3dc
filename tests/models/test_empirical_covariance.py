"""EmpCov: draws have the inputs' covariance, the density is SciPy's, dead inputs have next to no weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria.models.leaf import Leaf

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(400, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 0]])).astype(np.float32)  # the third is dead
FIRST = Leaf("layers/0/kernel", (3, 5), np.dtype(np.float32), 3, input_axis=0)
OTHER = Leaf("layers/1/kernel", (5, 1), np.dtype(np.float32), 5)


def covariance(x, scale, epsilon):
    moment = x.T.astype(np.float64) @ x / len(x)
    return scale**2 / len(moment) * (moment / (np.trace(moment) / len(moment)) + epsilon * np.eye(len(moment)))


def test_the_density_is_that_of_correlated_normals():
    prior = po.priors.EmpiricalCovariance(X, scale=2.0, epsilon=0.01)
    value = RNG.normal(size=(3, 5)).astype(np.float32)
    expected = stats.multivariate_normal(np.zeros(3), covariance(X, 2.0, 0.01)).logpdf(value.T).sum()
    assert abs(float(prior.log_prob(value, FIRST)) - expected) < 1e-4 * abs(expected)
    transposed = FIRST._replace(shape=(5, 3), input_axis=1)
    assert abs(float(prior.log_prob(value.T, transposed)) - expected) < 1e-4 * abs(expected)
    fan_in = po.priors.FanIn()
    assert float(prior.log_prob(value[:, :1].repeat(1), OTHER)) == float(fan_in.log_prob(value[:, :1].repeat(1), OTHER))


@pytest.mark.parametrize("axis", [0, 1])
def test_draws_have_the_covariance_of_the_inputs(axis):
    prior = po.priors.EmpiricalCovariance(X, epsilon=1e-3)
    leaf = FIRST._replace(shape=(3, 20_000) if axis == 0 else (20_000, 3), input_axis=axis)
    drawn = np.asarray(prior.sample(jax.random.key(0), leaf), np.float64)
    rows = drawn.T if axis == 0 else drawn
    expected = covariance(X, 1.0, 1e-3)
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / 20_000)
    assert (np.abs(np.cov(rows.T) - expected) < 4.5 * error).all()
    assert rows[:, 2].std() < 0.03 * rows[:, 0].std()  # the dead input
    assert abs(prior.unit(leaf) - np.sqrt(np.diag(expected).mean())) < 1e-5


def test_patches_of_a_convolution():
    images = np.zeros((50, 6, 6, 1), np.float32)
    images[:, 2:4, 2:4] = RNG.normal(size=(50, 2, 2, 1))
    kernel = Leaf("conv/kernel", (3, 3, 1, 4), np.dtype(np.float32), 9)
    prior = po.priors.EmpiricalCovariance(images, leaf="conv/kernel", epsilon=1e-2)
    padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)])
    patches = np.concatenate([padded[:, i : i + 3, j : j + 3].reshape(50, 9) for i in range(6) for j in range(6)])
    value = RNG.normal(size=kernel.shape).astype(np.float32)
    expected = stats.multivariate_normal(np.zeros(9), covariance(patches, 1.0, 1e-2)).logpdf(value.reshape(9, 4).T)
    assert abs(float(prior.log_prob(value, kernel)) - expected.sum()) < 1e-4 * abs(expected.sum())
    assert prior.sample(jax.random.key(0), kernel).shape == kernel.shape


def test_a_shift_along_a_dead_input_is_not_amplified():
    """The paper's finding, in a linear network: under FanIn the posterior of a dead input's weight is its prior."""
    y = X[:, 0]
    shifted = X[:50] + np.array([0, 0, 3], np.float32)

    def spread(prior):
        model = po.Model(po.nn.mlp((), outputs=1), prior=prior, likelihood=po.likelihoods.Gaussian(0.3))
        method = po.NUTS(num_chains=2, num_draws=100, num_warmup=200)
        posterior = po.fit(model, (X, y), method, progress=False)
        return posterior.functions(0, shifted, 200).std(0).mean()

    assert spread(po.priors.EmpiricalCovariance(X)) < 0.1 * spread(po.priors.FanIn())


def white_coordinates(axis=0, scale=2.0):
    """Of a network of one hidden layer whose kernel has the inputs along an axis; the rest of the prior is Normal."""
    from posteria.models.coordinates import Coordinates

    def init(key, x):
        return {"kernel": jax.random.normal(key, (3, 5) if axis == 0 else (5, 3)), "last": jnp.ones((5, 1))}

    def apply(w, x):
        return jnp.tanh(x @ (w["kernel"] if axis == 0 else w["kernel"].T)) @ w["last"]

    prior = po.priors.EmpiricalCovariance(X, scale, rest=po.priors.Normal(0.3))
    target = po.Target(po.Model(po.Network(init, apply), po.likelihoods.Gaussian(0.5), prior), (X, X[:, :1]))
    return target, Coordinates(target.without_data())


@pytest.mark.parametrize("axis", [0, 1])
def test_samplers_coordinates_are_white(axis):
    """In them the prior is N(0, I), whatever it correlates, and the density is that of the weights."""
    target, flat = white_coordinates(axis)
    z = jax.random.normal(jax.random.key(1), (20,))
    expected = -0.5 * float(jnp.sum(z**2))
    assert abs(float(flat.log_prior(z) - flat.log_prior(jnp.zeros(20))) - expected) < 1e-4 * abs(expected)
    params = flat.to_params(z)
    np.testing.assert_allclose(flat.to_units(params), z, atol=2e-4)
    np.testing.assert_allclose(flat.to_weights(z), np.concatenate([np.ravel(w) for w in jax.tree.leaves(params)]))
    assert abs(float(flat.log_density(z, target.data) - target.log_density(params))) < 1e-2  # of some thousand nats
    several = flat.several_params(jnp.stack([z, 2 * z]))
    np.testing.assert_allclose(flat.starts(several), jnp.stack([z, 2 * z]), atol=4e-4)

    keys = jax.random.split(jax.random.key(2), 4000)
    white = np.asarray(jax.vmap(lambda key: flat.to_units(target.sample_prior(key)))(keys), np.float64)
    moments = white.T @ white / len(keys)
    error = np.sqrt((1 + np.eye(20)) / len(keys))  # of products of standard Normals
    assert (np.abs(moments - np.eye(20)) < 4.5 * error).all() and (np.abs(white.mean(0)) < 4.5 * 4000**-0.5).all()


def test_the_constant_between_the_densities_is_the_jacobian():
    _, flat = white_coordinates()
    jacobian = jax.jacobian(flat.to_weights)(jnp.zeros(20))
    log_volume = np.linalg.slogdet(np.asarray(jacobian, np.float64))[1]
    normal = stats.norm.logpdf(np.zeros(20)).sum()
    assert abs(float(flat.log_prior(jnp.zeros(20))) + log_volume - normal) < 1e-3 * abs(normal)


def test_hmc_of_a_linear_model_is_the_posterior_in_closed_form():
    noise, y = 0.3, X[:, 0] - 0.5 * X[:, 1]
    prior = po.priors.EmpiricalCovariance(X, rest=po.priors.Normal(1e-3))
    network = po.Network(lambda key, x: jnp.zeros((3, 1)), lambda w, x: x @ w)
    model = po.Model(network, prior=prior, likelihood=po.likelihoods.Gaussian(noise))
    method = po.HMC(num_chains=4, num_draws=400, num_warmup=200)
    posterior = po.fit(model, (X[:20], y[:20]), method, progress=False)
    precision = np.linalg.inv(covariance(X, 1.0, 1e-4)) + X[:20].T.astype(np.float64) @ X[:20] / noise**2
    expected = np.linalg.inv(precision)
    mean = expected @ X[:20].T.astype(np.float64) @ y[:20] / noise**2
    factor = np.linalg.cholesky(expected)
    drawn = np.asarray(posterior.stored.flat, np.float64) - mean  # (chain, draw, 3)
    white = np.linalg.solve(factor, drawn.reshape(-1, 3).T).reshape(3, 4, 400)
    ess = np.array([po.diagnostics.ess_mean(each) for each in white])
    assert ess.min() > 200, "a trajectory in units of the prior moves far along every direction"
    assert (np.abs(white.mean((1, 2))) < 4.5 / np.sqrt(ess)).all()
    squares = np.array([po.diagnostics.ess_mean(each**2) for each in white])
    assert (np.abs((white**2).mean((1, 2)) - 1) < 4.5 * np.sqrt(2 / squares)).all()


def test_what_it_cannot_serve_is_refused():
    for x in (np.zeros(3), np.full((4, 3), np.nan), np.array([["a", "b"]])):
        with pytest.raises(po.errors.DataError):
            po.priors.EmpiricalCovariance(x)
    with pytest.raises(po.errors.SettingError, match="scales"):
        po.priors.EmpiricalCovariance(X, rest=po.priors.FanIn(scale=po.infer)).check([FIRST, OTHER])
    with pytest.raises(po.errors.SettingError, match="rows of 4"):
        model = po.Model(po.nn.mlp((5,), outputs=1), prior=po.priors.EmpiricalCovariance(X))
        po.fit(model, (np.ones((9, 4)), np.ones(9)), po.MAP(), progress=False)
    with pytest.raises(po.errors.SettingError, match="name it"):
        po.priors.EmpiricalCovariance(X).check([OTHER])
