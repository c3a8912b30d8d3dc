"""A deep kernel is a Gaussian process given its features: exact, and sparse where that says the same."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import posteria as po
from posteria.errors import PosteriaError, SettingError
from posteria.methods.functions import deep_kernel
from posteria.methods.functions.deep_end import summed_up
from posteria.methods.functions.deep_start import JITTER, at_optimum, best_process, with_noise
from posteria.methods.functions.spectrum import Spectrum
from posteria.posteriors.deep_process import collapse, collapse_note, exact_summary, first_kernel, sparse_summary
from posteria.testing import ProcedureLaws

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(60, 2)).astype(np.float32)
Y = (np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=60)).astype(np.float32)
X_NEW = RNG.uniform(-2, 2, size=(9, 2)).astype(np.float32)
QUICK = po.DeepKernel(num_epochs=60)


class TestDeepKernel(ProcedureLaws):
    method = QUICK


@pytest.fixture(scope="module")
def fitted():
    return po.fit(po.Model(po.nn.mlp((20, 8), activation="tanh")), (X, Y), QUICK, progress=False)


def test_given_its_features_it_is_the_process_of_numpy(fitted):
    """The RBF kernel of the network's own hidden layer, in ten lines."""
    layers = fitted.params["network"]["layers"]
    hidden = [layers[name] for name in sorted(layers)][:2] if isinstance(layers, dict) else layers[:2]

    def phi(x):
        for layer in hidden:
            x = np.tanh(x @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"]))
        return x.astype(np.float64)

    def k(a, b):
        squares = ((a[:, None] - b[None]) ** 2).sum(-1)
        p = fitted.kernel_params
        return np.exp(2 * p["log_amplitude"] - 0.5 * squares / np.exp(2 * p["log_length"]))

    noise = np.exp(-0.5 * float(fitted.params["likelihood"]["log_precision"]))
    noisy = k(phi(X), phi(X)) + noise**2 * np.eye(60)
    cross = k(phi(X_NEW), phi(X))
    mean, variance = fitted.moments(X_NEW)
    np.testing.assert_allclose(mean[:, 0], cross @ np.linalg.solve(noisy, Y), atol=1e-3)
    left = np.exp(2 * fitted.kernel_params["log_amplitude"]) - (cross * np.linalg.solve(noisy, cross.T).T).sum(1)
    np.testing.assert_allclose(variance[:, 0], left, atol=1e-4)
    evidence = stats.multivariate_normal(np.zeros(60), noisy).logpdf(Y)
    np.testing.assert_allclose(fitted.log_evidence(), evidence, atol=0.05)
    assert fitted.facts["feature_dimension"] >= 1.0


def test_a_sparse_process_with_all_inputs_as_inducing_points_has_the_exact_evidence():
    x, new = X.astype(float), X_NEW.astype(float)

    def k(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    y = Y[:, None].astype(float)
    exact, sparse = exact_summary(k(x, x), y, 0.1), sparse_summary(k(x, x), k(x, x), 1.0, y, 0.1)
    np.testing.assert_allclose(sparse.log_evidence, exact.log_evidence, rtol=1e-4)
    np.testing.assert_allclose(k(new, x) @ sparse.alpha, k(new, x) @ exact.alpha, atol=1e-4)
    for each in (exact, sparse):
        variance = 1 - ((k(new, x) @ each.inner) * k(new, x)).sum(1)
        np.testing.assert_allclose(variance, 1 - np.diag(k(new, x) @ exact.inner @ k(x, new)), atol=1e-4)
    some = sparse_summary(k(x[:10], x[:10]), k(x[:10], x), 1.0, y, 0.1)
    assert some.log_evidence < exact.log_evidence  # a bound


def test_it_begins_at_the_best_noise_and_amplitude_of_its_first_features():
    """No other noise, amplitude or length of the grid has a larger evidence, by NumPy."""
    x = X.astype(float)

    def evidence(length, noise, scale):
        squares = ((x[:, None] - x[None]) ** 2).sum(-1)
        covariance = scale**2 * np.exp(-0.5 * squares / length**2) + noise**2 * np.eye(60)
        return stats.multivariate_normal(np.zeros(60), covariance).logpdf(Y)

    length, noise, scale = best_process("rbf", x, Y[:, None].astype(float), None)
    best = evidence(length, noise, scale)
    for others in ((1, 1.05, 1), (1, 1, 1.05), (1, 1 / 1.05, 1), (1, 1, 1 / 1.05), (2, 1, 1), (0.5, 1, 1)):
        assert evidence(length * others[0], noise * others[1], scale * others[2]) < best
    assert 0.05 < noise < 0.2  # 0.1 made the data
    assert best_process("rbf", x, Y[:, None].astype(float), 0.3)[1] == 0.3


def test_inducing_values_begin_at_their_optimum():
    """With all rows inducing, the mean and the spread of the exact process, whatever rows stand for."""

    def k(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    x, y = X.astype(float)[:20], Y[:20, None].astype(float)
    found = at_optimum(k(x, x), k(x, x), y, 0.3, 2.0)
    factor = np.linalg.cholesky(k(x, x) + JITTER * np.eye(20))
    exact = k(x, x) @ np.linalg.solve(k(x, x) + 0.045 * np.eye(20), y)  # each row counts twice
    np.testing.assert_allclose(factor @ np.asarray(found["mean"]), exact, atol=5e-3)
    spread = factor @ np.asarray(found["factor"][0], np.float64)
    left = k(x, x) - k(x, x) @ np.linalg.solve(k(x, x) + 0.045 * np.eye(20), k(x, x))
    np.testing.assert_allclose(spread @ spread.T, left, atol=5e-3)


def test_a_weight_of_two_is_a_row_twice():
    """The evidence and its gradient, at the same weights, kernel and noise."""
    weight = np.where(np.arange(12) < 5, 2.0, 1.0).astype(np.float32)
    twice = np.repeat(np.arange(12), weight.astype(int))
    model = po.Model(po.nn.mlp((6, 3), activation="tanh"), po.likelihoods.Gaussian())
    found = []
    for rows in ((X[:12], Y[:12, None], weight), (X[twice], Y[twice, None])):
        target = po.Target(model, rows)
        params = target.init(jax.random.key(0)) | {"likelihood": {"log_precision": jnp.asarray(1.7)}}
        phi = {"params": params, "kernel": first_kernel("rbf", 3, 0.7, 0.8)}
        settings = "rbf", None, True, target.num_data, optax.sgd(1.0), 0.1, 10
        kernel = deep_kernel.ascent(target.without_data(), *settings)
        state = kernel.init(jax.random.key(1), phi, target.data)
        after, info = jax.jit(kernel.step)(jax.random.key(1), state, target.data)
        gradient = jax.tree.map(lambda a, b, n=target.num_data: (a - b) * n, after.phi, phi)
        found.append((float(info.log_density), gradient))
    (value, gradient), (other, also) = found
    assert value == pytest.approx(other, abs=0.02)  # but for what is added to the diagonal
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.02, atol=0.02), gradient, also)


def test_the_start_counts_a_row_of_weight_two_twice():
    weight = np.where(np.arange(30) < 12, 2.0, 1.0)
    twice = np.repeat(np.arange(30), weight.astype(int))
    y, root = Y[:30, None].astype(float), np.sqrt(weight)

    def k(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    x = X[:30].astype(float)
    weighted = Spectrum.of(np.outer(root, root) * k(x, x), root[:, None] * y, weight.sum())
    repeated = Spectrum.of(k(x[twice], x[twice]), y[twice], float(len(twice)))
    weighted, repeated = (
        each._replace(log_variances=np.log(np.geomspace(0.01, 1, 20))) for each in (weighted, repeated)
    )
    (a, scales), (b, also) = weighted.scaled(), repeated.scaled()
    np.testing.assert_allclose(scales, also, rtol=1e-6)
    np.testing.assert_allclose(a - a[0], b - b[0], atol=1e-6)
    starts = [
        at_optimum(k(x[:8], x[:8]), k(x[:8], x), y, 0.3, weight),
        at_optimum(k(x[:8], x[:8]), k(x[:8], x[twice]), y[twice], 0.3, 1.0),
    ]
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-4), *starts)


