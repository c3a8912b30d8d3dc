"""A pruned posterior is the Gaussian with some weights exactly 0, however it is stored or computed."""

import jax
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.errors import SettingError
from posteria.posteriors.gaussian import Diagonal, Full, GaussianPosterior
from posteria.posteriors.pruned import SparsePosterior, log_alpha

NETWORK = po.nn.mlp((8,), outputs=2)
X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def gaussian():
    target = po.Target(po.Model(NETWORK), (X, np.zeros((5, 2), np.float32)))
    rng = np.random.default_rng(1)
    size = tree.size(target.structs)
    return GaussianPosterior(target, rng.normal(size=size).astype(np.float32), Diagonal(rng.uniform(0.1, 2.0, size)))


def weights(posterior):
    """Means of all weights of layers, flat."""
    kernels = zip(tree.paths(posterior.mean_params), jax.tree.leaves(posterior.mean_params))
    return np.concatenate([np.ravel(kernel) for path, kernel in kernels if "kernel" in path])


def test_it_removes_the_noisiest_weights_and_no_biases(gaussian):
    pruned = gaussian.prune(by="snr", fraction=0.75)
    before, after = weights(gaussian), weights(pruned)
    assert (after == 0).sum() == round(0.75 * len(before)) == 30
    np.testing.assert_array_equal(after[after != 0], before[after != 0])
    mean, std = np.asarray(gaussian.mean), np.asarray(gaussian.spread.std)
    is_weight = np.isin(mean, before)
    snr = np.abs(mean / std)[is_weight]
    is_left = np.isin(mean, after)[is_weight]
    assert snr[is_left].min() > snr[~is_left].max()
    for path, bias in zip(tree.paths(gaussian.mean_params), jax.tree.leaves(gaussian.mean_params)):
        if "bias" in path:
            np.testing.assert_array_equal(
                bias, dict(zip(tree.paths(pruned.mean_params), jax.tree.leaves(pruned.mean_params)))[path]
            )


def test_thresholds_of_signal_to_noise_and_of_log_alpha_are_the_same_order(gaussian):
    by_snr = gaussian.prune(by="snr", threshold=0.5)
    by_log_alpha = gaussian.prune(by="log_alpha", threshold=-2 * np.log(0.5))
    np.testing.assert_array_equal(by_snr.kept, by_log_alpha.kept)
    mean, std = np.asarray(by_snr.mean), np.asarray(by_snr.std)
    assert log_alpha(mean, std)[np.isin(mean, weights(gaussian))].max() <= 2 * np.log(2)


def test_sparsity_is_counted_layer_by_layer(gaussian):
    pruned = gaussian.prune(by="snr", fraction=0.75)
    kernels = dict(zip(tree.paths(pruned.mean_params), jax.tree.leaves(pruned.mean_params)))
    expected = {path: float((np.asarray(k) == 0).mean()) for path, k in kernels.items() if "kernel" in path}
    assert pruned.sparsity() == pytest.approx(expected)
    assert pruned.compression == 4.0
    assert gaussian.prune(fraction=0.0).compression == 1.0


def test_its_draws_are_the_gaussians_where_weights_are_left(gaussian):
    pruned = gaussian.prune(by="snr", fraction=0.5)
    draws = np.asarray(jax.vmap(tree.ravel)(pruned.sample_params(jax.random.key(0), 4000)), np.float64)
    removed = np.setdiff1d(np.arange(draws.shape[1]), pruned.kept)
    assert (draws[:, removed] == 0).all() and len(removed) == 20
    mean, std = np.asarray(gaussian.mean)[pruned.kept], np.asarray(gaussian.spread.std)[pruned.kept]
    z = (draws[:, pruned.kept].mean(0) - mean) / (std / np.sqrt(4000))
    assert (z**2).sum() < len(z) + 4 * np.sqrt(2 * len(z))


