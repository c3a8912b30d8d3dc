"""Small fits to serve."""

import numpy as np
import pandas as pd

import posteria as po

TOKEN = "a-token"


def houses(num_rows: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    size, colour = random.normal(size=num_rows), random.choice(["red", "blue", "green"], num_rows)
    price = 100 + 20 * size + 10 * (colour == "red") + random.normal(size=num_rows)
    return pd.DataFrame({"size": size, "colour": colour, "price": price})


def save_fit(folder, calibrated: bool = False):
    """An estimator's fit; it is saved as `posteria fit` saves one."""
    table = houses(80)
    estimator = po.Regressor(po.MAP(num_epochs=200), "mlp:4").fit(table[["size", "colour"]], table["price"])
    if calibrated:
        held_out = houses(60, seed=9)
        estimator.calibrate(held_out[["size", "colour"]], held_out["price"])
    estimator.posterior_.save(folder)
    return estimator


def save_classes(folder):
    table = houses(80)
    labels = np.where(table["price"] > 100, "dear", "cheap")
    estimator = po.Classifier(po.MAP(num_epochs=200), "mlp:4").fit(table[["size", "colour"]], labels)
    estimator.posterior_.save(folder)
    return estimator


def rows_of(num_rows: int, seed: int = 1) -> list[dict]:
    return houses(num_rows, seed)[["size", "colour"]].to_dict("records")
