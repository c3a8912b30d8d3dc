"""A 20 GB source (a sparse file) through six fits and a prediction: resident memory; killed and resumed; steps.

    python benchmarks/sources.py [--rows 400000] [--folder /tmp] [--only map predict kill steps ...]

Every fit is a process of its own, whose largest resident memory the system tells. Steps of the 784-300-100-10 network
are timed in one process, from a source and from memory in turn, in CPU seconds and by the clock.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import posteria as po

FEATURES, CLASSES, BATCH = 12544, 10, 256  # 112 x 112 pixels
STEP_FEATURES = 784
SECONDS = 60  # that a fit may take: rows of all parts of the file are read by then
STEP_ROWS, STEP_BATCH = 25_600, 128  # of the timing: rows in memory, and as many from a file
STEP_EPOCHS, TURNS = (4, 16), 4  # of the short fits and of the long ones; how often each
OTHERS = {"kill": ["--kill", "sghmc"], "steps": ["--steps"]}


def model(hidden=(8,)):
    return po.Model(po.nn.mlp(hidden, outputs=CLASSES), likelihood=po.likelihoods.Categorical())


def methods():
    climb = po.MAP(num_epochs=1, batch_size=BATCH)
    return {
        "map": climb,
        "sghmc": po.SGHMC(num_chains=2, num_draws=20, num_warmup=100, thinning=20, batch_size=64, start="prior"),
        "mean-field": po.MeanField(num_epochs=1, batch_size=BATCH),
        "swag": po.SWAG(map=None, num_snapshots=2, rank=2, batch_size=BATCH),
        "laplace": po.Laplace(subset="last", structure="kron"),
    }


def made(folder, rows):
    """x: float32 (rows, 12544), all zeros but for a few rows at each end; y: labels."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, FEATURES)}
    path = folder / "x.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + rows * FEATURES * 4)
    x = np.load(path, mmap_mode="r+")
    x[:1000] = np.random.default_rng(0).normal(size=(1000, FEATURES))
    x.flush()
    np.save(folder / "y.npy", (np.arange(rows) % CLASSES).astype(np.int32))
    return path


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB


def fitted(folder, name, out=None, resumed=False):
    data = po.data.source(folder / "x.npy", folder / "y.npy")
    method = methods()[name]
    if resumed:
        return po.resume(out, data, progress=False)
    start = model().network.init(jax.random.key(0), np.zeros((1, FEATURES), np.float32)) if name == "laplace" else None
    limit = SECONDS if out is None and name in ("map", "mean-field") else None
    return po.fit(model(), data, method, key=0, progress=False, out=out, start=start, max_seconds=limit)


def one(folder, name):
    """A fit, or a prediction of every row, and what it took: printed as JSON."""
    began = time.monotonic()
    if name == "predict":
        rows = np.load(folder / "x.npy", mmap_mode="r")
        posterior = po.fit(
            model(), (np.array(rows[:64]), np.arange(64) % CLASSES), po.MAP(num_epochs=2), progress=False
        )
        predicted = posterior.predict(po.data.source(folder / "x.npy"))
        assert np.isfinite(predicted.entropy).all() and len(predicted) == len(rows)
    else:
        fitted(folder, name)
    print(json.dumps({"name": name, "gib": peak(), "seconds": time.monotonic() - began}))


def flat(posterior):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.sample(0, 4))])


def killed(folder, name):
    """Killed in the midst of it, resumed, and compared with the whole, bit for bit."""
    whole, cut = folder / f"{name}-whole", folder / f"{name}-cut"
    expected = flat(fitted(folder, name, whole))
    child = subprocess.Popen([sys.executable, __file__, "--folder", str(folder), "--into", name, str(cut)])
    while not list(cut.glob("stages/**/state.npz")):
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    time.sleep(1.0)
    child.send_signal(signal.SIGKILL)
    child.wait()
    status = json.loads((cut / "manifest.json").read_text())["status"]
    same = np.array_equal(expected, flat(fitted(folder, name, cut, resumed=True)))
    print(json.dumps({"name": name, "status when killed": status, "bit-identical": bool(same)}))


def steps(folder):
    """Seconds of a step from memory and from a file: what a long fit takes more than a short one, each the fastest of
    some turns. Nothing that comes once, nor compiling, is in the difference."""
    x = np.random.default_rng(1).normal(size=(STEP_ROWS, STEP_FEATURES)).astype(np.float32)
    y = np.arange(STEP_ROWS) % CLASSES
    np.save(folder / "small-x.npy", x)
    np.save(folder / "small-y.npy", y)
    source = po.data.source(folder / "small-x.npy", folder / "small-y.npy")
    network = model((300, 100))
    clocks = {(name, num): [] for name in ("memory", "source") for num in STEP_EPOCHS}
    for turn in range(1 + TURNS):
        for name, data in (("memory", (x, y)), ("source", source)):
            for num in STEP_EPOCHS:
                began = _now()
                po.fit(network, data, po.MAP(num_epochs=num, batch_size=STEP_BATCH), progress=False)
                if turn:  # the first compiles
                    clocks[name, num].append(np.subtract(_now(), began))
    least = {case: np.min(values, axis=0) for case, values in clocks.items()}
    short, long = STEP_EPOCHS
    num_steps = (long - short) * STEP_ROWS // STEP_BATCH
    each = {name: (least[name, long] - least[name, short]) / num_steps for name in ("memory", "source")}
    ratio = each["source"] / each["memory"]
    told = {"seconds ratio": ratio[0], "cpu ratio": ratio[1], "ms a step in memory": 1000 * each["memory"][0]}
    told["ms a step of a source"] = 1000 * each["source"][0]
    print(json.dumps({"steps": num_steps} | {name: round(value, 3) for name, value in told.items()}))


def _now():
    return time.monotonic(), time.process_time()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one")
    parser.add_argument("--into", nargs=2)
    parser.add_argument("--kill")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--only", nargs="+")
    given = parser.parse_args()
    if given.one:
        return one(given.folder, given.one)
    if given.into:
        return fitted(given.folder, given.into[0], given.into[1])
    if given.kill:
        return killed(given.folder, given.kill)
    if given.steps:
        return steps(given.folder)
    with tempfile.TemporaryDirectory(dir=given.folder) as home:
        folder = Path(home)
        path = made(folder, given.rows)
        size = os.stat(path)
        print(
            f"{path.name}: {size.st_size / 1e9:.1f} GB, of which {512 * size.st_blocks / 1e6:.1f} MB are on disk",
            flush=True,
        )
        for name in given.only or [*methods(), "predict", *OTHERS]:
            words = OTHERS.get(name, ["--one", name])
            subprocess.run([sys.executable, __file__, "--folder", home, *words])


if __name__ == "__main__":
    main()
