"""One process of a job: `job.py OUT NAME [often]`, with POSTERIA_COORDINATOR and the others set.

Fits over a mesh of 2 x 2 devices, resumes what is there, and the first process saves the draws as OUT/NAME.npy. `often`
writes a checkpoint after every chunk, of few rows.
"""

import sys
from pathlib import Path

import posteria as po

po.distributed()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from engine import on_a_mesh  # noqa: E402
from posteria.engine import checkpoint, chunks  # noqa: E402

METHODS = on_a_mesh.METHODS | {
    "long": po.HMC(num_chains=2, num_draws=400, num_warmup=200, num_leapfrog=4, step_size=0.02, start="init")
}


def main(out: str, name: str, *often: str) -> None:
    if often:
        checkpoint.CHECKPOINT_SECONDS, checkpoint.CHECKPOINT_SHARE, chunks.CHUNK_SECONDS = 0.0, 1.0, 0.02
    model, data = on_a_mesh.problem()
    posterior = po.fit(
        model, data, METHODS[name], key=1, mesh=po.mesh(2, 2), out=f"{out}/{name}", if_exists="resume", progress=False
    )
    if jax.process_index() == 0:
        np.save(Path(out) / f"{name}.npy", posterior.stored.flat)


if __name__ == "__main__":
    main(*sys.argv[1:])
