"""Every row on every split, each written down as it is done: an interrupted comparison continues.

What a row is worth and what is said of it are for later rooms, and handed down: `grade` looks at what was fitted,
`on_change` tells of it.
"""

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from posteria import disk
from posteria.comparison.ask import Fold, Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.run import records
from posteria.comparison.run.fitting import Settings, fit_row, reason_of, warm_up
from posteria.comparison.run.records import Grades, Record
from posteria.errors import SettingError, StoreError
from posteria.posteriors import store
from posteria.posteriors.base import Posterior
from posteria.tree import Arrays, Json

Grade = Callable[[Problem, Fold, Entry, Any], Grades]
Key = tuple[str, str, int]  # problem, row, seed
Ending = tuple[str, str]  # how a row ended, and why where it failed
LIVE_SECONDS = 4.0  # between tellings of a fit that is under way
LIVE_REST = 10.0  # times as long as a telling took, at least

Elsewhere = Callable[[list[Key]], Iterator[tuple[Key, Ending]]]  # runs rows in other processes, as `run_row` does


class Ledger:
    """What is to be done, and what has been found so far."""

    def __init__(self, problems: list[tuple[Problem, list[Entry]]], settings: Settings) -> None:
        self.problems = problems
        self.settings = settings
        self.records: dict[Key, Record] = {}
        self.posteriors: dict[str, dict[str, list[Posterior]]] = {problem.name: {} for problem, _ in problems}
        self.pictures: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        self.running: tuple[str, str] | None = None
        self.just_done: Key | None = None  # a row on a split, while its end is told
        self.is_complete = False
        self.created = ""
        self.live: tuple[str, str, Arrays] | None = None  # problem, row, and curves of its training so far

    def records_of(self, problem: Problem, entry: Entry) -> list[Record | None]:
        """One a split; None for those to come."""
        return [self.records.get((problem.name, entry.name, fold.seed)) for fold in problem.folds]

    def add(self, problem: Problem, fold: Fold, entry: Entry, predictor: Any, record: Record, grades: Grades) -> None:
        """A row on a split that has been fitted and graded."""
        record.scores = {**grades.scores, **record.scores}
        record.arrays, record.convergence, record.ceiling = grades.arrays, grades.convergence, grades.ceiling
        record.shift = grades.shift
        records.write(self.settings.out, problem, fold, entry, record, grades.picture)
        self.records[problem.name, entry.name, fold.seed] = record
        self.posteriors[problem.name].setdefault(entry.name, []).append(predictor)
        if grades.picture:
            self.pictures[problem.name, entry.name] = grades.picture

    def status_of(self, problem: Problem, entry: Entry) -> tuple[str, str]:
        """Of a row over all splits, and why it failed or was cut short."""
        found = self.records_of(problem, entry)
        done = [record for record in found if record is not None]
        failed = [record for record in done if record.status == "failed"]
        if failed:
            return "failed", failed[0].reason
        if len(done) < len(found):
            is_begun = bool(done) or self.running == (problem.name, entry.name)
            return ("running" if is_begun else "waiting"), ""
        cut = [record for record in done if record.status == "cut short"]
        if cut:
            return "cut short", cut[0].reason
        return "done", next((record.reason for record in done if record.reason), "")


def run(ledger: Ledger, grade: Grade, on_change: Callable[[], None], elsewhere: Elsewhere | None = None) -> None:
    """Every row on every split: baselines and methods first, then the reference; a failure is a row with its reason.

    `elsewhere` has workers run them instead, in any order. They write each row's own files, and this process all that
    tells of them together.
    """
    if ledger.settings.out is None:
        _run(ledger, grade, on_change)
        return
    _check_folder(ledger.settings, [problem.name for problem, _ in ledger.problems])
    with store.locked(ledger.settings.out):
        if elsewhere is None:
            _run(ledger, grade, on_change)
        else:
            _run_elsewhere(ledger, on_change, elsewhere)


def run_row(ledger: Ledger, key: Key, grade: Grade) -> Ending:
    """One row on one split, in a worker: fitted, graded, and written beside the others."""
    problem, fold, entry = _found(ledger, key)
    _warm(problem)
    _one(ledger, problem, fold, entry, grade, lambda: None)
    return ledger.records[key].status, ledger.records[key].reason


_warmed: "weakref.WeakSet[Problem]" = weakref.WeakSet()


def _warm(problem: Problem) -> None:
    """Once in a worker."""
    if problem not in _warmed:
        warm_up(problem)
        _warmed.add(problem)


def _found(ledger: Ledger, key: Key) -> tuple[Problem, Fold, Entry]:
    for problem, entries in ledger.problems:
        for entry in entries:
            for fold in problem.folds:
                if (problem.name, entry.name, fold.seed) == key:
                    return problem, fold, entry
    raise SettingError(f"no row {key} in this comparison", "one of its own", "start it again with the same command")


