"""Test error against width: one network by SGD, SWAG around it, and MultiSWAG over several.

Wilson and Izmailov 2020, section 7 (there ResNet-18 on CIFAR-100): with noisy labels, the error of SGD rises again
where a network is just wide enough to fit them all; SWAG softens that, and MultiSWAG falls with every width. Here: one
hidden layer, a share of the training labels replaced by random ones, a prior so wide that it does not matter.

    make study NAME=double-descent               scikit-learn's digits, 300 rows; minutes
    make study NAME=double-descent SCALE=full    MNIST, 4,000 rows
"""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from _study import begin

import posteria as po

NOISE = 0.2  # share of training labels that are random
CLASSES = 10
PRIOR = po.priors.FanIn(30.0, bias_std=30.0)
COLUMNS = ("SGD", "ensemble", "SWAG", "MultiSWAG")


class Settings(NamedTuple):
    rows: int
    widths: tuple[int, ...]
    num_epochs: int
    batch_size: int
    members: int
    num_snapshots: int


SETTINGS = {
    "small": Settings(300, (2, 4, 8, 12, 16, 24, 32, 64, 128), 300, 50, 5, 40),
    "full": Settings(4000, (2, 4, 8, 16, 24, 32, 48, 64, 128, 256), 300, 100, 5, 40),
}


def load(scale: str, rows: int) -> tuple[tuple, tuple]:
    """Training rows with noisy labels, and clean test rows."""
    rng = np.random.default_rng(0)
    if scale == "full":
        train, test = po.data.load("mnist", "train"), po.data.load("mnist", "test")
        x, y, x_test, y_test = train.x[:rows], train.y[:rows], test.x, test.y
    else:
        digits = po.data.load("digits")
        order = rng.permutation(len(digits.x))
        x, y = digits.x[order[:rows]], digits.y[order[:rows]]
        x_test, y_test = digits.x[order[rows:]], digits.y[order[rows:]]
    is_noisy = rng.random(rows) < NOISE
    return (x, np.where(is_noisy, rng.integers(0, CLASSES, rows), y).astype(np.int32)), (x_test, y_test)


def scores(probs: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Error in %, and mean negative log likelihood in nats."""
    chosen = np.clip(probs[np.arange(len(y)), y], 1e-12, 1.0)
    return 100.0 * float(np.mean(probs.argmax(1) != y)), float(-np.log(chosen).mean())


def one_width(width: int, settings: Settings, train: tuple, test: tuple, seed: int) -> dict[str, tuple[float, float]]:
    """The mean over members for SGD and SWAG; the mixture of all members for the others."""
    model = po.Model(po.nn.mlp((width,), outputs=CLASSES), po.likelihoods.Categorical(), PRIOR)
    x, y = test
    training = po.MAP(settings.num_epochs, settings.batch_size)
    modes = po.fit(model, train, po.Ensemble(training, settings.members), key=seed, progress=False)
    probs = np.asarray(jax.nn.softmax(modes.functions(0, x, settings.members)))  # (member, n, class)
    swag = po.SWAG(None, settings.num_snapshots, batch_size=settings.batch_size)
    start = jax.tree.map(lambda leaf: leaf[:, 0], modes.params)
    multi = po.fit(model, train, po.Ensemble(swag, settings.members), key=seed + 1, start=start, progress=False)
    averages = [member.predict(x, 30).probs for member in multi.members]
    return {
        "SGD": tuple(np.mean([scores(each, y) for each in probs], axis=0)),
        "ensemble": scores(probs.mean(0), y),
        "SWAG": tuple(np.mean([scores(each, y) for each in averages], axis=0)),
        "MultiSWAG": scores(np.mean(averages, axis=0), y),
    }


def draw(path: Path, widths: list[int], table: list[dict]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from posteria.plots import theme

    figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for axes, which, label in zip(panels, (0, 1), ("test error (%)", "test NLL (nats)")):
        for column, style in zip(COLUMNS, theme.METHODS):
            values = [row[column][which] for row in table]
            axes.plot(widths, values, color=style.colour, marker=style.marker, ls=style.dash, ms=5, label=column)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("hidden units")
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].set_yscale("log")
    panels[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    arguments = begin(__doc__, picture=True)
    settings = SETTINGS[arguments.scale]
    train, test = load(arguments.scale, settings.rows)
    print(f"{settings.rows} rows, {NOISE:.0%} of labels random, {settings.members} members")
    print("test error in % / negative log likelihood in nats")
    print(f"{'width':>6s}", *(f"{column:>14s}" for column in COLUMNS), flush=True)
    table = []
    for width in settings.widths:
        table.append(one_width(width, settings, train, test, arguments.seed))
        cells = (f"{error:6.1f} / {nll:5.2f}" for error, nll in (table[-1][column] for column in COLUMNS))
        print(f"{width:6d}", *(f"{cell:>14s}" for cell in cells), flush=True)
    for column in COLUMNS:
        errors = np.array([row[column][0] for row in table])
        rise = max(0.0, float(np.max(errors - np.minimum.accumulate(errors))))
        print(f"{column}: its error rises by at most {rise:.1f} points above that of a narrower network")
    if arguments.picture is not None:
        draw(arguments.picture, list(settings.widths), table)


if __name__ == "__main__":
    main()
