"""One row on one split: its predictions as numbers, how far they are from the reference's, whether a reference's chains
have converged, and the arrays behind pictures that only a posterior can give."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from scipy.special import logsumexp

from posteria import diagnostics, metrics
from posteria.comparison.ask import Curve, Fold, Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge.drivers import centre, drivers, spread, worth_a_look
from posteria.comparison.judge.robustness import under_shift
from posteria.comparison.run.records import Grades
from posteria.comparison.run.runner import learning_curves
from posteria.data.arrays import num_rows, rows
from posteria.errors import SettingError
from posteria.metrics import quantile_levels
from posteria.posteriors.base import Calibrated, Posterior
from posteria.posteriors.diagnosis import RHAT_LIMIT
from posteria.tree import Json

LEVELS = (0.5, 0.8, 0.9, 0.95)  # of the intervals that are graded
HEADLINE = 0.9  # of them, the one that a recommendation rests on
NUM_LEVELS = 100  # quantiles that stand for a predictive distribution
_BOUNDS = np.array([side for level in LEVELS for side in ((1 - level) / 2, (1 + level) / 2)])
FEW_ROWS = 256  # test rows from which convergence is read
TOGETHER = 10  # neighbouring rows, whose joint density is scored
MOST_WEIGHTS = 2000  # whose R-hat is taken
CURVE_DRAWS = 20
CURVE_LEVEL = 0.9
KEY = 0


def grade_row(problem: Problem, fold: Fold, entry: Entry, predictor: Any) -> Grades:
    """A posterior, a baseline or given predictions on one split, in the data's own units."""
    predictive = fold.predict(predictor, fold.x_test)
    if entry.arrays is not None:  # made elsewhere, of the test rows alone
        return replace(grade(predictive, fold.y_test, problem.kind), convergence={"converged": True})
    outside = {name: fold.predict(predictor, x) for name, x in fold.out.items()}
    found = grade(predictive, fold.y_test, problem.kind, fold.far, outside)
    found.scores.update(evidence(predictor))
    log_probs = log_probs_by_draw(predictor, fold) if hasattr(predictor, "draws") else None
    found.scores.update(joint_loss(found.arrays["row_scores"][None] if log_probs is None else log_probs, fold))
    if entry.role == "reference":
        limit = ceiling(predictor, fold, problem.kind)
        found = replace(found, convergence=convergence_of(predictor, fold), ceiling=limit)
    if problem.shift is not None and entry.arrays is None:  # what was made elsewhere is of rows as they came alone
        shift, by_row = under_shift(problem, fold, predictor)
        found = replace(found, shift=shift, arrays=found.arrays | by_row)
    if fold is not problem.folds[0]:
        return replace(found, picture={})
    picture = (
        found.picture | picture_of(predictor, fold, problem.curve, log_probs) | drivers(predictor, fold, problem.kind)
    )
    picture |= worth_a_look(fold, problem.kind, picture)
    return replace(found, picture=picture | ({} if fold.test_rows is None else {"row": fold.test_rows}))


def grade(predictive: Any, y: np.ndarray, kind: str, far: Json | None = None, outside: Json | None = None) -> Grades:
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
    return np.asarray(predictive.entropy if kind == "classes" else spread(predictive).sum(-1), np.float64)


