"""Gaussians over the weights: their draws have the stated covariance, however it is stored."""

import jax
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.posteriors.gaussian import Diagonal, Full, GaussianPosterior, LowRank
from posteria.testing import targets
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value

SIZE = 4
RANDOM = np.random.default_rng(0)
STD = RANDOM.uniform(0.5, 2.0, SIZE).astype(np.float32)
FACTOR = RANDOM.normal(size=(SIZE, 2)).astype(np.float32)
SQUARE = RANDOM.normal(size=(SIZE, SIZE)).astype(np.float32)
SPREADS = {
    "diagonal": (Diagonal(STD), np.diag(STD**2)),
    "low rank": (LowRank(STD, FACTOR), np.diag(STD**2) + FACTOR @ FACTOR.T),
    "full": (Full(SQUARE), SQUARE @ SQUARE.T),
}


@pytest.mark.parametrize("name", SPREADS)
def test_draws_have_the_stated_covariance(name):
    spread, covariance = SPREADS[name]
    np.testing.assert_allclose(spread.covariance(), covariance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(spread.variances, np.diag(covariance), rtol=1e-5)
    draws = np.asarray(spread.sample(jax.random.key(1), 4000))[None]
    assert moments_p_value(draws, np.zeros(SIZE), covariance) > LEAST_P_VALUE


@pytest.mark.parametrize("kind", ["diagonal", "low rank", "full"])
def test_predictions_are_those_of_the_sampled_weights_and_survive_saving(kind, tmp_path):
    known = targets.linear_regression()
    target = po.Target(known.model, known.data)
    size = tree.size(target.structs)
    std, factor = np.full(size, 0.1, np.float32), 0.1 * np.eye(size, dtype=np.float32)
    spread = {"diagonal": Diagonal(std), "low rank": LowRank(std, factor[:, :2]), "full": Full(factor)}[kind]
    posterior = GaussianPosterior(target, np.arange(size, dtype=np.float32), spread)
    x, y = known.data
    weights = posterior.sample(3, 5)
    by_hand = [known.model.network.apply(tree.index(weights, i), x) for i in range(5)]
    np.testing.assert_allclose(posterior.functions(3, x, 5), by_hand, rtol=1e-5, atol=1e-5)
    posterior.save(tmp_path / "gaussian")
    loaded = po.load(tmp_path / "gaussian", network=known.model.network)
    np.testing.assert_array_equal(loaded.predict(x).log_prob(y), posterior.predict(x).log_prob(y))
