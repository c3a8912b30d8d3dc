"""Fits and grades every row on every split, writing down each as it is done: an interrupted comparison continues."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteria.comparison import assemble, baselines, grades, pictures, records, results, tables
from posteria.comparison.entries import Entry, trials, with_budget
from posteria.comparison.predictives import ProbsPredictive, QuantilePredictive
from posteria.comparison.problems import Fold, Problem
from posteria.comparison.records import Record, run_path
from posteria.data.arrays import num_rows, rows
from posteria.data.splits import train_test
from posteria.errors import DataError, SettingError, StoreError
from posteria.inference import registry
from posteria.inference.runs import fit
from posteria.metrics import quantile_levels
from posteria.posteriors import store
from posteria.posteriors.base import Posterior
from posteria.posteriors.diagnosis import RHAT_LIMIT

FIT_STREAM, TUNE_STREAM = 11, 12  # folded into a seed's key, which also made the split
VALIDATION_SHARE = 0.2  # of the training rows, where settings are tuned
PREDICTIONS = 5  # of one row, timed; the fastest counts


@dataclass(frozen=True)
class Settings:
    """How to run, beside what: all that `compare` takes from the user and hands on."""

    out: Path | None = None
    if_exists: str = "resume"
    minutes: float | None = 10.0  # for the reference, all splits together
    budget: float | None = None  # gradient evaluations a method
    tune: bool = False
    progress: bool = False
    command: str = ""
    on_update: Callable[["Comparison"], None] = lambda comparison: None


class Comparison:
    """What was found: `results` (see `posteria.comparison.results`), pictures, and a table of it.

    `posteriors[problem][row]` is a list over the seeds; a row that an earlier, interrupted comparison had finished is
    not in it: `po.load` reads it from the folder that its `runs` name.
    """

    def __init__(self, problems: list[tuple[Problem, list[Entry]]], settings: Settings) -> None:
        self.problems = problems
        self.settings = settings
        self.records: dict[tuple[str, str, int], Record] = {}
        self.posteriors: dict[str, dict[str, list]] = {problem.name: {} for problem, _ in problems}
        self.pictures: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        self.running: tuple[str, str] | None = None
        self.just_done: tuple[str, str, int] | None = None  # a row on a split, while its end is told
        self.is_complete = False
        self.created = ""

    @property
    def results(self) -> dict:
        return assemble.results_of(self)

    def table(self, width: int = tables.WIDTH) -> str:
        """The table as text, one part a problem; columns that do not fit beside each other stand below."""
        return tables.as_text(self.results, width)

    def __repr__(self) -> str:
        answers = [answer["text"] for part in self.results["problems"] for answer in part["answers"].values()]
        return "\n".join([self.table(), *answers])

    def _repr_html_(self) -> str:
        return tables.as_html(self.results)


def run(problems: list[tuple[Problem, list[Entry]]], settings: Settings) -> Comparison:
    """Every row on every split: baselines and methods first, then the reference; a failure is a row with its reason."""
    comparison = Comparison(problems, settings)
    if settings.out is None:
        return _run(comparison)
    _check_folder(settings, [problem.name for problem, _ in problems])
    with store.locked(settings.out):
        return _run(comparison)


def _run(comparison: Comparison) -> Comparison:
    problems = comparison.problems
    comparison.created = _prepare_folder(comparison.settings)
    _recall(comparison)
    for problem, entries in problems:
        methods = [entry for entry in entries if entry.role != "reference"]
        for fold in problem.folds:
            for entry in methods:
                _one(comparison, problem, fold, entry)
        for entry in entries:
            if entry.role == "reference":
                for fold in problem.folds:
                    _one(comparison, problem, fold, entry)
    comparison.running, comparison.is_complete = None, True
    _update(comparison)
    return comparison


def _recall(comparison: Comparison) -> None:
    """Rows that an earlier comparison in this folder had finished; refuses a folder of another before it writes."""
    for problem, entries in comparison.problems:
        for entry in entries:
            for fold in problem.folds:
                identity = _identity(comparison, problem, fold, entry)
                record = records.read(comparison.settings.out, problem, fold, entry, identity)
                if record is not None and not _has_more_time(record, comparison.settings.minutes):
                    comparison.records[problem.name, entry.name, fold.seed] = record


def _has_more_time(record: Record, minutes: float | None) -> bool:
    """A reference that the clock had ended is fitted anew when it may take longer."""
    return record.status == "cut short" and (minutes is None or minutes > (record.minutes or 0.0))


def _identity(comparison: Comparison, problem: Problem, fold: Fold, entry: Entry) -> str:
    return records.identity_of(problem, fold, entry, comparison.settings.budget, comparison.settings.tune)


def _check_folder(settings: Settings, names: list[str]) -> None:
    """Refuses a folder that holds anything but this comparison, before it is touched."""
    assert settings.out is not None
    if settings.if_exists not in ("resume", "replace"):
        raise SettingError(f"if_exists is {settings.if_exists!r}", '"resume" or "replace"')
    is_old = (settings.out / results.FILE).is_file()
    is_used = settings.out.is_dir() and any(not path.name.startswith(".") for path in settings.out.iterdir())
    if not is_old and is_used:
        raise StoreError(f"{settings.out} is not empty", "a new folder, or one of a comparison", "choose another --out")
    if is_old and settings.if_exists == "resume":
        held = [problem["name"] for problem in results.read(settings.out)["problems"]]
        if held != names:
            raise StoreError(
                f"{settings.out} holds a comparison on {', '.join(held)}",
                f"a new folder for {', '.join(names)}",
                "choose another folder (--out), or --replace that one",
            )


def _prepare_folder(settings: Settings) -> str:
    """Ready to be written; when the comparison in it began."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    if settings.out is None or not (settings.out / results.FILE).is_file():
        return now
    if settings.if_exists == "replace":
        for name in ("runs", "rows", "pictures"):
            shutil.rmtree(settings.out / name, ignore_errors=True)
        return now
    return results.read(settings.out)["created"]


