"""One row on one split: fitted, or taken from elsewhere, and timed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np

from posteria.comparison.ask import Fold, Problem
from posteria.comparison.enter import baselines, given
from posteria.comparison.enter.entries import Entry, over_budget, trials, with_budget
from posteria.comparison.run import records
from posteria.comparison.run.records import Record
from posteria.data.arrays import num_rows, rows
from posteria.data.splits import train_test
from posteria.engine.progress import OnLog
from posteria.errors import DataError
from posteria.methods import registry
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.scale_summary import in_words
from posteria.runs import fit
from posteria.settings import Positive, at_least, check_settings
from posteria.tree import Json

FIT_STREAM, TUNE_STREAM = 11, 12  # folded into a seed's key, which also made the split
VALIDATION_SHARE = 0.2  # of the training rows, where settings are tuned
PREDICTIONS = 5  # of one row, timed; the fastest counts


@dataclass(frozen=True)
class Settings:
    """How to run, beside what."""

    out: Path | None = None
    if_exists: str = "resume"
    minutes: Positive | None = None  # for the reference, all splits together
    budget: Annotated[float, at_least(1)] | None = None  # gradient evaluations a method
    tune: bool = False
    progress: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        check_settings(self)


def warm_up(problem: Problem) -> None:
    """One gradient, and what baselines import: whoever is timed first does not pay for the machine's waking up."""
    import sklearn.ensemble
    import sklearn.linear_model  # noqa: F401

    target = Target(problem.model, problem.folds[0].train)
    params = target.init(jax.random.key(0))
    jax.block_until_ready(jax.jit(jax.grad(lambda params, data: target.log_density(params, data)))(params, target.data))


class Fitted(NamedTuple):
    predictor: Any  # a posterior, a baseline or predictions as they were given: all have `predict`
    record: Record  # with what it cost; to be graded


def fit_row(
    settings: Settings,
    problem: Problem,
    fold: Fold,
    entry: Entry,
    max_seconds: float | None,
    on_log: OnLog | None = None,
) -> Fitted:
    """`on_log` is told of each epoch."""
    if entry.arrays is not None:
        return Fitted(given.of_fold(entry.arrays, problem, fold), Record("done"))
    if entry.posterior is not None:
        return Fitted(_published(problem, fold, entry), Record("done"))
    if entry.role == "baseline":
        with clock() as timed:
            is_count = problem.model.likelihood.kind == "counts"
            fitted = baselines.fit(entry.name, fold.train[0], fold.y_train, problem.kind, problem.num_classes, is_count)
        record = Record("done", scores={"seconds": timed.total, "compile_seconds": None})
        record.scores |= {"gradients": None, "draws": None, "megabytes": None}
    else:
        fitted, record = _fit(settings, problem, fold, entry, max_seconds, on_log)
    record.scores["ms_row"] = milliseconds(fitted, fold, problem.kind)
    return Fitted(fitted, record)


def _fit(
    settings: Settings,
    problem: Problem,
    fold: Fold,
    entry: Entry,
    max_seconds: float | None,
    on_log: OnLog | None,
) -> tuple[Posterior, Record]:
    method = entry.method
    tuning: Json = {"gradients": 0, "seconds": 0.0, "compile_seconds": 0.0}
    trouble = ""
    if entry.role == "method":
        method = with_budget(method, settings.budget, num_rows(fold.train[0]))
        trouble = over_budget(method, settings.budget, num_rows(fold.train[0]))
        if settings.tune:
            method, tuning, failed = _tune(problem, fold, method)
            trouble = "; ".join(filter(None, (trouble, failed)))
    folder = None if settings.out is None else settings.out / records.run_path(problem, entry, fold)
    before = records.run_status(folder)
    with clock() as timed:
        posterior = fit(
            problem.model,
            fold.train,
            method,
            key=jax.random.fold_in(jax.random.key(fold.seed), FIT_STREAM),
            out=folder,
            if_exists="replace" if before == "cut short" else "resume",  # its warm-up may have been cut
            max_seconds=max_seconds,
            progress=settings.progress,
            attach=_attached(problem, fold),
            on_log=on_log,
        )
    record = Record("done", trouble, costs_of(posterior), settings=registry.to_json(method)["settings"])
    if not posterior.facts["is_whole"]:
        record.status, record.reason, record.minutes = "cut short", "time ran out", settings.minutes
    if "prior_scales" in posterior.facts:
        record.texts["prior"] = in_words(posterior.facts["prior_scales"])
    record.scores["gradients"] += tuning["gradients"]
    whole = posterior.facts["seconds"] if before == "running" else timed.total  # with what came before it was killed
    record.scores["seconds"] = max(0.0, whole - timed.compiling) + tuning["seconds"]
    record.scores["compile_seconds"] = timed.compiling + tuning["compile_seconds"]
    if before == "running":
        record.texts["seconds"] = f"> {record.scores['seconds']:.1f}"
    return posterior, record


