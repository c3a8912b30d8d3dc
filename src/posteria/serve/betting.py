"""Does coverage hold? A bet against the promise, whose wealth says when it does not.

With promised chances m_t of a miss and misses X_t in [0, 1], wealth W_t = mean over f of prod (1 + f (X_t / m_t - 1))
is a nonnegative supermartingale whenever E[X_t | past] <= m_t, so that P(W ever reaches 1 / alpha) <= alpha (Ville
1939): one may look after every row. Waudby-Smith & Ramdas 2024. Large fractions f find large shortfalls soon, small
ones small shortfalls at all.
"""

import math
from dataclasses import dataclass, field

import numpy as np

ALPHA = 0.01  # chance of a false alarm, ever
FRACTIONS = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.4])  # of what may be staked
LEAST_CHANCE = 1e-3  # of a miss: a prediction that is surer is taken to promise no more than this


@dataclass
class CoverageBet:
    alpha: float = ALPHA
    num_rows: int = 0
    misses: float = 0.0
    promised: float = 0.0  # misses, on average
    alarm_at: int | None = None  # the row at which wealth first reached 1 / alpha
    _log_wealths: np.ndarray = field(default_factory=lambda: np.zeros(len(FRACTIONS)))

    @property
    def log_wealth(self) -> float:
        return float(np.logaddexp.reduce(self._log_wealths) - math.log(len(FRACTIONS)))

    def see(self, missed: np.ndarray, chance: np.ndarray) -> None:
        """Rows in the order in which they came: how far each was missed, 0 to 1, and the chance promised for it."""
        chance = np.clip(chance, LEAST_CHANCE, 1.0)
        gains = np.log1p(FRACTIONS * (missed / chance - 1.0)[:, None])  # (row, fraction)
        paths = self._log_wealths + np.cumsum(gains, axis=0)
        wealth = np.logaddexp.reduce(paths, axis=1) - math.log(len(FRACTIONS))
        over = np.flatnonzero(wealth >= -math.log(self.alpha))
        if self.alarm_at is None and over.size:
            self.alarm_at = self.num_rows + int(over[0]) + 1
        self._log_wealths = paths[-1] if len(paths) else self._log_wealths
        self.num_rows += len(missed)
        self.misses += float(missed.sum())
        self.promised += float(chance.sum())
