"""What a server sees of itself: counts, odd inputs, the drift of its uncertainty, and whether coverage holds."""

import math
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posteria.data.encode import Encoded
from posteria.tree import Json

REFERENCE_ROWS = RECENT_ROWS = 1000  # the first predictions, and the last, whose uncertainties are compared
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
MOST_COLUMNS = 1000  # that have unseen values


class Watch:
    def __init__(self, level: float) -> None:
        self.level = level
        self.bet = CoverageBet()
        self.begun = self.answered = self.in_flight = 0  # requests
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.seconds: Counter[float] = Counter()
        self.seconds_total = 0.0
        self.rows = self.rows_outside = 0
        self.unseen: Counter[str] = Counter()  # by column, requests with values that the fit did not know
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=RECENT_ROWS)
        self._lock = threading.Lock()  # predictions are seen in their thread, requests in the loop's

    def saw_request(self, path: str, status: int, seconds: float) -> None:
        with self._lock:
            self.answered += 1
            self.requests[path, status] += 1
            self.seconds_total += seconds
            self.seconds[next((bound for bound in BUCKETS if seconds <= bound), np.inf)] += 1

    def saw_rows(self, encoded: Encoded, outside: np.ndarray, uncertainty: np.ndarray) -> None:
        values = uncertainty[np.isfinite(uncertainty)].tolist()
        with self._lock:
            self.rows += len(outside)
            self.rows_outside += int((outside > 0).sum())
            self.unseen.update(list(encoded.unseen)[:MOST_COLUMNS])
            room = REFERENCE_ROWS - len(self._first)
            self._first += values[:room]
            self._recent.extend(values[max(room, 0) :])

    def saw_outcomes(self, missed: np.ndarray, chance: np.ndarray) -> None:
        with self._lock:
            self.bet.see(missed, chance)

    def told(self) -> Json:
        with self._lock:
            bet = self.bet
            return {
                "requests": self.answered,
                "in_flight": self.in_flight,
                "rows": self.rows,
                "rows_outside_training_range": self.rows_outside,
                "requests_with_unseen_values": dict(self.unseen),
                "uncertainty": self._drift(),
                "coverage": {
                    "promised": 1 - bet.promised / bet.num_rows if bet.num_rows else self.level,
                    "so_far": 1 - bet.misses / bet.num_rows if bet.num_rows else None,
                    "outcomes": bet.num_rows,
                    "log_wealth": bet.log_wealth,
                    "alarm": bet.alarm_at is not None,
                    "alarm_at": bet.alarm_at,
                    "false_alarm_chance": bet.alpha,
                },
            }

    def _drift(self) -> Json:
        """Of std (of classes, entropy): the last rows against the first ones that this server saw."""
        told: Json = {"reference_rows": len(self._first), "recent_rows": len(self._recent)}
        if not self._first or not self._recent:
            return told | {"median_ratio": None, "distance": None}
        first, recent = np.sort(self._first), np.sort(np.array(self._recent))
        both = np.concatenate([first, recent])
        apart = np.searchsorted(first, both, "right") / len(first) - np.searchsorted(recent, both, "right") / len(
            recent
        )
        middle = float(np.median(first))
        ratio = float(np.median(recent)) / middle if middle > 0 else None
        return told | {"median_ratio": ratio, "distance": float(np.abs(apart).max())}  # of Kolmogorov and Smirnov

    def metrics(self) -> str:
        """In Prometheus' text format."""
        told = self.told()
        coverage, drift = told["coverage"], told["uncertainty"]
        lines: list[str] = []

        def add(name: str, kind: str, values: list[tuple[str, Any]]) -> None:
            lines.append(f"# TYPE posteria_{name} {kind}")
            base = name if kind != "histogram" else ""
            lines.extend(f"posteria_{base}{label} {float(value)!r}" for label, value in values if value is not None)

        with self._lock:
            requests = sorted(self.requests.items())
            counts, total = dict(self.seconds), self.seconds_total
        add("requests_total", "counter", [(f'{{path="{p}",status="{s}"}}', n) for (p, s), n in requests])
        bounds = [*BUCKETS, np.inf]
        up_to = np.cumsum([counts.get(bound, 0) for bound in bounds])
        name = "request_seconds"
        texts = ["+Inf" if bound == np.inf else str(bound) for bound in bounds]
        buckets: list[tuple[str, Any]] = [(f'{name}_bucket{{le="{t}"}}', n) for t, n in zip(texts, up_to)]
        add(name, "histogram", [*buckets, (f"{name}_sum", total), (f"{name}_count", up_to[-1])])
        add("in_flight", "gauge", [("", told["in_flight"])])
        add("rows_total", "counter", [("", told["rows"])])
        add("rows_outside_total", "counter", [("", told["rows_outside_training_range"])])
        unseen = [(f'{{column="{_label(column)}"}}', n) for column, n in told["requests_with_unseen_values"].items()]
        add("unseen_total", "counter", unseen)
        add("uncertainty_median_ratio", "gauge", [("", drift["median_ratio"])])
        add("uncertainty_distance", "gauge", [("", drift["distance"])])
        add("outcomes_total", "counter", [("", coverage["outcomes"])])
        add("coverage", "gauge", [("", coverage["so_far"])])
        add("coverage_promised", "gauge", [("", coverage["promised"])])
        add("coverage_log_wealth", "gauge", [("", coverage["log_wealth"])])
        add("coverage_alarm", "gauge", [("", coverage["alarm"])])
        return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# ---- does coverage hold? A bet against the promise, whose wealth says when it does not.
#
# With promised chances m_t of a miss and misses X_t in [0, 1], wealth W_t = mean over f of prod (1 + f (X_t / m_t - 1))
# is a nonnegative supermartingale whenever E[X_t | past] <= m_t, so that P(W ever reaches 1 / alpha) <= alpha (Ville
# 1939): one may look after every row. Waudby-Smith & Ramdas 2024. Large fractions f find large shortfalls soon, small
# ones small shortfalls at all.

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