def _attached(problem: Problem, fold: Fold) -> Json:
    """What travels with a posterior, so that the command line can use it."""
    attached = {"source": problem.source} if problem.source else {}
    return attached | ({} if fold.preparation is None else {"preparation": fold.preparation.to_json()})


def costs_of(posterior: Posterior) -> Json:
    return {
        "seconds": posterior.facts.get("seconds"),
        "gradients": posterior.facts.get("gradients"),
        "megabytes": sum(np.asarray(array).nbytes for array in posterior.state()[1].values()) / 1e6,
        "draws": _kept_draws(posterior),
    }


def milliseconds(predictor: Any, fold: Fold, kind: str) -> float:
    """To predict one row, once that is compiled."""
    one = rows(fold.x_test, slice(0, 1))

    def predict() -> float:
        began = time.perf_counter()
        predictive = fold.predict(predictor, one)
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


def _tune(problem: Problem, fold: Fold, method: Any) -> tuple[Any, Json, str]:
    """The best of a few settings by the NLL of validation rows; what the trials cost, and which of them failed.

    Where all fail, the method's own is fitted, and fails, in the end.
    """
    candidates = trials(method)
    costs: Json = {"gradients": 0, "seconds": 0.0, "compile_seconds": 0.0}
    if len(candidates) < 2:
        return method, costs, ""
    x, y = fold.train
    key = jax.random.fold_in(jax.random.key(fold.seed), TUNE_STREAM)
    train, held_out = train_test(num_rows(x), key, VALIDATION_SHARE)
    losses, failures = [], []
    for candidate in candidates:
        with clock() as timed:
            try:
                trial = fit(problem.model, (rows(x, train), y[train]), candidate, key=key, progress=False)
                costs["gradients"] += trial.facts["gradients"]
                loss = -float(np.mean(trial.predict(rows(x, held_out)).log_prob(y[held_out])))
                failure = "" if np.isfinite(loss) else f"its NLL is {loss}"
            except Exception as error:
                failure = reason_of(error).split(";")[0]
        losses.append(np.inf if failure else loss)
        failures += [failure] if failure else []
        costs["seconds"] += timed.total - timed.compiling
        costs["compile_seconds"] += timed.compiling
    trouble = f"{len(failures)} of {len(candidates)} settings that were tried failed: {failures[0]}" if failures else ""
    return candidates[int(np.argmin(losses))], costs, trouble


def _published(problem: Problem, fold: Fold, entry: Entry) -> Any:
    """A posterior that was published, where it was fitted to rows prepared as these are."""
    prepared, here = (about.get("preparation") for about in (entry.posterior.attached, _attached(problem, fold)))
    if prepared is not None and here is not None and prepared != here:
        raise DataError(
            "the published reference was fitted to rows that were prepared otherwise than these",
            "a reference of the same training rows",
            "publish the reference of a comparison with the same data, seeds and splits",
        )
    return entry.posterior


def reason_of(error: Exception) -> str:
    """Its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


# ---- what time went into: a fit, or compiling for it, which happens once for a shape of network and data
# and would make whoever comes first look dear

_COMPILING = "/jax/core/compile/"  # what JAX calls its events of tracing, lowering and compiling

_listeners: list["Clock"] = []
_is_listening = False


class Clock:
    """Seconds since it began, those of compiling apart."""

    def __init__(self) -> None:
        self._intervals: list[tuple[float, float]] = []
        self._began = time.perf_counter()
        self._ended: float | None = None

    @property
    def total(self) -> float:
        return (time.perf_counter() if self._ended is None else self._ended) - self._began

    @property
    def compiling(self) -> float:
        return covered(self._intervals)


@contextmanager
def clock() -> Iterator[Clock]:
    """Times what happens inside."""
    _listen()
    running = Clock()
    _listeners.append(running)
    try:
        yield running
    finally:
        running._ended = time.perf_counter()
        _listeners.remove(running)


def covered(intervals: list[tuple[float, float]]) -> float:
    """The time in any of them: a function is traced inside another, and counted once."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total


def _listen() -> None:
    """JAX keeps listeners for good, so there is one."""
    global _is_listening
    if not _is_listening:
        jax.monitoring.register_event_duration_secs_listener(_heard)
        _is_listening = True


def _heard(event: str, duration_secs: float, **_: Any) -> None:
    if event.startswith(_COMPILING):
        ended = time.perf_counter()
        for running in _listeners:
            running._intervals.append((max(ended - duration_secs, running._began), ended))
