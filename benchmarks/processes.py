"""Two processes of a core each beside one: `python benchmarks/processes.py`, on a machine of two cores that is quiet.

HMC of a 784-1000-1000-10 network by 4,096 rows, whose gradient is nearly all matrix products; two processes share the
rows (`po.mesh(chains=1, data=2)`, gloo over loopback), and sum a gradient of 7 MB a leapfrog step. Every process has
one core, since one alone would otherwise use both. The fit is run twice in a process, and the second is timed, which
compiles nothing. One and two take turns.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time

from measure import at_least

ROWS, LEAPFROGS, DRAWS, TURNS = 4096, 10, 3, 3
WANTED = 1.6


def one_process(num: int) -> None:
    import posteria as po

    if num > 1:
        po.distributed()
    import jax
    import numpy as np

    rng = np.random.default_rng(0)
    data = rng.random((ROWS, 784), np.float32), rng.integers(0, 10, ROWS)
    model = po.Model(po.nn.mlp((1000, 1000), outputs=10), po.likelihoods.Categorical())
    method = po.HMC(num_chains=1, num_draws=DRAWS, num_warmup=1, num_leapfrog=LEAPFROGS, step_size=1e-3, start="init")
    for _ in range(2):
        began = time.perf_counter()
        posterior = po.fit(model, data, method, key=1, mesh=po.mesh(chains=1, data=num), progress=False)
        seconds = time.perf_counter() - began
    if jax.process_index() == 0:
        total = float(np.abs(np.asarray(posterior.stored.flat)).sum())
        print(json.dumps({"seconds": seconds, "sum": total}), flush=True)


def timed(num: int) -> dict[str, float]:
    """What the first of so many processes says, each on a core of its own."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    env = os.environ | {
        "POSTERIA_COORDINATOR": f"127.0.0.1:{port}",
        "POSTERIA_NUM_PROCESSES": str(num),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
    }
    processes = [
        subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, __file__, str(num)],
            env=env | {"POSTERIA_PROCESS_ID": str(core)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for core in range(num)
    ]
    said = [process.communicate()[0] for process in processes]
    return json.loads(said[0].splitlines()[-1])


def main() -> None:
    one, two = zip(*((timed(1), timed(2)) for _ in range(TURNS)))
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(one, two)]
    print(f"HMC, 784-1000-1000-10 by {ROWS:,} rows, {DRAWS + 1} draws of {LEAPFROGS} leapfrogs; a core a process")
    for name, runs in (("one process", one), ("two processes", two)):
        told = " ".join(f"{run['seconds']:7.2f}" for run in runs)
        print(f"  {name:14} {told} s")
    off = max(abs(a["sum"] / b["sum"] - 1) for a, b in zip(one, two))
    print(f"  sums of the draws' sizes differ by {off:.1e} of themselves")
    ratio = statistics.median(ratios)
    told = f"{ratio:.2f}, of turns {min(ratios):.2f} to {max(ratios):.2f}"
    print(f"  times as fast: {told}: {at_least(ratio, WANTED)} ({WANTED})")


if __name__ == "__main__":
    one_process(int(sys.argv[1])) if sys.argv[1:] else main()
