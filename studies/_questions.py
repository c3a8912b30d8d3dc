"""What the studies of the five questions share: problems, the HMC reference of each, rivals, tables.

Izmailov et al. 2021 asked them of CIFAR-10 with a ResNet-20 and of IMDB with a CNN-LSTM, on 512 TPU cores. Here the
same networks are narrow, images are small and rows few, so that two CPU cores bear HMC; what was cut is printed. Fits
stand in one folder, so that an HMC reference serves every question, and a study that was stopped goes on.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _study import begin

import posteria as po

FOLDER = "questions"
PROBLEMS = ("mnist", "imdb", "cifar")
LARGEST_RHAT = 1.05
NUM_VALIDATION = 500
NUM_CLASSES = 10  # of MNIST and CIFAR-10
IMDB_OTHER_WORD = 2
IMDB_VARIANCE, PAPER_UNITS = 1 / 40, 128


class Problem(NamedTuple):
    """`to_inputs` makes what the network takes of `test_images`, so that these can be corrupted in between."""

    name: str
    about: str
    network: po.Network
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    variance: float  # of the prior: the paper's, or that of functions as wide
    first_leaf: str | None = None  # the convolution that the images meet
    test_images: np.ndarray | None = None
    to_inputs: Callable[[np.ndarray], np.ndarray] | None = None
    widening: float = 1.0  # of the paper's variances, where sums are over fewer units than its own
    validation: tuple[np.ndarray, np.ndarray] | None = None  # rows after those of training, to choose settings by

    def model(self, prior: Any = None, likelihood: Any = None, temperature: float = 1.0) -> po.Model:
        """With the paper's prior, N(0, variance), if no other is given."""
        prior = prior or po.priors.Normal(self.variance**0.5)
        return po.Model(self.network, likelihood or po.likelihoods.Categorical(), prior, temperature=temperature)


class Scale(NamedTuple):
    num_train: int
    num_test: int
    units: int  # hidden units, embedding and cells, or channels
    pixels: int  # a side, of images
    hmc: po.HMC
    sweep: po.HMC | None = None  # of many priors, where HMC itself is too long for that
    classes: int = 10  # the first of them, and images of others left out


SCALES = {  # "mnist-28" has the border of the images, which is always dark
    ("mnist-28", "small"): Scale(500, 1000, 50, 28, po.HMC(num_chains=3, num_draws=50, num_warmup=30)),
    ("mnist-28", "full"): Scale(2000, 2000, 50, 28, po.HMC(num_chains=4, num_draws=200, num_warmup=100)),
    ("mnist", "small"): Scale(480, 1000, 32, 14, po.HMC(num_chains=3, num_draws=60, num_warmup=40)),
    ("mnist", "full"): Scale(2000, 2000, 50, 14, po.HMC(num_chains=4, num_draws=200, num_warmup=100)),
    ("imdb", "small"): Scale(
        480,
        1000,
        4,
        0,
        po.HMC(num_chains=3, num_draws=40, num_warmup=20, max_leapfrog=250),
        po.HMC(num_chains=2, num_draws=15, num_warmup=10, max_leapfrog=80),
    ),
    ("imdb", "full"): Scale(4800, 5000, 32, 0, po.HMC(num_chains=3, num_draws=100, num_warmup=50)),
    ("cifar", "small"): Scale(  # chosen by the cost of a gradient and a mode's accuracy on validation rows
        300,
        1000,
        4,
        8,
        po.HMC(num_chains=3, num_draws=40, num_warmup=20, max_leapfrog=150),
        po.HMC(num_chains=2, num_draws=15, num_warmup=10, max_leapfrog=75),
        classes=3,
    ),
    ("cifar", "full"): Scale(2000, 2000, 8, 16, po.HMC(num_chains=3, num_draws=100, num_warmup=50)),
}
IMDB_WORDS = {"small": 1000, "full": 5000}