def _run_elsewhere(ledger: Ledger, on_change: Callable[[], None], elsewhere: Elsewhere) -> None:
    """The reference first, which takes longest: the rest runs alongside."""
    _prepare_folder(ledger, on_change)
    _recall(ledger)
    on_change()
    keys = [
        (entry.role != "reference", (problem.name, entry.name, fold.seed))
        for problem, entries in ledger.problems
        for fold in problem.folds
        for entry in entries
    ]
    waiting = [key for _, key in sorted(keys, key=lambda pair: pair[0]) if key not in ledger.records]
    for key, (status, reason) in elsewhere(waiting):
        problem, fold, entry = _found(ledger, key)
        record = None
        if status != "failed":
            record = records.read(ledger.settings.out, problem, fold, entry, _identity(ledger, problem, fold, entry))
        ledger.records[key] = record or Record("failed", reason or "its worker left no record")
        ledger.just_done = key
        on_change()
        ledger.just_done = None
    ledger.running, ledger.is_complete = None, True
    on_change()


def _run(ledger: Ledger, grade: Grade, on_change: Callable[[], None]) -> None:
    _prepare_folder(ledger, on_change)
    _recall(ledger)
    for problem, entries in ledger.problems:
        if any(None in ledger.records_of(problem, entry) for entry in entries):
            warm_up(problem)
        methods = [entry for entry in entries if entry.role != "reference"]
        for fold in problem.folds:
            for entry in methods:
                _one(ledger, problem, fold, entry, grade, on_change)
        for entry in entries:
            if entry.role == "reference":
                for fold in problem.folds:
                    _one(ledger, problem, fold, entry, grade, on_change)
    ledger.running, ledger.is_complete = None, True
    on_change()


def _one(
    ledger: Ledger, problem: Problem, fold: Fold, entry: Entry, grade: Grade, on_change: Callable[[], None]
) -> None:
    key = (problem.name, entry.name, fold.seed)
    if key in ledger.records:
        return
    ledger.running = (problem.name, entry.name)
    on_change()
    try:
        limit = _seconds_left(ledger, problem, entry) if entry.role == "reference" else None
        shown = _Shown(ledger, problem, entry, on_change)
        predictor, record = fit_row(ledger.settings, problem, fold, entry, limit, shown if shown.is_on else None)
        ledger.live = None
        if shown.seconds and record.scores.get("seconds"):  # telling is no part of the fit
            record.scores["seconds"] = max(0.0, (record.scores["seconds"] or 0.0) - shown.seconds)
        grades = grade(problem, fold, entry, predictor)
    except StoreError:
        raise
    except Exception as error:  # any failure of a method is a row of the table
        ledger.records[key] = Record("failed", reason_of(error))
    else:
        record.identity = _identity(ledger, problem, fold, entry)
        ledger.add(problem, fold, entry, predictor, record, grades)
    ledger.just_done, ledger.live = key, None
    on_change()
    ledger.just_done = None


class _Shown:
    """Tells of a fit while it is under way, every now and then: curves of its training."""

    def __init__(self, ledger: Ledger, problem: Problem, entry: Entry, on_change: Callable[[], None]) -> None:
        self.is_on = ledger.settings.out is not None and entry.role == "method"
        self.seconds = 0.0  # that telling took
        self._ledger, self._names, self._on_change = ledger, (problem.name, entry.name), on_change
        self._live = Live()
        self._next = time.monotonic() + LIVE_SECONDS

    def __call__(self, logged: Json) -> None:
        self._live.add(logged)
        began = time.monotonic()
        if began < self._next:
            return
        if curves := self._live.curves():
            self._ledger.live = (*self._names, curves)
            self._on_change()
        took = time.monotonic() - began
        self.seconds += took
        self._next = began + took + max(LIVE_SECONDS, LIVE_REST * took)


def _recall(ledger: Ledger) -> None:
    """Rows that an earlier comparison in this folder had finished; refuses a folder of another before it writes."""
    for problem, entries in ledger.problems:
        for entry in entries:
            for fold in problem.folds:
                identity = _identity(ledger, problem, fold, entry)
                record = records.read(ledger.settings.out, problem, fold, entry, identity)
                if record is not None and not _has_more_time(record, ledger.settings.minutes):
                    ledger.records[problem.name, entry.name, fold.seed] = record


def _has_more_time(record: Record, minutes: float | None) -> bool:
    """A reference that the clock had ended is fitted anew when it may take longer."""
    return record.status == "cut short" and (minutes is None or minutes > (record.minutes or 0.0))


def _identity(ledger: Ledger, problem: Problem, fold: Fold, entry: Entry) -> str:
    return records.identity_of(problem, fold, entry, ledger.settings.budget, ledger.settings.tune)


