"""What the defaults give: `po.HMC()` or `po.NUTS()` on the default model, standardised, first standard split.

Wanted within five minutes: function-space R-hat under 1.05 on 95 % of test points, and 90 % intervals that cover 85 to
95 %. On power and kin8nm the numbers are only printed.
"""

import argparse
import time

from measure import print_table
from tables import coverage, load_split, rmse

import posteria as po

JUDGED = ("diabetes", "wine", "concrete")
BESIDE = ("power", "kin8nm")
METHODS = {"hmc": po.HMC, "nuts": po.NUTS}
LIMIT = 300.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=[*JUDGED, *BESIDE], help="data sets, by name")
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["hmc"], help="one or more")
    parser.add_argument("--max-seconds", type=float, default=LIMIT, help="of a fit")
    arguments = parser.parse_args()
    po.use_cores()
    rows = [judge(name, method, arguments.max_seconds) for name in arguments.sets for method in arguments.method]
    columns = ["", "rows", "s", "whole", "R-hat < 1.05", "worst", "least ESS", "90 % covers", "RMSE", "verdict"]
    targets = ["target", "", "300", "", "95 %", "", "", "85-95 %", "", ""]
    print_table("Default model (50, 50), default settings, first standard split, test rows", columns, [*rows, targets])


def judge(name: str, method: str, max_seconds: float) -> list:
    split = load_split(name)
    model = po.Model(po.nn.mlp((50, 50), outputs=1))
    began = time.perf_counter()
    posterior = po.fit(model, split.train, METHODS[method](), key=0, max_seconds=max_seconds)
    seconds = time.perf_counter() - began  # with compilation: a first fit has it
    diagnosis = posterior.diagnose(split.test[0])
    predictive = posterior.predict(split.test[0])
    covered = coverage(predictive, split, 0.9)
    is_met = diagnosis.share_converged >= 0.95 and 0.85 <= covered <= 0.95 and seconds <= LIMIT
    return [
        f"{name}, {method}",
        len(split.train[1]),
        f"{seconds:.0f}",
        "yes" if posterior.facts["is_whole"] else "no",
        f"{diagnosis.share_converged:.1%}",
        f"{diagnosis.rhat.max():.3f}",
        f"{diagnosis.ess_bulk.min():.0f}",
        f"{covered:.1%}",
        rmse(predictive, split),
        ("met" if is_met else "MISSED") if name in JUDGED else "",
    ]


if __name__ == "__main__":
    main()