def problem(name: str, scale: str) -> Problem:
    sizes = SCALES[name, scale]
    if name == "imdb":
        return _imdb(sizes, IMDB_WORDS[scale])
    data = "cifar10" if name == "cifar" else "mnist"
    parts = po.data.load(data, "train"), po.data.load(data, "test")
    kept = [np.flatnonzero(np.asarray(part.y) < sizes.classes) for part in parts]
    rows = kept[0][: sizes.num_train], kept[1][: sizes.num_test]
    images, test_images = (_smaller(part.x[chosen], sizes.pixels) for part, chosen in zip(parts, rows))
    y, y_test = (np.asarray(part.y[chosen]) for part, chosen in zip(parts, rows))
    if data == "mnist":
        std = images.std()  # not centred: what is dark stays 0

        def to_inputs(images: np.ndarray) -> np.ndarray:
            return (images / std).reshape(len(images), -1)

        hidden = (sizes.units,) * (2 if name == "mnist-28" else 1)
        network, leaf = po.nn.mlp(hidden, outputs=10), None
        layers = "one hidden layer" if len(hidden) == 1 else "two hidden layers"
        about = f"{sizes.pixels} x {sizes.pixels} pixels (MNIST: 28 x 28), {layers} of {sizes.units}"
    else:
        mean, std = images.mean((0, 1, 2)), images.std((0, 1, 2))

        def to_inputs(images: np.ndarray) -> np.ndarray:
            return (images - mean) / std

        network, leaf = po.nn.resnet20_frn(sizes.classes, sizes.units), "stem/convolution/kernel"
        about = f"{sizes.pixels} x {sizes.pixels} pixels (paper: 32), ResNet-20-FRN of width {sizes.units} (paper: 16)"
    of = f" of the first {sizes.classes} classes of {NUM_CLASSES}" if sizes.classes < NUM_CLASSES else ""
    about = f"{about}; {sizes.num_train:,} images{of}, {sizes.num_test:,} for the test"
    train, test = (to_inputs(images), y), (to_inputs(test_images), y_test)
    after = kept[0][sizes.num_train : sizes.num_train + NUM_VALIDATION]
    validation = to_inputs(_smaller(parts[0].x[after], sizes.pixels)), np.asarray(parts[0].y[after])
    own = {"first_leaf": leaf, "test_images": test_images, "to_inputs": to_inputs, "validation": validation}
    return Problem(name, about, network, train, test, 1 / 5, **own)


def _smaller(images: np.ndarray, side: int) -> np.ndarray:
    """Averaged over blocks of pixels, in [0, 1]."""
    images = np.asarray(images, np.float32)
    block = images.shape[1] // side
    return images.reshape(len(images), side, block, side, block, *images.shape[3:]).mean((2, 4))


def _imdb(sizes: Scale, num_words: int) -> Problem:
    """Words that are not among the most frequent are one word."""
    first, last = po.data.load("imdb", "train"), po.data.load("imdb", "test")
    after = slice(sizes.num_train, sizes.num_train + NUM_VALIDATION)
    train, test, validation = (
        (np.where(part.x[rows] < num_words, part.x[rows], IMDB_OTHER_WORD), np.asarray(part.y[rows]))
        for part, rows in ((first, slice(sizes.num_train)), (last, slice(sizes.num_test)), (first, after))
    )
    units = sizes.units
    network = po.nn.cnn_lstm(num_words, outputs=2, embedding=units, filters=units, cells=units)
    about = (
        f"{num_words:,} words (paper: 20,000), CNN-LSTM of {units} units (paper: 128, 64 and 128); {sizes.num_train:,}"
    )
    about = f"{about} reviews, {sizes.num_test:,} for the test"
    widening = PAPER_UNITS / units  # so that sums over units are as wide as the paper's
    variance = IMDB_VARIANCE * widening
    return Problem("imdb", about, network, train, test, variance, widening=widening, validation=validation)


# ---- fits


EPOCHS = {"small": 100, "full": 300}  # of modes and mean-field
MEMBERS = {"small": 5, "full": 10}
# of samplers: SGHMC's steps take some 10,000 to cross the prior in directions that rows say nothing of (virial of 0.98)
LONG = {"num_chains": 3, "num_draws": 40, "num_warmup": 16_000, "thinning": 800}
MIDDLE = {"num_chains": 2, "num_draws": 30, "num_warmup": 1500, "thinning": 100}
SAMPLERS = {("mnist", "small"): LONG, ("mnist-28", "small"): LONG}
SAMPLERS |= {("imdb", "small"): MIDDLE, ("cifar", "small"): MIDDLE}
BATCH = 80  # the paper's
OTHER_KEYS = 1000  # after those of seeds


def _point(scale: str) -> po.MAP:
    return po.MAP(num_epochs=EPOCHS[scale], batch_size=BATCH)


def methods(asked: Problem, scale: str) -> dict[str, Any]:
    """By name, the paper's first; settings are the paper's in what is not length: batches of 80, and mean-field from
    the mode by Adam at 1e-4 from a deviation of 0.01."""
    point = _point(scale)
    length = SAMPLERS.get((asked.name, scale), LONG | {"num_draws": 200, "thinning": 250})
    sampler: dict[str, Any] = {**length, "batch_size": BATCH, "start": point}
    sghmc = po.SGHMC(**sampler)
    return {
        "map": point,
        "ensemble": po.Ensemble(point, MEMBERS[scale]),
        "mean-field": po.MeanField(
            num_epochs=EPOCHS[scale],
            batch_size=BATCH,
            learning_rate=1e-4,
            start=point,
            initial_std=0.01 / asked.variance**0.5,
        ),
        "sgld": po.SGLD(**sampler),
        "sghmc": sghmc,
        "sghmc-clr": replace(sghmc, momentum=0.95, schedule="cyclical"),
        "sms-ubu": po.SMSUBU(**sampler),
        "multiswag": po.Ensemble(po.SWAG(map=point, batch_size=BATCH), MEMBERS[scale]),
    }


