"""Grades: one row's predictions on one split as numbers, and how far they are from the reference's."""

from typing import Any, NamedTuple

import numpy as np

from posteria import metrics
from posteria.comparison.ask.question import Fold
from posteria.comparison.tell.results import LEVELS, column
from posteria.errors import SettingError
from posteria.metrics import quantile_levels

NUM_LEVELS = 100  # quantiles that stand for a predictive distribution
_BOUNDS = np.array([side for level in LEVELS for side in ((1 - level) / 2, (1 + level) / 2)])


class Graded(NamedTuple):
    scores: dict[str, float]
    summary: np.ndarray  # quantiles (level, n, target), or probabilities (n, class): what distances need
    picture: dict[str, np.ndarray]


def grade_posterior(posterior: Any, fold: Fold, kind: str) -> Graded:
    """Quality on the held-out rows, in the data's own units."""
    predictive = fold.predict(posterior, fold.x_test)
    outside = {name: fold.predict(posterior, x) for name, x in fold.out.items()}
    return grade(predictive, fold.y_test, kind, fold.far, outside)


def grade(predictive: Any, y: np.ndarray, kind: str, far: dict | None = None, outside: dict | None = None) -> Graded:
    """The scores of a prediction. `far` are masks of test rows, `outside` predictions of other data: both foreign."""
    graded = _grade_classes(predictive, y) if kind == "classes" else _grade_regression(predictive, y)
    foreignness = _foreignness(predictive, kind)
    for name, mask in (far or {}).items():
        graded.scores[f"auroc_{name}"] = metrics.auroc(foreignness[~mask], foreignness[mask])
    for number, (name, other) in enumerate((outside or {}).items()):
        scores = _foreignness(other, kind)
        graded.scores[f"auroc_{name}"] = metrics.auroc(foreignness, scores)
        if number == 0 and kind == "classes":
            graded.picture.update(entropy_out=scores, out_of_distribution=np.array(name))
    return graded


def _foreignness(predictive: Any, kind: str) -> np.ndarray:
    """Larger: surer that this is like nothing seen. The entropy of the class, the std of the target."""
    return np.asarray(predictive.entropy if kind == "classes" else predictive.std.sum(-1), np.float64)


def _grade_regression(predictive: Any, y: np.ndarray) -> Graded:
    y = np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y  # (n, target)
    table = np.asarray(predictive.quantile_table(np.concatenate([quantile_levels(NUM_LEVELS), _BOUNDS])), np.float64)
    quantiles, bounds = table[:NUM_LEVELS], table[NUM_LEVELS:]
    lower, upper = bounds[::2], bounds[1::2]
    mean = np.asarray(predictive.mean, np.float64)
    scores = {
        "rmse": metrics.rmse(mean, y),
        "nll": metrics.negative_log_likelihood(predictive.log_prob(y)),
        "crps": metrics.crps_from_quantiles(quantiles, y),
    }
    for number, level in enumerate(LEVELS):
        percent = round(100 * level)
        scores[f"coverage_{percent}"] = metrics.coverage(lower[number], upper[number], y)
        scores[f"width_{percent}"] = metrics.width(lower[number], upper[number])
    picture = {
        "y": y[:, 0],
        "mean": mean[:, 0],
        "std": np.asarray(predictive.std)[:, 0],
        "epistemic": np.asarray(getattr(predictive, "epistemic", np.zeros_like(mean)))[:, 0],
        "pit": np.asarray(predictive.cdf(y))[:, 0],
        "lower": lower[..., 0],
        "upper": upper[..., 0],
    }
    return Graded(scores, quantiles, picture)


def _grade_classes(predictive: Any, y: np.ndarray) -> Graded:
    probs = np.asarray(predictive.probs, np.float64)
    scores = {
        "accuracy": metrics.accuracy(probs, y),
        "nll": metrics.negative_log_likelihood(predictive.log_prob(y)),
        "brier": metrics.brier(probs, y),
        "ece": metrics.ece(probs, y),
    }
    picture = {
        "y": np.asarray(y),
        "probs": probs,
        "entropy": np.asarray(predictive.entropy),
        "mutual_information": np.asarray(getattr(predictive, "mutual_information", np.zeros(len(probs)))),
    }
    return Graded(scores, probs, picture)


# ---- the truth


def distances(summary: np.ndarray, reference: np.ndarray, kind: str) -> dict[str, float]:
    """From the reference's predictive distribution, a mean over the test rows."""
    if kind == "classes":
        return {
            "agreement": metrics.agreement(summary, reference),
            "tv": metrics.total_variation(summary, reference),
        }
    return {"w1": float(metrics.wasserstein(summary, reference).mean())}


