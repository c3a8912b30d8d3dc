"""Do baselines' densities mean something? Their NLL on every regression table, beside that of a normal of their own
centre whose width is the root mean square of errors on rows left out.

    python benchmarks/baselines.py [TABLE ...] [--rows 1000]

No baseline may be worse than that normal by more than a nat a row.
"""

import argparse

import honesty_tables as tables
import numpy as np
from scipy.stats import norm

from posteria.comparison.enter import baselines
from posteria.data.preparation import Preparation

MOST_TESTED = 1000
ALLOWED = 1.0  # nats


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=tables.NAMES)
    parser.add_argument("--rows", type=int, default=1000, help="to fit to, at most")
    parser.add_argument("--only", default="", help="baselines, separated by commas")
    asked = parser.parse_args()
    names = [name for name in baselines.present() if not asked.only or name in asked.only.split(",")]
    print(
        f"NLL of each baseline less that of a normal with its out-of-fold width (in 90 %: covered); {asked.rows} rows"
    )
    print(f"{'':16}" + "".join(f"{name:>22}" for name in names))
    worst, where = -np.inf, ""
    for table in asked.tables:
        line = f"{table:16}"
        for name in names:
            excess, covered = excess_of(table, name, asked.rows)
            line += f"{excess:+12.3f} ({covered:6.1%})"
            worst, where = max((worst, where), (excess, f"{name} on {table}"))
        print(line, flush=True)
    print(f"worst: {worst:+.3f}, {where}; {'met' if worst <= ALLOWED else 'MISSED'} ({ALLOWED:g} allowed)")


def excess_of(table: str, name: str, most_rows: int) -> tuple[float, float]:
    frame, y = tables.load(table)
    order = np.random.default_rng(0).permutation(len(y))
    num_train = min(most_rows, int(0.8 * len(y)))
    train, test = order[:num_train], order[num_train:][:MOST_TESTED]
    preparation = Preparation.from_features(frame.iloc[train], y[train], "regression")
    x, x_test = (np.asarray(preparation.inputs(frame.iloc[part]), np.float64) for part in (train, test))
    predictive = baselines.fit(name, x, y[train], "regression", 0).predict(x_test)
    lower, upper = predictive.interval(0.9)
    covered = float(np.mean((lower[:, 0] <= y[test]) & (y[test] <= upper[:, 0])))
    plain = baselines.present()[name]()
    errors = np.empty(num_train)
    for held in np.array_split(np.random.default_rng(1).permutation(num_train), 5):
        rest = np.setdiff1d(np.arange(num_train), held)
        errors[held] = y[train][held] - plain.fit_numbers(x[rest], y[train][rest])(x[held])[0]
    centre = plain.fit_numbers(x, y[train])(x_test)[0]
    normal = -norm.logpdf(y[test], centre, np.sqrt(np.mean(errors**2))).mean()
    return float(-predictive.log_prob(y[test]).mean() - normal), covered


if __name__ == "__main__":
    main()