def _update(comparison: Comparison) -> None:
    """The table and the results again, and whatever the caller makes of them."""
    if comparison.settings.out is not None:
        found = comparison.results
        tables.write_all(comparison.settings.out, found)
    comparison.settings.on_update(comparison)


def _one(comparison: Comparison, problem: Problem, fold: Fold, entry: Entry) -> None:
    if (problem.name, entry.name, fold.seed) in comparison.records:
        return
    comparison.running = (problem.name, entry.name)
    _update(comparison)
    try:
        record, posterior = _fit_and_grade(comparison, problem, fold, entry)
        comparison.posteriors[problem.name].setdefault(entry.name, []).append(posterior)
    except StoreError:
        raise
    except Exception as error:  # any failure of a method is a row of the table
        record = Record("failed", _reason(error))
    record.identity = _identity(comparison, problem, fold, entry)
    if record.status != "failed":
        records.write(comparison.settings.out, problem, fold, entry, record)
    comparison.just_done = (problem.name, entry.name, fold.seed)
    comparison.records[comparison.just_done] = record
    _update(comparison)
    comparison.just_done = None


def _fit_and_grade(comparison: Comparison, problem: Problem, fold: Fold, entry: Entry) -> tuple[Record, Any]:
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
    comparison: Comparison, problem: Problem, fold: Fold, entry: Entry, posterior: Any, record: Record, costs: dict
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


def _fit(comparison: Comparison, problem: Problem, fold: Fold, entry: Entry) -> tuple[Posterior, Record, dict]:
    settings = comparison.settings
    method = entry.method
    tuning = {"gradients": 0, "seconds": 0.0}
    if entry.role == "method":
        method = with_budget(method, settings.budget, num_rows(fold.train[0]))
        if settings.tune:
            method, tuning = _tune(problem, fold, method)
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
    record = Record("done", settings=registry.to_json(method)["settings"])
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


def _tune(problem: Problem, fold: Fold, method: Any) -> tuple[Any, dict]:
    """The best of a few settings by the NLL of validation rows, and what the trials cost."""
    candidates = trials(method)
    costs = {"gradients": 0, "seconds": 0.0}
    if len(candidates) < 2:
        return method, costs
    x, y = fold.train
    key = jax.random.fold_in(jax.random.key(fold.seed), TUNE_STREAM)
    train, held_out = train_test(num_rows(x), key, VALIDATION_SHARE)
    losses = []
    for candidate in candidates:
        try:
            trial = fit(problem.model, (rows(x, train), y[train]), candidate, key=key, progress=False)
        except Exception:  # a setting that fails is no candidate; the method's own is fitted, and fails, in the end
            losses.append(np.inf)
            continue
        losses.append(-float(np.mean(trial.predict(rows(x, held_out)).log_prob(y[held_out]))))
        costs["gradients"] += trial.facts["gradients"]
        costs["seconds"] += trial.facts["seconds"]
    return candidates[int(np.argmin(losses))], costs


def _grade_given(comparison: Comparison, problem: Problem, fold: Fold, entry: Entry) -> Record:
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


def _seconds_left(comparison: Comparison, problem: Problem, entry: Entry) -> float | None:
    """An equal share of what is left of the reference's time for each split that it has not seen."""
    if comparison.settings.minutes is None:
        return None
    done = [comparison.records.get((problem.name, entry.name, fold.seed)) for fold in problem.folds]
    spent = sum(record.scores.get("seconds") or 0.0 for record in done if record is not None)
    left = 60 * comparison.settings.minutes - spent
    return max(1.0, left / max(1, sum(record is None for record in done)))


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