def test_compressed_predicts_the_same_from_sparse_arrays(gaussian, tmp_path):
    pruned = gaussian.prune(by="snr", fraction=0.75)
    compressed = pruned.compressed()
    np.testing.assert_allclose(compressed.predict(X).mean, pruned.predict(X).mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(compressed.functions(3, X, 7), pruned.functions(3, X, 7), rtol=1e-4, atol=1e-5)
    left = sum(array.nnz for path, array in compressed.arrays.items() if "kernel" in path)
    assert left == 10
    for path, array in compressed.arrays.items():
        dense = dict(zip(tree.paths(pruned.mean_params), jax.tree.leaves(pruned.mean_params)))[path]
        np.testing.assert_array_equal(array.toarray() if "kernel" in path else array, dense)
    compressed.save(tmp_path / "compressed")
    np.testing.assert_array_equal(po.load(tmp_path / "compressed").predict(X).mean, compressed.predict(X).mean)


def test_a_convolution_is_pruned_and_compressed_too():
    network = po.nn.lenet5(outputs=3)
    x = np.random.default_rng(0).normal(size=(2, 16, 16, 1)).astype(np.float32)
    target = po.Target(po.Model(network, po.likelihoods.Categorical()), (x, np.array([0, 2])))
    size = tree.size(target.structs)
    rng = np.random.default_rng(1)
    posterior = GaussianPosterior(target, 0.1 * rng.normal(size=size), Diagonal(np.full(size, 0.01)))
    pruned = posterior.prune(fraction=0.9)
    assert set(pruned.sparsity()) == {f"{name}/kernel" for name in ("first", "second", "hidden", "last")}
    np.testing.assert_allclose(pruned.compressed().functions(0, x, 2), pruned.functions(0, x, 2), rtol=1e-3, atol=1e-4)


def test_the_saved_file_shows_it(tmp_path):
    network = po.nn.mlp((100,), outputs=1)
    x = np.zeros((2, 100), np.float32)
    target = po.Target(po.Model(network), (x, np.zeros(2, np.float32)))
    size = tree.size(target.structs)
    gaussian = GaussianPosterior(target, np.random.default_rng(0).normal(size=size), Diagonal(np.ones(size)))
    pruned = gaussian.prune(fraction=0.99)
    gaussian.save(tmp_path / "gaussian")
    pruned.save(tmp_path / "pruned")

    def num_bytes(name):
        return sum(file.stat().st_size for file in (tmp_path / name / "arrays").rglob("*") if file.is_file())

    assert num_bytes("pruned") < num_bytes("gaussian") / 15
    loaded = po.load(tmp_path / "pruned")
    np.testing.assert_array_equal(loaded.predict(x).mean, pruned.predict(x).mean)
    assert loaded.sparsity() == pruned.sparsity()


def test_pruning_twice_is_pruning_once(gaussian):
    twice = gaussian.prune(fraction=0.5).prune(fraction=0.75)
    np.testing.assert_array_equal(twice.kept, gaussian.prune(fraction=0.75).kept)


def test_what_was_attached_travels_along_and_the_elbo_does_not(gaussian):
    whole = GaussianPosterior(
        gaussian.target, gaussian.mean, gaussian.spread, {"elbo": -1.0, "elbo_error": 0.1, "seconds": 2.0}
    )
    whole.attached = {"preparation": "of a table"}
    pruned = whole.prune(fraction=0.5)
    for posterior in (pruned, pruned.compressed()):
        assert posterior.attached == whole.attached and posterior.facts == {"seconds": 2.0}


def test_what_cannot_be_pruned_is_refused(gaussian):
    with pytest.raises(SettingError, match="one of the two"):
        gaussian.prune(by="snr")
    for by, threshold in (("snr", -1.0), ("snr", float("nan")), ("log_alpha", float("nan"))):
        with pytest.raises(SettingError, match="threshold is"):
            gaussian.prune(by=by, threshold=threshold)
    with pytest.raises(SettingError, match="by is"):
        gaussian.prune(by="size", fraction=0.5)
    size = tree.size(gaussian.target.structs)
    with pytest.raises(SettingError, match="independent weights"):
        GaussianPosterior(gaussian.target, gaussian.mean, Full(np.eye(size))).prune(fraction=0.5)


def test_a_sparse_posterior_remembers_its_training_and_survives_saving(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    y = (x[:, 0] + 0.1 * rng.normal(size=80)).astype(np.float32)
    model = po.Model(po.nn.mlp((), outputs=1), po.likelihoods.Gaussian(0.1), po.priors.LogUniform())
    posterior = po.fit(model, (x, y), po.SparseVariationalDropout(num_epochs=1000), progress=False)
    assert isinstance(posterior, SparsePosterior)
    pruned = posterior.prune(by="log_alpha", threshold=3.0)
    assert pruned.sparsity() == {"layers/0/kernel": pytest.approx(2 / 3)}  # the two inputs that say nothing
    assert len(posterior.removals) == 20
    np.testing.assert_array_equal(posterior.removals[-1]["layers/0/kernel"][:, 0], [False, True, True])
    assert not posterior.removals[0]["layers/0/kernel"].any()
    late = po.fit(model, (x, y), po.SparseVariationalDropout(num_epochs=1000), progress=False, max_seconds=1e-6)
    assert len(late.removals) < 20  # moments that it did not get to are not shown
    posterior.save(tmp_path / "sparse")
    loaded = po.load(tmp_path / "sparse")
    np.testing.assert_array_equal(loaded.removals[10]["layers/0/kernel"], posterior.removals[10]["layers/0/kernel"])
    np.testing.assert_array_equal(loaded.prune(by="log_alpha", threshold=3.0).kept, pruned.kept)