def _grade_regression(predictive: Any, y: np.ndarray) -> Grades:
    y = np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y  # (n, target)
    table = np.asarray(predictive.quantile_table(np.concatenate([quantile_levels(NUM_LEVELS), _BOUNDS])), np.float64)
    quantiles, bounds = table[:NUM_LEVELS], table[NUM_LEVELS:]
    lower, upper = bounds[::2], bounds[1::2]
    mean = centre(predictive)
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
        "std": spread(predictive)[:, 0],
        "epistemic": np.nan_to_num(np.asarray(getattr(predictive, "epistemic", np.zeros_like(mean)))[:, 0]),
        "pit": np.asarray(predictive.cdf(y))[:, 0],
        "lower": lower[..., 0],
        "upper": upper[..., 0],
    }
    headline = LEVELS.index(HEADLINE)
    squares = ((mean - y) ** 2).mean(-1)
    rmse = max(scores["rmse"], np.finfo(float).tiny)
    arrays = {
        "summary": quantiles,
        "row_scores": log_prob,
        "row_rmse": scores["rmse"] + (squares - squares.mean()) / (2 * rmse),  # how each row moves it, to first order
        "row_crps": metrics.quantile_losses(quantiles, y).mean(-1),
        "row_held": ((lower[headline] <= y) & (y <= upper[headline])).mean(-1),
    }
    return Grades(scores, arrays, picture)


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
    is_right = (probs.argmax(1) == np.asarray(y)).astype(np.float64)
    squares = ((probs - np.eye(probs.shape[1])[np.asarray(y)]) ** 2).sum(1)
    arrays = {"summary": probs, "row_scores": log_prob, "row_accuracy": is_right, "row_brier": squares}
    return Grades(scores, arrays, picture)


def evidence(posterior: Any) -> dict[str, float]:
    """log p(training data | model), of a posterior that approximates it."""
    try:
        return {"log_evidence": float(posterior.log_evidence())} if hasattr(posterior, "log_evidence") else {}
    except SettingError:  # tempered, or a network it has none for
        return {}


# ---- several rows together


def log_probs_by_draw(posterior: Any, fold: Fold) -> np.ndarray:
    """log p(y | x, draw) of the first test rows, in the data's own units, in any order of the draws: (draw, row)."""
    total = posterior.num_draws
    few = np.arange(min(FEW_ROWS, num_rows(fold.x_test)))
    y = fold.y_test[few]
    if fold.scale is not None:
        y = fold.scale.apply(np.asarray(y, np.float64)).astype(np.float32)
    outputs, own = posterior.draws(jax.random.key(KEY), rows(fold.x_test, few), total)
    likelihood: Any = posterior.model.likelihood
    y = likelihood.check(y, outputs.shape[-1])
    log_probs = np.asarray(jax.vmap(lambda own, outputs: likelihood.log_prob(own, outputs, y))(own, outputs))
    shuffled = np.random.default_rng(KEY).permutation(total)
    jacobian: Any = 0.0 if fold.scale is None else float(np.log(fold.scale.std).sum())
    if fold.scale is not None and fold.scale.is_log:  # of each row
        jacobian = jacobian + np.log(np.asarray(fold.y_test[few], np.float64)).reshape(len(few), -1).sum(1)
    return np.asarray(log_probs[shuffled], np.float64) - jacobian


def joint_loss(log_probs: np.ndarray, fold: Fold) -> dict[str, float]:
    """Of neighbours among the first test rows, together; none where inputs are no plain numbers."""
    x = fold.x_test
    if not hasattr(x, "ndim") or np.isnan(log_probs).any():
        return {}
    count = min(FEW_ROWS, len(x))
    groups = metrics.neighbours(np.asarray(x[:count]), min(TOGETHER, count))
    return {"joint": metrics.joint_log_loss(log_probs, groups)}


# ---- the truth


