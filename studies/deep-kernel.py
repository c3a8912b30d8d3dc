"""Deep kernel learning beside a plain network and a process on the raw inputs, in the manner of Wilson et al. 2016.

On protein, parkinsons and power: the network by MAP; a Gaussian process with an RBF kernel on the inputs
themselves (a `DeepKernel` of a linear model, whose features are x); `DeepKernel` with an RBF kernel and with a spectral
mixture; and `InfiniteWidth`, the process that the network itself becomes. Errors are in standard deviations of y, those
of the paper too (its networks are of 1000-1000-500-50-2 units, its process is by KISS-GP, five splits of 90/10). Also
printed: seconds, and whether features collapsed: the dimensions that they fill, and how far their distances go with
those of the inputs (rank correlation). Settings are one for all tables, and were not chosen by these errors.

    make study NAME=deep-kernel               5,000 rows of power, one split: two minutes
    make study NAME=deep-kernel SCALE=full    all rows, five splits of 90/10: half an hour; goes on where it was
"""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from _study import begin, row

import posteria as po
from posteria.data import cache

NETWORK = (100, 50, 10)
SCALES = {"small": {"power": 5000}, "full": {"power": None, "parkinsons": None, "protein": None}}
# RMSE of GP-RBF, of the network, DKL-RBF, DKL-SM, as printed
PUBLISHED = {"protein": (1.64, 0.49, 0.46, 0.43), "parkinsons": (3.94, 0.31, 0.29, 0.29)}
NUM_SPLITS = {"small": 1, "full": 5}
EPOCHS = 20
BATCH = 512


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name != "parkinsons":
        data = po.data.load(name)
        return data.x, np.asarray(data.y).reshape(-1)
    values = pd.read_csv(cache.folder() / "tables" / "parkinsons.csv.gz").to_numpy(np.float64)
    return values[:, :-1], values[:, -1]


def methods() -> dict[str, tuple[po.Network, po.Method]]:
    network, line = po.nn.mlp(NETWORK), po.nn.mlp(())
    batches: dict[str, int] = {"num_epochs": EPOCHS, "batch_size": BATCH}
    return {
        "network (MAP)": (network, po.MAP(**batches, polish=False)),
        "process on x": (line, po.DeepKernel("rbf", **batches)),
        "DeepKernel RBF": (network, po.DeepKernel("rbf", **batches)),
        "DeepKernel mixture": (network, po.DeepKernel("spectral-mixture", **batches)),
        "InfiniteWidth": (network, po.InfiniteWidth()),
    }


def one(name: str, most: int | None, split: int, label: str, network: po.Network, method: po.Method, out: Path) -> dict:
    """Test RMSE, log-likelihood (of standardised y) and facts; read where it was done before."""
    file = out / f"{name}-{most or 'all'}-{split}-{label.replace(' ', '-')}.json"
    if file.exists():
        return json.loads(file.read_text())
    x, y = table(name)
    train, test = po.data.uci_splits(len(x), max(NUM_SPLITS.values()))[split]
    train = train[:most]
    x_scale, y_scale = po.data.Standardiser.fit(x[train]), po.data.Standardiser.fit(y[train])
    x_train, x_test = (x_scale.apply(x[rows]).astype(np.float32) for rows in (train, test))
    y_train, y_test = (y_scale.apply(y[rows]).astype(np.float32) for rows in (train, test))
    began = time.monotonic()
    posterior = po.fit(po.Model(network), (x_train, y_train), method, key=split, progress=False)
    seconds = time.monotonic() - began
    predictive = posterior.predict(x_test)
    found = {
        "rmse": float(po.metrics.rmse(predictive.mean[:, 0], y_test)),
        "log_prob": float(predictive.log_prob(y_test).mean()),
        "seconds": seconds,
        "rows": len(train),
        **{key: posterior.facts.get(key) for key in ("feature_dimension", "distance_correlation", "unexplained")},
    }
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found))
    return found


def main() -> None:
    args = begin(__doc__, seed=False, only={"data": SCALES["full"]})
    widths = (12, 8, 20, 16, 17, 9, 12, 13, 8)
    row(["data", "rows", "method", "RMSE", "log prob.", "seconds", "dimensions", "correlation", "paper"], widths)
    for name, most in SCALES[args.scale].items():
        if args.data and name not in args.data:
            continue
        published = dict(
            zip(("process on x", "network (MAP)", "DeepKernel RBF", "DeepKernel mixture"), PUBLISHED.get(name, ()))
        )
        by_split: dict[str, list[dict]] = {label: [] for label in methods()}
        for split in range(NUM_SPLITS[args.scale]):
            for label, (network, method) in methods().items():
                by_split[label].append(one(name, most, split, label, network, method, args.out))
        for label, found in by_split.items():
            facts = [found[0]["feature_dimension"], found[0]["distance_correlation"]]
            shown = ["" if fact is None else float(fact) for fact in facts]
            spread = [over_splits([each[key] for each in found]) for key in ("rmse", "log_prob")]
            seconds = np.mean([each["seconds"] for each in found])
            row([name, found[0]["rows"], label, *spread, f"{seconds:.0f}", *shown, published.get(label, "")], widths)
            if found[0]["unexplained"] is not None:
                left = 100 * found[0]["unexplained"]
                print(f"{'':20}(by inducing rows, which leave {left:.2g} % of its prior's variance unexplained)")
        compare(by_split)


def over_splits(values: list[float]) -> str:
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.3f}"


def compare(by_split: dict[str, list[dict]]) -> None:
    """Split by split, where the paper has an order: deep kernels before the network, and that before the process."""
    network = np.array([each["rmse"] for each in by_split["network (MAP)"]])
    for label in ("DeepKernel RBF", "DeepKernel mixture"):
        kernel = np.array([each["rmse"] for each in by_split[label]])
        process = np.array([each["rmse"] for each in by_split["process on x"]])
        print(f"  {label}: lower RMSE than the network in {np.sum(kernel < network)} of {len(kernel)} splits,", end=" ")
        print(f"than the process on x in {np.sum(kernel < process)}", flush=True)


if __name__ == "__main__":
    main()
