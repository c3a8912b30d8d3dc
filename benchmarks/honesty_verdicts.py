"""What the records of `honesty.py` say: coverage by size, mean ranks, the widest gap to a peer."""

import numpy as np
import pandas as pd
from measure import print_table

AVERAGE_COVERS = (0.87, 0.93)
LEAST_COVERS = 0.84
MOST_BEHIND = 0.3  # nats a row
FIRST = "balanced"  # the preset that must be first
SCORES = {"crps": True, "log_likelihood": False}  # whether less is better


def tell(records: list[dict], ours: list[str], peers: list[str]) -> None:
    """Each figure of a table and size is a mean over seeds."""
    whole = [record for record in records if "error" not in record]
    for record in records:
        if "error" in record:
            print(f"FAILED  {record['method']} on {record['table']}, {record['size']}: {record['error']}")
    if not whole:
        return
    runs = pd.DataFrame(whole)
    cells = runs.groupby(["method", "table", "size"]).agg(
        covered=("covered", "mean"),
        tested=("tested", "sum"),
        crps=("crps", "mean"),
        log_likelihood=("log_likelihood", "mean"),
        rmse=("rmse", "mean"),
        seconds=("seconds", "mean"),
        seeds=("seed", "count"),
    )
    methods = [name for name in [*ours, *peers] if name in cells.index.levels[0]]
    coverages(cells, methods, ours)
    beside = [name for name in methods if name in peers]
    for name in methods:
        if name in ours and beside:
            ranks(cells, name, beside)
            gaps(cells, name, beside)


def coverages(cells: pd.DataFrame, methods: list[str], ours: list[str]) -> None:
    rows = []
    for method in methods:
        for size, group in cells.loc[method].groupby("size"):
            error = 2 * np.sqrt(group.covered * (1 - group.covered) / group.tested)
            worst = (group.covered + error).idxmin()
            average, least, allowed = group.covered.mean(), group.covered[worst], error[worst]
            verdicts = [
                _verdict(AVERAGE_COVERS[0] <= average <= AVERAGE_COVERS[1]),
                _verdict(least + allowed >= LEAST_COVERS),
            ]
            rows.append(
                [
                    f"{method}, {size} rows",
                    len(group),
                    f"{average:.1%}",
                    f"{least:.1%} +- {allowed:.1%}",
                    worst[0],
                    f"{group.crps.median():.4f}",
                    f"{group.log_likelihood.median():.3f}",
                    f"{group.rmse.median():.4f}",
                    f"{group.seconds.median():.1f}",
                    *(verdicts if method in ours else ["", ""]),
                ]
            )
    columns = ["", "tables", "90 % covers", "at least", "on", "CRPS", "log-lik.", "RMSE", "s"]
    low, high = AVERAGE_COVERS
    columns += [f"{low:.0%} to {high:.0%}", f"least {LEAST_COVERS:.0%}"]
    print_table(
        "Coverage (least: with two binomial standard errors) and medians over tables, in sds of y", columns, rows
    )


def ranks(cells: pd.DataFrame, ours: str, peers: list[str]) -> None:
    """Mean ranks of this preset and the peers among themselves, where all of them were fitted."""
    field, rows, means = [ours, *peers], [], {}
    for score, is_less_better in SCORES.items():
        table = cells[score].unstack("method")[field].dropna()
        means[score] = table.rank(axis=1, ascending=is_less_better).mean()
    for method in field:
        rows.append([method, *(f"{means[score][method]:.2f}" for score in SCORES)])
    if not len(table):
        return
    print_table(f"Mean ranks with {ours}, {len(table)} tables and sizes", ["", "by CRPS", "by log-lik."], rows)
    for score in SCORES:
        is_first = means[score].idxmin() == ours
        judged = _verdict(is_first) if ours == FIRST else "first" if is_first else "not first"
        print(f"  {ours} by {score}: {judged}")
    print()


def gaps(cells: pd.DataFrame, ours: str, peers: list[str]) -> None:
    table = cells["log_likelihood"].unstack("method")
    gap = (table[peers].max(axis=1) - table[ours]).dropna().sort_values(ascending=False)
    rows = [
        [f"{name}, {size}", f"{behind:.3f}", table.loc[(name, size), peers].idxmax(), _verdict(behind <= MOST_BEHIND)]
        for (name, size), behind in gap.iloc[:5].items()
    ]
    print_table(f"Nats a row behind the best peer, {ours}: the five widest", ["", "behind", "best", ""], rows)


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"
