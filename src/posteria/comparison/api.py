"""`compare` fits, then grades; `grade` grades what is fitted."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posteria.comparison.ask import row_splits
from posteria.comparison.ask.question import Fold, Problem, describe, extremes, fold_of_arrays, kind_of
from posteria.comparison.enter.entries import Entry, as_entries
from posteria.comparison.run.fitting import costs_of, grade_into
from posteria.comparison.run.records import Record
from posteria.comparison.run.runner import Comparison, Settings, run
from posteria.data.arrays import check_x, num_rows, rows
from posteria.errors import DataError, SettingError
from posteria.methods import registry
from posteria.models.model import Model
from posteria.models.target import Target


def compare(
    model: Model,
    data: tuple[Any, Any],
    methods: Iterable | Mapping | None = None,
    *,
    reference: Any = "nuts",
    seeds: int | list[int] = 5,
    test: tuple[Any, Any] | None = None,
    out_of_distribution: Mapping[str, Any] | None = None,
    baselines: bool = True,
    budget: float | None = None,
    tune: bool = False,
    minutes: float | None = 10.0,
    out: str | Path | None = None,
    if_exists: str = "resume",
    progress: bool = False,
    name: str = "data",
    on_update: Callable[[Comparison], None] = lambda comparison: None,
) -> Comparison:
    """Fit methods to the same splits of `data = (x, y)` and grade each: held-out quality, distance to truth, cost.

    `methods` are names, objects, or a dict of them; by default the six that matter of those there are. `reference` is a
    sampler that stands for the truth (None: there is none), or the path of an npz of predictions made elsewhere, with
    `probs` (n, class), `quantiles` (level, n) or `samples` (draw, n). Each seed is another random split and fit; with
    `test = (x, y)` the split is given. `budget` is a number of gradient evaluations for every method; `tune=True`
    tries a few settings on validation rows first, charged to the method. `minutes` cap the reference. With `out`, the
    fits and results are written there as they come, and an interrupted comparison continues.
    """
    x, y = data
    target = Target(model, (x, y))  # refuses what cannot be fitted, and says why
    x, y = check_x(x), np.asarray(target.data[1])  # type: ignore[index]
    kind = kind_of(model)
    numbers = row_splits.seeds_of(seeds)
    foreign = {key: check_x(value, key) for key, value in (out_of_distribution or {}).items()}
    if test is None:
        parts, how = row_splits.of_rows(num_rows(x), "random", numbers)
        folds = tuple(fold_of_arrays(seed, x, y, part, foreign) for seed, part in zip(numbers, parts))
    else:
        x_test = check_x(test[0], "test x")
        y_test = model.likelihood.check(test[1], target.num_outputs or 1)
        far = {} if foreign else extremes(x, x_test)
        folds = tuple(Fold(seed, (x, y), y, x_test, y_test, far=far, out=foreign) for seed in numbers)
        how = "given test rows"
    entries = as_entries(methods, baselines, reference)
    num_classes = (target.num_outputs or 0) if kind == "classes" else 0
    num_classes = max(num_classes, 2) if kind == "classes" else 0  # one output is two classes
    facts = describe(
        name,
        kind,
        folds,
        num_rows_all=num_rows(x),
        columns=_num_features(x),
        class_names=tuple(map(str, range(num_classes))),
    )
    setting = describe_setting(model, how, numbers, budget, tune, entries, minutes)
    problem = Problem(name, name, model, folds, facts, setting)
    settings = Settings(
        None if out is None else Path(out), if_exists, minutes, budget, tune, progress, "po.compare(...)", on_update
    )
    return run([(problem, entries)], settings)


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
    first = next(iter(posteriors.values()))
    model, kind = first.model, kind_of(first.model)
    x = check_x(data[0])
    y = np.asarray(data[1]) if scale is not None else model.likelihood.check(data[1], first.target.num_outputs or 1)
    if num_rows(x) != len(y):
        raise DataError(f"x has {num_rows(x)} rows, y has {len(y)}", "the same number")
    nothing = (rows(x, slice(0, 0)), y[:0])
    fold = Fold(0, nothing, y[:0], x, y, scale)
    entries = [
        Entry(name, name, "reference" if name == reference else "method", _method_of(posterior))
        for name, posterior in posteriors.items()
    ]
    num_classes = max(first.target.num_outputs or 2, 2) if kind == "classes" else 0
    names = tuple(map(str, range(num_classes)))
    facts = describe("given", kind, (fold,), num_rows_all=len(y), columns=_num_features(x), class_names=names)
    setting = describe_setting(model, "given rows", [0], None, False, entries, None)
    problem = Problem("given", "Posteriors as given", model, (fold,), facts, setting)
    comparison = Comparison([(problem, entries)], Settings(command="po.grade(...)"))
    for entry, posterior in zip(entries, posteriors.values()):
        record = Record("done")
        grade_into(comparison, problem, fold, entry, posterior, record, costs_of(posterior))
        comparison.records["given", entry.name, 0] = record
        comparison.posteriors["given"][entry.name] = [posterior]
    comparison.is_complete = True
    return comparison


def describe_setting(
    model: Model,
    split: str,
    seeds: list[int],
    budget: float | None,
    tune: bool,
    entries: list[Entry],
    minutes: float | None,
) -> dict:
    """The `setting` part of results.json."""
    reference = next((entry.label for entry in entries if entry.role == "reference"), None)
    return {
        "network": describe_network(model),
        "likelihood": repr(model.likelihood),
        "prior": repr(model.prior),
        "temperature": model.temperature,
        "split": split,
        "seeds": seeds,
        "budget": budget,
        "tune": tune,
        "reference": reference,
        "minutes": minutes,
    }


def describe_network(model: Model) -> str:
    spec = model.network.spec
    if spec is None:
        return "your own network"
    settings = ", ".join(f"{key}={value}" for key, value in spec["settings"].items() if value is not None)
    return f"{spec['name']}({settings})"


def _num_features(x: Any) -> int:
    import jax

    return sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(x))


def _method_of(posterior: Any) -> Any:
    """The method that made it, where it can be told."""
    try:
        return registry.from_json(posterior.facts["method"])
    except (KeyError, SettingError):
        return None