def ceiling(posterior: Any, fold: Fold, kind: str) -> dict[str, float]:
    """How well one chain of the reference agrees with its other chains, each left out in turn. Izmailov et al. 2021.

    No method can be told from the posterior more finely than that.
    """
    summaries = [_summary(fold.predict(chain, fold.x_test), kind) for chain in chains(posterior)]
    found = []
    for number, one in enumerate(summaries):
        others = [other for i, other in enumerate(summaries) if i != number]
        if kind == "classes":
            found.append(distances(one, np.mean(others, axis=0), kind))
        else:  # equally many equally likely values of each chain: together they are the mixture
            pooled = np.concatenate(others)
            found.append({"w1": float(metrics.wasserstein_from_samples(one, pooled).mean())})
    return {key: float(np.mean([each[key] for each in found])) for key in found[0]} if len(found) > 1 else {}


def chains(posterior: Any) -> list[Any]:
    """Each chain of stored draws as a posterior of its own; empty for any other posterior."""
    from posteria.posteriors.draws import Draws, DrawsPosterior

    if not isinstance(posterior, DrawsPosterior) or posterior.stored.flat.shape[1] < 2:
        return []
    stored = posterior.stored
    return [
        DrawsPosterior(posterior.target, Draws(stored.structs, stored.flat[i : i + 1], {}))
        for i in range(len(stored.flat))
    ]


def _summary(predictive: Any, kind: str) -> np.ndarray:
    if kind == "classes":
        return np.asarray(predictive.probs, np.float64)
    return np.asarray(predictive.quantile_table(quantile_levels(NUM_LEVELS)), np.float64)


# ---- columns

_FAR = "AUROC by {what}: can it tell {name} from data like the training rows? 0.5 is chance"


def evidence(posterior: Any) -> dict[str, float]:
    """log p(training data | model), of a posterior that approximates it."""
    try:
        return {"log_evidence": float(posterior.log_evidence())} if hasattr(posterior, "log_evidence") else {}
    except SettingError:  # tempered, or a network it has none for
        return {}


def columns(
    kind: str, foreign: list[str], has_reference: bool, unit: str = "", has_evidence: bool = False
) -> list[dict]:
    """What is in the table, in the order it is shown."""
    found = []
    if kind == "regression":
        found += [
            column("rmse", "RMSE", "quality", "root mean squared error of the predictive mean", unit=unit),
            column("nll", "NLL", "quality", "negative log predictive density, nats a row"),
            column("crps", "CRPS", "quality", "continuous ranked probability score", unit=unit),
        ]
        for level in LEVELS:
            percent = round(100 * level)
            about = f"share of rows inside the central {percent} % interval"
            found.append(
                column(
                    f"coverage_{percent}", f"in {percent} %", "quality", about, better="near", goal=level,
                    minor=level != 0.9,
                )
            )  # fmt: skip
            about = f"mean width of the {percent} % interval: at equal coverage, narrower is better"
            found.append(
                column(
                    f"width_{percent}",
                    f"width {percent} %",
                    "quality",
                    about,
                    unit=unit,
                    better="neither",
                    minor=level != 0.9,
                )
            )
    else:
        found += [
            column("accuracy", "accuracy", "quality", "share of rows whose likeliest class is right", better="higher"),
            column("nll", "NLL", "quality", "negative log predictive probability, nats a row"),
            column("brier", "Brier", "quality", "squared distance from the truth, summed over classes"),
            column("ece", "ECE", "quality", "expected calibration error, 15 bins"),
        ]
    what = "entropy" if kind == "classes" else "predictive std"
    for name in foreign:
        about = _FAR.format(what=what, name=name.replace("-", " "))
        found.append(column(f"auroc_{name}", f"OOD {name}", "quality", about, better="higher"))
    if has_reference and kind == "classes":
        about = "share of rows with the reference's likeliest class"
        found.append(column("agreement", "agreement", "truth", about, better="higher"))
        found.append(
            column("tv", "TV", "truth", "total variation distance to the reference's class probabilities", digits=4)
        )
    elif has_reference:
        about = "Wasserstein-1 distance to the reference's predictive distribution"
        found.append(column("w1", "W1", "truth", about, unit=unit))
    if has_evidence:
        about = "log p(training data | model) by the method's own approximation: larger for a better model, in nats"
        found.append(column("log_evidence", "log evidence", "quality", about, better="neither", digits=1, minor=True))
    return [*found, *COSTS]


COSTS = [
    column(
        "gradients", "gradients", "cost", "gradient evaluations, tuning included (of batches, if in batches)", digits=0
    ),
    column("seconds", "seconds", "cost", "wall-clock time of the fit, with tuning and compiling", unit="s", digits=1),
    column(
        "megabytes",
        "stored MB",
        "cost",
        "size of the stored posterior, not of memory in use",
        unit="MB",
        digits=2,
        minor=True,
    ),
    column("draws", "draws", "cost", "draws of the weights that are kept", digits=0),
    column("ms_row", "ms a row", "cost", "milliseconds to predict one row", unit="ms", digits=2),
]
