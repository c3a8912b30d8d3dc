"""Whether a colder posterior predicts better: accuracy, log-likelihood and calibration over the temperature.

Wenzel et al. 2020 found that it does; Izmailov et al. 2021 that with HMC it does not, and that data augmentation is the
reason. HMC, SGHMC, and SGHMC with augmentation: images shifted by a pixel each way, their log-likelihoods averaged so
that N stays the number of images, as training with augmentation does. Wanted: without augmentation, the
log-likelihood at T = 1 within noise of the best.

    make study NAME=cold-posteriors               200 digits: a few minutes
    make study NAME=cold-posteriors SCALE=full    2,000 MNIST images at 14 x 14; interrupted, it goes on where it was
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import posteria as po

SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
NUM_ERRORS = 2  # standard errors over test points that count as noise


@dataclass(frozen=True)
class Averaged(po.likelihoods.Categorical):
    """The likelihood of an image whose copies stand in the data: each counts as one part in `copies`."""

    copies: int = len(SHIFTS)

    def log_prob(self, own: Any, outputs: jax.Array, y: jax.Array) -> jax.Array:
        return super().log_prob(own, outputs, y) / self.copies


class Settings(NamedTuple):
    num_train: int
    num_test: int
    temperatures: tuple[float, ...]
    hmc: po.HMC
    sghmc: po.SGHMC


SETTINGS = {
    "small": Settings(
        200,
        1000,
        (0.03, 0.3, 1.0, 3.0),
        po.HMC(num_chains=2, num_draws=60, num_warmup=40, max_leapfrog=100),
        po.SGHMC(num_chains=2, num_draws=60, num_warmup=2000, thinning=100),
    ),
    "full": Settings(
        2000,
        10_000,
        (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        po.HMC(num_chains=4, num_draws=300, num_warmup=150),
        po.SGHMC(num_draws=300, num_warmup=10_000, thinning=500),
    ),
}


def load(scale: str, settings: Settings) -> tuple[tuple, tuple]:
    """Training and test images (n, side, side) in [0, 1], with their labels."""
    if scale == "small":
        digits = po.data.load("digits")
        order = np.random.default_rng(0).permutation(len(digits.x))
        images = (digits.x / digits.x.max()).astype(np.float32).reshape(-1, 8, 8)
        parts = order[: settings.num_train], order[settings.num_train :][: settings.num_test]
        return tuple((images[rows], digits.y[rows]) for rows in parts)
    sets = ((po.data.load("mnist", part), count) for part, count in zip(("train", "test"), settings[:2]))
    return tuple((halved(each.x[:count]), each.y[:count]) for each, count in sets)


def halved(images: np.ndarray) -> np.ndarray:
    images = np.asarray(images, np.float32).reshape(-1, 14, 2, 14, 2).mean((2, 4))
    return images / images.max()


def flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1)


def shifted(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every image, and its copies one pixel off in each direction; what leaves comes back as blank."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    side = images.shape[1]
    copies = [padded[:, 1 + down : 1 + down + side, 1 + right : 1 + right + side] for down, right in SHIFTS]
    return flat(np.concatenate(copies)), np.tile(labels, len(SHIFTS))


def score(posterior: po.Posterior, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    probs = np.asarray(posterior.predict(x).probs)
    log_likelihoods = np.log(probs[np.arange(len(y)), y])
    return {
        "accuracy": float(po.metrics.accuracy(probs, y)),
        "log_likelihoods": log_likelihoods,
        "ece": float(po.metrics.ece(probs, y)),
    }


def run(scale: str, settings: Settings, out: Path) -> dict[str, list[dict]]:
    (images, labels), (test_images, y) = load(scale, settings)
    plain, augmented = (flat(images), labels), shifted(images, labels)
    network = po.nn.mlp((50,), outputs=10)
    cases = {
        "hmc": (settings.hmc, po.likelihoods.Categorical(), plain),
        "sghmc": (settings.sghmc, po.likelihoods.Categorical(), plain),
        "sghmc, augmented": (settings.sghmc, Averaged(), augmented),
    }
    scores: dict[str, list[dict]] = {}
    for name, (method, likelihood, data) in cases.items():
        scores[name] = []
        for temperature in settings.temperatures:
            model = po.Model(network, likelihood, temperature=temperature)
            folder = out / f"{name.replace(', ', '-')}-{temperature}"
            posterior = po.fit(model, data, method, out=folder, if_exists="resume")
            scores[name].append(score(posterior, flat(test_images), y))
    return scores


def report(scores: dict[str, list[dict]], temperatures: tuple[float, ...]) -> None:
    print(f"{'':18s} {'T':>5s} {'accuracy':>9s} {'log-lik.':>9s} {'ECE':>7s}   behind the best, in standard errors")
    for name, rows in scores.items():
        best = max(rows, key=lambda row: row["log_likelihoods"].mean())
        for temperature, row in zip(temperatures, rows):
            behind = best["log_likelihoods"] - row["log_likelihoods"]
            errors = behind.mean() / max(behind.std() / np.sqrt(len(behind)), 1e-12)
            line = f"{name:18s} {temperature:5.2f} {row['accuracy']:9.1%} {row['log_likelihoods'].mean():9.3f}"
            print(f"{line} {row['ece']:7.3f}   {behind.mean():.3f} nats, {errors:.1f}")
            if temperature == 1.0 and "augmented" not in name:
                is_met = "met" if errors <= NUM_ERRORS else "MISSED"
                print(f"{name}: T = 1 within {NUM_ERRORS} standard errors of the best: {is_met}")


def draw(path: Path, scores: dict[str, list[dict]], temperatures: tuple[float, ...]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from posteria.plots import theme

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    panels = {"accuracy": lambda row: row["accuracy"], "log-likelihood": lambda row: row["log_likelihoods"].mean()}
    for axis, (title, value) in zip(axes, (panels | {"ECE": lambda row: row["ece"]}).items()):
        for (name, rows), style in zip(scores.items(), theme.METHODS):
            values = [value(row) for row in rows]
            axis.semilogx(temperatures, values, color=style.colour, marker=style.marker, ls=style.dash, label=name)
        axis.axvline(1.0, color=theme.RULE, zorder=0)
        axis.set_title(title)
        axis.set_xlabel("temperature")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    print(f"picture: {path.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SETTINGS, default="small")
    parser.add_argument("--out", type=Path, help="where fits are kept; default: runs/cold-posteriors-SCALE")
    parser.add_argument("--picture", type=Path, help="where to write the picture (PNG)")
    arguments = parser.parse_args()
    po.use_cores()
    settings = SETTINGS[arguments.scale]
    out = arguments.out or Path("runs") / f"cold-posteriors-{arguments.scale}"
    scores = run(arguments.scale, settings, out)
    report(scores, settings.temperatures)
    if arguments.picture is not None:
        draw(arguments.picture, scores, settings.temperatures)


if __name__ == "__main__":
    main()
