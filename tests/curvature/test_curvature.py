"""Every structure against the matrix it stands for, made by brute force from the whole Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posteria as po
from posteria import tree
from posteria.curvature import measure as measuring
from posteria.curvature.jacobian import between, factored, subset_paths
from posteria.curvature.measure import Settings, measure, solved, summed, with_prior
from posteria.curvature.precision import Full
from posteria.errors import SettingError, TooLargeError
from posteria.methods.points.tuning import prior_precision
from posteria.models.target import Target
from posteria.nn.convolution import convolution

RNG = np.random.default_rng(0)


def mlp():
    x = RNG.normal(size=(7, 3)).astype(np.float32)
    return po.nn.mlp((4,), outputs=3), x


def conv():
    """A strided convolution whose kernel's layout is not that of its matrix, a shared bias, a dense head."""

    def init(key, x):
        k1, k2 = jax.random.split(key)
        return {
            "bias": 0.1 * jnp.ones(2),
            "head": 0.5 * jax.random.normal(k2, (8, 3)),
            "kernel": 0.5 * jax.random.normal(k1, (2, 1, 3, 3)),  # out, in, height, width
        }

    def apply(params, x):
        y = convolution(x, params["kernel"].transpose(2, 3, 1, 0), strides=(2, 2), padding="SAME")
        return jnp.tanh(y + params["bias"]).reshape(len(x), -1) @ params["head"]

    return po.Network(init, apply), RNG.normal(size=(6, 4, 4, 1)).astype(np.float32)


def attention():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
            self.norm = nnx.LayerNorm(4, rngs=rngs)
            self.head = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, x):
            return self.head(self.norm(x + self.attention(x)).mean(1))

    return po.network(lambda key: Net(nnx.Rngs(key))), RNG.normal(size=(5, 3, 4)).astype(np.float32)


def problem(network, x, likelihood=None):
    likelihood = likelihood or po.likelihoods.Categorical()
    y = RNG.integers(0, 3, len(x))
    target = Target(po.Model(network, likelihood, po.priors.Normal(0.8)), (x, y))
    return target, target.init(jax.random.key(1))


def brute_force(target, params):
    """sum_n J^T H J over all parameters, flat: the network's Jacobian in full."""
    unravel, x = tree.unraveller(target.structs), target.data[0]

    @jax.jit
    def compute(params):
        jacobian = jax.jacrev(lambda flat: target.model.outputs(unravel(flat)["network"], x))(tree.ravel(params))
        outputs = target.model.outputs(params["network"], x)
        hessians = target.model.likelihood.output_hessian(params["likelihood"], outputs)
        return jnp.einsum("nop,noq,nqr->pr", jacobian, hessians, jacobian), jacobian

    return jax.tree.map(np.asarray, compute(params))


def measured(target, params, structure, subset="all", **settings):
    """The precision, and its covariance over the flat parameters."""
    paths = subset_paths(target, subset)
    order = factored(target.without_data(), paths).order
    prior = prior_precision(target, params)[order]
    settings = Settings(structure, paths, **settings)
    precision = measure(target, params, target.data, settings, prior, jax.random.key(0))
    covariance = np.zeros((tree.size(params),) * 2)
    covariance[np.ix_(order, order)] = precision.covariance()
    return precision, covariance


def close(got, wanted, digits=1e-4):
    np.testing.assert_allclose(got, wanted, atol=digits * np.abs(wanted).max())


NETWORKS = {"mlp": mlp, "conv": conv, "attention": attention}


@pytest.mark.parametrize("name", NETWORKS)
def test_full_is_the_whole_matrix_and_diagonal_its_diagonal(name):
    target, params = problem(*NETWORKS[name]())
    wanted = brute_force(target, params)[0] + np.eye(tree.size(params)) / 0.8**2
    _, full = measured(target, params, "full")
    close(np.linalg.inv(full), wanted)
    _, diagonal = measured(target, params, "diagonal")
    close(1 / np.diag(diagonal), np.diag(wanted))


@pytest.mark.parametrize("is_even", [True, False])
def test_data_that_were_summed_once_serve_any_prior(is_even):
    """As if all had been measured again, Kronecker factors with their eigenvectors found once too."""
    target, params = problem(*mlp())
    paths = subset_paths(target, "all")
    settings, key = Settings("kron", paths), jax.random.key(0)
    once = solved(settings, summed(target, params, target.data, settings, key))
    prior = prior_precision(target, params)[factored(target.without_data(), paths).order]
    rows = 1.0 if is_even else np.linspace(0.5, 2.0, len(prior))
    for scale in (0.1, 1.0, 30.0):
        again = measure(target, params, target.data, settings, scale * rows * prior, key)
        found = with_prior(target, settings, once, scale * rows * prior)
        close(found.covariance(), again.covariance(), 1e-5)
        assert found.log_det() == pytest.approx(again.log_det(), abs=1e-3)


