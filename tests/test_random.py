"""The fast normals are normal, and independent from position to position and from step to step."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from posteria.random import fast_normal

NUM_STEPS, SIZE = 400, 5000
LEAST_P_VALUE = 1e-4


@cache
def noise() -> np.ndarray:
    """(step, position), by the keys that the loop gives to consecutive steps."""
    key = jax.random.key(3)
    draw = jax.jit(jax.vmap(lambda step: fast_normal(jax.random.fold_in(key, step), (SIZE,))))
    return np.asarray(draw(jnp.arange(NUM_STEPS)), np.float64)


def test_they_are_normal_to_the_tails():
    draws = noise()
    edges = stats.norm.ppf(np.linspace(0, 1, 201)[1:-1])
    edges = np.concatenate([[-np.inf, -4.0, -3.5], edges, [3.5, 4.0, np.inf]])
    counts = np.histogram(draws, edges)[0]
    expected = np.diff(stats.norm.cdf(edges)) * draws.size
    assert stats.chisquare(counts, expected).pvalue > LEAST_P_VALUE
    # moments to the sixth: their errors are sqrt((m_2k - m_k^2) / n)
    for order, moment in {1: 0.0, 2: 1.0, 3: 0.0, 4: 3.0, 6: 15.0}.items():
        error = np.sqrt((stats.norm.moment(2 * order) - moment**2) / draws.size)
        assert abs(np.mean(draws**order) - moment) < 4 * error


def test_positions_and_steps_are_uncorrelated_at_every_lag_in_values_and_in_squares():
    draws = noise()
    for values in (draws, draws**2 - 1.0):
        values = values / values.std()
        lags = [(step, position) for step in (0, 1, 2, 5) for position in (0, 1, 2, 3, 64, 1000) if step or position]
        for step, position in lags:
            product = values[: NUM_STEPS - step, : SIZE - position] * values[step:, position:]
            assert abs(product.mean()) < 4.5 / np.sqrt(product.size), (step, position)


def test_sums_over_positions_and_over_steps_have_the_variance_of_independent_ones():
    draws = noise()
    for axis in (0, 1):
        sums = draws.sum(axis) / np.sqrt(draws.shape[axis])
        assert stats.kstest(sums, "norm").pvalue > LEAST_P_VALUE
        assert stats.chi2.sf(np.sum(sums**2), len(sums)) > LEAST_P_VALUE
        assert stats.chi2.cdf(np.sum(sums**2), len(sums)) > LEAST_P_VALUE


def test_no_two_positions_of_a_step_move_together():
    """The covariance of a block of positions over steps has the eigenvalues of independent ones (Marchenko-Pastur)."""
    block = noise()[:, :100]
    eigenvalues = np.linalg.eigvalsh(block.T @ block / NUM_STEPS)
    ratio = 100 / NUM_STEPS
    assert eigenvalues[0] > 0.85 * (1 - np.sqrt(ratio)) ** 2 and eigenvalues[-1] < 1.15 * (1 + np.sqrt(ratio)) ** 2
