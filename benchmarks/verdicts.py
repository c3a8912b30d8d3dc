"""Whom does a comparison name, of methods that are equally good, and of one that is better? Simulated comparisons,
whose row scores go through the judge as those of methods do (`tests/comparison/test_verdicts.py` has the laws).

    python benchmarks/verdicts.py [--number 200]

"a winner": one is named alone, of equals. Then one is better than every other by so many standard errors of a
difference (the true ones, of simulations): "ahead": it has the lowest NLL of those named together; "alone": it is named
as the single winner. "known": how often a test of the same level would name it that knew the standard errors: as the
judge, it calls the first the winner where each of the others is told from it at 5 %, on either side. No level above
that is to be had: of two equals ahead of all others it names one in 5 %.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comparison.test_verdicts import DESIGNS, judged, row_scores, true_error, with_gain

BETTER = (3.0, 3.5, 4.0, 5.0)  # standard errors of a difference
Z = 1.959964  # of 5 % on either side


def known(scores: dict, error: float) -> bool:
    """Whether m0 is named by a test that knows the error."""
    means = {name: np.mean([each.mean() for each in found]) for name, found in scores.items()}
    return all(means["m0"] - mean >= Z * error for name, mean in means.items() if name != "m0")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=200, help="of simulated comparisons for each line")
    number = parser.parse_args().number
    titles = "".join(f"{f'alone at {better:g}':>14}{'known':>8}" for better in BETTER)
    print(
        f"{number} simulated comparisons for each line; shares in %, ± {100 * np.sqrt(0.05 * 0.95 / number):.1f} at 5 %"
    )
    print(f"{'splits':14}{'methods':>8}{'a winner':>12}{'ahead at 3':>12}{titles}")
    for design in DESIGNS:
        error = true_error(design)
        for num_methods in (2, 3, 8):
            rng = np.random.default_rng(0)
            winners, ahead, alone, best_possible = [], [], {each: [] for each in BETTER}, {each: [] for each in BETTER}
            for _ in range(number):
                scores = row_scores(design, num_methods, rng)
                winners.append(judged(design, scores)["answers"]["best"]["row"] is not None)
                for better in BETTER:
                    moved = with_gain(scores, better * error)
                    best = judged(design, moved)["answers"]["best"]
                    alone[better].append(best["row"] == "m0")
                    best_possible[better].append(known(moved, error))
                    if better == BETTER[0]:
                        ahead.append(best["rows"][0] == "m0")
            shares = "".join(
                f"{100 * np.mean(alone[each]):14.1f}{100 * np.mean(best_possible[each]):8.1f}" for each in BETTER
            )
            print(f"{design:14}{num_methods:8}{100 * np.mean(winners):12.1f}{100 * np.mean(ahead):12.1f}{shares}")


if __name__ == "__main__":
    main()
