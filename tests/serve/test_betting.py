"""The coverage alarm: rarely where the promise holds, soon where it does not."""

import numpy as np
from scipy.stats import norm

from posteria.serve.watching import CoverageBet

NUM_STREAMS = 500
TOO_NARROW = 2 * norm.cdf(0.8 * norm.ppf(0.95)) - 1  # what 90 % intervals hold, 20 % narrower, of Gaussian targets


def alarms(chance: float, num_rows: int, alpha: float, seed: int = 0) -> np.ndarray:
    """The row of the alarm in each stream, 0 for none."""
    random, found = np.random.default_rng(seed), []
    for _ in range(NUM_STREAMS):
        bet = CoverageBet(alpha)
        bet.see((random.random(num_rows) < chance).astype(float), np.full(num_rows, 0.1))
        found.append(bet.alarm_at or 0)
    return np.array(found)


def test_exchangeable_outcomes_rarely_alarm():
    """Ville: at most alpha, over 10,000 rows with a look after each."""
    for alpha in (0.01, 0.05):
        share = (alarms(0.1, 10_000, alpha) > 0).mean()
        assert share < alpha + 3 * np.sqrt(alpha * (1 - alpha) / NUM_STREAMS)
        assert share < 0.05


def test_intervals_20_percent_too_narrow_alarm_within_a_thousand_rows():
    assert abs(TOO_NARROW - 0.812) < 1e-3
    assert (alarms(1 - TOO_NARROW, 1000, 0.01) > 0).mean() >= 0.9


def test_rows_one_by_one_are_rows_together():
    random = np.random.default_rng(1)
    missed, chance = (random.random(300) < 0.4).astype(float), random.uniform(0.05, 0.5, 300)
    one, together = CoverageBet(), CoverageBet()
    together.see(missed, chance)
    for each in range(300):
        one.see(missed[each : each + 1], chance[each : each + 1])
    np.testing.assert_allclose(one.log_wealth, together.log_wealth, rtol=1e-9)
    assert one.alarm_at == together.alarm_at is not None


def test_one_bet_has_mean_one_under_the_promise():
    """E[1 + f (X / m - 1)] = 1 exactly, the law that the alarm rests on."""
    for chance in (0.02, 0.1, 0.5):
        wealth = []
        for missed in (0.0, 1.0):
            bet = CoverageBet()
            bet.see(np.array([missed]), np.array([chance]))
            wealth.append(np.exp(bet.log_wealth))
        assert abs((1 - chance) * wealth[0] + chance * wealth[1] - 1) < 1e-12
