"""One Laplace posterior, two predictions: linearised at the mode, and sampled through the network itself.

Immer, Korzepa and Bauer 2021, table 1: with the Gauss-Newton matrix as the posterior's precision, sampling the weights
underfits badly, and the linearised network does not, because it is the model of which that matrix is the curvature.
Two hidden layers of 50 tanh units (20 at the small scale), classes, 70 % of the rows to train and 15 % to test, full
covariance (Kronecker-factored for digits).
Printed: test negative log-likelihood, mean and standard error over splits (lower is better).

    make study NAME=predictive-gap               two small tables, three splits: about a minute
    make study NAME=predictive-gap SCALE=full    three tables, ten splits
"""

import argparse
import copy
import json
from pathlib import Path

import numpy as np

import posteria as po

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
PRIOR_STD = 1.0


def one_split(name: str, number: int, num_units: int) -> dict[str, float]:
    """Test negative log-likelihood of the mode, and of the posterior's two predictions."""
    data = po.data.load(name)
    x, y = data.x.reshape(len(data.x), -1), data.y
    order = np.random.default_rng(number).permutation(len(x))
    train, test = order[: int(0.7 * len(x))], order[int(0.85 * len(x)) :]
    scale = po.data.Standardiser.fit(x[train])
    x_train, x_test = (scale.apply(x[rows]).astype(np.float32) for rows in (train, test))
    network = po.nn.mlp((num_units, num_units), outputs=len(data.class_names), activation="tanh")
    model = po.Model(network, po.likelihoods.Categorical(), po.priors.Normal(PRIOR_STD))
    structure = "full" if name != "digits" else "kron"
    posterior = po.fit(
        model,
        (x_train, y[train]),
        po.Laplace(structure=structure, map=po.MAP(num_epochs=1000)),
        key=number,
        progress=False,
    )
    outputs = model.outputs(posterior.mean_params, x_test)
    log_probs = {"mode": np.asarray(model.likelihood.log_prob({}, outputs, y[test]))}
    for way in WAYS[1:]:
        same = copy.copy(posterior)
        same.predictive = way
        log_probs[way] = same.predict(x_test).log_prob(y[test])
    return {way: -float(values.mean()) for way, values in log_probs.items()}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=list(SCALES), default="small")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    names, num_splits, num_units = SCALES[args.scale]
    print(f"{'':18}{'splits':>6}" + "".join(f"{way:>18}" for way in WAYS))
    for name in names:
        results = all_splits(name, num_splits, num_units, args.out or Path("runs/predictive-gap") / args.scale)
        values = np.array([[result[way] for way in WAYS] for result in results])
        means, errors = values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))
        cells = "".join(f"{f'{m:.3f} ± {e:.3f}':>18}" for m, e in zip(means, errors))
        print(f"{name:18}{len(results):6}{cells}", flush=True)
        if name in PUBLISHED:
            print(f"{'  published':18}{10:6}" + "".join(f"{cell:>18}" for cell in PUBLISHED[name]))


if __name__ == "__main__":
    main()
