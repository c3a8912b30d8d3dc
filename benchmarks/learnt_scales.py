"""Scales of the prior that are given against scales that are inferred: held-out negative log-likelihood (in units of
the training rows' standard deviation) and coverage of 90 % intervals.

On the tables of the half "choose" the ways to infer them were chosen; those of the other half only report.
`python benchmarks/learnt_scales.py choose` runs one half.
"""

import csv
import gzip
import os
import sys
from pathlib import Path

import numpy as np
from measure import print_table, use_shared_data

HALVES = {"choose": ("airfoil", "diabetes", "solar"), "report": ("autompg", "concrete", "energy")}
TRAIN_ROWS, TEST_ROWS = 200, 500
NETWORK = "mlp:32,32"  # 1,300 weights and more


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    file = Path(os.environ["POSTERIA_DATA"]) / "tables" / f"{name}.csv.gz"
    if not file.exists():
        import posteria as po

        data = po.data.load(name)
        return data.x, data.y
    with gzip.open(file, "rt") as lines:
        values = np.asarray(list(csv.reader(lines))[1:], float)
    return values[:, :-1], values[:, -1]


def split(name: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and test rows, standardised on the former; a third of a small table is left to test on."""
    from posteria.data import Standardiser

    x, y = table(name)
    order = np.random.default_rng(0).permutation(len(y))
    cut = min(TRAIN_ROWS, 2 * len(y) // 3)
    train, test = order[:cut], order[cut : cut + TEST_ROWS]
    x, y = (Standardiser.fit(part[train]).apply(part).astype(np.float32) for part in (x, y))
    return (x[train], y[train]), (x[test], y[test])


def score(model, method, train, test) -> tuple[float, float]:
    import posteria as po

    x, y = test
    predictive = po.fit(model, train, method, progress=False).predict(x)
    low, high = (np.asarray(bound).reshape(y.shape) for bound in predictive.interval(0.9))
    return -float(np.mean(predictive.log_prob(y))), float(np.mean((low <= y) & (y <= high)))


def main() -> None:
    import posteria as po
    from posteria import nn

    use_shared_data()
    priors = {"scale 1": po.priors.FanIn(), "scale 2": po.priors.FanIn(2.0), "infer": po.priors.FanIn(scale=po.infer)}
    methods = {
        "map": po.MAP(),
        "laplace": po.Laplace(),
        "nuts": po.NUTS(num_chains=2, num_warmup=150, num_draws=100, max_doublings=7, start="prior"),
    }
    for half in sys.argv[1:] or HALVES:
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for name in HALVES[half]:
            train, test = split(name)
            for label, prior in priors.items():
                model = po.Model(nn.parse(NETWORK, 1), prior=prior)
                for method, settings in methods.items():
                    found.setdefault((method, label), []).append(score(model, settings, train, test))
                    print(name, label, method, found[method, label][-1], file=sys.stderr, flush=True)
        rows = [
            [f"{method}, {label}", *(f"{nll:.2f} {covers:.0%}" for nll, covers in scores), mean_of(scores)]
            for (method, label), scores in sorted(found.items(), key=lambda item: [*methods].index(item[0][0]))
        ]
        print_table(f"{half}: NLL, and coverage of 90 %", ["", *HALVES[half], "mean"], rows)


def mean_of(found: list[tuple[float, float]]) -> str:
    nll, covers = np.mean(found, axis=0)
    return f"{nll:.2f} {covers:.0%}"


if __name__ == "__main__":
    main()
