"""One Laplace posterior, two predictions: linearised at the mode, and sampled through the network itself.

Immer, Korzepa and Bauer 2021, table 1: with the Gauss-Newton matrix as the posterior's precision, sampling the weights
underfits badly, and the linearised network does not, because it is the model of which that matrix is the curvature.
Two hidden layers of 50 tanh units (20 at the small scale), classes, 70 % of the rows to train, 15 % to choose the
prior's standard deviation (for each way of predicting its own, as in the paper) and 15 % to test, full covariance
(Kronecker-factored for digits).
Printed: test negative log-likelihood, mean and standard error over splits (lower is better), the prior chosen.

    make study NAME=predictive-gap               two small tables, three splits: about a minute
    make study NAME=predictive-gap SCALE=full    three tables, ten splits: a quarter of an hour; what is done is kept
                                                 in --out and not done again
"""

import copy
import json
from pathlib import Path

import numpy as np
from _study import begin

import posteria as po
from posteria import tree

# of the paper: mode, sampled, linearised; where the table is among theirs
PUBLISHED = {
    "breast-cancer": ("0.11 ± .02", "0.19 ± .00", "0.10 ± .01"),
    "digits": ("0.094 ± .003", "0.875 ± .002", "0.250 ± .002"),
}
SCALES = {  # tables, splits, units of a layer
    "small": (["breast-cancer", "wine-recognition"], 3, 20),
    "full": (["breast-cancer", "wine-recognition", "digits"], 10, 50),
}
WAYS = ("mode", "sampled", "linearised")
COLOURS = dict(zip(WAYS, ("black", "#D55E00", "#0072B2")))
PRIOR_STDS = (0.1, 0.2, 0.5, 1.0)


def one_split(name: str, number: int, num_units: int) -> dict[str, list]:
    """Negative log-likelihood of each way, (prior, 2): on the validation rows and on the test rows."""
    data = po.data.load(name)
    x, y = data.x.reshape(len(data.x), -1), data.y
    order = np.random.default_rng(number).permutation(len(x))
    train, *others = np.split(order, [int(0.7 * len(x)), int(0.85 * len(x))])
    scale = po.data.Standardiser.fit(x[train])
    x = scale.apply(x).astype(np.float32)
    network = po.nn.mlp((num_units, num_units), outputs=len(data.class_names), activation="tanh")
    structure = "full" if name != "digits" else "kron"
    found: dict[str, list] = {way: [] for way in WAYS}
    for prior_std in PRIOR_STDS:
        model = po.Model(network, po.likelihoods.Categorical(), po.priors.Normal(prior_std))
        mode = po.fit(model, (x[train], y[train]), po.MAP(num_epochs=1000), key=number, progress=False)
        start = tree.index(mode.stored.params["network"], (0, 0))
        linearised = po.fit(model, (x[train], y[train]), po.Laplace(structure), start=start, progress=False)
        sampled = copy.copy(linearised)
        sampled.predictive = "sampled"
        for way, posterior in zip(WAYS, (mode, sampled, linearised)):
            found[way].append([-float(posterior.predict(x[rows]).log_prob(y[rows]).mean()) for rows in others])
    return found


def all_splits(name: str, num_splits: int, num_units: int, out: Path) -> list[dict]:
    """Results of every split; those of an earlier run are read."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for number in range(len(done), num_splits):
        done.append(one_split(name, number, num_units))
        with file.open("a") as stream:
            stream.write(json.dumps(done[-1]) + "\n")
    return done[:num_splits]


def chosen(results: list[dict], way: str) -> tuple[np.ndarray, np.ndarray]:
    """Of each split: the test negative log-likelihood under the prior that the validation rows choose; its place."""
    values = np.array([result[way] for result in results])  # (split, prior, validation | test)
    best = values[..., 0].argmin(1)
    return values[np.arange(len(values)), best, 1], best


def draw(file: Path, results: dict[str, list[dict]]) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(results), figsize=(4.6 * len(results), 3.6), layout="constrained")
    for axes, (name, splits) in zip(panels, results.items()):
        for way, colour in COLOURS.items():
            values = np.array([split[way] for split in splits])[..., 1]  # (split, prior)
            error = values.std(0, ddof=1) / np.sqrt(len(values))
            axes.errorbar(PRIOR_STDS, values.mean(0), error, fmt="o-", color=colour, label=way)
        axes.set(xscale="log", xlabel="standard deviation of the prior", title=name)
        axes.set_xticks(PRIOR_STDS, [str(std) for std in PRIOR_STDS])
        axes.minorticks_off()
    panels[0].set_ylabel("test negative log-likelihood, nats")
    panels[0].legend(fontsize=8)
    figure.savefig(file, dpi=110)


def main() -> None:
    args = begin(__doc__, picture=True, seed=False)
    names, num_splits, num_units = SCALES[args.scale]
    print(f"{'':18}{'splits':>6}" + "".join(f"{way:>20}" for way in WAYS))
    results = {}
    for name in names:
        results[name] = all_splits(name, num_splits, num_units, args.out)
        values, places = zip(*(chosen(results[name], way) for way in WAYS))
        errors = [value.std(ddof=1) / np.sqrt(len(value)) for value in values]
        cells = "".join(f"{f'{value.mean():.3f} ± {error:.3f}':>20}" for value, error in zip(values, errors))
        print(f"{name:18}{len(results[name]):6}{cells}")
        if name in PUBLISHED:
            print(f"{'  published':18}{10:6}" + "".join(f"{cell:>20}" for cell in PUBLISHED[name]))
        medians = "".join(f"{np.median(np.array(PRIOR_STDS)[place]):20.2g}" for place in places)
        print(f"{'  prior, median':24}{medians}", flush=True)
    if args.picture:
        draw(args.picture, results)


if __name__ == "__main__":
    main()
