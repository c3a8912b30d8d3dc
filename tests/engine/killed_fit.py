"""A fit in a process of its own, for the test that kills it: `python killed_fit.py FOLDER`."""

import sys

import numpy as np

import posteria as po
from posteria.engine import checkpoint, chunks

checkpoint.CHECKPOINT_SECONDS = 0.0  # as often as can be
checkpoint.CHECKPOINT_SHARE = 1.0
chunks.CHUNK_SECONDS = 0.02

METHODS = {
    "hmc": po.HMC(num_chains=2, num_draws=3000, num_warmup=300, start="prior"),
    "ensemble": po.Ensemble(po.NUTS(num_chains=1, num_draws=60, num_warmup=60), 2),
    "map": po.MAP(num_epochs=3000, batch_size=20),
    "sghmc": po.SGHMC(num_chains=2, num_draws=3000, num_warmup=3000, thinning=20, batch_size=20, start="prior"),
    "mclmc": po.MCLMC(num_chains=2, num_draws=3000, num_warmup=300, start="prior"),
}


def problem() -> tuple:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    return po.Model(po.nn.mlp((8,))), (x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=60))


def main(folder: str, method: str) -> None:
    model, data = problem()
    po.fit(model, data, METHODS[method], key=3, out=folder, if_exists="resume", progress=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
