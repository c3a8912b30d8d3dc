"""Whether a difference between two rows of a comparison is more than chance, from their scores of single test rows.

The mean d of differences d[split, row] varies by the test rows that happened to be there, and by the splits and fits:

    var(d)   = V_rows + max(0, V_splits - what rows alone put into V_splits)
    V_rows   = G / (G - 1) sum_g (sum of (d[split, row] - d) / (rows of the split) over all of cluster g / S)^2
    V_splits = sum_s (d[s] - d)^2 / (S (S - 1))

Clusters are what was drawn: rows by their number (a row that several splits test on is one cluster), groups where the
split is by groups. Splits that share all test rows differ by refits alone; splits with rows of their own differ by
these too, (mean of the splits' own V_rows - V_rows) / (S - 1) of it, which is not counted twice. The degrees of freedom
are Satterthwaite's. One split has no V_splits: refits are then not counted. What no split can show is not counted
either: that all of them learnt from one table.

Rows in the order of time are one series s[t], alike where they are near. V_rows is then T times its spectrum at zero,
from few of its slowest waves, (1/B) sum_b (sqrt(2/T) sum_t s[t] cos(pi b (t - 1/2) / T))^2, with B degrees of freedom
(Mueller 2007; Lazarus, Lewis, Stock & Watson 2018), after taking out what a row has of the one before it (Andrews &
Monahan 1992), with the bias of that correlation in a short series added back (Kendall 1954).

Rows are compared with the first, so there are as many chances of a false difference as rows behind it: Holm 1979. That
all of them are worse is one claim, and it is false if any one is not: where each is told from the first by itself, none
needs a correction (Berger 1982, intersection and union). So a single winner is declared in at most 5 % where two or
more are equally good, and no level can be lower for being one of many: where two are equal and all others far behind,
it is 5 %. One that is better than each of the others by 3 standard errors is told from one other in 85 %, from two in
74 % and from seven in 55 % by a test of this level that knows the errors; from one other in 90 % at 3.24. No test of
this level can do more (`benchmarks/verdicts.py`).
Liang & Zeger 1986, Cameron, Gelbach & Miller 2011 (clusters in two directions).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posteria.data.splits import Splits
from posteria.tree import Json

CONFIDENCE = 0.95  # of "indistinguishable"
NUM_WAVES = 8  # of a series: few and slow, so that what is correlated is within one
LEAST_SERIES = 5  # rows, of which anything can be said
MOST_ALIKE = 0.97  # correlation of a row with the one before it

PerSplit = list[np.ndarray]  # an array a split, a value a test row


class Drawn(NamedTuple):
    """What test rows were drawn as."""

    clusters: PerSplit  # of each test row of each split; the same number is the same cluster in all
    is_series: bool = False  # clusters are moments, in the order of their numbers

    def on(self, numbers: Sequence[int]) -> "Drawn":
        """Of some of the splits."""
        return Drawn([self.clusters[number] for number in numbers], self.is_series)


class Estimate(NamedTuple):
    """A mean over rows and splits. `se` is None where there is but one cluster: nothing is known of it."""

    mean: float
    se: float | None
    freedom: float


def drawn(splits: Splits) -> Drawn:
    tests = [test for _, test in splits.parts]
    if splits.kind == "time":  # test rows are in the order of time
        return Drawn([np.arange(len(test)) for test in tests], is_series=True)
    return Drawn(tests if splits.groups is None else [splits.groups[test] for test in tests])


def estimate(values: PerSplit, rows: Drawn) -> Estimate:
    """The mean of split means, its standard error and degrees of freedom."""
    count = len(values)
    by_split = np.array([each.mean() for each in values])
    mean = float(by_split.mean())
    shares = np.concatenate([(each - mean) / (count * len(each)) for each in values])
    sums = _sums(shares, np.concatenate(rows.clusters))
    if len(sums) < (LEAST_SERIES if rows.is_series else 2):
        return Estimate(mean, None, 0.0)
    by_rows, freedom = _of_series(sums) if rows.is_series else _of_clusters(sums)
    by_splits = 0.0
    if count > 1:
        counted = 0.0 if rows.is_series else _counted_by_rows(values, rows.clusters, by_rows)
        by_splits = max(0.0, float(by_split.var(ddof=1)) / count - counted)
    if by_rows + by_splits == 0.0:
        return Estimate(mean, 0.0, freedom)
    spread = by_rows**2 / freedom + (by_splits**2 / (count - 1) if count > 1 else 0.0)
    return Estimate(mean, math.sqrt(by_rows + by_splits), (by_rows + by_splits) ** 2 / spread)


def _sums(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    _, place = np.unique(clusters, return_inverse=True)
    return np.bincount(place, values)


def _of_clusters(sums: np.ndarray) -> tuple[float, float]:
    """The variance of the sum of independent ones, and its degrees of freedom."""
    return float((sums**2).sum() * len(sums) / (len(sums) - 1)), len(sums) - 1.0


def _counted_by_rows(values: PerSplit, clusters: PerSplit, by_rows: float) -> float:
    """What rows alone put into the variance between splits that do not share all of them."""
    own = [_sums((each - each.mean()) / len(each), cluster) for each, cluster in zip(values, clusters)]
    within = float(np.mean([_of_clusters(each)[0] if len(each) > 1 else 0.0 for each in own]))
    return max(0.0, (within - by_rows) / (len(values) - 1))


def _of_series(sums: np.ndarray) -> tuple[float, float]:
    """The same of a series, whose neighbours are alike."""
    length = len(sums)
    centred = sums - sums.mean()
    if not (square := float((centred**2).sum())):
        return 0.0, length - 1.0
    alike = float((centred[1:] * centred[:-1]).sum()) / square
    alike = min(max(alike + (1 + 3 * alike) / length, 0.0), MOST_ALIKE)
    news = centred[1:] - alike * centred[:-1]
    num_waves = max(1, min(NUM_WAVES, len(news) // 2))
    waves = np.cos(np.pi * np.outer(np.arange(1, num_waves + 1), np.arange(len(news)) + 0.5) / len(news))
    spectrum = float(((np.sqrt(2 / len(news)) * waves @ news) ** 2).mean()) / (1 - alike) ** 2
    return length * spectrum, float(num_waves)


def p_value(found: Estimate) -> float:
    """Of no difference, on either side; 1 where there is nothing to tell it by."""
    from scipy.stats import t

    if found.se is None or found.mean == 0.0:
        return 1.0
    return 0.0 if found.se == 0.0 else float(2 * t.sf(abs(found.mean) / found.se, found.freedom))


def holm(p_values: list[float]) -> list[float]:
    """Adjusted for being several: each is compared with 1 - CONFIDENCE."""
    order = np.argsort(p_values, kind="stable")
    raised = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raised))
    return adjusted.tolist()


def told_apart(p_values: list[float]) -> list[float]:
    """As they are where all are below the level together, else adjusted."""
    return p_values if max(p_values, default=1.0) <= 1 - CONFIDENCE else holm(p_values)


def versus_first(losses: dict[str, PerSplit], rows: Drawn) -> dict[str, Json]:
    """Of each row by name: its difference from the one with the smallest loss (positive: worse), with its error."""
    first = min(losses, key=lambda name: np.mean([each.mean() for each in losses[name]]))
    others = [name for name in losses if name != first]
    found = [estimate([a - b for a, b in zip(losses[name], losses[first])], rows) for name in others]
    adjusted = told_apart([p_value(each) for each in found])
    told = {
        name: {"difference": each.mean, "se": each.se, "p": p, "indistinguishable": p > 1 - CONFIDENCE}
        for name, each, p in zip(others, found, adjusted)
    }
    return {first: {"difference": 0.0, "se": 0.0, "p": 1.0, "indistinguishable": True}} | told


def held(found: PerSplit, promised: PerSplit, rows: Drawn, num_rows: int, tolerance: float) -> Json:
    """Whether as many came true as were promised: shares `found`, of rows that were `promised` a probability each.

    Fewer by no more than chance is held, and by less than `tolerance` however many rows there are; more is held too.
    The error is the binomial's of `num_rows` distinct rows, or the larger one that clusters and splits show.
    """
    from scipy.stats import t

    wanted = float(np.mean([each.mean() for each in promised]))
    shortfall = estimate([a - b for a, b in zip(promised, found)], rows)
    binomial = math.sqrt(float(np.mean([(each * (1 - each)).mean() for each in promised])) / num_rows)
    se = max(binomial, shortfall.se or 0.0)
    allowed = max(float(t.ppf(CONFIDENCE, max(shortfall.freedom, 1.0))) * se, tolerance)
    share = wanted - shortfall.mean
    return {"promised": wanted, "held": share, "se": se, "rows": num_rows, "holds": bool(shortfall.mean <= allowed)}