def test_one_row_is_fitted_and_noises_of_their_own_are_refused():
    posterior = po.fit(po.Model(po.nn.mlp((6, 3))), (X[:1], Y[:1]), po.DeepKernel(num_epochs=3), progress=False)
    assert np.isfinite(posterior.predict(X_NEW).log_prob(np.zeros(9))).all()
    assert any("one row" in note for note in posterior.facts["notes"])
    model = po.Model(po.nn.mlp((6,), outputs=2), po.likelihoods.Gaussian(num_noises=2))
    for method in (QUICK, po.InfiniteWidth()):
        with pytest.raises(SettingError, match="one noise for all targets"):
            po.fit(model, (X, np.stack([Y, -Y], 1)), method, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_rows_and_classes_are_fitted_by_inducing_points(seed, monkeypatch):
    """On rows it has not seen, from any start."""
    monkeypatch.setattr(deep_kernel, "EXACT_ROWS", 50)
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(300, 2)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=300)).astype(np.float32)
    method = po.DeepKernel("matern", num_inducing=30, num_epochs=60, batch_size=50)
    network = po.nn.mlp((20, 8))
    sparse = po.fit(po.Model(network), (x[:200], y[:200]), method, key=seed, progress=False)
    assert sparse.inducing.shape == (30, 8)
    error = np.mean((sparse.predict(x[200:]).mean[:, 0] - y[200:]) ** 2)
    print(f"seed {seed}: {error / np.var(y):.3f} of the variance is left")
    assert error < 0.1 * np.var(y)
    labels = (y > 0).astype(np.int32)
    classes = po.Model(po.nn.mlp((20, 8), outputs=2), po.likelihoods.Categorical())
    posterior = po.fit(classes, (x[:200], labels[:200]), method, key=seed, progress=False)
    right = np.mean(posterior.predict(x[200:]).probs.argmax(1) == labels[200:])
    print(f"seed {seed}: {right:.2f} of the classes are right")
    assert right > 0.85
    with pytest.raises(SettingError, match="not Gaussian"):
        posterior.log_evidence()