def fit(problem: Problem, name: str, method: Any, out: Path, key: int = 0, model: po.Model | None = None, **more: Any):
    """Kept in its own folder, and found there again.

    From some starts a narrow ResNet has no finite density after the first step: such a fit is of another key, and that
    is printed.
    """

    def under(key: int, folder: Path) -> po.Posterior:
        asked = model or problem.model()
        settings = {"key": key, "out": folder, "if_exists": "resume", "progress": False, **more}
        return po.fit(asked, problem.train, method, **settings)

    folder = out / problem.name / name
    again = folder.with_name(f"{folder.name}-again")
    if not again.exists():
        try:
            return under(key, folder)
        except po.errors.DensityError as error:
            print(f"{problem.name}, {name}: {str(error).partition(';')[0]}", flush=True)
    print(f"{problem.name}, {name}: key {key + OTHER_KEYS} in place of {key}", flush=True)
    return under(key + OTHER_KEYS, again)


def hmc(problem: Problem, scale: str, **changes: Any) -> po.HMC:
    return replace(SCALES[problem.name, scale].hmc, start=_point(scale), **changes)


def sweep(problem: Problem, scale: str) -> po.HMC | None:
    """A shorter HMC for fits under many priors; None where the reference's own serves."""
    shorter = SCALES[problem.name, scale].sweep
    return None if shorter is None else replace(shorter, start=_point(scale))


def reference(problem: Problem, scale: str, out: Path) -> po.Posterior:
    """HMC under the paper's prior; prints what the problem is, and how far its functions have converged."""
    method = hmc(problem, scale)
    posterior = fit(problem, "hmc", method, out)
    print(f"\n{problem.name}: {problem.about}")
    said = converged(posterior, problem)
    length = f"{method.num_chains} chains of {method.num_warmup} + {method.num_draws}"
    print(f"HMC: {length}, prior N(0, {problem.variance:g}); {said}", flush=True)
    return posterior


def converged(posterior: po.Posterior, problem: Problem) -> str:
    found = posterior.diagnose(problem.test[0])
    share = f"R-hat under {LARGEST_RHAT} for {found.share_converged:.0%} of test functions"
    info = posterior.stored.info
    text = f"{share}, acceptance {found.acceptance:.0%}"
    if capped := np.mean(info["num_capped"]):
        quarter = np.pi / 2 / np.mean(info["step_size"])  # of the prior's period, which a trajectory should last
        text += f", {capped:.0%} of trajectories cut at their longest ({quarter:,.0f} leapfrogs would be whole)"
    heights, size = np.asarray(info["log_density"]), max(1, info["log_density"].shape[1] // 4)
    text += f", mean log density {heights[:, :size].mean():,.0f} in the first quarter of draws and"
    gradients, seconds = posterior.facts["gradients"], posterior.facts["seconds"]
    text += f" {heights[:, -size:].mean():,.0f} in the last; {gradients:,} gradients in {seconds:,.0f} s"
    return text


# ---- words and tables


def answer(
    doc: str | None,
    ask: Callable[[Problem, Namespace], Any],
    draw: Callable[[Path, dict[str, Any]], None],
    problems: Sequence[str] = PROBLEMS,
    only: Mapping[str, Iterable[str]] | None = None,
    **options: Any,
) -> None:
    """The `main` of a question: asked of each problem, the first alone at small scale if none are named; a picture."""
    arguments = begin(doc, picture=True, folder=FOLDER, only={"problems": problems, **(only or {})}, **options)
    names = arguments.problems or (problems[:1] if arguments.scale == "small" else problems)
    found = {name: ask(problem(name, arguments.scale), arguments) for name in names}
    if arguments.picture is not None:
        draw(arguments.picture, found)


def table(name: str, caption: str, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Printed as Markdown under its name, by which docs/five-questions.md takes it."""
    print(f"\ntable {name}: {caption}")
    for cells in (columns, ["---"] * len(columns), *lines):
        print("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    print(flush=True)


def _cell(cell: object) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def axes(columns: int, rows: int = 1) -> tuple[Any, Any, Any]:
    """A figure, its panels and the styles of methods."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from posteria.plots import theme

    size = (4 * columns, 3.4 * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in grid.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, grid, theme


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    print(f"picture: {path.name}")
