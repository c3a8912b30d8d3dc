"""A comparison of seconds, in a process of its own for the test that kills it: `python small.py FOLDER`."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import posteria as po
from posteria.engine import checkpoint, chunks

METHODS = {"map": po.MAP(num_epochs=300), "ensemble": po.Ensemble(po.MAP(num_epochs=300), 3)}
REFERENCE = po.HMC(num_chains=2, num_draws=200, num_warmup=100, start="prior")


def problem() -> tuple:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2)).astype(np.float32)
    return po.Model(po.nn.mlp(())), (x, x[:, 0] - 0.5 * x[:, 1] + 0.2 * rng.normal(size=80))


def compare(folder: Path | None, **changes: Any) -> Any:
    model, data = problem()
    settings: dict = {"reference": REFERENCE, "seeds": 2, "baselines": False, "out": folder} | changes
    return po.compare(model, data, settings.pop("methods", METHODS), **settings)


if __name__ == "__main__":
    checkpoint.CHECKPOINT_SECONDS = 0.0
    checkpoint.CHECKPOINT_SHARE = 1.0
    chunks.CHUNK_SECONDS = 0.02
    compare(Path(sys.argv[1]))