@pytest.mark.parametrize("name", ["mlp", "conv", pytest.param("attention", marks=pytest.mark.slow)])
def test_low_rank_with_all_directions_is_full(name):
    target, params = problem(*NETWORKS[name]())
    precision, low = measured(target, params, "lowrank", rank=200)  # more than there are: Lanczos must see the end
    whole, full = measured(target, params, "full")
    close(low, full, 1e-3)
    np.testing.assert_allclose(precision.log_det(), whole.log_det(), atol=0.01)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_of_one_datum_that_meets_a_weight_once_kron_is_the_block_of_full(name):
    network, x = NETWORKS[name]()
    target, params = problem(network, x[:1], None)
    _, kron = measured(target, params, "kron")
    wanted = np.linalg.inv(kron)
    exact = brute_force(target, params)[0] + np.eye(len(wanted)) / 0.8**2
    place = 0
    for path, leaf in zip(tree.paths(params), jax.tree.leaves(params)):
        block = np.s_[place : place + leaf.size, place : place + leaf.size]
        if name == "mlp" or "attention" not in path or "bias" in path:  # tokens share the attention's kernels
            close(wanted[block], exact[block], 1e-3)
        place += leaf.size


@pytest.mark.parametrize("kind", ["dense over tokens", "convolution"])
def test_one_shared_linear_layer_with_gaussian_noise_has_an_exact_kron(kind):
    """What KFAC-expand is exact for: every position has outputs of its own."""

    def init(key, x):
        shape = (3, 2) if kind == "dense over tokens" else (2, 2, 1, 2)
        return {"kernel": jax.random.normal(key, shape)}

    def apply(params, x):
        if kind == "dense over tokens":
            return (x @ params["kernel"]).reshape(len(x), -1)
        return convolution(x, params["kernel"], padding="VALID").reshape(len(x), -1)

    x = RNG.normal(size=(5, 4, 3) if kind == "dense over tokens" else (5, 3, 3, 1)).astype(np.float32)
    model = po.Model(po.Network(init, apply), po.likelihoods.Gaussian(0.5), po.priors.Normal(0.8))
    target = Target(model, (x, RNG.normal(size=(5, 8))))
    params = target.init(jax.random.key(0))
    close(np.linalg.inv(measured(target, params, "kron")[1]), np.linalg.inv(measured(target, params, "full")[1]), 1e-3)


@pytest.mark.parametrize("structure", ["kron", "diagonal", "full", "lowrank"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "attention")) for name in NETWORKS]
)
def test_function_moments_are_the_jacobian_times_the_covariance(name, structure):
    target, params = problem(*NETWORKS[name]())
    method = po.Laplace(structure, **({"rank": 10} if structure == "lowrank" else {}))
    posterior = po.fit(target.model, target.data, method, start=params["network"], progress=False)
    _, jacobian = brute_force(target, params)
    mean, covariance = posterior.function_moments(target.data[0])
    np.testing.assert_allclose(mean, target.model.outputs(params["network"], target.data[0]), atol=1e-5)
    close(covariance, np.einsum("nop,pq,nrq->nor", jacobian, posterior.spread.covariance(), jacobian), 1e-3)
    np.testing.assert_allclose(np.diag(posterior.spread.covariance()), posterior.spread.variances, rtol=1e-3)
    _, variances = posterior._moments(target.data[0], with_covariance=False)
    close(variances, np.diagonal(covariance, axis1=1, axis2=2))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_covariance_between_data_is_the_whole_jacobians(name):
    target, params = problem(*NETWORKS[name]())
    network, x = factored(target.without_data(), subset_paths(target, "all")), target.data[0]
    whole = brute_force(target, params)[1].reshape(3 * len(x), -1)[:, network.order]
    variances = RNG.uniform(0.5, 2.0, network.size).astype(np.float32)
    units = jnp.broadcast_to(jnp.eye(3), (len(x), 3, 3))

    @jax.jit
    def compute(params, variances):
        return between(network.weights, network.jacobian(params["network"], x, units), variances)

    close(compute(params, variances), whole * variances @ whole.T)


@pytest.mark.parametrize("structure", ["kron", "lowrank"])
def test_draws_have_the_covariance(structure):
    target, params = problem(*mlp())
    precision, covariance = measured(target, params, structure, rank=5)
    draws = np.asarray(jax.vmap(precision.noise)(jax.random.split(jax.random.key(0), 4000)))
    order = factored(target.without_data(), subset_paths(target, "all")).order
    covariance = covariance[np.ix_(order, order)]
    white = np.linalg.solve(np.linalg.cholesky(covariance), draws.T)
    error = white @ white.T / 4000 - np.eye(len(white))
    assert np.abs(error).max() < 5 * np.sqrt(2 / 4000)


