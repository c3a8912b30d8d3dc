"""Pictures of removal show the numbers they are given."""

import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.errors import DataError
from posteria.plots import pruning
from posteria.posteriors.gaussian import Diagonal, GaussianPosterior
from posteria.posteriors.masks import MaskPosterior

X = np.zeros((2, 3), np.float32)
TARGET = po.Target(po.Model(po.nn.mlp((8,), outputs=1)), (X, np.zeros(2, np.float32)))
SIZE = tree.size(TARGET.structs)


@pytest.fixture
def axes():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, pair = pyplot.subplots(1, 2)
    yield pair
    pyplot.close(figure)


def test_signal_to_noise_is_in_decibel_over_weights_alone(axes):
    mean = np.full(SIZE, 10.0)
    posterior = GaussianPosterior(TARGET, mean, Diagonal(np.ones(SIZE)))
    pruning.signal_to_noise(*axes, posterior)
    decibel, share = axes[1].lines[0].get_data()
    np.testing.assert_allclose(decibel, 10.0, rtol=1e-6)
    assert len(decibel) == 3 * 8 + 8 and share[-1] == 1.0  # no biases, no noise parameter
    with pytest.raises(DataError):
        pruning.signal_to_noise(*axes, GaussianPosterior(TARGET, mean, Diagonal(np.zeros(SIZE))))


def test_error_curves_are_in_percent_of_removed(axes):
    pruning.error_against_removed(axes[0], {"a": ([0, 0.95], [1.2, 1.3]), "b": ([0.5], [2.0])})
    np.testing.assert_allclose(axes[0].lines[0].get_xdata(), [0, 95])
    assert axes[0].get_legend() is not None


def test_maps_show_a_patch_of_a_matrix_and_the_filters_of_a_convolution(axes):
    removed = np.ones((300, 120), bool)
    removed[102, 15] = False  # the patch is in the middle
    pruning.sparsity_map(axes[0], removed)
    shown = np.asarray(axes[0].images[0].get_array())
    assert shown.shape == (100, 100) and np.argwhere(shown == 1).tolist() == [[2, 5]]
    kernels = np.ones((5, 5, 1, 20), bool)
    kernels[1, 3, 0, 7] = False
    pruning.sparsity_map(axes[1], kernels)
    shown = np.asarray(axes[1].images[0].get_array())
    assert shown.shape == (4 * 6 + 1, 5 * 6 + 1)
    assert np.argwhere(shown == 1).tolist() == [[6 + 1 + 1, 2 * 6 + 1 + 3]]  # filter 7: second row, third column
    with pytest.raises(DataError):
        pruning.sparsity_map(axes[0], np.ones(3, bool))


def test_sparsity_over_training_and_learned_rates(axes):
    history = [{"w": np.array([[True, False]])}, {"w": np.array([[True, True]])}]
    pruning.sparsity_over_training(axes[0], history)
    np.testing.assert_allclose(axes[0].lines[0].get_xydata(), [[50, 50], [100, 100]])
    strengths = {"layers/0/kernel": np.array([0.25, 1.0, 0.0]), "layers/1/kernel": np.asarray(1.0)}
    posterior = MaskPosterior(TARGET, np.zeros(SIZE), "gaussian", strengths)
    pruning.learned_rates(axes[1], posterior)
    means = axes[1].lines[-1].get_xdata()
    np.testing.assert_allclose(means, [(0.2 + 0.5) / 3, 0.5], rtol=1e-6)  # alpha / (1 + alpha)
