"""Question 1: do Bayesian neural networks do well? HMC beside the mode, an ensemble and what is cheaper than HMC.

Izmailov et al. 2021: at T = 1, without augmentation, the HMC average is better than deep ensembles, in accuracy and
log-likelihood, and has a larger calibration error than they (it is under-confident). Also how many chains and draws
that takes, as the paper studies it. The networks are the paper's and MNIST's, much smaller: what was cut is printed.

    make study NAME=q1-do-they-do-well                MNIST at 14 x 14: minutes
    make study NAME=q1-do-they-do-well SCALE=full     MNIST, IMDB, CIFAR-10: hours; interrupted, it goes on
"""

from argparse import Namespace
from pathlib import Path

import numpy as np
from _questions import Problem, answer, axes, fit, methods, percent, reference, save, table
from _scores import LEAST, NUM_ERRORS, by_chain

import posteria as po

WANTED = ("map", "ensemble", "mean-field", "sgld", "sghmc")
# accuracy, log-likelihood, ECE; read off the paper's figures by eye
PUBLISHED = {
    "cifar": {
        "hmc": (0.907, -0.307, 0.059),
        "map": (0.835, -0.80, 0.12),
        "ensemble": (0.89, -0.34, 0.03),
        "sgld": (0.893, -0.33, 0.03),
        "mean-field": (0.866, -0.41, 0.02),
    },
    "imdb": {
        "hmc": (0.868, -0.308, 0.032),
        "map": (0.829, -0.76, 0.135),
        "ensemble": (0.859, -0.36, 0.043),
        "sgld": (0.861, -0.32, 0.007),
        "mean-field": (0.855, -0.34, 0.037),
    },
}


def quality(probs: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    log_likelihood = np.log(np.maximum(probs[np.arange(len(y)), y], LEAST)).mean()
    return float(po.metrics.accuracy(probs, y)), float(log_likelihood), float(po.metrics.ece(probs, y))


def differences(first: np.ndarray, second: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Of accuracy and log-likelihood, a test row: (n,)."""
    rows = np.arange(len(y))
    right = [(probs.argmax(1) == y).astype(float) for probs in (first, second)]
    nats = [np.log(np.maximum(probs[rows, y], LEAST)) for probs in (first, second)]
    return {"accuracy": right[0] - right[1], "log-likelihood": nats[0] - nats[1]}


def ask(asked: Problem, arguments: Namespace) -> dict[str, tuple[float, float, float]]:
    posterior = reference(asked, arguments.scale, arguments.out)
    x, y = asked.test
    chains = by_chain(posterior, x)
    probs = {"hmc": chains.mean(0)}
    for name in WANTED:
        method = methods(asked, arguments.scale)[name]
        fitted = fit(asked, f"{name}-{arguments.seed}", method, arguments.out, key=arguments.seed + 1)
        probs[name] = np.asarray(fitted.predict(x).probs)
    found = {name: quality(each, y) for name, each in probs.items()}
    paper = PUBLISHED.get(asked.name, {})
    lines = []
    for name, (accuracy, log_likelihood, ece) in found.items():
        published = f"{percent(paper[name][0])}, {paper[name][1]}, {paper[name][2]}" if name in paper else ""
        lines.append([name, percent(accuracy), log_likelihood, ece, published])
    table(
        f"q1-{asked.name}",
        f"{asked.about}; paper: accuracy, log-likelihood and ECE read off its figures",
        ["method", "accuracy", "log-likelihood", "ECE", "paper"],
        lines,
    )
    for name in ("map", "ensemble"):
        for measure, ahead in differences(probs["hmc"], probs[name], y).items():
            by, error = ahead.mean(), ahead.std() / len(ahead) ** 0.5
            verdict = "within noise" if abs(by) < NUM_ERRORS * error else "met" if by > 0 else "MISSED"
            print(f"{asked.name}: HMC above {name} in {measure}, by {by:.3f} ± {error:.3f} a test row: {verdict}")
    num_chains, num_draws = posterior.stored.flat.shape[:2]
    lengths = sorted({1, max(1, num_draws // 10), max(1, num_draws // 3), num_draws})
    rows = [(1, length, quality(by_chain(posterior, x, length)[0], y)) for length in lengths]
    rows += [(number, num_draws, quality(chains[:number].mean(0), y)) for number in range(2, num_chains + 1)]
    table(
        f"q1-{asked.name}-length",
        "chains and draws of HMC",
        ["chains", "draws a chain", "accuracy", "log-likelihood", "ECE"],
        [[number, length, percent(scores[0]), *scores[1:]] for number, length, scores in rows],
    )
    return found


def draw(path: Path, found: dict[str, dict[str, tuple[float, float, float]]]) -> None:
    figure, grid, theme = axes(3, len(found))
    for row, (name, scores) in zip(grid, found.items()):
        for index, (axis, title) in enumerate(zip(row, ("accuracy", "log-likelihood", "ECE"))):
            values = [each[index] for each in scores.values()]
            for place, (value, style) in enumerate(zip(values, theme.METHODS)):
                axis.plot(value, place, color=style.colour, marker=style.marker, ms=8)
            axis.set_yticks(range(len(scores)), list(scores))
            axis.invert_yaxis()
            axis.set_title(f"{title}, {name}")
            axis.grid(axis="y", color=theme.RULE, lw=0.5)
    save(figure, path)


def main() -> None:
    answer(__doc__, ask, draw)


if __name__ == "__main__":
    main()
