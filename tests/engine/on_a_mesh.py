"""Fits over a mesh of host devices, in a process of its own: `on_a_mesh.py OUT CHAINS DATA NAME...` ("1 1": no mesh).

Saves each fit's draws, (chain, draw, size), as OUT/NAME.npy, and its log densities.
"""

import sys
from pathlib import Path

import jax
import numpy as np

import posteria as po
from posteria.testing import linear_regression

NUM_ROWS = 203  # no number of devices divides it
FEW = {"num_chains": 2, "num_draws": 4, "num_warmup": 4, "start": "init"}
METHODS = {
    "hmc": po.HMC(**FEW, num_leapfrog=5),
    "hmc of 3": po.HMC(**FEW | {"num_chains": 3}, num_leapfrog=3),
    "nuts": po.NUTS(**FEW),
    "mclmc": po.MCLMC(**FEW, step_size=0.1),
    "metropolis": po.MetropolisHastings(**FEW),
    "sghmc": po.SGHMC(**FEW, thinning=2, batch_size=30),
    "svrg": po.SGLD(**FEW, thinning=2, batch_size=30, variance_reduction="svrg"),
    "map": po.MAP(num_epochs=5, polish=False),
    "map of batches": po.MAP(num_epochs=2, batch_size=33, polish=False),
    "map held out": po.MAP(num_epochs=3, validation=0.2),
    "polished": po.MAP(num_epochs=5),
    "ensemble": po.Ensemble(po.MAP(num_epochs=4, polish=False), 3),
    "swag": po.SWAG(map=po.MAP(num_epochs=3, polish=False), num_snapshots=3, rank=2),
    "svgd": po.SVGD(size=4, num_epochs=2),
    "mean-field": po.MeanField(num_epochs=3),
    "dropout": po.MCDropout(num_epochs=3),
    "laplace": po.Laplace(map=po.MAP(num_epochs=5)),
}


def problem() -> tuple:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, 3)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=NUM_ROWS)
    return po.Model(po.nn.mlp((6,))), (x, y.astype(np.float32))


def main(out: str, chains: int, data: int, *names: str) -> None:
    mesh = po.mesh(chains, data) if chains * data > 1 else None
    for name in names:
        if name == "law":
            known = linear_regression()
            law = po.HMC(num_chains=4, num_draws=500, num_warmup=200)
            np.save(Path(out) / "law draws.npy", po.fit(known.model, known.data, law, mesh=mesh).stored.flat)
            continue
        posterior = po.fit(*problem(), METHODS[name], key=1, mesh=mesh, progress=False)
        np.save(
            Path(out) / f"{name}.npy", np.asarray(jax.tree.leaves(posterior.functions(0, problem()[1][0][:9], 8))[0])
        )
        if mesh is not None and name == "hmc of 3":
            alone, spread = (posterior.predict(problem()[1][0]), posterior.predict(problem()[1][0]).over(mesh))
            np.testing.assert_allclose(spread.mean, alone.mean, atol=1e-6)
            np.testing.assert_allclose(spread.quantile(0.9), alone.quantile(0.9), atol=1e-4)
            outputs, _ = spread.forward(spread._placed(problem()[1][0][:12]))
            assert len(outputs.sharding.device_set) == mesh.size  # each has its rows
        if hasattr(posterior, "stored"):
            np.save(Path(out) / f"{name} draws.npy", posterior.stored.flat)
        print(name, posterior.facts["notes"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
