"""What was understood of the user's data and what will be done with it: said before anything is fitted."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from posteria import tree
from posteria.comparison.api import describe_setting
from posteria.comparison.ask import row_splits
from posteria.comparison.ask.question import Curve, Fold, Problem, describe, extremes
from posteria.comparison.enter.entries import Entry, as_entries, expected_gradients
from posteria.comparison.run.runner import Comparison, Settings, run
from posteria.comparison.tell import spelling
from posteria.data import foreign
from posteria.data.arrays import is_frame, num_rows, rows
from posteria.data.encode import Category
from posteria.data.source import Source, read_more, read_source, source_of_frame
from posteria.data.splits import Split
from posteria.data.table import from_frame
from posteria.errors import SettingError
from posteria.models.tabular import model_for
from posteria.models.target import Target

FLOPS = 4e9  # a second on two cores, roughly, of small matrices
STEP_SECONDS = 3e-5  # of a gradient of nothing
ROW_SECONDS = 6.0  # for compiling and grading one row of the table
CURVE_POINTS = 120
MNIST_TEST = 10_000  # its last rows


@dataclass(frozen=True, eq=False)
class Plan:
    """`text` says what was understood; `run` does it."""

    problems: list[tuple[Problem, list[Entry]]]
    text: str
    budget: float | None = None
    tune: bool = False
    minutes: float | None = 10.0

    def run(
        self,
        out: str | Path | None = None,
        *,
        if_exists: str = "resume",
        progress: bool = False,
        command: str = "",
        on_update: Callable[[Comparison], None] = lambda comparison: None,
    ) -> Comparison:
        """Fit and grade; `on_update(comparison)` is called after every row."""
        folder = None if out is None else Path(out)
        return run(
            self.problems,
            Settings(folder, if_exists, self.minutes, self.budget, self.tune, progress, command, on_update),
        )


def plan(
    data: Any,
    target: str | None = None,
    *,
    kind: str | None = None,
    network: Any = "mlp:50,50",
    likelihood: Any = None,
    prior: Any = None,
    temperature: float = 1.0,
    methods: Any = None,
    baselines: bool = True,
    reference: Any = "nuts",
    seeds: int | list[int] = 3,
    split: str = "random",
    group: str | None = None,
    time: str | None = None,
    test: Any = None,
    ignore: Sequence[str] = (),
    budget: float | None = None,
    tune: bool = False,
    minutes: float | None = 10.0,
) -> Plan:
    """A comparison on `data`: the path of a CSV (or a frame) with its `target`, of an npz, or a data set's name.

    An npz holds x and y. `test` is a file (or frame) of test rows; columns to `ignore` are no inputs. All else is as in
    `compare`; data are encoded and standardised by their training rows.
    """
    numbers = row_splits.seeds_of(seeds)
    source = _source(data, target, kind, ignore)
    source, parts, how = _split(source, numbers, split, group, time, test)
    folds = tuple(_fold(seed, source, part) for seed, part in zip(numbers, parts))
    if test is not None:  # numbered as in their own file
        folds = tuple(replace(fold, test_rows=np.arange(len(fold.y_test))) for fold in folds)
    facts = _facts(source, folds)
    if group or time:
        facts["notes"].append(f"column {group or time!r} splits the rows and is no input")
    preparation: Any = folds[0].preparation
    model = model_for(
        preparation.kind,
        preparation.num_outputs,
        len(folds[0].y_train),
        network,
        likelihood=likelihood,
        prior=prior,
        temperature=temperature,
    )
    Target(model, folds[0].train)  # refuses what cannot be fitted, and says why
    entries = as_entries(methods, baselines, reference)
    setting = describe_setting(model, how, numbers, budget, tune, entries, minutes)
    spelled = {
        "data": str(data) if isinstance(data, str | Path) else "DATA",
        "target": target,
        "kind": kind,
        "ignore": [*ignore, *filter(None, (group, time))],
        "network": network if isinstance(network, str) else "NETWORK",
    }
    commands = spelling.commands(spelled, prior, temperature) if likelihood is None else spelling.no_commands
    title = f"{source.name}: {target}" if target else source.name
    problem = Problem(source.name, title, model, folds, facts, setting, _curve(folds[0]), commands, {"source": spelled})
    return Plan([(problem, entries)], _text(problem, entries, budget, minutes), budget, tune, minutes)


# ---- data


def _source(data: Any, target: str | None, kind: str | None, ignore: Sequence[str]) -> Source:
    if is_frame(data):
        return source_of_frame(data, target, kind, ignore)
    return read_source(str(data), target, kind, ignore)


def _split(
    source: Source, seeds: list[int], split: str, group: str | None, time: str | None, test: Any
) -> tuple[Source, list[Split], str]:
    """The rows (with given test rows behind them, without a column that only splits), a split a seed, and how."""
    ways = [name for name, way in {"group": group, "time": time, "test": test}.items() if way is not None]
    if len(ways) > 1 or (ways and split != "random"):
        raise SettingError(f"{' and '.join([*ways, split])}", "one way to split the rows", "leave the others out")
    if test is not None:
        return _with_test_rows(source, read_more(test, source), seeds)
    if source.frame is None:
        if ways:
            raise SettingError(f"a split by {ways[0]}", "a CSV for that", "leave it out")
        if source.is_named and source.name == "mnist":
            train = np.arange(source.num_rows - MNIST_TEST)
            return source, [(train, train[-1] + 1 + np.arange(MNIST_TEST))] * len(seeds), "given test rows"
    elif group is not None:
        parts, how = row_splits.by_group(source.frame, group, seeds)
        return replace(source, frame=source.frame.drop(columns=group)), parts, how
    elif time is not None:
        parts, how = row_splits.by_time(source.frame, time, seeds)
        return replace(source, frame=source.frame.drop(columns=time)), parts, how
    return source, *row_splits.of_rows(source.num_rows, split, seeds)


def _with_test_rows(source: Source, other: Source, seeds: list[int]) -> tuple[Source, list[Split], str]:
    import pandas as pd

    first = source.num_rows
    if source.frame is None or other.frame is None:
        joined = replace(source, x=np.concatenate([source.x, other.x]), y=np.concatenate([source.y, other.y]))
    else:
        frame = pd.concat([source.frame, other.frame], ignore_index=True)
        joined = replace(source, frame=frame, class_names=from_frame(frame, source.target, source.kind).class_names)
    rows = (np.arange(first), np.arange(first, joined.num_rows))
    return joined, [rows] * len(seeds), "given test rows"


def _fold(seed: int, source: Source, split: Split) -> Fold:
    train, test = split
    preparation, _ = source.prepare(train)
    if source.class_names:  # a rare class may be in the test rows alone
        preparation = replace(preparation, class_names=source.class_names)
    (x_train, y_train), (x_test, y_test) = (source.part(preparation, rows) for rows in split)
    out = {}
    if source.is_named:
        out = {name: preparation.inputs(x) for name, x in foreign.partners(source.name, source.x[test]).items()}
    far = {} if out else extremes(x_train, x_test)
    own_train, own_test = (_own(source, rows, y) for rows, y in ((train, y_train), (test, y_test)))
    return Fold(seed, (x_train, y_train), own_train, x_test, own_test, preparation.y, far, out, preparation, test)


def _own(source: Source, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Targets in their own units; labels are the same to the model."""
    if source.kind == "classes":
        return y
    values = source.y[rows] if source.frame is None else source.frame[source.target].iloc[rows]
    return np.asarray(values, np.float64)


