"""Images by the Gaussian process of an infinitely wide network, with the depths and variances of Lee et al. 2018.

Fully connected ReLU networks, classes as regression on centred labels; label scale and noise are those of largest
evidence (the paper adds 1e-10). The paper does not name its rows, nor says how images are scaled. Rows are the first of
a permutation (up to 1,000: of five permutations, and the table has the mean and the standard deviation). Of the
scalings in `SCALINGS` the one is taken that does best on 2,000 further training images, after a fit of 1,000 rows; the
test images are seen by that one alone. Of CIFAR-10 the rows are those of its first file where only that is at hand.

    make study NAME=nngp               1,000 of scikit-learn's digits: half a minute
    make study NAME=nngp SCALE=full    MNIST and CIFAR-10 at 1,000 and 10,000: some minutes, 3 GB
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from _study import begin, row

import posteria as po

# data, rows, depth, weight variance, bias variance, the paper's accuracy
PROBLEMS = {
    "small": [("digits", 1000, 20, 1.45, 0.28, "")],
    "full": [
        ("mnist", 1000, 20, 1.45, 0.28, "92.79"),
        ("mnist", 10_000, 7, 0.61, 0.07, "97.65"),
        ("cifar10", 1000, 7, 1.28, 0.0, "36.08"),
        ("cifar10", 10_000, 5, 2.97, 0.28, "47.80"),
    ],
}
CHOICE_ROWS, HELD_OUT = 1000, 2000
REPEATS = 5  # draws of rows, of at most this many:
REPEATED_ROWS = 1000
TEST_ROWS = 2000  # at once

Images = np.ndarray  # (n, pixel)
Scaling = Callable[[Images, Images], Images]  # (those of training, some) -> some


def each_image(train: Images, x: Images) -> Images:
    """Mean 0 and variance 1 of every image."""
    return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)


def mean_removed(train: Images, x: Images) -> Images:
    """The mean image taken away, one scale for all."""
    return (x - train.mean(0)) / train.std()


def as_they_are(train: Images, x: Images) -> Images:
    """From 0 to 1."""
    return x / train.max()


SCALINGS: dict[str, Scaling] = {"image": each_image, "mean": mean_removed, "none": as_they_are}


class Rows(NamedTuple):
    x: Images
    y: np.ndarray


def images(name: str) -> tuple[Rows, Rows]:
    """(train, test), flat."""
    if name == "digits":
        whole = po.data.load("digits")
        parts = [(whole.x[:1500], whole.y[:1500]), (whole.x[1500:], whole.y[1500:])]
    else:
        parts = [(part.x, part.y) for part in (po.data.load(name, "train"), po.data.load(name, "test"))]
    train, test = (Rows(x.reshape(len(x), -1).astype(np.float32), y) for x, y in parts)
    return train, test


def fitted(train: Rows, rows: np.ndarray, scaling: Scaling, depth: int, weight: float, bias: float, progress: bool):
    prior = po.priors.FanIn(scale=weight**0.5, bias_std=max(bias, 1e-12) ** 0.5)
    model = po.Model(po.nn.mlp((8,) * depth, outputs=10), po.likelihoods.Categorical(), prior)  # at any width
    data = scaling(train.x[rows], train.x[rows]), train.y[rows]
    return po.fit(model, data, po.InfiniteWidth(classes="regression"), progress=progress)


def accuracy(posterior: po.Posterior, x: Images, y: np.ndarray) -> float:
    blocks = [posterior.moments(x[i : i + TEST_ROWS])[0] for i in range(0, len(x), TEST_ROWS)]
    return 100 * float(np.mean(np.concatenate(blocks).argmax(1) == y))


def main() -> None:
    args = begin(__doc__, seed=False, only={"problem": [f"{p[0]}-{p[1]}" for p in PROBLEMS["full"]]})
    widths = (9, 7, 7, 10, 27, 8, 14, 10, 11)
    row(["data", "rows", "depth", "noise", "held out: " + "/".join(SCALINGS), "taken", "accuracy, %"], widths[:7])
    row(["", "", "", "", "", "", "", "Lee 2018", "log prob."], widths)
    for name, num, depth, weight, bias, published in PROBLEMS[args.scale]:
        if args.problem and f"{name}-{num}" not in args.problem:
            continue
        train, test = images(name)
        order = np.random.default_rng(0).permutation(len(train.y))
        held, rest = np.split(order, [min(HELD_OUT, len(order) // 4)])
        settings = depth, weight, bias, args.progress
        some = rest[: min(num, CHOICE_ROWS)]
        scores = {
            label: accuracy(
                fitted(train, some, scaling, *settings), scaling(train.x[some], train.x[held]), train.y[held]
            )
            for label, scaling in SCALINGS.items()
        }
        best = max(scores, key=lambda label: scores[label])
        scaling, found = SCALINGS[best], []
        for seed in range(REPEATS if num <= REPEATED_ROWS else 1):
            # where rows are few, those held out are used too, once the scaling is chosen
            rows = (np.random.default_rng(seed).permutation(rest) if seed else np.append(rest, held))[:num]
            posterior = fitted(train, rows, scaling, *settings)
            x = scaling(train.x[rows], test.x)
            found.append((accuracy(posterior, x, test.y), posterior.noise.std))
        log_prob = float(posterior.predict(x[:1000]).log_prob(test.y[:1000]).mean())
        values = np.array([value for value, _ in found])
        shown = f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
        on_held = " / ".join(f"{score:.1f}" for score in scores.values())
        row([name, num, depth, found[0][1], on_held, best, shown, published, f"{log_prob:.3f}"], widths)


if __name__ == "__main__":
    main()
