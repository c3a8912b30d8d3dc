"""Dropout as Bayes on the UCI regression benchmark, by the corrected protocol, beside its published table.

Gal and Ghahramani 2016, results of 2018 without the test rows in the choice of settings: for each of the standard
splits a fifth of the training rows chooses rate and noise precision from a grid by log likelihood, then all of them are
trained on. One hidden layer of 50 ReLU units, dropout on the inputs of both layers, batches of 128, Adam at 1e-3,
4,000 epochs, a length scale of 0.01. Printed: mean and standard error over splits, in the target's own units.

    make study NAME=uci-dropout               yacht, two splits, half of the rates; a minute
    make study NAME=uci-dropout SCALE=full    four sets, twenty splits; hours: what is done is kept in --out
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _study import begin

import posteria as po

# RMSE, its standard error, log likelihood, its standard error; then the grid of noise precisions
PUBLISHED = {
    "yacht": ((0.666, 0.049, -1.250, 0.015), (0.25, 0.5, 0.75)),
    "energy": ((0.539, 0.014, -1.212, 0.005), (0.25, 0.5, 0.75)),
    "concrete": ((4.827, 0.161, -2.937, 0.025), (0.025, 0.05, 0.075)),
    "wine": ((0.622, 0.008, -0.928, 0.013), (2.5, 3.0, 3.5)),
}
RATES = (0.005, 0.01, 0.05, 0.1)
LENGTH_SCALE = 0.01
NUM_UNITS = 50
NUM_DRAWS = 1000  # published: 10,000


class Settings(NamedTuple):
    sets: tuple[str, ...]
    num_splits: int
    num_epochs: int
    rates: tuple[float, ...]


SETTINGS = {
    "small": Settings(("yacht",), 2, 4000, (0.005, 0.05)),
    "full": Settings(tuple(PUBLISHED), 20, 4000, RATES),
}


def scores(data: po.data.Dataset, train: np.ndarray, test: np.ndarray, rate: float, precision: float, epochs: int):
    """Test RMSE and log likelihood of one fit, in the target's own units."""
    import optax

    x_scale, y_scale = po.data.Standardiser.fit(data.x[train]), po.data.Standardiser.fit(data.y[train])
    x, x_test = (x_scale.apply(data.x[rows]).astype(np.float32) for rows in (train, test))
    y, y_test = (y_scale.apply(data.y[rows]).astype(np.float32).reshape(-1, 1) for rows in (train, test))
    std = float(np.squeeze(y_scale.std))
    likelihood = po.likelihoods.Gaussian(precision**-0.5 / std)
    # the published weight decay l^2 / (N tau) stands beside the squared error of standardised targets
    prior = po.priors.Normal(1 / (LENGTH_SCALE * std))
    model = po.Model(po.nn.mlp((NUM_UNITS,)), likelihood, prior)
    method = po.MCDropout(rate, num_epochs=epochs, batch_size=min(128, len(train)), optimizer=optax.adam(1e-3))
    predictive = po.fit(model, (x, y), method, key=0, progress=False).predict(x_test, NUM_DRAWS)
    rmse = po.metrics.rmse(predictive.mean, y_test) * std
    return float(rmse), float(predictive.log_prob(y_test).mean() - np.log(std))


def one_split(name: str, number: int, settings: Settings) -> dict:
    data = po.data.load(name)
    train, test = po.data.uci_splits(len(data.x))[number]
    num_chosen_by = round(0.8 * len(train))
    grid = [(rate, precision) for rate in settings.rates for precision in PUBLISHED[name][1]]
    held_out = [scores(data, train[:num_chosen_by], train[num_chosen_by:], *at, settings.num_epochs)[1] for at in grid]
    rate, precision = grid[int(np.argmax(held_out))]
    rmse, log_likelihood = scores(data, train, test, rate, precision, settings.num_epochs)
    return {"rmse": rmse, "log_likelihood": log_likelihood, "rate": rate, "precision": precision}


def all_splits(name: str, settings: Settings, out: Path) -> list[dict]:
    """Results of every split; those of an earlier run are read."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for number in range(len(done), settings.num_splits):
        done.append(one_split(name, number, settings))
        with file.open("a") as stream:
            stream.write(json.dumps(done[-1]) + "\n")
    return done[: settings.num_splits]


def main() -> None:
    arguments = begin(__doc__, seed=False)
    settings = SETTINGS[arguments.scale]
    print(f"{settings.num_epochs} epochs, rates {settings.rates}")
    print(f"{'set':10}{'splits':>7}{'RMSE here':>19}{'published':>18}{'log lik. here':>20}{'published':>18}")
    for name in settings.sets:
        results = all_splits(name, settings, arguments.out)
        cells = []
        for i, measure in enumerate(("rmse", "log_likelihood")):
            values = np.array([result[measure] for result in results])
            error = values.std(ddof=1) / np.sqrt(len(values))
            wanted, wanted_error = PUBLISHED[name][0][2 * i : 2 * i + 2]
            cells += [f"{values.mean():.3f} ± {error:.3f}", f"{wanted:.3f} ± {wanted_error:.3f}"]
        print(f"{name:10}{len(results):7}" + "".join(f"{cell:>19}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
