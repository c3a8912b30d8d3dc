"""What a model's prior over functions is for: the evidence of a small network and of a larger one.

The evidence is the probability that draws from the prior over functions look like the data. A small network spreads it
over few functions: it wins while the data are simple, and gives up where they are not. And no model should find
corrupted labels likely: the evidence falls with their share, below that of a coin, although the larger network's mode
still gets most of them right. Wilson and Izmailov 2020, section 3; MacKay 1992.

Evidence by sequential Monte Carlo, with its standard error over runs; beside it by Laplace's approximation at the best
mode of a few starts, which sees one mode of many.

    make study NAME=inductive-bias               a coarse grid: about two minutes
    make study NAME=inductive-bias SCALE=full    more of everything: ten minutes;
                                                 what is done is kept in --out and not done again
"""

import json
from pathlib import Path

import numpy as np
from _study import begin

import posteria as po
from posteria.methods.chains.tempered_smc import TemperedSMC

NETWORKS = {
    "small (2 units)": po.nn.mlp((2,), activation="tanh"),
    "large (2 x 30)": po.nn.mlp((30, 30), activation="tanh"),
}
COLOURS = dict(zip(NETWORKS, ("#0072B2", "#D55E00")))
NOISE = 0.1
MODE_MISSED = 0.1  # nats a datum, more than Laplace's approximation errs at a mode
NUM_DATA = 60
PRIOR = po.priors.FanIn(scale=3.0, bias_std=3.0)  # wide enough that a curve of some bends is no surprise
NUM_PARTICLES = dict(zip(NETWORKS, (500, 100)))  # the small network has few modes, far apart, and each is to be found
SCALES = {  # bends, shares of corrupted labels, runs, starts
    "small": ([0, 2, 5], [0.0, 0.5, 1.0], 2, 2),
    "full": ([0, 1, 2, 3, 5], [0.0, 0.25, 0.5, 1.0], 3, 3),
}


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


PROBLEMS = {
    "bends of the data": (po.likelihoods.Gaussian(NOISE), waves),
    "share of corrupted labels": (po.likelihoods.Bernoulli(), tumours),
}


def one(problem: str, level: float, name: str, num_runs: int, num_starts: int) -> dict:
    """Evidence a datum by SMC, with its error, and by Laplace at the best of the modes; and what that mode explains."""
    likelihood, make = PROBLEMS[problem]
    data = make(level)
    model = po.Model(NETWORKS[name], likelihood, PRIOR)
    value, error = po.log_evidence(model, data, TemperedSMC(NUM_PARTICLES[name], num_runs))
    method = po.Laplace(structure="full", map=po.MAP(num_epochs=1000))
    fits = [po.fit(model, data, method, key=key, progress=False) for key in range(num_starts)]
    best = max(fits, key=lambda fit: fit.log_evidence())
    outputs = np.asarray(model.outputs(best.mean_params, data[0]))[:, 0]
    if problem == "bends of the data":
        explained = 1 - np.mean((data[1] - outputs) ** 2) / np.var(data[1])
    else:
        explained = np.mean((outputs > 0) == data[1])
    row = {"smc": value, "error": error, "laplace": best.log_evidence()}
    return {key: float(value) / len(data[0]) for key, value in row.items()} | {"explained": float(explained)}


def sweep(problem: str, levels: list, settings: tuple, out: Path) -> dict[str, list[dict]]:
    """A row for each level, a column for each network; those of an earlier run are read."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{problem.replace(' ', '-')}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    results: dict[str, list[dict]] = {name: [] for name in NETWORKS}
    print(f"\n{problem:28}" + "".join(f"{name:^42}" for name in NETWORKS))
    print(f"{'':28}" + f"{'SMC':>16}{'Laplace':>11}{'explained':>13}  " * len(NETWORKS))
    for i, level in enumerate(levels):
        if i == len(done):
            done.append({name: one(problem, level, name, *settings) for name in NETWORKS})
            with file.open("a") as stream:
                stream.write(json.dumps(done[-1]) + "\n")
        cells = [
            f"{row['smc']:8.3f} ± {row['error']:.3f}{row['laplace']:11.3f}{100 * row['explained']:11.0f} %  "
            for row in (done[i][name] for name in NETWORKS)
        ]
        print(f"{level!s:28}" + "".join(cells), flush=True)
        for name in NETWORKS:
            results[name].append(done[i][name])
            if done[i][name]["laplace"] - done[i][name]["smc"] > MODE_MISSED:
                print(f"  {name}: SMC is below Laplace's one mode, so its particles missed that one: distrust its ±")
    return results


def draw(file: Path, levels: dict[str, list], results: dict[str, dict]) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(15, 3.7), layout="constrained")
    line = np.linspace(-2, 2, 200, dtype=np.float32)[:, None]
    for axes, (name, network) in zip(panels, NETWORKS.items()):
        functions = po.Model(network, prior=PRIOR).prior_functions(0, line, 12)
        axes.plot(line[:, 0], np.asarray(functions)[..., 0].T, color=COLOURS[name], lw=1, alpha=0.7)
        axes.set(title=f"draws from the prior: {name}", xlabel="x")
    for axes, problem in zip(panels[2:], PROBLEMS):
        for name, rows in results[problem].items():
            smc, error, laplace = (np.array([row[key] for row in rows]) for key in ("smc", "error", "laplace"))
            axes.errorbar(levels[problem], smc, 2 * error, fmt="o-", color=COLOURS[name], label=f"{name}, SMC")
            axes.plot(levels[problem], laplace, "x--", lw=1, color=COLOURS[name], alpha=0.6, label=f"{name}, Laplace")
        axes.set(xlabel=problem, title="log evidence a datum, nats")
    panels[2].set_ylim(bottom=-4)  # where the small network has given up
    panels[2].legend(fontsize=8)
    panels[3].axhline(-np.log(2), color="black", lw=1, ls=":")
    panels[3].annotate("a coin", (0, -np.log(2)), textcoords="offset points", xytext=(0, 3), fontsize=8)
    figure.savefig(file, dpi=110)


def main() -> None:
    args = begin(__doc__, picture=True, seed=False)
    bends, shares, *settings = SCALES[args.scale]
    levels = dict(zip(PROBLEMS, (bends, shares)))
    print("log evidence a datum, in nats; explained by Laplace's mode: variance of y, or labels")
    results = {problem: sweep(problem, levels[problem], tuple(settings), args.out) for problem in PROBLEMS}
    if args.picture:
        draw(args.picture, levels, results)


if __name__ == "__main__":
    main()
