"""What a model's prior over functions is for: the evidence of a small network and of a larger one.

The evidence is the probability that draws from the prior over functions look like the data. A small network spreads it
over few functions: it wins while the data are simple, and gives up where they are not. And no model should find
corrupted labels likely: the evidence falls with their share, though a larger network could fit them all.
Wilson and Izmailov 2020, section 3; MacKay 1992.

Evidence by Laplace's approximation, the best of a few starts; beside it, for the small network, sequential Monte Carlo
with its standard error.

    make study NAME=inductive-bias               a coarse grid: about a minute
    make study NAME=inductive-bias SCALE=full    more of everything, SMC, and docs/results/inductive-bias.png
"""

import argparse
from pathlib import Path

import numpy as np

import posteria as po

NETWORKS = {
    "small (2 units)": po.nn.mlp((2,), activation="tanh"),
    "large (2 x 30)": po.nn.mlp((30, 30), activation="tanh"),
}
NOISE = 0.1
NUM_DATA = 60
PICTURE = Path("docs/results/inductive-bias.png")
PRIOR = po.priors.FanIn(scale=3.0, bias_std=3.0)  # wide enough that a curve of some bends is no surprise


def waves(num_bends: int) -> tuple[np.ndarray, np.ndarray]:
    """A line for 0, then half waves over [-1, 1]."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(NUM_DATA, 1)).astype(np.float32)
    signal = x[:, 0] if num_bends == 0 else np.sin(np.pi / 2 * (num_bends + 1) * x[:, 0])
    return 2 * x, (signal + NOISE * rng.normal(size=NUM_DATA)).astype(np.float32)


def tumours(share: float) -> tuple[np.ndarray, np.ndarray]:
    """100 rows of four features of the breast-cancer table, a share of the labels drawn anew."""
    data = po.data.load("breast-cancer")
    rng = np.random.default_rng(1)
    rows = rng.permutation(len(data.x))[:100]
    x = po.data.Standardiser.fit(data.x).apply(data.x)[rows][:, [0, 1, 4, 7]].astype(np.float32)
    is_corrupt = rng.permutation(len(rows)) < round(share * len(rows))
    return x, np.where(is_corrupt, rng.integers(0, 2, len(rows)), data.y[rows]).astype(np.int32)


def laplace_evidence(model: po.Model, data: tuple, num_starts: int) -> float:
    """A datum; the best of the modes that were found."""
    method = po.Laplace(structure="full", map=po.MAP(num_epochs=1000))
    return max(po.log_evidence(model, data, method, key=key).value for key in range(num_starts)) / len(data[0])


def sweep(title: str, likelihood: po.likelihoods.Likelihood, sets: dict, num_starts: int, has_smc: bool) -> dict:
    print(f"\n{title:28}" + "".join(f"{name:>18}" for name in NETWORKS) + ("   small, by SMC" if has_smc else ""))
    values: dict[str, list] = {name: [] for name in NETWORKS}
    for label, data in sets.items():
        line = f"{label!s:28}"
        for name, network in NETWORKS.items():
            values[name].append(laplace_evidence(po.Model(network, likelihood, PRIOR), data, num_starts))
            line += f"{values[name][-1]:18.3f}"
        if has_smc:
            small = po.Model(next(iter(NETWORKS.values())), likelihood, PRIOR)
            value, error = po.log_evidence(small, data, "smc")
            line += f"{value / len(data[0]):11.3f} ± {error / len(data[0]):.3f}"
        print(line, flush=True)
    return values


def draw(bends: list, complexity: dict, shares: list, corruption: dict) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(15, 3.5), layout="constrained")
    colours = dict(zip(NETWORKS, ("#0072B2", "#D55E00")))
    line = np.linspace(-2, 2, 200, dtype=np.float32)[:, None]
    for axes, (name, network) in zip(panels, NETWORKS.items()):
        functions = po.Model(network, prior=PRIOR).prior_functions(0, line, 12)
        axes.plot(line[:, 0], np.asarray(functions)[..., 0].T, color=colours[name], lw=1, alpha=0.7)
        axes.set(title=f"draws from the prior: {name}", xlabel="x")
    for axes, ticks, values, label in (
        (panels[2], bends, complexity, "bends of the data"),
        (panels[3], [100 * share for share in shares], corruption, "% of labels corrupted"),
    ):
        for name, evidence in values.items():
            axes.plot(ticks, evidence, "o-", color=colours[name], label=name)
        axes.set(xlabel=label, title="log evidence a datum, nats")
    panels[3].legend(fontsize=8)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    is_full = parser.parse_args().scale == "full"
    bends = list(range(7)) if is_full else [0, 2, 5]
    shares = [0.0, 0.1, 0.25, 0.5, 0.75, 1.0] if is_full else [0.0, 0.5, 1.0]
    num_starts = 5 if is_full else 2
    print("log evidence a datum, in nats")
    gaussian, bernoulli = po.likelihoods.Gaussian(NOISE), po.likelihoods.Bernoulli()
    complexity = sweep("bends of the data", gaussian, {b: waves(b) for b in bends}, num_starts, is_full)
    corruption = sweep("share of corrupted labels", bernoulli, {s: tumours(s) for s in shares}, num_starts, is_full)
    if is_full:
        draw(bends, complexity, shares, corruption)


if __name__ == "__main__":
    main()
