"""Whether a colder posterior predicts better: accuracy, log-likelihood and calibration over the temperature.

Wenzel et al. 2020 found that it does; Izmailov et al. 2021 that with HMC it does not, and that data augmentation is the
reason. HMC, SGHMC, and SGHMC with augmentation: images shifted by a pixel each way, their log-likelihoods averaged so
that N stays the number of images, as training with augmentation does. Under three priors, for the answer depends on it:
scaled by fan-in; Izmailov et al.'s N(0, 1/5), three times as wide; and twice fan-in, with which the command line fits
classes. Wanted: without augmentation, T = 1 within noise of the best, by log-likelihood and by accuracy: two standard
errors of the difference, from test points and, for the log-likelihood, from chains.

    make study NAME=cold-posteriors               200 digits, one prior: minutes
    make study NAME=cold-posteriors SCALE=full    1,000 digits; interrupted, it goes on where it was
"""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from _scores import NUM_ERRORS, Score, difference, points_lost, score
from _study import begin

import posteria as po

SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
PRIORS = {"fan-in": po.priors.FanIn(), "N(0, 1/5)": po.priors.Normal(0.2**0.5), "2 x fan-in": po.priors.FanIn(2.0)}


@dataclass(frozen=True)
class Averaged(po.likelihoods.Categorical):
    """The likelihood of an image whose copies stand in the data: each counts as one part in `copies`."""

    copies: int = len(SHIFTS)

    def log_prob(self, own: Any, outputs: jax.Array, y: jax.Array) -> jax.Array:
        return super().log_prob(own, outputs, y) / self.copies


class Settings(NamedTuple):
    num_train: int
    temperatures: tuple[float, ...]
    priors: tuple[str, ...]
    hmc: po.HMC
    sghmc: po.SGHMC


SETTINGS = {
    "small": Settings(
        200,
        (0.03, 0.3, 1.0, 3.0),
        ("fan-in",),
        po.HMC(num_draws=40, num_warmup=40, max_leapfrog=100),
        po.SGHMC(num_draws=40, num_warmup=1000, thinning=50),
    ),
    "full": Settings(
        1000,
        (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        tuple(PRIORS),
        po.HMC(num_draws=60, num_warmup=40),
        po.SGHMC(num_draws=60, num_warmup=2000, thinning=50),
    ),
}


def load(num_train: int) -> tuple[tuple, tuple]:
    """Training and test images (n, 8, 8), all pixels by one mean and deviation, with their labels."""
    digits = po.data.load("digits")
    order = np.random.default_rng(0).permutation(len(digits.x))
    images = digits.x[order].astype(np.float32).reshape(-1, 8, 8)
    images = (images - images[:num_train].mean()) / images[:num_train].std()
    labels = digits.y[order]
    return (images[:num_train], labels[:num_train]), (images[num_train:], labels[num_train:])


def flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1)


def shifted(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every image, and its copies one pixel off in each direction; what comes in is blank."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), constant_values=images.min())
    side = images.shape[1]
    copies = [padded[:, 1 + down : 1 + down + side, 1 + right : 1 + right + side] for down, right in SHIFTS]
    return flat(np.concatenate(copies)), np.tile(labels, len(SHIFTS))


def run(settings: Settings, prior: str, arguments: Namespace) -> dict[str, list[Score]]:
    (images, labels), (test_images, y) = load(settings.num_train)
    plain, augmented = (flat(images), labels), shifted(images, labels)
    network = po.nn.mlp((50,), outputs=10)
    cases = {
        "hmc": (settings.hmc, po.likelihoods.Categorical(), plain),
        "sghmc": (settings.sghmc, po.likelihoods.Categorical(), plain),
        "sghmc, augmented": (settings.sghmc, Averaged(), augmented),
    }
    scores: dict[str, list[Score]] = {}
    for name, (method, likelihood, data) in cases.items():
        scores[name] = []
        for temperature in settings.temperatures:
            model = po.Model(network, likelihood, PRIORS[prior], temperature=temperature)
            folder = arguments.out / str(list(PRIORS).index(prior)) / f"{name.replace(', ', '-')}-{temperature}"
            posterior = po.fit(model, data, method, key=arguments.seed, out=folder, if_exists="resume", progress=False)
            scores[name].append(score(posterior, flat(test_images), y))
    return scores


def report(prior: str, scores: dict[str, list[Score]], temperatures: tuple[float, ...]) -> None:
    print(f"\nprior {prior}")
    print(f"{'':18s} {'T':>5s} {'accuracy':>9s} {'log-lik.':>9s} {'ECE':>7s}   behind the best")
    for name, rows in scores.items():
        best = max(rows, key=lambda row: row.log_likelihoods.mean())
        for temperature, row in zip(temperatures, rows):
            behind, error = difference(best, row)
            line = f"{name:18s} {temperature:5.2f} {row.is_right.mean():9.1%} {row.log_likelihoods.mean():9.3f}"
            print(f"{line} {row.ece:7.3f}   {behind:.3f} ± {error:.3f} nats", flush=True)
        if "augmented" not in name:
            row = rows[temperatures.index(1.0)]
            for measure, (behind, error) in {
                "log-likelihood, nats": difference(best, row),
                "accuracy, points": points_lost(rows, row),
            }.items():
                is_met = "met" if behind <= NUM_ERRORS * error else "MISSED"
                print(f"{name}, T = 1 behind the best by {measure}: {behind:.3f} ± {error:.3f}, within noise: {is_met}")


def draw(path: Path, found: dict[str, dict[str, list[Score]]], temperatures: tuple[float, ...]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from posteria.plots import theme

    panels = {
        "accuracy": lambda row: row.is_right.mean(),
        "log-likelihood": lambda row: row.log_likelihoods.mean(),
        "ECE": lambda row: row.ece,
    }
    figure, grid = plt.subplots(len(found), 3, figsize=(12, 3.6 * len(found)), layout="constrained", squeeze=False)
    for axes, (prior, scores) in zip(grid, found.items()):
        for axis, (title, value) in zip(axes, panels.items()):
            for (name, rows), style in zip(scores.items(), theme.METHODS):
                values = [value(row) for row in rows]
                axis.semilogx(temperatures, values, color=style.colour, marker=style.marker, ls=style.dash, label=name)
            axis.axvline(1.0, color=theme.RULE, zorder=0)
            axis.set_title(f"{title}, prior {prior}")
            axis.set_xlabel("temperature")
            axis.spines[["top", "right"]].set_visible(False)
    grid[0, 0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    print(f"picture: {path.name}")


def main() -> None:
    arguments = begin(__doc__, picture=True, only={"priors": PRIORS})
    settings = SETTINGS[arguments.scale]
    found = {}
    for prior in arguments.priors or settings.priors:
        found[prior] = run(settings, prior, arguments)
        report(prior, found[prior], settings.temperatures)
    if arguments.picture is not None:
        draw(arguments.picture, found, settings.temperatures)


if __name__ == "__main__":
    main()
