"""The network at infinite width is a Gaussian process: exact, as far as NumPy and another library can tell."""

import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria.errors import PosteriaError, SettingError, TooLargeError
from posteria.methods.functions.infinite_width import _centred_labels
from posteria.models.limit import limit_kernel
from posteria.models.target import Target
from posteria.testing import ExactLaws

RNG = np.random.default_rng(1)
X = RNG.uniform(-2, 2, size=(40, 2)).astype(np.float32)
Y = (np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=40)).astype(np.float32)
X_NEW = RNG.uniform(-2, 2, size=(7, 2)).astype(np.float32)
NETWORK = po.nn.mlp((20, 20))


class TestInfiniteWidth(ExactLaws):
    method = po.InfiniteWidth()


def fitted(likelihood, data=(X, Y), network=NETWORK, **settings):
    return po.fit(po.Model(network, likelihood), data, po.InfiniteWidth(**settings), progress=False)


@pytest.fixture(scope="module")
def given():
    return fitted(po.likelihoods.Gaussian(0.2))


@pytest.fixture(scope="module")
def matrices():
    kernel, _ = limit_kernel(Target(po.Model(NETWORK), (X, None)))
    return kernel.cross(X, X), kernel.cross(X_NEW, X), kernel.cross(X_NEW, X_NEW)


def test_posterior_and_evidence_are_those_of_numpy(given, matrices):
    k, cross, new = matrices
    noisy = k + 0.04 * np.eye(40)
    mean, covariance = given.function_moments(X_NEW)
    np.testing.assert_allclose(mean[:, 0], cross @ np.linalg.solve(noisy, Y), rtol=1e-8)
    joint = new - cross @ np.linalg.solve(noisy, cross.T)
    np.testing.assert_allclose(covariance[:, 0, 0], np.diag(joint), rtol=1e-7)
    np.testing.assert_allclose(given.joint(X_NEW)[1], joint, atol=1e-10)
    evidence = stats.multivariate_normal(np.zeros(40), noisy).logpdf(Y)
    np.testing.assert_allclose(given.log_evidence(), evidence, rtol=1e-8)
    np.testing.assert_allclose(po.log_evidence(given.model, (X, Y), po.InfiniteWidth()).value, evidence, rtol=1e-8)


def test_a_y_in_units_that_the_prior_does_not_know_is_noise_of_its_own_size():
    """Not the largest noise that the kernel's size would suggest."""
    posterior = fitted(po.likelihoods.Gaussian(), data=(X, 1e8 * Y))
    assert posterior.noise.std == pytest.approx(1e8 * np.sqrt(np.mean(Y**2)), rel=0.2)


@pytest.mark.slow
def test_posterior_and_evidence_are_those_of_tinygp(given, matrices):
    tinygp = pytest.importorskip("tinygp", reason="another library to compare with")
    import jax

    class Network(tinygp.kernels.Kernel):
        """The two-layer ReLU kernel, written again: Cho & Saul 2009, in JAX."""

        def evaluate(self, a, b):
            jnp = jax.numpy
            k, ka, kb = (1 + u @ v / 2 for u, v in ((a, b), (a, a), (b, b)))
            for _ in range(2):
                norm = jnp.sqrt(ka * kb)
                angle = jnp.arccos(jnp.clip(k / norm, -1, 1))
                k = 1 + norm * (jnp.sin(angle) + (jnp.pi - angle) * jnp.cos(angle)) / (2 * jnp.pi)
                ka, kb = 1 + ka / 2, 1 + kb / 2
            return k

    with jax.enable_x64(True):
        process = tinygp.GaussianProcess(Network(), X.astype(float), diag=0.04)
        evidence, conditioned = process.condition(Y.astype(float), X_NEW.astype(float))
        np.testing.assert_allclose(given.log_evidence(), evidence, rtol=1e-7)
        np.testing.assert_allclose(given.moments(X_NEW)[0][:, 0], conditioned.mean, rtol=1e-6)
        np.testing.assert_allclose(given.moments(X_NEW)[1], conditioned.variance, rtol=1e-5)