def _seconds_left(ledger: Ledger, problem: Problem, entry: Entry) -> float | None:
    """An equal share of what is left of the reference's time for each split that it has not seen."""
    if ledger.settings.minutes is None:
        return None
    done = ledger.records_of(problem, entry)
    spent = sum(record.scores.get(key) or 0.0 for record in done if record for key in ("seconds", "compile_seconds"))
    left = 60 * ledger.settings.minutes - spent
    return max(1.0, left / max(1, sum(record is None for record in done)))


def _check_folder(settings: Settings, names: list[str]) -> None:
    """Refuses a folder that holds anything but this comparison, before it is touched."""
    assert settings.out is not None
    if settings.if_exists not in ("resume", "replace"):
        raise SettingError(f"if_exists is {settings.if_exists!r}", '"resume" or "replace"')
    is_old = (settings.out / records.RESULTS).is_file()
    is_used = settings.out.is_dir() and any(not path.name.startswith(".") for path in settings.out.iterdir())
    if not is_old and is_used:
        raise StoreError(f"{settings.out} is not empty", "a new folder, or one of a comparison", "choose another --out")
    if is_old and settings.if_exists == "resume":
        disk.refuse_links(settings.out)
        with store.refuse_damage(settings.out / records.RESULTS):
            held = [problem["name"] for problem in store.read_json(settings.out / records.RESULTS)["problems"]]
        if held != names:
            raise StoreError(
                f"{settings.out} holds a comparison on {', '.join(held)}",
                f"a new folder for {', '.join(names)}",
                "choose another folder (--out), or --replace that one",
            )


def _prepare_folder(ledger: Ledger, on_change: Callable[[], None]) -> None:
    """Ready to be written; the ledger learns when the comparison in it began."""
    settings = ledger.settings
    ledger.created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    if settings.out is None or not (settings.out / records.RESULTS).is_file():
        return
    if settings.if_exists == "resume":
        ledger.created = store.read_json(settings.out / records.RESULTS)["created"]
        return
    disk.discard(settings.out / "rows")
    on_change()  # from here on the results are the new ones, which need none of the rest
    for name in records.PARTS:
        disk.discard(settings.out / name)


# ---- what a fit measured along the way, thin enough to be drawn: its curves of training by epoch

MOST_POINTS = 150
SCORES = ("objective", "training", "validation")


def learning_curves(history: Arrays) -> Arrays:
    """`learning_epoch` (k,), over stages that follow one another, `learning_stage` (k,) U, and of each epoch the mean
    over chains or members: `learning_objective`, and `learning_training` and `learning_validation` where a share of the
    rows was held out. Empty where there were no epochs."""
    if not history or not len(history["epoch"]):
        return {}
    names = [name for name in SCORES if name in history]
    stages = list(dict.fromkeys(map(str, history["stage"])))
    epochs, labels, values = [], [], []
    before = 0
    for stage in stages:
        here = np.asarray([str(each) == stage for each in history["stage"]])
        epoch = np.asarray(history["epoch"])[here]
        every = np.unique(epoch)
        place = np.searchsorted(every, epoch)
        columns = [_means(np.asarray(history[name], np.float64)[here], place, len(every)) for name in names]
        epochs.append(before + every)
        labels += [stage] * len(every)
        values.append(np.stack(columns, 1))
        before += int(every.max())
    epoch, value = np.concatenate(epochs), np.concatenate(values)
    keep = np.unique(np.linspace(0, len(epoch) - 1, min(len(epoch), MOST_POINTS)).round().astype(int))
    found: Arrays = {"learning_epoch": epoch[keep], "learning_stage": np.array(labels, str)[keep]}
    return found | {f"learning_{name}": value[keep, number] for number, name in enumerate(names)}


def _means(values: np.ndarray, place: np.ndarray, count: int) -> np.ndarray:
    """Of the finite ones of each epoch; NaN where there is none."""
    is_known = np.isfinite(values)
    sums = np.bincount(place[is_known], values[is_known], count)
    numbers = np.bincount(place[is_known], minlength=count)
    return np.where(numbers > 0, sums / np.maximum(numbers, 1), np.nan)


class Live:
    """Curves of a fit that is under way, from the entries that `on_log` is handed."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def add(self, entry: dict[str, Any]) -> None:
        if "epoch" in entry:
            self._entries.append(entry)

    def curves(self) -> Arrays:
        if not self._entries:
            return {}
        names = list(dict.fromkeys(name for entry in self._entries for name in entry if name not in ("seconds",)))
        columns: Arrays = {
            name: np.array([entry.get(name, np.nan) for entry in self._entries]) for name in names if name != "stage"
        }
        return learning_curves(columns | {"stage": np.array([entry["stage"] for entry in self._entries])})
