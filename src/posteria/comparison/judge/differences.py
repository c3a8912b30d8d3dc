"""Whether a difference between two rows of a comparison is more than chance, from their scores of single test rows.

The mean d of differences d[split, row] varies by the test rows that happened to be there, and by the splits and fits:

    var(d) = V_rows + V_splits
    V_rows   = G / (G - 1) sum_g (sum of (d[split, row] - d) / (rows of the split) over all of cluster g / S)^2
    V_splits = sum_s (d[s] - d)^2 / (S (S - 1))

Clusters are what was drawn: rows by their number (a row that several splits test on is one cluster), groups where the
split is by groups, blocks of neighbours where it is by time. Splits that share all test rows differ by refits alone,
and V_rows says the rest; splits with rows of their own have the rows in both terms, which errs on the safe side. The
degrees of freedom are Satterthwaite's. One split has no V_splits: refits are then not counted. What no split can show
is not counted either: that all of them learnt from one table.

Rows are compared with the first, so there are as many chances of a false difference as rows behind it: Holm 1979. That
all of them are worse is one claim, and it is false if any one is not: where each is told from the first by itself, none
needs a correction (Berger 1982, intersection and union). So a single winner among equals is declared in at most 5 %,
and one that is better than one other by d standard errors is told from it in 85 % at d = 3, 90 % at 3.24: no test of
that level can do more. Of several others, each has to be.
Liang & Zeger 1986, Cameron, Gelbach & Miller 2011 (clusters in two directions); Ibragimov & Mueller 2010 (few blocks).
"""

import math
from typing import NamedTuple

import numpy as np

from posteria.data.splits import Splits
from posteria.tree import Json

CONFIDENCE = 0.95  # of "indistinguishable"
NUM_BLOCKS = 10  # of neighbours in time: few and long, so that what is correlated is in one
LEAST_BLOCK = 2  # rows

PerSplit = list[np.ndarray]  # an array a split, a value a test row


class Estimate(NamedTuple):
    """A mean over rows and splits. `se` is None where there is but one cluster: nothing is known of it."""

    mean: float
    se: float | None
    freedom: float


def clusters_of(splits: Splits) -> PerSplit:
    """The cluster of each test row of each split; the same number is the same cluster in all."""
    tests = [test for _, test in splits.parts]
    if splits.kind == "time":  # test rows are in the order of time
        return [np.arange(len(test)) * max(1, min(NUM_BLOCKS, len(test) // LEAST_BLOCK)) // len(test) for test in tests]
    return tests if splits.groups is None else [splits.groups[test] for test in tests]


def estimate(values: PerSplit, clusters: PerSplit) -> Estimate:
    """The mean of split means, its standard error and degrees of freedom."""
    count = len(values)
    by_split = np.array([each.mean() for each in values])
    mean = float(by_split.mean())
    _, place = np.unique(np.concatenate(clusters), return_inverse=True)
    shares = np.concatenate([(each - mean) / (count * len(each)) for each in values])
    sums = np.bincount(place, shares)
    if len(sums) < 2:
        return Estimate(mean, None, 0.0)
    by_rows = float((sums**2).sum() * len(sums) / (len(sums) - 1))
    by_splits = float(by_split.var(ddof=1) / count) if count > 1 else 0.0
    if by_rows + by_splits == 0.0:
        return Estimate(mean, 0.0, len(sums) - 1.0)
    spread = by_rows**2 / (len(sums) - 1) + (by_splits**2 / (count - 1) if count > 1 else 0.0)
    return Estimate(mean, math.sqrt(by_rows + by_splits), (by_rows + by_splits) ** 2 / spread)


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


def versus_first(losses: dict[str, PerSplit], clusters: PerSplit) -> dict[str, Json]:
    """Of each row by name: its difference from the one with the smallest loss (positive: worse), with its error."""
    first = min(losses, key=lambda name: np.mean([each.mean() for each in losses[name]]))
    others = [name for name in losses if name != first]
    found = [estimate([a - b for a, b in zip(losses[name], losses[first])], clusters) for name in others]
    adjusted = told_apart([p_value(each) for each in found])
    told = {
        name: {"difference": each.mean, "se": each.se, "p": p, "indistinguishable": p > 1 - CONFIDENCE}
        for name, each, p in zip(others, found, adjusted)
    }
    return {first: {"difference": 0.0, "se": 0.0, "p": 1.0, "indistinguishable": True}} | told


def held(found: PerSplit, promised: PerSplit, clusters: PerSplit, num_rows: int, tolerance: float) -> Json:
    """Whether as many came true as were promised: shares `found`, of rows that were `promised` a probability each.

    Fewer by no more than chance is held, and by less than `tolerance` however many rows there are; more is held too.
    The error is the binomial's of `num_rows` distinct rows, or the larger one that clusters and splits show.
    """
    from scipy.stats import t

    wanted = float(np.mean([each.mean() for each in promised]))
    shortfall = estimate([a - b for a, b in zip(promised, found)], clusters)
    binomial = math.sqrt(float(np.mean([(each * (1 - each)).mean() for each in promised])) / num_rows)
    se = max(binomial, shortfall.se or 0.0)
    allowed = max(float(t.ppf(CONFIDENCE, max(shortfall.freedom, 1.0))) * se, tolerance)
    share = wanted - shortfall.mean
    return {"promised": wanted, "held": share, "se": se, "rows": num_rows, "holds": bool(shortfall.mean <= allowed)}