def test_inferred_noise_is_at_its_mode_and_integrated_out_of_the_evidence(matrices):
    posterior = fitted(po.likelihoods.Gaussian())
    k = matrices[0]
    log_precisions = np.linspace(-2, 9, 2000)
    likelihood = po.likelihoods.Gaussian()
    values, vectors = np.linalg.eigh(k)
    power = (vectors.T @ Y) ** 2
    total = values + np.exp(-log_precisions)[:, None]
    log_joint = -0.5 * (np.log(2 * np.pi * total) + power / total).sum(1)
    log_joint += [float(likelihood.log_prior({"log_precision": p})) for p in log_precisions]
    best = log_precisions[np.argmax(log_joint)]
    np.testing.assert_allclose(-2 * np.log(posterior.noise.std), best, atol=0.03)
    evidence = np.log(np.trapezoid(np.exp(log_joint - log_joint.max()), log_precisions)) + log_joint.max()
    np.testing.assert_allclose(posterior.log_evidence(), evidence, atol=1e-3)


def test_a_latent_function_has_the_posterior_of_the_weights(tmp_path):
    """y ~ Bernoulli(sigmoid(w x)) with one weight: its posterior is an integral over a line."""
    import jax.numpy as jnp

    network = po.Network(lambda key, x: {"w": jnp.zeros((1, 1))}, lambda params, x: x @ params["w"])
    x = RNG.normal(size=(30, 1)).astype(np.float32)
    y = (RNG.uniform(size=30) < 1 / (1 + np.exp(-1.5 * x[:, 0]))).astype(np.int32)
    sampler = po.EllipticalSlice(num_draws=500, num_warmup=200, thinning=2)
    posterior = fitted(po.likelihoods.Bernoulli(), (x, y), network, sampler=sampler)
    w = np.linspace(-6, 10, 4000)
    logits = np.where(y[:, None] == 1, 1, -1) * x * w
    density = np.exp(-np.logaddexp(0, -logits).sum(0) - w**2 / 2)
    density /= density.sum()
    mean, std = density @ w, np.sqrt(density @ w**2 - (density @ w) ** 2)
    values = np.asarray(posterior.functions(0, np.ones((1, 1), np.float32), 2000))[:, 0, 0]
    error = float(posterior.diagnose(np.ones((1, 1), np.float32)).mcse.max())
    assert abs(values.mean() - mean) < 4 * error
    assert abs(values.std() / std - 1) < 0.1
    assert posterior.diagnose(x).has_converged
    posterior.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved", network=network)
    np.testing.assert_allclose(loaded.functions(0, x, 10), posterior.functions(0, x, 10), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def labels():
    y = (Y > 0).astype(np.int32) + (Y > 0.7)
    model = po.Model(po.nn.mlp((20,), outputs=3), po.likelihoods.Categorical())
    return po.fit(model, (X, y), po.InfiniteWidth(classes="regression"), progress=False)


def test_labels_by_regression_are_as_probable_as_their_output_is_the_largest(labels):
    posterior = labels
    probs = posterior.predict(X_NEW, 2000).probs
    mean, variance = posterior.moments(X_NEW)
    std = np.sqrt(variance + posterior.noise.std**2)
    drawn = mean + std[:, None] * np.random.default_rng(0).normal(size=(100_000, 7, 3))
    wanted = np.eye(3)[drawn.argmax(-1)].mean(0)
    np.testing.assert_allclose(probs, wanted, atol=0.02)
    assert "regression" in " ".join(posterior.facts["notes"])
    with pytest.raises(SettingError, match="labels"):
        posterior.log_evidence()


def test_two_classes_by_one_output_are_as_probable_as_it_is_above_0_with_its_noise():
    model = po.Model(po.nn.mlp((20,)), po.likelihoods.Bernoulli())
    posterior = po.fit(model, (X, (Y > 0).astype(np.int32)), po.InfiniteWidth(classes="regression"), progress=False)
    mean, variance = posterior.moments(X_NEW)
    wanted = stats.norm.cdf(mean[:, 0] / np.sqrt(variance.reshape(-1) + posterior.noise.std**2))
    np.testing.assert_allclose(posterior.predict(X_NEW, 2000).probs[:, 1], wanted, atol=0.02)
    assert wanted.min() < 0.3 and wanted.max() > 0.7  # it has learnt


def test_one_output_of_two_classes_is_half_the_difference_of_two():
    y = np.array([0, 1, 1, 0, 1])
    one, two = _centred_labels(y, 1), _centred_labels(y, 2)
    np.testing.assert_allclose(one[:, 0], (two[:, 1] - two[:, 0]) / 2)
    np.testing.assert_allclose(two.sum(1), 0.0, atol=1e-12)


@pytest.mark.parametrize("which", ["given", "labels"])
def test_a_process_is_saved_with_the_rows_it_holds_and_says_so(which, request, tmp_path):
    posterior = request.getfixturevalue(which)
    posterior.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved")
    assert loaded.holds_training_data
    assert loaded.facts["holds"] == "the rows it was fitted to"
    np.testing.assert_array_equal(loaded.predict(X_NEW).log_prob(_targets(loaded)), _scores(posterior))
    with pytest.raises(PosteriaError, match="float64"):
        posterior.export(tmp_path / "exported")
    (tmp_path / "saved" / "arrays" / "y" / "c" / "0" / "0").write_bytes(b"other")
    with pytest.raises(PosteriaError):
        po.load(tmp_path / "saved")


def _targets(posterior):
    return np.zeros(7, np.int32 if posterior.is_labels else np.float32)


def _scores(posterior):
    return posterior.predict(X_NEW).log_prob(_targets(posterior))


def test_what_it_cannot_do_is_refused_with_what_it_would_take():
    with pytest.raises(TooLargeError, match=r"20,000 rows.*3\.2 GB"):
        fitted(po.likelihoods.Poisson(), (np.zeros((20_000, 1), np.float32), np.zeros(20_000, np.int32)))
    with pytest.raises(SettingError, match="scale to infer"):
        fitted(po.likelihoods.StudentT())
    with pytest.raises(SettingError, match="temperature"):
        po.fit(po.Model(NETWORK, temperature=0.5), (X, Y), po.InfiniteWidth(), progress=False)
    with pytest.raises(SettingError, match="given scales"):
        po.fit(po.Model(NETWORK, prior=po.priors.FanIn(po.infer)), (X, Y), po.InfiniteWidth(), progress=False)


def test_a_sampled_process_is_cut_off_and_resumed(tmp_path):
    y = (Y > 0).astype(np.int32)
    model = po.Model(po.nn.mlp((20,), outputs=2), po.likelihoods.Categorical())
    method = po.InfiniteWidth(sampler=po.EllipticalSlice(num_chains=2, num_draws=30, num_warmup=0, thinning=1))
    whole = po.fit(model, (X, y), method, progress=False)
    po.fit(model, (X, y), method, progress=False, out=tmp_path / "run", max_seconds=0.01)
    resumed = po.resume(tmp_path / "run", data=(X, y), progress=False)
    assert not resumed.facts["cut"]  # there is no warm-up that time could have ended
    np.testing.assert_array_equal(whole.white, resumed.white)
    assert resumed.white.shape == (2, 30, 40, 2)


def test_at_the_rows_of_the_fit_a_latent_function_is_the_one_that_was_drawn():
    """Nothing is left to draw there: what remains of the prior is rounding, of either sign."""
    y = (Y > 0).astype(np.int32)
    sampler = po.EllipticalSlice(num_draws=5, num_warmup=5)
    posterior = fitted(po.likelihoods.Bernoulli(), (X, y), po.nn.mlp((20,)), sampler=sampler)
    for rows in (X[:1], X[:5], X):
        num = posterior.num_draws
        drawn = np.asarray(posterior.functions(0, rows, num))
        known, _ = posterior._means(rows)
        np.testing.assert_allclose(drawn, known, atol=1e-3)
