"""MCLMC beside NUTS from the same starts, on UCI tables: test log-likelihood, and gradients of the log density.

NUTS is given its warm-up and draws; MCLMC a third of the gradients that NUTS took, tuning included. Reached is the
log-likelihood of NUTS, but for twice the standard error of their difference over test points.
"""

import argparse
from dataclasses import replace

import jax
import numpy as np
from measure import print_table
from tables import load_split, log_likelihood, rmse

import posteria as po
from posteria.inference.mclmc import GRADIENTS_A_STEP

TUNING_SHARE = 0.2  # of MCLMC's steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["concrete", "energy", "yacht"])
    parser.add_argument("--draws", type=int, default=300, help="of each of NUTS's four chains; warm-up is as long")
    parser.add_argument("--third", type=float, default=1 / 3, help="of NUTS's gradients that MCLMC may use")
    parser.add_argument("--key", type=int, default=0)
    arguments = parser.parse_args()
    po.use_cores()
    rows = [row for name in arguments.sets for row in compare(name, arguments)]
    columns = ["", "log-lik.", "RMSE", "gradients", "ratio", "s", "R-hat < 1.05", "verdict"]
    print_table("50 hidden units, noise inferred, fan-in prior; in the data's own units", columns, rows)


def compare(name: str, arguments: argparse.Namespace) -> list[list]:
    split = load_split(name)
    model = po.Model(po.nn.mlp((50,)))
    modes = po.fit(model, split.train, po.Ensemble(po.MAP(), 4), key=arguments.key, progress=False)
    starts = jax.tree.map(lambda leaf: leaf[:, 0], modes.stored.params)
    nuts = po.NUTS(num_draws=arguments.draws, num_warmup=arguments.draws)
    theirs = po.fit(model, split.train, nuts, key=arguments.key, start=starts)
    num_steps = int(arguments.third * theirs.facts["gradients"]) // (GRADIENTS_A_STEP * nuts.num_chains)
    num_warmup = int(TUNING_SHARE * num_steps)
    # tuning takes a ninth more than it is told
    thinning = max(1, (num_steps - int(num_warmup * 10 / 9) - 1) // arguments.draws)
    mclmc = replace(po.MCLMC(), num_draws=arguments.draws, num_warmup=num_warmup, thinning=thinning)
    mine = po.fit(model, split.train, mclmc, key=arguments.key, start=starts)
    rows = []
    for label, posterior in (("NUTS", theirs), ("MCLMC", mine)):
        predictive = posterior.predict(split.test[0])
        converged = posterior.diagnose(split.test[0]).share_converged
        ratio = posterior.facts["gradients"] / theirs.facts["gradients"]
        rows.append(
            [
                f"{name}, {label}",
                log_likelihood(predictive, split),
                rmse(predictive, split),
                posterior.facts["gradients"],
                ratio,
                f"{posterior.facts['seconds']:.0f}",
                f"{converged:.0%}",
                "",
            ]
        )
    x, y = split.test
    differences = np.asarray(mine.predict(x).log_prob(y)) - np.asarray(theirs.predict(x).log_prob(y))
    slack = 2 * differences.std() / np.sqrt(len(differences))
    rows[-1][-1] = "met" if differences.mean() >= -slack and rows[-1][4] <= 1 / 3 + 1e-3 else "MISSED"
    return rows


if __name__ == "__main__":
    main()
