"""One row on one split: fitted, or taken from elsewhere; timed, and graded."""

import time
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from posteria.comparison.ask.question import Fold, Problem
from posteria.comparison.enter import baselines
from posteria.comparison.enter.entries import Entry, trials, with_budget
from posteria.comparison.enter.predictives import ProbsPredictive, QuantilePredictive
from posteria.comparison.judge import grades, pictures
from posteria.comparison.run import records
from posteria.comparison.run.records import Record, run_path
from posteria.comparison.tell import results
from posteria.data.arrays import num_rows, rows
from posteria.data.splits import train_test
from posteria.errors import DataError
from posteria.methods import registry
from posteria.metrics import quantile_levels
from posteria.posteriors.base import Posterior
from posteria.posteriors.diagnosis import RHAT_LIMIT
from posteria.runs import fit

if TYPE_CHECKING:
    from posteria.comparison.run.runner import Comparison

FIT_STREAM, TUNE_STREAM = 11, 12  # folded into a seed's key, which also made the split
VALIDATION_SHARE = 0.2  # of the training rows, where settings are tuned
PREDICTIONS = 5  # of one row, timed; the fastest counts


def fit_and_grade(comparison: "Comparison", problem: Problem, fold: Fold, entry: Entry) -> tuple[Record, Any]:
    """The record, and the posterior (None where the row was made elsewhere)."""
    if entry.arrays is not None:
        return _grade_given(comparison, problem, fold, entry), None
    if entry.role == "baseline":
        began = time.perf_counter()
        posterior: Any = baselines.fit(entry.name, fold.train[0], fold.y_train, problem.kind, problem.num_classes)
        costs: dict[str, Any] = {"seconds": time.perf_counter() - began, "gradients": None, "draws": None}
        costs["megabytes"] = None
        record = Record("done")
    else:
        posterior, record, costs = _fit(comparison, problem, fold, entry)
    grade_into(comparison, problem, fold, entry, posterior, record, costs)
    return record, posterior


def grade_into(
    comparison: "Comparison", problem: Problem, fold: Fold, entry: Entry, posterior: Any, record: Record, costs: dict
) -> None:
    """Grade a posterior on a split: scores and summary into the record, pictures into the comparison."""
    graded = grades.grade_posterior(posterior, fold, problem.kind)
    record.scores = (
        graded.scores | grades.evidence(posterior) | costs | {"ms_row": _milliseconds(posterior, fold, problem.kind)}
    )
    record.summary = graded.summary
    if entry.role == "reference":
        record.convergence = _convergence(posterior, fold)
        record.ceiling = grades.ceiling(posterior, fold, problem.kind)
    if fold is problem.folds[0]:
        picture = graded.picture | pictures.of_posterior(posterior, fold, problem.curve)
        if fold.test_rows is not None:
            picture["row"] = fold.test_rows
        comparison.pictures[problem.name, entry.name] = picture
        if comparison.settings.out is not None:
            results.write_picture(comparison.settings.out, problem.name, entry.name, picture)


def _fit(comparison: "Comparison", problem: Problem, fold: Fold, entry: Entry) -> tuple[Posterior, Record, dict]:
    settings = comparison.settings
    method = entry.method
    tuning: dict[str, Any] = {"gradients": 0, "seconds": 0.0}
    trouble = ""
    if entry.role == "method":
        method = with_budget(method, settings.budget, num_rows(fold.train[0]))
        if settings.tune:
            method, tuning, trouble = _tune(problem, fold, method)
    folder = None if settings.out is None else settings.out / run_path(problem, entry, fold)
    before = records.run_status(folder)
    posterior = fit(
        problem.model,
        fold.train,
        method,
        key=jax.random.fold_in(jax.random.key(fold.seed), FIT_STREAM),
        out=folder,
        if_exists="replace" if before == "cut short" else "resume",  # its warm-up may have been cut
        max_seconds=_seconds_left(comparison, problem, entry) if entry.role == "reference" else None,
        progress=settings.progress,
        attach=problem.source | ({} if fold.preparation is None else {"preparation": fold.preparation.to_json()}),
    )
    facts = posterior.facts
    record = Record("done", trouble, settings=registry.to_json(method)["settings"])
    if not facts["is_whole"]:
        record.status, record.reason, record.minutes = "cut short", "time ran out", settings.minutes
    seconds = facts["seconds"] + tuning["seconds"]
    if before == "running":
        record.texts["seconds"] = f"> {seconds:.1f}"
    costs = costs_of(posterior)
    return posterior, record, costs | {"seconds": seconds, "gradients": costs["gradients"] + tuning["gradients"]}


def costs_of(posterior: Posterior) -> dict:
    return {
        "seconds": posterior.facts.get("seconds"),
        "gradients": posterior.facts.get("gradients"),
        "megabytes": sum(np.asarray(array).nbytes for array in posterior.state()[1].values()) / 1e6,
        "draws": _kept_draws(posterior),
    }