def test_data_in_many_blocks_are_the_same_as_in_one(monkeypatch):
    target, params = problem(*conv())
    whole = [measured(target, params, structure)[1] for structure in ("kron", "full", "lowrank")]
    monkeypatch.setattr(measuring, "MAX_BLOCK", 4)  # the second block is filled up
    for structure, wanted in zip(("kron", "full", "lowrank"), whole):
        close(measured(target, params, structure)[1], wanted, 1e-3)


@pytest.mark.parametrize("structure", ["kron", "diagonal"])
def test_the_fisher_information_of_many_drawn_labels_is_the_gauss_newton_matrix(structure):
    target, params = problem(*mlp())
    exact, _ = measured(target, params, structure)
    drawn, _ = measured(target, params, structure, curvature="fisher", num_labels=4000)
    np.testing.assert_allclose(drawn.variances, exact.variances, rtol=0.1)
    np.testing.assert_allclose(drawn.log_det(), exact.log_det(), atol=0.5)


def test_the_last_layer_is_what_does_not_feed_the_last_operation():
    network, x = mlp()
    target, params = problem(network, x)
    paths = subset_paths(target, "last")
    assert (
        len(paths) == 2
        and sum(
            np.size(leaf)
            for path, leaf in zip(tree.paths(params["network"]), jax.tree.leaves(params["network"]))
            if path in paths
        )
        == 4 * 3 + 3
    )
    assert set(subset_paths(problem(*attention())[0], "last")) == {"head/bias", "head/kernel"}
    posterior = po.fit(target.model, target.data, po.Laplace(subset="last"), start=params["network"], progress=False)
    draws = posterior.sample(0, 3)
    for path, draw in zip(tree.paths(draws), jax.tree.leaves(draws)):
        assert (np.ptp(draw, axis=0).max() > 0) == (path in paths)
    with pytest.raises(SettingError, match="matches no leaf"):
        po.fit(target.model, target.data, po.Laplace(subset=("nothing/*",)), progress=False)


@pytest.mark.parametrize("least", [-1.0, 0.3])
def test_rounding_errors_leave_no_direction_wider_than_the_prior(least):
    """Of a sum in float32 eigenvalues may be below 1 in units of the prior: negative, or (Cholesky works) positive."""
    turn = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    prior = np.array([0.5, 1.0, 4.0])
    unit = np.sqrt(np.outer(prior, prior))

    def in_units_of_the_prior(values):
        return (turn * values) @ turn.T

    sums = unit * (in_units_of_the_prior([least, 2.0, 50.0]) - np.eye(3))
    got = Full.finish((), sums, prior, 1)
    close(got.covariance(), in_units_of_the_prior([1.0, 1 / 2.0, 1 / 50.0]) / unit)
    np.testing.assert_allclose(got.log_det(), np.log(100 * prior.prod()), rtol=1e-5)


def test_what_does_not_fit_the_machine_is_refused_with_what_does():
    wide = po.nn.mlp((2000, 2000), outputs=3)
    x = np.zeros((2, 10), np.float32)
    model = po.Model(wide, po.likelihoods.Categorical())
    with pytest.raises(TooLargeError, match=r"structure='full' needs about .* TB.*structure='kron' .* fits"):
        po.fit(model, (x, np.array([0, 1])), po.Laplace("full"), progress=False)
    assert po.Laplace("diagonal").estimate(model, (x, np.array([0, 1]))).bytes < 2e9
    many = po.Model(po.nn.mlp((8,), outputs=200_000), po.likelihoods.Categorical())
    with pytest.raises(TooLargeError, match=r"structure='kron' needs .*curvature='fisher' .* fits"):
        po.fit(many, (x, np.array([0, 1])), po.Laplace("kron", subset="last"), progress=False)


@pytest.mark.slow
def test_a_thousand_classes():
    network = po.nn.mlp((16,), outputs=1000)
    x, y = RNG.normal(size=(20, 4)).astype(np.float32), RNG.integers(0, 1000, 20)
    model = po.Model(network, po.likelihoods.Categorical())
    start = network.init(jax.random.key(0), x[:1])
    method = po.Laplace("kron", curvature="fisher", predictive="probit")
    posterior = po.fit(model, (x, y), method, start=start, progress=False)
    probs = posterior.predict(x[:2]).probs
    np.testing.assert_allclose(probs.sum(1), 1.0, rtol=1e-4)
    exact = po.fit(model, (x, y), po.Laplace("diagonal", subset="last"), start=start, progress=False)
    assert np.isfinite(exact.log_evidence())
    np.testing.assert_allclose(exact.predict(x).probs.sum(1), 1.0, rtol=1e-4)  # by draws: no covariance of a thousand
