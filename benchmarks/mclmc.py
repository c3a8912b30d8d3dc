"""MCLMC beside NUTS from the same starts, on UCI tables: test log-likelihood, and gradients of the log density.

NUTS is given its warm-up and draws; MCLMC a third of the gradients that NUTS took, tuning included. Reached is the
log-likelihood of NUTS, but for twice the standard error of their difference over test points.

With --choose, MCLMC's one setting, the energy error that its steps may make, is compared on held-out training rows
instead: what its default rests on. No test row is seen.
"""

import argparse
from dataclasses import replace

import jax
import numpy as np
from measure import print_table, with_convergence
from tables import load_split, log_likelihood, rmse

import posteria as po
from posteria.methods.chains.mclmc import GRADIENTS_A_STEP

TUNING_SHARE = 0.2  # of MCLMC's steps
VALIDATION_SHARE = 0.15  # of the training rows
ENERGY_VARIANCES = (5e-5, 5e-4, 5e-3, 5e-2)
CHOICE_STEPS = 8000  # of each chain, tuning included


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["concrete", "energy", "yacht"])
    parser.add_argument("--draws", type=int, default=300, help="of each of NUTS's four chains; warm-up is as long")
    parser.add_argument("--third", type=float, default=1 / 3, help="of NUTS's gradients that MCLMC may use")
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--choose", action="store_true", help="compare energy errors on held-out training rows")
    arguments = parser.parse_args()
    po.use_cores()
    if arguments.choose:
        columns = ["energy variance", "log-lik.", "error", "R-hat < 1.05"]
        for name in arguments.sets:
            print_table(f"{name}, held-out training rows", columns, choose(name, arguments.key))
        return
    rows = [row for name in arguments.sets for row in compare(name, arguments)]
    columns = ["", "log-lik.", "RMSE", "gradients", "ratio", "s", "R-hat < 1.05", "verdict"]
    print_table("50 hidden units, noise inferred, fan-in prior; in the data's own units", columns, rows)


def compare(name: str, arguments: argparse.Namespace) -> list[list]:
    split = load_split(name)
    model = po.Model(po.nn.mlp((50,)))
    starts = find_modes(model, split.train, arguments.key)
    nuts = po.NUTS(num_draws=arguments.draws, num_warmup=arguments.draws)
    theirs = po.fit(model, split.train, nuts, key=arguments.key, start=starts, progress=False)
    num_steps = int(arguments.third * theirs.facts["gradients"]) // (GRADIENTS_A_STEP * nuts.num_chains)
    num_warmup = int(TUNING_SHARE * num_steps)
    # tuning takes a ninth more than it is told
    thinning = max(1, (num_steps - int(num_warmup * 10 / 9) - 1) // arguments.draws)
    mclmc = replace(po.MCLMC(), num_draws=arguments.draws, num_warmup=num_warmup, thinning=thinning)
    mine = po.fit(model, split.train, mclmc, key=arguments.key, start=starts, progress=False)
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
    is_met = differences.mean() >= -slack and rows[-1][4] <= 1 / 3 + 1e-3
    shares = [float(row[-2].rstrip("%")) / 100 for row in rows]
    rows[-1][-1] = with_convergence("met" if is_met else "MISSED", shares)
    return rows


def choose(name: str, key: int) -> list[list]:
    """Mean log-likelihood of held-out training rows, standardised, and the error of its difference from the first."""
    x, y = load_split(name).train
    order = np.random.default_rng(key).permutation(len(y))
    held, rest = np.split(order, [int(VALIDATION_SHARE * len(y))])
    model = po.Model(po.nn.mlp((50,)))
    starts = find_modes(model, (x[rest], y[rest]), key)
    num_warmup = int(TUNING_SHARE * CHOICE_STEPS)
    rows, first = [], None
    for value in ENERGY_VARIANCES:
        mclmc = po.MCLMC(
            num_draws=200, num_warmup=num_warmup, thinning=(CHOICE_STEPS - num_warmup) // 200, energy_variance=value
        )
        posterior = po.fit(model, (x[rest], y[rest]), mclmc, key=key, start=starts, progress=False)
        found = np.asarray(posterior.predict(x[held]).log_prob(y[held]))
        first = found if first is None else first
        error = (found - first).std() / np.sqrt(len(found))
        converged = posterior.diagnose(x[held]).share_converged
        rows.append([f"{value:g}", float(found.mean()), float(error), f"{converged:.0%}"])
    return rows


def find_modes(model: po.Model, data: tuple, key: int) -> dict:
    modes = po.fit(model, data, po.Ensemble(po.MAP(), 4), key=key, progress=False)
    return jax.tree.map(lambda leaf: leaf[:, 0], modes.stored.params)


if __name__ == "__main__":
    main()