def distances(summary: np.ndarray, reference: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """From the reference's predictive distribution, (n,): one a test row."""
    if kind == "classes":
        return {
            "agreement": (summary.argmax(1) == reference.argmax(1)).astype(np.float64),
            "tv": np.abs(summary - reference).sum(1) / 2,
        }
    return {"w1": metrics.wasserstein(summary, reference).mean(-1)}


def ceiling(posterior: Any, fold: Fold, kind: str) -> dict[str, float]:
    """How well one chain of the reference agrees with its other chains, each left out in turn. Izmailov et al. 2021.

    No method can be told from the posterior more finely than that.
    """
    summaries = [_summary(fold.predict(chain, fold.x_test), kind) for chain in chains(posterior)]
    found = []
    for number, one in enumerate(summaries):
        others = [other for i, other in enumerate(summaries) if i != number]
        if kind == "classes":
            mean_of_others = np.mean(others, axis=0)
            found.append({key: float(each.mean()) for key, each in distances(one, mean_of_others, kind).items()})
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


# ---- convergence: only then a reference stands for the truth


def convergence_of(posterior: Posterior, fold: Fold) -> Json:
    if not hasattr(posterior, "stored"):
        return {"converged": False, "verdict": "It holds no chains, so that convergence cannot be judged."}
    functions = diagnose(posterior, fold)
    weights = np.nan_to_num(weight_rhat(posterior), nan=np.inf)
    worst = float(np.nanmax(functions.rhat)) if np.isfinite(functions.rhat).any() else None
    return {
        "converged": bool(functions.has_converged),
        "rhat_share": functions.share_converged,
        "rhat_worst": worst if worst is None or np.isfinite(worst) else None,
        "weights_rhat_share": float(np.mean(weights < RHAT_LIMIT)),
        "verdict": functions.verdict,
    }


def diagnose(posterior: Any, fold: Fold) -> Any:
    """Convergence of the functions at a few test rows."""
    return posterior.diagnose(rows(fold.x_test, slice(0, FEW_ROWS)))


def weight_rhat(posterior: Any) -> np.ndarray:
    """Of weights evenly spread over all."""
    flat = posterior.stored.flat
    return diagnostics.rhat(flat[..., :: -(-flat.shape[-1] // MOST_WEIGHTS)])


# ---- pictures


def picture_of(posterior: Any, fold: Fold, curve: Curve | None, log_probs: np.ndarray | None) -> dict[str, np.ndarray]:
    """Whatever this posterior has."""
    arrays: dict[str, np.ndarray] = {}
    if curve is not None:
        arrays |= curve_of(posterior, fold, curve)
    if hasattr(posterior, "draws"):
        arrays |= learning_curves(posterior.history)
        if log_probs is not None and not isinstance(posterior, Calibrated):  # whose prediction is not of its draws
            arrays |= by_draws(log_probs)
        arrays |= chain_arrays(posterior, fold)
    return arrays


def curve_of(posterior: Any, fold: Fold, curve: Curve) -> dict[str, np.ndarray]:
    predictive = fold.predict(posterior, curve.inputs)
    lower, upper = predictive.quantile_table([(1 - CURVE_LEVEL) / 2, (1 + CURVE_LEVEL) / 2])
    arrays = {
        "curve_x": curve.x,
        "curve_mean": predictive.mean[:, 0],
        "curve_std": predictive.std[:, 0],
        "curve_lower": lower[:, 0],
        "curve_upper": upper[:, 0],
        "train_x": curve.train_x,
        "train_y": fold.y_train,
    }
    if hasattr(posterior, "draws"):
        outputs, own = posterior.draws(jax.random.key(KEY), curve.inputs, CURVE_DRAWS)
        means = np.asarray(jax.vmap(posterior.model.likelihood.moments)(own, outputs)[0])[..., 0]  # (draw, g)
        arrays["curve_draws"] = means if fold.scale is None else fold.scale.invert(means)
    return {name: np.asarray(array) for name, array in arrays.items()}


def by_draws(log_probs: np.ndarray) -> dict[str, np.ndarray]:
    """The NLL of predictions from the first 1, 2, 5, 10, ... draws, which are spread over chains; (draw, row)."""
    total = len(log_probs)
    if total < 2:
        return {}
    counts = [k for power in range(6) for k in (10**power, 2 * 10**power, 5 * 10**power) if k < total] + [total]
    nll = [-(logsumexp(log_probs[:k], axis=0) - np.log(k)).mean() for k in counts]
    return {"by_draws": np.array([counts, nll])}


def chain_arrays(posterior: Any, fold: Fold) -> dict[str, np.ndarray]:
    """R-hat in function space and in weight space, and the trace of the log density."""
    stored = getattr(posterior, "stored", None)
    if stored is None or stored.flat.shape[0] < 2 or stored.flat.shape[1] < diagnostics.chains.MIN_DRAWS:
        return {}
    arrays = {"function_rhat": diagnose(posterior, fold).rhat, "weight_rhat": weight_rhat(posterior)}
    if "log_density" in stored.info:
        arrays["trace"] = np.asarray(stored.info["log_density"])
    return arrays
