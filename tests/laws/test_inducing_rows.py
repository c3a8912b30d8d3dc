"""A process by inducing rows: the exact one where they are all rows, Titsias's bound where they are fewer."""

import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria.errors import CapabilityError
from posteria.methods.functions import infinite_width
from posteria.methods.functions.infinite_width import INDUCING_SEED
from posteria.models.limit import limit_kernel
from posteria.models.target import Target

RNG = np.random.default_rng(1)
X = RNG.uniform(-2, 2, size=(40, 2)).astype(np.float32)
Y = (np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=40)).astype(np.float32)
X_NEW = RNG.uniform(-2, 2, size=(7, 2)).astype(np.float32)
NETWORK = po.nn.mlp((20, 20))
WEIGHT = np.linspace(0.5, 2.0, 40).astype(np.float32)


def exact_and_by(num_inducing, likelihood, data, monkeypatch, **settings):
    model = po.Model(NETWORK, likelihood)
    exact = po.fit(model, data, po.InfiniteWidth(**settings), progress=False)
    monkeypatch.setattr(infinite_width, "MOST_ROWS", 10)
    method = po.InfiniteWidth(num_inducing=num_inducing, **settings)
    return exact, po.fit(model, data, method, progress=False)


@pytest.mark.parametrize("noise", [0.2, po.infer])
@pytest.mark.parametrize("data", [(X, Y), (X, Y, WEIGHT)], ids=["plain", "weighted"])
def test_with_all_rows_inducing_it_is_the_exact_process(noise, data, monkeypatch):
    exact, sparse = exact_and_by(40, po.likelihoods.Gaussian(noise), data, monkeypatch)
    assert type(sparse) is not type(exact)
    for mine, wanted in zip(sparse.joint(X_NEW), exact.joint(X_NEW)):
        np.testing.assert_allclose(mine, wanted, atol=1e-6)
    np.testing.assert_allclose(sparse.facts["elbo"], exact.log_evidence(), rtol=1e-7)
    np.testing.assert_allclose(sparse.noise.std, exact.noise.std, rtol=1e-6)
    assert sparse.facts["unexplained"] < 1e-9
    np.testing.assert_allclose(sparse.predict(X_NEW).log_prob(Y[:7]), exact.predict(X_NEW).log_prob(Y[:7]), atol=1e-4)


def test_with_all_rows_inducing_labels_are_the_exact_ones(monkeypatch):
    data = X, (X[:, 0] > 0).astype(np.int32) + (X[:, 1] > 1)
    network = po.nn.mlp((20, 20), outputs=3)
    monkeypatch.setitem(globals(), "NETWORK", network)
    exact, sparse = exact_and_by(40, po.likelihoods.Categorical(), data, monkeypatch, classes="regression")
    np.testing.assert_allclose(sparse.moments(X_NEW)[0], exact.moments(X_NEW)[0], atol=1e-6)
    np.testing.assert_allclose(sparse.predict(X_NEW).probs, exact.predict(X_NEW).probs, atol=1e-4)


def test_with_fewer_it_is_titsias_bound_by_numpy_and_says_what_is_left_out(monkeypatch, tmp_path):
    exact, sparse = exact_and_by(12, po.likelihoods.Gaussian(0.2), (X, Y), monkeypatch)
    chosen = np.sort(np.random.default_rng(INDUCING_SEED).permutation(40)[:12])
    kernel, _ = limit_kernel(Target(po.Model(NETWORK), (X, None)))
    k, cross = kernel.cross(X, X), kernel.cross(X_NEW, X)
    kzx, kzz, new = k[chosen], k[np.ix_(chosen, chosen)], cross[:, chosen]
    nystroem = kzx.T @ np.linalg.solve(kzz, kzx)
    bound = stats.multivariate_normal(np.zeros(40), nystroem + 0.04 * np.eye(40)).logpdf(Y)
    bound -= np.trace(k - nystroem) / (2 * 0.04)
    np.testing.assert_allclose(sparse.facts["elbo"], bound, rtol=1e-6)
    assert sparse.facts["elbo"] < exact.log_evidence()
    inner = np.linalg.inv(kzz + kzx @ kzx.T / 0.04)
    mean, covariance = sparse.joint(X_NEW)
    np.testing.assert_allclose(mean[:, 0], new @ inner @ kzx @ Y / 0.04, atol=1e-6)
    wanted = kernel.cross(X_NEW, X_NEW) - new @ (np.linalg.inv(kzz) - inner) @ new.T
    np.testing.assert_allclose(covariance, wanted, atol=1e-6)
    np.testing.assert_allclose(sparse.facts["unexplained"], np.trace(k - nystroem) / np.trace(k), rtol=1e-6)
    assert "12 inducing rows, drawn from 40" in " ".join(sparse.facts["notes"])
    with pytest.raises(CapabilityError, match="elbo"):
        sparse.log_evidence()
    sparse.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(X_NEW).mean, sparse.predict(X_NEW).mean)
    assert loaded.facts["holds"] == "12 of the rows it was fitted to"


def test_attention_is_estimated_from_draws_and_said_to_be():
    nnx = pytest.importorskip("flax.nnx")

    class Attending(nnx.Module):
        def __init__(self, rngs):
            self.attention = nnx.MultiHeadAttention(num_heads=2, in_features=4, qkv_features=4, decode=False, rngs=rngs)
            self.out = nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, x):
            return self.out(self.attention(x).mean(1))

    import jax

    network = po.network(lambda key: Attending(nnx.Rngs(key)))
    x = RNG.normal(size=(12, 5, 4)).astype(np.float32)
    model, num = po.Model(network, po.likelihoods.Gaussian(0.1)), 400
    posterior = po.fit(model, (x, Y[:12]), po.InfiniteWidth(num_functions=num), progress=False)
    assert f"Monte Carlo estimate from {num} draws" in " ".join(posterior.facts["notes"])
    assert np.isfinite(posterior.predict(x).log_prob(Y[:12])).all()
    # k(x, x) is the variance of the network's own prior functions, of other draws
    functions = np.asarray(jax.jit(lambda: model.prior_functions(jax.random.key(3), x, 2000))())[..., 0].astype(float)
    squares = functions**2
    error = np.hypot(squares.std(0) / np.sqrt(2000), squares.std(0) / np.sqrt(num))
    assert (np.abs(posterior.kernel.diagonal(x) - squares.mean(0)) < 4.5 * error).all()
    with pytest.raises(po.errors.NetworkError, match="monte-carlo"):
        po.fit(model, (x, Y[:12]), po.InfiniteWidth(kernel="walk"), progress=False)