def _tune(problem: Problem, fold: Fold, method: Any) -> tuple[Any, dict, str]:
    """The best of a few settings by the NLL of validation rows; what the trials cost, and which of them failed.

    Where all fail, the method's own is fitted, and fails, in the end.
    """
    candidates = trials(method)
    costs: dict[str, Any] = {"gradients": 0, "seconds": 0.0}
    if len(candidates) < 2:
        return method, costs, ""
    x, y = fold.train
    key = jax.random.fold_in(jax.random.key(fold.seed), TUNE_STREAM)
    train, held_out = train_test(num_rows(x), key, VALIDATION_SHARE)
    losses, failures = [], []
    for candidate in candidates:
        began = time.perf_counter()
        try:
            trial = fit(problem.model, (rows(x, train), y[train]), candidate, key=key, progress=False)
            costs["gradients"] += trial.facts["gradients"]
            loss = -float(np.mean(trial.predict(rows(x, held_out)).log_prob(y[held_out])))
            failure = "" if np.isfinite(loss) else f"its NLL is {loss}"
        except Exception as error:
            failure = reason_of(error).split(";")[0]
        losses.append(np.inf if failure else loss)
        failures += [failure] if failure else []
        costs["seconds"] += time.perf_counter() - began
    trouble = f"{len(failures)} of {len(candidates)} settings that were tried failed: {failures[0]}" if failures else ""
    return candidates[int(np.argmin(losses))], costs, trouble


def _grade_given(comparison: "Comparison", problem: Problem, fold: Fold, entry: Entry) -> Record:
    """A reference made elsewhere: `probs` (n, class), `quantiles` (level, n) at `quantile_levels`, or `samples`
    (draw, n), of this split's test rows in their order and units."""
    arrays = entry.arrays
    if problem.kind == "classes":
        if "probs" not in arrays:
            raise DataError(f"the reference holds {sorted(arrays)}", "probs (n, class)")
        predictive: Any = ProbsPredictive(arrays["probs"])
        count = len(predictive.probs)
    else:
        if "quantiles" not in arrays and "samples" not in arrays:
            raise DataError(f"the reference holds {sorted(arrays)}", "quantiles (level, n) or samples (draw, n)")
        levels = quantile_levels(len(arrays["quantiles"]) if "quantiles" in arrays else grades.NUM_LEVELS)
        values = arrays["quantiles"] if "quantiles" in arrays else np.quantile(arrays["samples"], levels, axis=0)
        predictive = QuantilePredictive(levels, values.reshape(len(levels), -1))
        count = values.reshape(len(levels), -1).shape[1]
    if count != len(fold.y_test):
        raise DataError(f"the reference has {count} rows", f"the {len(fold.y_test)} test rows of the first split")
    if fold is not problem.folds[0]:
        raise DataError("a reference from a file is of one split", "one seed", "compare with seeds=1")
    graded = grades.grade(predictive, fold.y_test, problem.kind)
    comparison.pictures[problem.name, entry.name] = graded.picture
    if comparison.settings.out is not None:
        results.write_picture(comparison.settings.out, problem.name, entry.name, graded.picture)
    return Record("done", scores=dict(graded.scores), summary=graded.summary, convergence={"converged": True})


def _convergence(posterior: Posterior, fold: Fold) -> dict:
    if not hasattr(posterior, "stored"):
        return {"converged": False, "verdict": "It holds no chains, so that convergence cannot be judged."}
    functions = pictures.diagnose(posterior, fold)
    weights = np.nan_to_num(pictures.weight_rhat(posterior), nan=np.inf)
    worst = float(np.nanmax(functions.rhat)) if np.isfinite(functions.rhat).any() else None
    return {
        "converged": bool(functions.has_converged),
        "rhat_share": functions.share_converged,
        "rhat_worst": worst if worst is None or np.isfinite(worst) else None,
        "weights_rhat_share": float(np.mean(weights < RHAT_LIMIT)),
        "verdict": functions.verdict,
    }


def _milliseconds(posterior: Any, fold: Fold, kind: str) -> float:
    one = rows(fold.x_test, slice(0, 1))

    def predict() -> float:
        began = time.perf_counter()
        predictive = fold.predict(posterior, one)
        _ = predictive.probs if kind == "classes" else predictive.mean
        return time.perf_counter() - began

    predict()  # compiles
    return 1000 * min(predict() for _ in range(PREDICTIONS))


def _kept_draws(posterior: Any) -> int | None:
    """Of stored draws; None where the posterior is a formula."""
    if hasattr(posterior, "members"):
        kept = [_kept_draws(member) for member in posterior.members]
        return None if None in kept else sum(kept)  # type: ignore[arg-type]
    return posterior.num_draws if hasattr(posterior, "stored") else None


def _seconds_left(comparison: "Comparison", problem: Problem, entry: Entry) -> float | None:
    """An equal share of what is left of the reference's time for each split that it has not seen."""
    if comparison.settings.minutes is None:
        return None
    done = [comparison.records.get((problem.name, entry.name, fold.seed)) for fold in problem.folds]
    spent = sum(record.scores.get("seconds") or 0.0 for record in done if record is not None)
    left = 60 * comparison.settings.minutes - spent
    return max(1.0, left / max(1, sum(record is None for record in done)))


def reason_of(error: Exception) -> str:
    """Its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
