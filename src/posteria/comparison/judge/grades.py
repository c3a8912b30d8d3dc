"""Grades: one row's predictions on one split as numbers, and how far they are from the reference's."""

from dataclasses import replace
from typing import Any

import numpy as np

from posteria import metrics
from posteria.comparison.ask.question import Fold, Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge import pictures
from posteria.comparison.judge.columns import LEVELS
from posteria.comparison.judge.convergence import convergence_of
from posteria.comparison.run.records import Grades
from posteria.errors import SettingError
from posteria.metrics import quantile_levels

NUM_LEVELS = 100  # quantiles that stand for a predictive distribution
_BOUNDS = np.array([side for level in LEVELS for side in ((1 - level) / 2, (1 + level) / 2)])


def grade_row(problem: Problem, fold: Fold, entry: Entry, predictor: Any) -> Grades:
    """A posterior, a baseline or given predictions on one split, in the data's own units."""
    predictive = fold.predict(predictor, fold.x_test)
    if entry.arrays is not None:  # made elsewhere, of the test rows alone
        return replace(grade(predictive, fold.y_test, problem.kind), convergence={"converged": True})
    outside = {name: fold.predict(predictor, x) for name, x in fold.out.items()}
    found = grade(predictive, fold.y_test, problem.kind, fold.far, outside)
    found.scores.update(evidence(predictor))
    if entry.role == "reference":
        limit = ceiling(predictor, fold, problem.kind)
        found = replace(found, convergence=convergence_of(predictor, fold), ceiling=limit)
    if fold is not problem.folds[0]:
        return replace(found, picture={})
    picture = found.picture | pictures.of_posterior(predictor, fold, problem.curve)
    return replace(found, picture=picture | ({} if fold.test_rows is None else {"row": fold.test_rows}))


def grade(predictive: Any, y: np.ndarray, kind: str, far: dict | None = None, outside: dict | None = None) -> Grades:
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


def _grade_regression(predictive: Any, y: np.ndarray) -> Grades:
    y = np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y  # (n, target)
    table = np.asarray(predictive.quantile_table(np.concatenate([quantile_levels(NUM_LEVELS), _BOUNDS])), np.float64)
    quantiles, bounds = table[:NUM_LEVELS], table[NUM_LEVELS:]
    lower, upper = bounds[::2], bounds[1::2]
    mean = np.asarray(predictive.mean, np.float64)
    log_prob = np.asarray(predictive.log_prob(y), np.float64)
    scores = {
        "rmse": metrics.rmse(mean, y),
        "nll": metrics.negative_log_likelihood(log_prob),
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
    return Grades(scores, {"summary": quantiles, "row_scores": log_prob}, picture)


def _grade_classes(predictive: Any, y: np.ndarray) -> Grades:
    probs = np.asarray(predictive.probs, np.float64)
    log_prob = np.asarray(predictive.log_prob(y), np.float64)
    scores = {
        "accuracy": metrics.accuracy(probs, y),
        "nll": metrics.negative_log_likelihood(log_prob),
        "brier": metrics.brier(probs, y),
        "ece": metrics.ece(probs, y),
    }
    picture = {
        "y": np.asarray(y),
        "probs": probs,
        "entropy": np.asarray(predictive.entropy),
        "mutual_information": np.asarray(getattr(predictive, "mutual_information", np.zeros(len(probs)))),
    }
    return Grades(scores, {"summary": probs, "row_scores": log_prob}, picture)


def evidence(posterior: Any) -> dict[str, float]:
    """log p(training data | model), of a posterior that approximates it."""
    try:
        return {"log_evidence": float(posterior.log_evidence())} if hasattr(posterior, "log_evidence") else {}
    except SettingError:  # tempered, or a network it has none for
        return {}


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
