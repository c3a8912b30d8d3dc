"""Whom does a comparison name, of methods that are equally good, and of one that is better? Simulated comparisons,
whose row scores go through the judge as those of methods do (`tests/comparison/test_verdicts.py` has the laws).

    python benchmarks/verdicts.py [--number 200]

"alone": named as the single winner. "ahead": it has the lowest NLL of those named together. A two-sided test of 5 % on
one comparison of known variance tells 3 standard errors in 85 %, 3.24 in 90 %: more is out of reach of any that
declares a winner between two equals in at most 5 %. With more methods each has to be told from the best.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comparison.test_verdicts import DESIGNS, judged, row_scores

BETTER = (3.0, 3.5, 4.0, 5.0)  # standard errors of a difference


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=200, help="of simulated comparisons for each line")
    number = parser.parse_args().number
    titles = "".join(f"{f'alone at {better:g}':>14}" for better in BETTER)
    print(
        f"{number} simulated comparisons for each line; shares in %, ± {100 * np.sqrt(0.05 * 0.95 / number):.1f} at 5 %"
    )
    print(f"{'splits':14}{'methods':>8}{'a winner':>12}{'ahead at 3':>12}{titles}")
    for design in DESIGNS:
        for num_methods in (2, 3, 8):
            rng = np.random.default_rng(0)
            trial = [judged(design, row_scores(design, 2, rng)) for _ in range(40)]
            error = np.mean([max(row["versus_best"]["nll"]["se"] for row in found["rows"]) for found in trial])
            winners, ahead, alone = [], [], {better: [] for better in BETTER}
            for _ in range(number):
                scores = row_scores(design, num_methods, rng)
                winners.append(judged(design, scores)["answers"]["best"]["row"] is not None)
                for better in BETTER:
                    moved = scores | {"m0": [each + better * error for each in scores["m0"]]}
                    best = judged(design, moved)["answers"]["best"]
                    alone[better].append(best["row"] == "m0")
                    if better == BETTER[0]:
                        ahead.append(best["rows"][0] == "m0")
            shares = "".join(f"{100 * np.mean(alone[better]):14.1f}" for better in BETTER)
            print(f"{design:14}{num_methods:8}{100 * np.mean(winners):12.1f}{100 * np.mean(ahead):12.1f}{shares}")


if __name__ == "__main__":
    main()
