"""Methods graded against somebody else's HMC, by `posteria compare --reference FILE`: `benchmarks/given_reference.py`.

CIFAR-10's first batch and its 10,000 test images, averaged over blocks to 8 x 8 pixels, a ResNet-20-FRN of width 4,
and a file of ten probabilities for each test image, in any order by a column `index`. Izmailov et al.'s own HMC is not
at hand: the file here is a STAND-IN, made by another model (five dense networks of 100 units), so that what is shown is
that the grading works, and not which method is near HMC. `--out` keeps fits: a run that was interrupted goes on.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from measure import use_shared_data

import posteria as po

PIXELS, WIDTH, EPOCHS, BATCH = 8, 4, 10, 100
METHODS = ("map", "ensemble", "swag", "sghmc")
SETTINGS = {
    "map": {"num_epochs": EPOCHS, "batch_size": BATCH},
    "ensemble": {"method.num_epochs": EPOCHS, "method.batch_size": BATCH, "size": 3},
    "swag": {"map.num_epochs": EPOCHS, "map.batch_size": BATCH, "batch_size": BATCH, "num_snapshots": 5, "rank": 5},
    "sghmc": {
        "start.num_epochs": EPOCHS,
        "start.batch_size": BATCH,
        "num_chains": 2,
        "num_warmup": 500,
        "num_draws": 10,
        "thinning": 50,
        "batch_size": BATCH,
    },
}


def images(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised by the numbers of CIFAR-10's training images."""
    data = po.data.load("cifar10", part)
    block = data.x.shape[1] // PIXELS
    x = np.asarray(data.x[:10_000], np.float32).reshape(-1, PIXELS, block, PIXELS, block, 3).mean((2, 4))
    x = x / 255 if x.max() > 1 else x
    return (x - np.array([0.491, 0.482, 0.447], np.float32)) / 0.25, np.asarray(data.y[:10_000])


def write_stand_in(path: Path, train: tuple[np.ndarray, np.ndarray], x_test: np.ndarray) -> np.ndarray:
    """Probabilities by five dense networks, in an order of their own."""
    flat, flat_test = (x.reshape(len(x), -1) for x in (train[0], x_test))
    method = po.Ensemble(po.MAP(num_epochs=10, batch_size=BATCH, learning_rate=1e-3), 5)
    model = po.Model(po.nn.mlp((100,), outputs=10), po.likelihoods.Categorical())
    probs = np.asarray(po.fit(model, (flat, train[1]), method, key=1, progress=False).predict(flat_test).probs)
    order = np.random.default_rng(0).permutation(len(probs))
    lines = np.column_stack([order, probs[order]])
    header = ",".join(["index", *map(str, range(10))])
    np.savetxt(path, lines, "%d" + ",%.6f" * 10, header=header, comments="")
    return probs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/given_reference"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    use_shared_data()
    print("$ python benchmarks/given_reference.py\n")
    train, test = images("train"), images("test")
    if not (out / "stand-in.csv").exists():
        np.savez(out / "train.npz", x=train[0], y=train[1])
        np.savez(out / "test.npz", x=test[0], y=test[1])
        probs = write_stand_in(out / "stand-in.csv", train, test[0])
        np.save(out / "stand-in.npy", probs)
    probs = np.load(out / "stand-in.npy")
    right = (probs.argmax(1) == test[1]).mean()
    print(
        f"stand-in: five dense networks of 100 units, {right:.1%} of {len(probs):,} test images right; its file begins"
    )
    print("".join(f"    {line[:60]}...\n" for line in (out / "stand-in.csv").read_text().splitlines()[:3]))
    command = ["posteria", "compare", "train.npz", "--test", "test.npz", "--network", f"resnet20-frn:{WIDTH}"]
    command += ["--methods", ",".join(METHODS), "--reference", "stand-in.csv", "--no-baselines"]
    for name, settings in SETTINGS.items():
        command += [word for key, value in settings.items() for word in ("--set", f"{name}.{key}={value}")]
    print(f"$ {shlex.join(command)}\n", flush=True)
    code = "import sys; from posteria.cli import main; sys.argv[0] = 'posteria'; main()"
    done = subprocess.run([sys.executable, "-c", code, *command[1:]], cwd=out)
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
