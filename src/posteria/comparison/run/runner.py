"""Every row on every split, each written down as it is done: an interrupted comparison continues."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posteria.comparison.ask.question import Fold, Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge import assemble
from posteria.comparison.run import records
from posteria.comparison.run.fitting import fit_and_grade, reason_of
from posteria.comparison.run.records import Record
from posteria.comparison.tell import results, score_tables
from posteria.errors import SettingError, StoreError
from posteria.posteriors import store


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
    """What was found: `results` (see `posteria.comparison.tell.results`), pictures, and a table of it.

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

    def table(self, width: int = score_tables.WIDTH) -> str:
        """The table as text, one part a problem; columns that do not fit beside each other stand below."""
        return score_tables.as_text(self.results, width)

    def __repr__(self) -> str:
        answers = [answer["text"] for part in self.results["problems"] for answer in part["answers"].values()]
        return "\n".join([self.table(), *answers])

    def _repr_html_(self) -> str:
        return score_tables.as_html(self.results)


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
        score_tables.write_all(comparison.settings.out, found)
    comparison.settings.on_update(comparison)


def _one(comparison: Comparison, problem: Problem, fold: Fold, entry: Entry) -> None:
    if (problem.name, entry.name, fold.seed) in comparison.records:
        return
    comparison.running = (problem.name, entry.name)
    _update(comparison)
    try:
        record, posterior = fit_and_grade(comparison, problem, fold, entry)
        comparison.posteriors[problem.name].setdefault(entry.name, []).append(posterior)
    except StoreError:
        raise
    except Exception as error:  # any failure of a method is a row of the table
        record = Record("failed", reason_of(error))
    record.identity = _identity(comparison, problem, fold, entry)
    if record.status != "failed":
        records.write(comparison.settings.out, problem, fold, entry, record)
    comparison.just_done = (problem.name, entry.name, fold.seed)
    comparison.records[comparison.just_done] = record
    _update(comparison)
    comparison.just_done = None