def _facts(source: Source, folds: tuple[Fold, ...]) -> dict:
    """The `data` part of results.json."""
    encoder = folds[0].preparation.encoder  # type: ignore[union-attr]
    columns = int(np.prod(source.x.shape[1:])) if encoder is None else len(encoder.columns)
    return describe(
        source.name,
        source.kind,
        folds,
        num_rows_all=source.num_rows,
        columns=columns,
        class_names=source.class_names,
        categorical=0 if encoder is None else sum(isinstance(column, Category) for column in encoder.columns),
        target=source.target,
        notes=[] if encoder is None else [f"column {name!r} is left out: {why}" for name, why in encoder.dropped],
    )


def _curve(fold: Fold) -> Curve | None:
    """A line through and beyond the data, where there is one input and one real target."""
    preparation = fold.preparation
    x = fold.train[0]
    if preparation is None or preparation.y is None or preparation.x is None or x.shape[1:] != (1,):
        return None
    low, high = float(preparation.lowest[0]), float(preparation.highest[0])
    margin = 0.3 * (high - low)
    grid = np.linspace(low - margin, high + margin, CURVE_POINTS)
    return Curve(grid, preparation.standardised(grid[:, None]), preparation.x.invert(x)[:, 0])


# ---- words


def _text(problem: Problem, entries: list[Entry], budget: float | None, minutes: float | None) -> str:
    data, setting = problem.data, problem.setting
    columns = f"{data['columns']} columns" + (f" ({data['categorical']} categorical)" if data["categorical"] else "")
    what = "regression" if data["kind"] == "regression" else f"{len(data['class_names'])} classes"
    split = setting["split"].split(",")[0]
    if "split" not in split and "rows" not in split:  # "random", "group by who"
        split = split.replace(" by ", " split by ") if " by " in split else f"{split} split"
    seeds = len(setting["seeds"])
    methods = [entry for entry in entries if entry.role == "method"]
    baselines = [entry for entry in entries if entry.role == "baseline"]
    noise = ", noise inferred" if "infer" in setting["likelihood"] else ""
    doing = f"{len(methods)} method{'s' if len(methods) != 1 else ''}"
    doing += f" and {len(baselines)} baselines" if baselines else ""
    doing += f" on {seeds} splits" if seeds > 1 else ""
    doing += f", {budget:,.0f} gradients each" if budget else ""
    duration = _duration(estimate(problem, entries, budget))
    text = f"{data['rows']:,} rows, {columns}, {what}; {split}{noise}; {doing}, about {duration}"
    if setting["reference"]:
        text += f"; {setting['reference']}" + (f" capped at {minutes:g} min (--minutes)" if minutes else "")
    return "\n".join([text, *(f"note: {note}" for note in data["notes"])])


def estimate(problem: Problem, entries: list[Entry], budget: float | None) -> float:
    """Seconds for all rows but the reference, within a factor of a few."""
    x = problem.folds[0].train[0]
    size = tree.size(Target(problem.model, (rows(x, slice(0, 1)), None)).structs)
    total = 0.0
    for entry in entries:
        if entry.role == "method":
            batch = min(getattr(entry.method, "batch_size", None) or num_rows(x), num_rows(x))
            gradients = budget or expected_gradients(entry.method, num_rows(x))
            total += gradients * (STEP_SECONDS + 6 * size * batch / FLOPS)
        if entry.role != "reference":
            total += ROW_SECONDS
    return total * len(problem.folds)


def _duration(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
