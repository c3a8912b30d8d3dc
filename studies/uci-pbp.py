"""Probabilistic backpropagation on the UCI regression benchmark, beside its published table.

Hernandez-Lobato and Adams 2015, tables 1 and 2: one hidden layer of 50 ReLU units, 40 passes over the data, inputs and
targets standardised on the training rows, the 20 standard splits. Printed: mean and standard error over splits.

    make study NAME=uci-pbp               three small sets, five splits: under a minute
    make study NAME=uci-pbp SCALE=full    six sets, twenty splits; what is done is kept in --out and not done again
"""

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from _study import begin

import posteria as po

# RMSE, its standard error, log-likelihood, its standard error
PUBLISHED = {
    "yacht": (1.015, 0.0542, -1.634, 0.016),
    "energy": (1.804, 0.0481, -2.042, 0.019),
    "concrete": (5.667, 0.0933, -3.161, 0.019),
    "wine": (0.635, 0.0079, -0.968, 0.014),
    "kin8nm": (0.098, 0.0007, 0.896, 0.006),
    "power": (4.124, 0.0345, -2.837, 0.009),
}
SCALES = {"small": (["yacht", "energy", "concrete"], 5), "full": (list(PUBLISHED), 20)}
NUM_UNITS = 50


def published_network(num_units: int) -> po.Network:
    """The bias is the weight of an input that is 1, and has the scale of the other weights."""

    def with_one(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)

    def init(key: jax.Array, x: jax.Array) -> dict:
        return {"hidden": jnp.zeros((x.shape[1] + 1, num_units)), "output": jnp.zeros((num_units + 1, 1))}

    def apply(params: dict, x: jax.Array) -> jax.Array:
        return with_one(jax.nn.relu(with_one(x) @ params["hidden"])) @ params["output"]

    return po.Network(init, apply)


MODEL = po.Model(published_network(NUM_UNITS))


def one_split(data: po.data.Dataset, number: int, num_splits: int) -> dict[str, float]:
    """Test RMSE and log-likelihood, in the target's own units."""
    train, test = po.data.uci_splits(len(data.x), num_splits)[number]
    x_scale, y_scale = po.data.Standardiser.fit(data.x[train]), po.data.Standardiser.fit(data.y[train])
    x, x_test = (x_scale.apply(data.x[rows]).astype(np.float32) for rows in (train, test))
    began = time.monotonic()
    posterior = po.fit(
        MODEL,
        (x, y_scale.apply(data.y[train])),
        po.ExpectationPropagation(num_passes=40),
        key=number,
        progress=False,
    )
    predictive = posterior.predict(x_test)
    rmse = po.metrics.rmse(predictive.mean[:, 0], y_scale.apply(data.y[test])) * y_scale.std
    log_likelihood = predictive.log_prob(y_scale.apply(data.y[test])).mean() - np.log(y_scale.std)
    return {"rmse": float(rmse), "log_likelihood": float(log_likelihood), "seconds": time.monotonic() - began}


def all_splits(name: str, num_splits: int, out: Path) -> list[dict]:
    """Results of every split; those of an earlier run are read."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    data = po.data.load(name)
    for number in range(len(done), num_splits):
        done.append(one_split(data, number, num_splits))
        with file.open("a") as stream:
            stream.write(json.dumps(done[-1]) + "\n")
    return done[:num_splits]


HEADER = "\n".join(
    [
        f"{'':17}{'RMSE':^36}{'log-likelihood':^38}  gain in published s.e.   seconds",
        f"{'set':9}{'splits':>6}  {'here':>17}{'published':>19}{'here':>19}{'published':>17}"
        f"{'RMSE':>10}{'log-lik.':>12}{'a fit':>11}",
    ]
)


def summary(name: str, results: list[dict]) -> str:
    """A row: what was measured, what was published, and the difference in published standard errors."""
    cells, gains = [f"{name:9}{len(results):6}  "], []
    for i, (measure, digits, better) in enumerate((("rmse", 4, -1), ("log_likelihood", 3, 1))):
        values = np.array([result[measure] for result in results])
        error = values.std(ddof=1) / np.sqrt(len(values))
        wanted, wanted_error = PUBLISHED[name][2 * i : 2 * i + 2]
        cells += [
            f"{value:9.{digits}f} ± {e:.{digits}f}" for value, e in ((values.mean(), error), (wanted, wanted_error))
        ]
        gains.append(better * (values.mean() - wanted) / wanted_error)
    seconds = np.median([result["seconds"] for result in results])
    return "  ".join(cells) + f"{gains[0]:+10.1f}{gains[1]:+12.1f}{seconds:11.1f}"


def main() -> None:
    args = begin(__doc__, seed=False)
    names, num_splits = SCALES[args.scale]
    print(HEADER)
    for name in names:
        print(summary(name, all_splits(name, num_splits, args.out)), flush=True)
    print("Within two published standard errors or better: both gains of a row above -2.")


if __name__ == "__main__":
    main()
