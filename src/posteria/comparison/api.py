"""`compare` fits, then grades; `grade` grades what is fitted; `plan` says what will be done before it is.

Here the five rooms are put in a row: what is asked and who enters make a `Plan`; its run fills a ledger, with grades
from the judge; a `Comparison` tells of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posteria.cards import preformatted
from posteria.comparison.ask import SEEDS, Fold, Problem, ask, describe, kind_of, num_features
from posteria.comparison.enter.entries import REFERENCE, Entry, as_entries, default_methods, for_problem
from posteria.comparison.judge.grades import grade_row
from posteria.comparison.run.fitting import Settings, costs_of, milliseconds
from posteria.comparison.run.records import Record
from posteria.comparison.run.runner import Elsewhere, Ending, Key, Ledger, run, run_row
from posteria.comparison.tell import results, score_tables, sentences
from posteria.compiled import contents
from posteria.data.arrays import check_same_length, check_x, is_frame, rows
from posteria.data.splits import last_rows
from posteria.data.table_file import is_table
from posteria.errors import DataError, SettingError
from posteria.methods import registry
from posteria.models.model import Model
from posteria.tree import Json

MINUTES = 10.0  # for the reference


class Comparison:
    """What was found: `results` (see `posteria.comparison.tell.results`), pictures, and a table of it.

    `posteriors[problem][row]` is a list over the seeds; a row that an earlier, interrupted comparison had finished is
    not in it: `po.load` reads it from the folder that its `runs` name.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.problems = ledger.problems
        self.records = ledger.records
        self.posteriors = ledger.posteriors
        self.pictures = ledger.pictures
        self.remarks: tuple[str, ...] = ()  # what else the rows say

    @property
    def results(self) -> Json:
        return results.results_of(self._ledger)

    @property
    def just_done(self) -> Key | None:
        """A row on a split, while its end is told."""
        return self._ledger.just_done

    def table(self, width: int = score_tables.WIDTH) -> str:
        """The table as text, one part a problem; columns that do not fit beside each other stand below."""
        return score_tables.as_text(self.results, width)

    def __repr__(self) -> str:
        found = self.results
        said = [answer["text"] for part in found["problems"] for answer in part["answers"].values()]
        return "\n".join([score_tables.as_text(found), *said, *self.remarks])

    def _repr_html_(self) -> str:
        return score_tables.as_html(self.results)


@dataclass(frozen=True, eq=False)
class Plan:
    """`text` says what was understood; `run` does it."""

    problems: list[tuple[Problem, list[Entry]]]
    text: str
    budget: float | None = None
    tune: bool = False
    minutes: float | None = MINUTES

    def _repr_html_(self) -> str:
        return preformatted(self.text)

    def run(
        self,
        out: str | Path | None = None,
        *,
        if_exists: str = "resume",
        progress: bool = False,
        command: str = "",
        on_update: Callable[[Comparison], None] = lambda comparison: None,
        elsewhere: Elsewhere | None = None,
    ) -> Comparison:
        """Fit and grade; `on_update(comparison)` is called after each row; `elsewhere` has others run the rows."""
        folder = None if out is None else Path(out)
        ledger = self.ledger(folder, if_exists=if_exists, progress=progress, command=command)
        comparison = Comparison(ledger)

        def tell() -> None:
            if folder is not None:
                results.write_all(folder, comparison.results)
            on_update(comparison)

        run(ledger, grade_row, tell, elsewhere)
        return comparison

    def run_row(self, out: str | Path, key: Key) -> Ending:
        """One row on one split, in a worker of a comparison that is written to `out`."""
        return run_row(self.ledger(Path(out)), key, grade_row)

    def ledger(self, out: Path | None, **how: Any) -> Ledger:
        return Ledger(self.problems, Settings(out, minutes=self.minutes, budget=self.budget, tune=self.tune, **how))


def plan(
    data: Any,
    target: str | None = None,
    *,
    methods: Iterable[Any] | Mapping[str, Any] | None = None,
    baselines: bool = True,
    reference: Any = REFERENCE,
    budget: float | None = None,
    tune: bool = False,
    minutes: float | None = MINUTES,
    **asked: Any,
) -> Plan:
    """A comparison on `data`, as `ask` reads it with what else is `asked`; methods and all else are as in `compare`."""
    problem = ask(data, target, **asked)
    if methods is None:
        methods = default_methods(is_table=is_frame(data) or is_table(Path(str(data))))
    entries = for_problem(as_entries(methods, baselines, reference), problem)
    text = sentences.plan(problem, entries, Settings(minutes=minutes, budget=budget))
    return Plan([(problem, entries)], text, budget, tune, minutes)