def test_features_that_have_collapsed_are_told():
    x = RNG.normal(size=(200, 5))
    assert collapse_note(collapse(x, x)) == ""
    line = np.outer(np.sin(40 * x[:, 0]), np.ones(8))
    found = collapse(x, line)
    assert found["feature_dimension"] < 1.01
    assert "collapsed" in collapse_note(found)


@pytest.mark.slow
def test_a_spectral_mixture_and_a_bound_on_layers(tmp_path):
    method = po.DeepKernel("spectral-mixture", num_epochs=30, spectral_norm=0.9)
    posterior = po.fit(po.Model(po.nn.mlp((20, 8))), (X, Y), method, progress=False)
    posterior.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(X_NEW).mean, posterior.predict(X_NEW).mean)
    with pytest.raises(PosteriaError, match="float64"):
        posterior.export(tmp_path / "exported")


def _process(length, inducing):
    """x, y, the matrix of y's covariance under the bound, and what is lost of it, by NumPy."""
    x, y = X.astype(float), Y.astype(float)

    def k(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / length**2)

    explained = k(x, inducing) @ np.linalg.solve(k(inducing, inducing), k(inducing, x))
    return y, explained, np.trace(k(x, x) - explained)


def test_a_sparse_process_begins_at_the_best_noise_of_its_bound():
    """What inducing points cannot explain is noise: a process on all rows knows less noise than they can bear."""
    inducing = X[:6].astype(float)

    def bound(length, noise, scale):
        y, explained, lost = _process(length, inducing)
        covariance = scale**2 * explained + noise**2 * np.eye(60)
        return stats.multivariate_normal(np.zeros(60), covariance).logpdf(y) - 0.5 * scale**2 * lost / noise**2

    values = Y[:, None].astype(float)
    length, noise, scale = best_process("rbf", X.astype(float), values, None, None, inducing)
    best = bound(length, noise, scale)
    for others in ((1, 1.05, 1), (1, 1, 1.05), (1, 1 / 1.05, 1), (1, 1, 1 / 1.05), (2, 1, 1), (0.5, 1, 1)):
        assert bound(length * others[0], noise * others[1], scale * others[2]) < best
    assert noise > 2 * best_process("rbf", X.astype(float), values, None)[1]
    counted = best_process("rbf", np.repeat(X.astype(float), 2, 0), np.repeat(values, 2, 0), None, None, inducing)
    found = best_process("rbf", X.astype(float), values, None, np.full(60, 2.0), inducing)
    np.testing.assert_allclose(found, counted, rtol=0.02)  # neighbours on the grid of noises are 1.2 % apart


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_noise_that_has_not_settled_is_told(is_exact):
    """At the best noise of the evidence, or of its bound, nothing is said; far from it what is wrong with the bars."""
    target = po.Target(po.Model(po.nn.mlp(())), (X, Y[:, None]))
    params = target.init(jax.random.key(0))
    inducing = X if is_exact else X[:6]
    length, noise, scale = best_process(
        "rbf", X.astype(float), Y[:, None].astype(float), None, None, None if is_exact else inducing.astype(float)
    )
    said = {}
    for factor in (1.0, 0.2, 5.0):
        own = with_noise(target, params["likelihood"], factor * noise)
        found = {"params": params | {"likelihood": own}, "kernel": first_kernel("rbf", 2, length, scale)}
        found |= {"inducing": inducing}
        *_, said[factor] = summed_up("rbf", found, X.astype(float), Y[:, None], None, is_exact, target)
    assert said[1.0] == ""
    assert "too narrow" in said[0.2]
    assert "too wide" in said[5.0]
