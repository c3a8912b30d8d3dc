"""Question 5: how good are approximations? Total variation and agreement with HMC on test points, and their order.

Izmailov et al. 2021, table 6, CIFAR-10: stochastic-gradient MCMC is nearest to HMC, a deep ensemble nearer than
mean-field variational inference, one mode farthest; none is as near as another HMC chain. Added: SMS-UBU (Paulin et al.
2025) and MultiSWAG (Wilson & Izmailov 2020). Printed: HMC's share of converged functions, each of its chains against
the others, and Spearman's rank correlation with the paper's order. sgmcmc-vs-hmc has further methods.

    make study NAME=q5-approximations                MNIST at 14 x 14, three seeds: minutes
    make study NAME=q5-approximations SCALE=full     MNIST, IMDB, CIFAR-10: hours; interrupted, it goes on
"""

from argparse import Namespace
from pathlib import Path

import numpy as np
from _questions import Problem, answer, axes, fit, methods, percent, reference, save, table
from _scores import by_chain
from scipy import stats

import posteria as po

NAMES = ("map", "ensemble", "mean-field", "sgld", "sghmc", "sghmc-clr", "sms-ubu", "multiswag")
NUM_SEEDS = 3
SAMPLERS = ("sgld", "sghmc", "sghmc-clr", "sms-ubu")
SLOW = {"imdb": SAMPLERS}  # of one seed at small scale
# total variation and agreement; "hmc": a chain that is not in the reference
PUBLISHED = {
    "hmc": (0.074, 0.940),
    "sghmc-clr": (0.099, 0.927),
    "sghmc": (0.109, 0.920),
    "sgld": (0.110, 0.915),
    "ensemble": (0.115, 0.915),
    "mean-field": (0.136, 0.888),
    "map": (0.190, 0.855),
}
Found = dict[str, np.ndarray]  # (seed, 2)


def ask(asked: Problem, arguments: Namespace) -> Found:
    posterior = reference(asked, arguments.scale, arguments.out)
    x, _ = asked.test
    chains = by_chain(posterior, x)
    truth = chains.mean(0)
    held_out = [distances(chain, (chains.sum(0) - chain) / (len(chains) - 1)) for chain in chains]
    found = {"hmc": np.array(held_out)}
    slow = SLOW.get(asked.name, ()) if arguments.scale == "small" else ()
    for name, method in methods(asked, arguments.scale).items():
        if arguments.methods and name not in arguments.methods:
            continue
        rows = []
        for seed in range(1 if name in slow else NUM_SEEDS):
            fitted = fit(asked, f"{name}-{seed}", method, arguments.out, key=seed + 1)
            rows.append(distances(np.asarray(fitted.predict(x).probs), truth))
        found[name] = np.array(rows)
    report(asked, found)
    return found


def distances(probs: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    return float(po.metrics.total_variation(probs, truth)), float(po.metrics.agreement(probs, truth))


def report(asked: Problem, found: Found) -> None:
    order = sorted(found, key=lambda name: found[name][:, 0].mean())
    lines = []
    for name in order:
        distance, agreement = found[name].mean(0)
        error = found[name][:, 0].std(ddof=min(1, len(found[name]) - 1)) / len(found[name]) ** 0.5
        paper = f"{PUBLISHED[name][0]:.3f}, {percent(PUBLISHED[name][1])}" if name in PUBLISHED else ""
        said = "one HMC chain, the rest as truth" if name == "hmc" else name
        spread = f"{distance:.4f} ± {error:.4f}" if len(found[name]) > 1 else f"{distance:.4f}"
        lines.append([said, spread, percent(agreement), len(found[name]), paper])
    table(
        f"q5-{asked.name}",
        f"{asked.about}; mean and standard error of seeds, or of HMC's chains; paper: CIFAR-10",
        ["method", "total variation to HMC", "agreement", "seeds", "paper"],
        lines,
    )
    shared = [name for name in order if name in PUBLISHED and name != "hmc"]
    here, paper = [found[name][:, 0].mean() for name in shared], [PUBLISHED[name][0] for name in shared]
    print(f"{asked.name}, order here:  " + " < ".join(shared))
    print(f"{asked.name}, the paper's: " + " < ".join(sorted(shared, key=lambda name: PUBLISHED[name][0])))
    if len(shared) > 2:
        print(f"{asked.name}, rank correlation with the paper's: {stats.spearmanr(here, paper).statistic:.2f}")
    for near, far in (("ensemble", "mean-field"), ("sghmc", "ensemble"), ("mean-field", "map"), ("sms-ubu", "sghmc")):
        if near in found and far in found:
            gain = found[far][:, 0].mean() - found[near][:, 0].mean()
            said = f"{asked.name}: {near} nearer than {far}: {'met' if gain > 0 else 'MISSED'}, by {gain:.4f}"
            if min(len(found[near]), len(found[far])) < 2:
                print(f"{said}, of one seed: what another would say is not known")
                continue
            error = float(np.hypot(*(stats.sem(found[name][:, 0]) for name in (near, far))))
            print(f"{said} ± {error:.4f}{'' if abs(gain) > 2 * error else ': seeds do not tell them apart'}")


def draw(path: Path, everything: dict[str, Found]) -> None:
    figure, grid, theme = axes(len(everything))
    for axis, (name, found) in zip(grid[0], everything.items()):
        order = sorted(found, key=lambda each: found[each][:, 0].mean())
        axis.barh(order, [found[each][:, 0].mean() for each in order], color=theme.METHODS[0].colour, height=0.6)
        at = [(place, PUBLISHED[each][0]) for place, each in enumerate(order) if each in PUBLISHED]
        axis.plot([value for _, value in at], [place for place, _ in at], "k|", ms=12)
        axis.invert_yaxis()
        axis.set_xlabel("total variation to HMC (line: paper, CIFAR-10)")
        axis.set_title(name)
    save(figure, path)


def main() -> None:
    answer(__doc__, ask, draw, only={"methods": NAMES}, seed=False)


if __name__ == "__main__":
    main()