def compare(
    model: Model,
    data: tuple[Any, Any],
    methods: Iterable[Any] | Mapping[str, Any] | None = None,
    *,
    reference: Any = REFERENCE,
    seeds: int | list[int] = SEEDS,
    test: tuple[Any, Any] | None = None,
    out_of_distribution: Mapping[str, Any] | None = None,
    shift: Any = None,
    attack: Any = None,
    baselines: bool = True,
    budget: float | None = None,
    tune: bool = False,
    minutes: float | None = MINUTES,
    out: str | Path | None = None,
    if_exists: str = "resume",
    progress: bool = False,
    name: str = "data",
    on_update: Callable[[Comparison], None] = lambda comparison: None,
) -> Comparison:
    """Fit methods to the same splits of `data = (x, y)` and grade each: held-out quality, distance to truth, cost.

    `methods` are names, objects, or a dict of them; by default the six that matter of those there are. `reference` is a
    sampler that stands for the truth (None: there is none), or the path of an npz of predictions made elsewhere, with
    `probs` (n, class), `quantiles` (level, n) or `samples` (draw, n), in the order of the test rows or of an `index`
    (n,) of their numbers; or of a CSV with a column a class, and `index`. Each seed is another random split and fit;
    with `test = (x, y)` the split is given. `budget` is a number of gradient evaluations for every method; `tune=True`
    tries a few settings on validation rows first, charged to the method. `minutes` cap the reference. `shift=True` (or
    names of `po.shift.TABLE_SHIFTS` or, of images, `po.shift.CORRUPTIONS`) scores every method on the test rows at five
    severities of each too, and `attack=[0.1]` on rows moved by so much against it and against another network. With
    `out`, the fits and results are written there as they come, and an interrupted comparison continues.
    """
    planned = plan(
        data,
        model=model,
        methods=methods,
        baselines=baselines,
        reference=reference,
        budget=budget,
        tune=tune,
        minutes=minutes,
        seeds=seeds,
        test=test,
        out_of_distribution=out_of_distribution,
        name=name,
        shift=shift,
        attack=attack,
    )
    return planned.run(out, if_exists=if_exists, progress=progress, command="po.compare(...)", on_update=on_update)


def grade(
    posteriors: Mapping[str, Any], *, data: tuple[Any, Any], reference: str | None = None, scale: Any = None
) -> Comparison:
    """Grade fitted posteriors on new rows `data = (x, y)`, against the one called `reference`.

    `scale` is the Standardiser of y, where the posteriors were fitted to standardised targets: y and all scores are
    then in its own units.
    """
    if not posteriors:
        raise SettingError("no posteriors", "a dict of them by name", 'po.grade({"hmc": posterior}, data=(x, y))')
    if reference is not None and reference not in posteriors:
        raise SettingError(f"reference is {reference!r}", f"one of {list(posteriors)}")
    problem = _given_rows(next(iter(posteriors.values())), data, scale)
    (fold,) = problem.folds
    entries = [
        Entry(name, name, "reference" if name == reference else "method", _method_of(posterior))
        for name, posterior in posteriors.items()
    ]
    ledger = Ledger([(problem, entries)], Settings(command="po.grade(...)"))
    for entry, posterior in zip(entries, posteriors.values()):
        record = Record("done", scores=costs_of(posterior) | {"ms_row": milliseconds(posterior, fold, problem.kind)})
        ledger.add(problem, fold, entry, posterior, record, grade_row(problem, fold, entry, posterior))
    ledger.is_complete = True
    comparison = Comparison(ledger)
    comparison.remarks = _of_temperatures(posteriors, data, scale)
    return comparison


def _of_temperatures(posteriors: Mapping[str, Any], data: tuple[Any, Any], scale: Any) -> tuple[str, ...]:
    """Words on temperatures, where posteriors are of one model but for these."""
    models = [posterior.model for posterior in posteriors.values()]
    by_temperature = {posterior.model.temperature: posterior for posterior in posteriors.values()}
    if len(by_temperature) < len(models) or len(models) < 2 or scale is not None:
        return ()
    parts = {(model.network, contents(model.likelihood), contents(model.prior)) for model in models}
    if len(parts) > 1:
        return ()
    scores = {at: np.asarray(posterior.predict(data[0]).log_prob(data[1])) for at, posterior in by_temperature.items()}
    said = sentences.temperature_words(scores, kind_of(models[0]))
    return (said,) if said else ()


def _given_rows(posterior: Any, data: tuple[Any, Any], scale: Any) -> Problem:
    """Rows to be graded on alone, for the model of a posterior."""
    if len(data) != 2:
        raise DataError(f"{len(data)} parts of data", "(x, y): rows are graded once each", "leave weights out")
    model, num_outputs = posterior.model, posterior.target.num_outputs
    x = check_x(data[0])
    y = np.asarray(data[1]) if scale is not None else model.likelihood.check(data[1], num_outputs or 1)
    check_same_length(x, y)
    fold = Fold(0, (rows(x, slice(0, 0)), y[:0]), y[:0], x, y, scale)
    kind = kind_of(model)
    names = tuple(map(str, range(max(num_outputs or 2, 2)))) if kind == "classes" else ()
    facts = describe("given", kind, (fold,), num_rows_all=len(y), columns=num_features(x), class_names=names)
    splits = last_rows(len(y), len(y), [0])._replace(about="given rows")
    return Problem("given", "Posteriors as given", model, (fold,), splits, facts)


def _method_of(posterior: Any) -> Any:
    """The method that made it, where it can be told."""
    try:
        return registry.from_json(posterior.facts["method"])
    except (KeyError, SettingError):
        return None
