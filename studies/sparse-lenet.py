"""Networks with one weight in a hundred: sparse variational dropout on LeNet-300-100 and LeNet-5, beside its table.

Molchanov, Ashukha and Vetrov 2017, table 1: MNIST, weights with log alpha > 3 removed, no training after that. Each
network is first trained plainly, then with the log-uniform prior from those weights. The error is of the means of the
weights that are left, as in the paper; beside it that of the model average over 100 draws.

    make study NAME=sparse-lenet               scikit-learn's digits, two minutes
    make study NAME=sparse-lenet SCALE=full    MNIST; interrupted, it goes on where it was (--out)
    python studies/sparse-lenet.py --scale full --network lenet-5
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _study import begin, error_of_means, two_rates
from _study import error as error_of_average

import posteria as po


class Published(NamedTuple):
    error: float  # % of the dense network
    sparse_error: float  # %
    sparsity: str  # % removed, layer by layer
    compression: float


class Settings(NamedTuple):
    plain_epochs: int
    epochs: int
    batch_size: int
    learning_rate: float
    phase_in: float
    noise_rate: float = 1.0  # times the learning rate: log variances that move more slowly leave fewer weights


PUBLISHED = {
    "lenet-300-100": Published(1.64, 1.92, "98.9 - 97.2 - 62.0", 68),
    "lenet-5": Published(0.80, 0.75, "67 - 98 - 99.8 - 95", 280),
}
TARGETS = {"lenet-300-100": (60, 2.0), "lenet-5": (200, 0.9)}  # at least so many times fewer, at most so much error
NETWORKS = {"lenet-300-100": po.nn.lenet_300_100, "lenet-5": po.nn.lenet5}
LAYERS = ("first", "second", "hidden", "last")  # of LeNet-5, from the image up
SETTINGS = {
    ("small", "lenet-300-100"): Settings(10, 60, 64, 3e-3, 0.5),
    ("small", "lenet-5"): Settings(5, 20, 64, 5e-3, 0.5),
    ("full", "lenet-300-100"): Settings(15, 200, 128, 1e-3, 0.2),
    ("full", "lenet-5"): Settings(20, 50, 128, 4e-3, 0.2, 0.25),
}
THRESHOLD = 3.0  # of log alpha, as published


def load(scale: str) -> tuple[tuple, tuple]:
    """Training and test rows: MNIST, or the bundled digits at twice their size."""
    if scale == "full":
        train, test = po.data.load("mnist", "train"), po.data.load("mnist", "test")
        return (train.x, train.y), (test.x, test.y)
    digits = po.data.load("digits")
    x = np.kron(digits.x.reshape(-1, 8, 8, 1) / digits.x.max(), np.ones((1, 2, 2, 1))).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1400], order[1400:]
    return (x[train], digits.y[train]), (x[test], digits.y[test])


def size(folder: Path) -> int:
    """Bytes of a saved posterior's arrays."""
    return sum(file.stat().st_size for file in (folder / "arrays").rglob("*") if file.is_file())


def slow_noise(settings: Settings, num_rows: int) -> Any:
    num_steps = settings.epochs * -(-num_rows // settings.batch_size)
    return two_rates(settings.learning_rate, num_steps, "log_variance", settings.noise_rate)


def run(name: str, arguments: argparse.Namespace) -> bool:
    scale, out, progress = arguments.scale, arguments.out, arguments.progress
    settings = SETTINGS[scale, name]
    train, test = load(scale)
    network = NETWORKS[name](outputs=10)
    plain_model = po.Model(network, po.likelihoods.Categorical())
    plain = po.fit(
        plain_model,
        train,
        po.MAP(num_epochs=settings.plain_epochs, batch_size=settings.batch_size, learning_rate=1e-3),
        key=arguments.seed,
        out=out / name / "plain",
        if_exists="resume",
        progress=progress,
    )
    method = po.SparseVariationalDropout(
        num_epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        phase_in=settings.phase_in,
        optimizer=None if settings.noise_rate == 1.0 else slow_noise(settings, len(train[1])),
    )
    sparse = po.fit(
        po.Model(network, po.likelihoods.Categorical(), po.priors.LogUniform()),
        train,
        method,
        start=plain,
        key=arguments.seed,
        out=out / name / "sparse",
        if_exists="resume",
        progress=progress,
    )
    pruned = sparse.prune(by="log_alpha", threshold=THRESHOLD)
    pruned.save(out / name / "pruned", if_exists="replace")

    if arguments.picture:
        draw(arguments.picture.with_stem(f"{arguments.picture.stem}-{name}"), sparse)

    wanted = PUBLISHED[name]
    shares = pruned.sparsity()
    order = [f"{layer}/kernel" for layer in LAYERS] if name == "lenet-5" else list(shares)
    sparsity = " - ".join(f"{100 * shares[path]:.1f}" for path in order)
    error = error_of_means(pruned, test)
    print(f"\n{name}: {settings}")
    print(f"{'':36}{'here':>22}{'published (MNIST)':>24}")
    rows = [
        ("plain network at its start, error %", f"{error_of_average(plain, test):.2f}", f"{wanted.error:.2f}"),
        ("before removal, error %", f"{error_of_means(sparse, test):.2f}", ""),
        ("after removal, error %", f"{error:.2f}", f"{wanted.sparse_error:.2f}"),
        ("  averaged over 100 draws", f"{error_of_average(pruned, test):.2f}", ""),
        ("removed, % layer by layer", sparsity, wanted.sparsity),
        ("times fewer weights", f"{pruned.compression:.0f}", f"{wanted.compression:.0f}"),
        ("times fewer bytes on disk", f"{size(out / name / 'sparse') / size(out / name / 'pruned'):.0f}", ""),
    ]
    for label, here, there in rows:
        print(f"{label:36}{here:>22}{there:>24}")
    if scale == "small":
        return True
    least, most = TARGETS[name]
    is_met = pruned.compression >= least and error <= most
    print(f"target: at least {least} times fewer at no more than {most} % error: {'met' if is_met else 'MISSED'}")
    return is_met


def draw(file: Path, sparse: po.Posterior) -> None:
    """What is left of each layer, and how it came to that."""
    from matplotlib import pyplot

    from posteria.plots import pruning

    last = sparse.removals[-1]
    figure, panels = pyplot.subplots(1, len(last) + 1, figsize=(3.2 * (len(last) + 1), 3.2), layout="constrained")
    for axes, (path, is_removed) in zip(panels, last.items()):
        pruning.sparsity_map(axes, is_removed, f"{path}, {1 - is_removed.mean():.1%} left")
    pruning.sparsity_over_training(panels[-1], sparse.removals)
    figure.savefig(file, dpi=120)


def main() -> None:
    arguments = begin(__doc__, picture=True, network=["both", *NETWORKS])
    names = list(NETWORKS) if arguments.network == "both" else [arguments.network]
    results = [run(name, arguments) for name in names]
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
