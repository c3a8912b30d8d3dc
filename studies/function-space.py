"""Variational inference between functions, not weights: nearer to NUTS? And does it know what it has not seen?

Rudner et al. 2022. (1) The two regressions of the tour, beyond the data and between two clusters: Wasserstein-2
distance of the functions from those of NUTS, at the tour's points, of MeanField and of FunctionSpaceVI with the model's
own prior, same network and model. Wanted: FunctionSpaceVI nearer than MeanField on both. (2) Fashion-MNIST averaged
down to 14 x 14, one hidden layer of 50: trained on rows of one half of its test set, out-of-distribution AUROC (by the
entropy of the prediction) of rows of the other half against MNIST. Context points are the default's, or images of
KMNIST, which are neither; of these as many a step as tell other rows of the first half best from other images of
KMNIST. Wanted: at least an ensemble's of five.

    make study NAME=function-space               two seeds, 1,000 images: some minutes
    make study NAME=function-space SCALE=full    three seeds, 4,000 images; interrupted, it goes on where it was
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _study import begin, row

import posteria as po
from posteria.comparison.tour import tour

NUM_FUNCTIONS = 300
NUM_CONTEXT = (5, 10, 20, 50)  # images of KMNIST, a step


class Settings(NamedTuple):
    num_seeds: int
    num_epochs: int  # of the variational methods, on the tour's full batches
    num_train: int  # images
    num_test: int
    image_epochs: int
    nuts: po.NUTS


SETTINGS = {
    "small": Settings(2, 1500, 1000, 1000, 40, po.NUTS(num_draws=120, num_warmup=200)),
    "full": Settings(3, 3000, 4000, 4000, 60, po.NUTS(num_draws=300, num_warmup=400)),
}


def curves(settings: Settings, out: Path) -> None:
    """Part 1: mean distances from NUTS, over points and seeds."""
    print("Wasserstein-2 distance of functions from NUTS, mean over points (only those away from data)")
    problems = {problem.name: problem for problem, _ in tour(reference=settings.nuts).problems[:2]}
    widths = (15, 22, 22, 22)
    row(("", "mean-field", "function-space", "NUTS, other chains"), widths)
    verdicts = []
    for name, problem in problems.items():
        (fold,) = problem.folds
        common: dict[str, Any] = {"if_exists": "resume", "progress": False}
        truth = po.fit(problem.model, fold.train, settings.nuts, key=0, out=out / name / "nuts", **common)
        wanted = np.asarray(truth.functions(0, fold.x_test, NUM_FUNCTIONS))
        found: dict[str, list[np.ndarray]] = {"mean-field": [], "function-space": []}
        methods = {
            "mean-field": po.MeanField(num_epochs=settings.num_epochs),
            "function-space": po.FunctionSpaceVI(num_epochs=settings.num_epochs),
        }
        for method_name, method in methods.items():
            for seed in range(settings.num_seeds):
                folder = out / name / f"{method_name}-{seed}"
                posterior = po.fit(problem.model, fold.train, method, key=seed + 1, out=folder, **common)
                functions = np.asarray(posterior.functions(0, fold.x_test, NUM_FUNCTIONS))
                found[method_name].append(distances(functions, wanted, fold.far["outside"]))
        means = {method_name: np.mean(each, axis=0) for method_name, each in found.items()}
        cells = ["{:.3f} ({:.3f})".format(*each) for each in means.values()]
        row((name, *cells, f"{halves(truth, fold.x_test):.3f}"), widths)
        verdicts.append(f"{name}: {_met(means['function-space'][0] < means['mean-field'][0])}")
    print(f"function-space nearer to NUTS than mean-field: {'; '.join(verdicts)}\n", flush=True)


def distances(functions: np.ndarray, wanted: np.ndarray, is_far: np.ndarray) -> np.ndarray:
    """Mean over points, and over those away from data."""
    each = po.metrics.wasserstein_from_samples(functions, wanted, order=2).reshape(len(is_far), -1)
    return np.array([each.mean(), each[is_far].mean()])


def halves(truth: po.Posterior, x: np.ndarray) -> float:
    """The distance of one half of the chains from the other: what the reference itself is worth."""
    from posteria.posteriors.draws import Draws, DrawsPosterior

    stored = truth.stored
    parts = [DrawsPosterior(truth.target, Draws(stored.structs, stored.flat[part::2], {})) for part in (0, 1)]
    functions = [np.asarray(part.functions(0, x, NUM_FUNCTIONS)) for part in parts]
    return float(po.metrics.wasserstein_from_samples(*functions, order=2).mean())


def halved(images: np.ndarray) -> np.ndarray:
    """28 x 28 to 14 x 14 by averaging, as vectors of 196."""
    return np.asarray(images, np.float32).reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(len(images), -1)


def elsewhere(settings: Settings, out: Path) -> None:
    """Part 2: what is not Fashion-MNIST."""
    fashion, digits = po.data.load("fashion-mnist", "test"), po.data.load("mnist", "test")
    middle = len(fashion.y) // 2
    x, y = halved(fashion.x[: settings.num_train]), fashion.y[: settings.num_train]
    x_test, y_test = (
        halved(fashion.x[middle : middle + settings.num_test]),
        fashion.y[middle : middle + settings.num_test],
    )
    kmnist, rest = po.data.load("kmnist", "test"), slice(settings.num_train, settings.num_train + 1000)
    mean, std = x.mean(), x.std()
    x, x_test, x_out, other, x_held, x_other = (
        (part - mean) / std
        for part in (
            x,
            x_test,
            halved(digits.x[: settings.num_test]),
            halved(kmnist.x[:500]),
            halved(fashion.x[rest]),
            halved(kmnist.x[500:1500]),
        )
    )
    model = po.Model(po.nn.mlp((50,), outputs=10), po.likelihoods.Categorical())
    optimised: dict[str, Any] = {"num_epochs": settings.image_epochs, "batch_size": 100}
    methods = {
        "map": po.MAP(**optimised),
        "ensemble": po.Ensemble(po.MAP(**optimised), 5),
        "mean-field": po.MeanField(**optimised),
        "function-space": po.FunctionSpaceVI(**optimised),
    }
    with_kmnist = {
        f"function-space-kmnist-{count}": po.FunctionSpaceVI(context=other, num_context=count, **optimised)
        for count in NUM_CONTEXT
    }
    widths = (27, 18, 11, 11)

    def fits(name: str, method: po.Method) -> list[po.Posterior]:
        common: dict[str, Any] = {"if_exists": "resume", "progress": False}
        return [
            po.fit(model, (x, y), method, key=seed, out=out / "fashion" / f"{name}-{seed}", **common)
            for seed in range(settings.num_seeds)
        ]

    def auroc(posterior: po.Posterior, inside: np.ndarray, outside: np.ndarray) -> float:
        entropies = [np.asarray(posterior.predict(part, 50).entropy) for part in (inside, outside)]
        return float(po.metrics.auroc(*entropies))

    print(f"Fashion-MNIST: {len(y):,} images to train; 1,000 more against as many of KMNIST that are no context")
    row(("", "AUROC"), widths)
    held = {}
    for name, method in with_kmnist.items():
        held[name] = np.mean([auroc(posterior, x_held, x_other) for posterior in fits(name, method)])
        row((name, f"{held[name]:.4f}"), widths)
    best = max(held, key=lambda name: held[name])
    methods[best] = with_kmnist[best]
    print(f"\n{len(y_test):,} of the other half against as many of MNIST")
    row(("", "AUROC", "accuracy", "log-lik."), widths)
    scores = {}
    for name, method in methods.items():
        found = []
        for posterior in fits(name, method):
            inside = posterior.predict(x_test, 50)
            accuracy = float(po.metrics.accuracy(inside.probs, y_test))
            found.append((auroc(posterior, x_test, x_out), accuracy, float(np.mean(inside.log_prob(y_test)))))
        scores[name] = np.array(found)
        error = scores[name][:, 0].std(ddof=1) / len(found) ** 0.5
        mean_auroc, accuracy, log_likelihood = scores[name].mean(0)
        row((name, f"{mean_auroc:.4f} ± {error:.4f}", accuracy, log_likelihood), widths)
    for name in ("function-space", best):
        is_met = scores[name][:, 0].mean() >= scores["ensemble"][:, 0].mean()
        print(f"{name}: AUROC at least the ensemble's: {_met(is_met)}")


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def main() -> None:
    parts = {"curves": curves, "images": elsewhere}
    arguments = begin(__doc__, seed=False, only={"parts": parts})
    for name, part in parts.items():
        if name in (arguments.parts or parts):
            part(SETTINGS[arguments.scale], arguments.out)


if __name__ == "__main__":
    main()
