"""A deep kernel is a Gaussian process given its features: exact, and sparse where that says the same."""

import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria.errors import PosteriaError, SettingError
from posteria.methods.functions import deep_kernel
from posteria.posteriors.deep_process import collapse, collapse_note, exact_summary, sparse_summary
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


def test_many_rows_and_classes_are_fitted_by_inducing_points(monkeypatch):
    monkeypatch.setattr(deep_kernel, "EXACT_ROWS", 50)
    method = po.DeepKernel("matern", num_inducing=30, num_epochs=150, batch_size=20, learning_rate=0.03)
    network = po.nn.mlp((20, 8), activation="tanh")
    sparse = po.fit(po.Model(network), (X, Y), method, progress=False)
    assert sparse.inducing.shape == (30, 8)
    assert np.mean((sparse.predict(X).mean[:, 0] - Y) ** 2) < 0.5 * np.var(Y)
    labels = (Y > 0).astype(np.int32)
    classes = po.Model(po.nn.mlp((20, 8), outputs=2, activation="tanh"), po.likelihoods.Categorical())
    posterior = po.fit(classes, (X, labels), method, progress=False)
    assert np.mean(posterior.predict(X).probs.argmax(1) == labels) > 0.85
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
