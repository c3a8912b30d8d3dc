"""The prior's scale by the evidence: no rows held out, and close to what held-out rows would have chosen.

A network of one hidden layer on a UCI table, all its prior scales multiplied by a number from a grid: the evidence of
Laplace's approximation beside the test log-likelihood, each a datum; and the number that `MAP(tune="evidence")` finds
by itself. MacKay 1992; Immer et al. 2021.

    make study NAME=prior-by-evidence               one table, two splits: about a minute
    make study NAME=prior-by-evidence SCALE=full    three tables, three splits
"""

import json
from pathlib import Path

import jax
import numpy as np
from _study import begin

import posteria as po

SCALES = {"small": (["yacht"], 2), "full": (["yacht", "energy", "concrete"], 3)}
GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
ASCENT = po.MAP(num_epochs=2000, tune="noise")  # as long for the grid as for the tuned: it is what limits the fit
TUNED = po.MAP(num_epochs=2000, tune="evidence")
NETWORK = po.nn.mlp((20,), activation="tanh")


def one_split(name: str, number: int) -> dict:
    """[scale, evidence a datum, test log-likelihood a datum] over the grid, and for the tuned scale."""
    data = po.data.load(name)
    train, test = po.data.uci_splits(len(data.x))[number]
    x_scale, y_scale = po.data.Standardiser.fit(data.x[train]), po.data.Standardiser.fit(data.y[train])
    x, x_test = (x_scale.apply(data.x[rows]).astype(np.float32) for rows in (train, test))
    y, y_test = (y_scale.apply(data.y[rows]) for rows in (train, test))

    def judge(scale: float, ascent: po.MAP) -> list[float]:
        model = po.Model(NETWORK, po.likelihoods.Gaussian(), po.priors.FanIn(scale, bias_std=scale))
        method = po.Laplace(structure="full", map=ascent)
        posterior = po.fit(model, (x, y), method, key=number, progress=False)
        bias_std = jax.tree.leaves(posterior.target.units["network"])[0]  # of the first layer: the scale itself
        return [bias_std, posterior.log_evidence() / len(x), float(posterior.predict(x_test).log_prob(y_test).mean())]

    return {"grid": [judge(scale, ASCENT) for scale in GRID], "tuned": judge(1.0, TUNED)}


def all_splits(name: str, num_splits: int, out: Path) -> list[dict]:
    """Results of every split; those of an earlier run are read."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for number in range(len(done), num_splits):
        done.append(one_split(name, number))
        with file.open("a") as stream:
            stream.write(json.dumps(done[-1]) + "\n")
    return done[:num_splits]


def describe(name: str, results: list[dict]) -> None:
    grid = np.array([result["grid"] for result in results])  # (split, scale, 3)
    tuned = np.array([result["tuned"] for result in results])  # (split, 3)
    print(f"\n{name}, {len(results)} splits        prior scale   evidence a datum   test log-likelihood")
    for scale, evidence, test in grid.mean(0):
        print(f"{'':30}{scale:7.2f}{evidence:19.3f}{test:22.3f}")
    scale = np.exp(np.log(tuned[:, 0]).mean())
    print(f"{'tuned by the evidence':30}{scale:7.2f}{tuned[:, 1].mean():19.3f}{tuned[:, 2].mean():22.3f}")
    lost = grid[..., 2].max(1) - tuned[:, 2]
    error = lost.std(ddof=1) / np.sqrt(len(lost))
    print(f"lost of the test log-likelihood against the grid's best on the test rows: {lost.mean():.3f} ± {error:.3f}")


def draw(file: Path, results: dict[str, list[dict]]) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        1, len(results), figsize=(4.2 * len(results), 3.4), squeeze=False, layout="constrained"
    )
    for axes, (name, splits) in zip(panels[0], results.items()):
        grid = np.array([split["grid"] for split in splits]).mean(0)
        tuned = np.exp(np.log([split["tuned"][0] for split in splits]).mean())
        axes.semilogx(grid[:, 0], grid[:, 1], "o-", color="#0072B2", label="evidence a datum")
        axes.semilogx(grid[:, 0], grid[:, 2], "s--", color="#D55E00", label="test log-likelihood a datum")
        axes.axvline(tuned, color="black", lw=1, label="tuned by the evidence")
        axes.set(title=name, xlabel="scale of the prior", ylabel="nats" if name == next(iter(results)) else "")
    panels[0][0].legend(fontsize=8)
    figure.savefig(file, dpi=120)


def main() -> None:
    args = begin(__doc__, picture=True, seed=False)
    names, num_splits = SCALES[args.scale]
    results = {}
    for name in names:
        results[name] = all_splits(name, num_splits, args.out)
        describe(name, results[name])
    if args.picture:
        draw(args.picture, results)


if __name__ == "__main__":
    main()
