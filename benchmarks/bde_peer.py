"""bde's estimators (microcanonical Langevin ensembles) on one split: run by `estimators.py` in bde's own environment.

bde wants an older BlackJAX than Posteria, so it has an environment of its own. Inputs and targets are standardised for
it; two hidden layers of 50, eight members, 1,000 epochs with early stopping, 100 draws a member. Its own defaults (two
members, 20 epochs, ten draws) are for trying it out.
"""

import contextlib
import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import numpy as np

SETTINGS = {
    "n_members": 8,
    "hidden_layers": [50, 50],
    "epochs": 1000,
    "patience": 50,
    "lr": 3e-3,
    "warmup_steps": 500,
    "n_samples": 100,
    "n_thinning": 10,
}


def main() -> None:
    _, file, kind, seed = sys.argv
    part = np.load(file)
    x, x_new = standardised(part["x"], part["x_new"])
    began = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        error, covered = (regression if kind == "regression" else classes)(part, x, x_new, int(seed))
    print(json.dumps({"error": error, "covered": covered, "seconds": time.perf_counter() - began}))


def regression(part, x: np.ndarray, x_new: np.ndarray, seed: int) -> tuple[float, float]:
    from bde import BdeRegressor

    centre, scale = part["y"].mean(), part["y"].std()
    model = BdeRegressor(seed=seed, **SETTINGS).fit(x, (part["y"] - centre) / scale)
    mean, quantiles = (np.asarray(v) * scale + centre for v in model.predict(x_new, credible_intervals=[0.05, 0.95]))
    lower, upper = quantiles
    y = part["y_new"]
    rmse = np.sqrt(np.mean((mean - y) ** 2))
    return float(rmse), float(np.mean((lower <= y) & (y <= upper)))


def classes(part, x: np.ndarray, x_new: np.ndarray, seed: int) -> tuple[float, float]:
    from bde import BdeClassifier

    model = BdeClassifier(seed=seed, **SETTINGS).fit(x, part["y"])
    return float(np.mean(np.asarray(model.predict(x_new)) != part["y_new"])), float("nan")


def standardised(x: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre, scale = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1.0)
    return ((x - centre) / scale).astype(np.float32), ((x_new - centre) / scale).astype(np.float32)


if __name__ == "__main__":
    main()
