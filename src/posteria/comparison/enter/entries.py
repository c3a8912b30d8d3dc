"""The rows of a comparison: methods by name or as objects, baselines, the reference; and what each is expected to cost.

**Budgets.** A method's expected gradients are its steps (epochs x batches an epoch, or chains x replicas x (warm-up +
draws x thinning) x gradients a step), plus those of the methods inside it, times the size of an ensemble. A budget
multiplies the fields that set lengths (`LENGTHS`) of a method and of those inside it by one factor, so that the
expectation meets it. HMC and NUTS find their trajectories as they go: `ASSUMED_LEAPFROGS` stands for them, and the
table shows what was really used. A method may say it better itself: `expected_gradients(num_data)`,
`with_budget(gradients, num_data)`; its `gradients_a_step`, if not 1; and `least_lengths`, below which it does not
work.
"""

import dataclasses
import inspect
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posteria import tree
from posteria.comparison.ask import Problem
from posteria.comparison.enter import baselines
from posteria.data.arrays import num_rows, rows
from posteria.data.formats import read_all_npz
from posteria.errors import DataError, SettingError
from posteria.methods import registry
from posteria.methods.points.map import MAP
from posteria.models.target import Target
from posteria.tree import Json

DEFAULT_METHODS = ("map", "ensemble", "laplace", "mean-field", "mc-dropout", "swag", "sghmc")
DEFAULT_SLOTS = 6
REFERENCE = "nuts"
FLOPS = 4e9  # a second on two cores, roughly, of small matrices
STEP_SECONDS = 3e-5  # of a gradient of nothing
ROW_SECONDS = 6.0  # for compiling and grading one row of the table
LENGTHS = ("num_epochs", "num_draws", "num_warmup", "epochs_per_snapshot")
ASSUMED_LEAPFROGS = 60  # a trajectory of HMC or NUTS
ASSUMED_STEPS = 1000  # of a method that has no length to be read
TUNED = {"rate": (0.5, 2.0), "alpha": (0.5, 2.0), "learning_rate": (1 / 3, 3.0)}  # fields, and factors of their values


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row: `method` is None for a baseline and for a reference that was made elsewhere."""

    name: str
    label: str
    role: str  # "method", "baseline" or "reference"
    method: Any = None
    arrays: Any = None  # predictions made elsewhere

    @property
    def fidelity(self) -> str:
        return getattr(self.method, "fidelity", "")

    @property
    def about(self) -> str:
        if self.role == "baseline":
            return baselines.ABOUT[self.name]
        if self.method is None:
            return "Predictions made elsewhere, as they were given." if self.arrays is not None else ""
        return (inspect.getdoc(type(self.method)) or "").partition("\n")[0]

    @property
    def labels(self) -> list[str]:
        if self.method is None:
            return [] if self.arrays is None else ["made elsewhere: its convergence is not known here"]
        found = [getattr(each, "model_differs", "") for each in _with_inner(self.method)]
        return [f"another model: {text}" for text in dict.fromkeys(filter(None, found))]

    @property
    def settings(self) -> Json:
        return {} if self.method is None else registry.to_json(self.method)["settings"]


def default_methods() -> list[str]:
    """The first six that are there, of those that matter most."""
    present = registry.names()
    return [name for name in DEFAULT_METHODS if name in present][:DEFAULT_SLOTS]


def as_entries(methods: Iterable[Any] | Mapping[str, Any] | None, with_baselines: bool, reference: Any) -> list[Entry]:
    """All rows, the fast ones first, the reference last."""
    if isinstance(methods, str):
        methods = [name.strip() for name in methods.split(",") if name.strip()]
    if methods is not None and not methods:
        raise SettingError("no methods", f"some of {registry.names()}", "leave methods out for six that matter")
    named = list(methods.items()) if isinstance(methods, Mapping) else [("", m) for m in methods or default_methods()]
    entries: list[Entry] = []
    taken = set(baselines.ABOUT)
    for name, method in named:
        method = registry.as_method(method)
        entries.append(Entry(_unique(name or _name(method), taken), name or _label(method), "method", method))
    entries.sort(key=lambda entry: _order(entry.method))
    if with_baselines:
        entries = [*(Entry(name, f"{name} (scikit-learn)", "baseline") for name in baselines.ABOUT), *entries]
    if reference is not None:
        entries.append(_reference(reference, taken))
    return entries


def _reference(reference: Any, taken: set[str]) -> Entry:
    if isinstance(reference, str | Path) and str(reference).endswith(".npz"):
        if not Path(reference).is_file():
            raise DataError(f"no file {reference}", "an npz of predictions", "check the path")
        arrays = read_all_npz(Path(reference))
        return Entry(
            _unique("given-reference", taken), f"{Path(reference).name} (reference)", "reference", arrays=arrays
        )
    method = registry.as_method(reference)
    name = _unique(f"{_name(method)}-reference", taken)
    return Entry(name, f"{_label(method)} (reference)", "reference", method)


def _name(method: Any) -> str:
    inner = [registry.kebab(type(each).__name__) for each in inner_methods(method)]
    own = registry.kebab(type(method).__name__)
    return "-".join([own, *inner]) if own == "ensemble" and inner != ["map"] else own


def _label(method: Any) -> str:
    if hasattr(method, "size") and hasattr(method, "method"):
        return f"Ensemble of {method.size} {_label(method.method)}"
    return type(method).__name__


def _unique(name: str, taken: set[str]) -> str:
    candidates = (f"{name}-{number}" if number > 1 else name for number in range(1, 1000))
    found = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(found)
    return found


def _order(method: Any) -> float:
    return expected_gradients(method, num_data=1000)


def _with_inner(method: Any) -> list[Any]:
    return [method, *(found for each in inner_methods(method) for found in _with_inner(each))]


def expected_seconds(problem: Problem, entries: list[Entry], budget: float | None) -> float:
    """For all rows but the reference, within a factor of a few."""
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


# ---- budgets


def expected_gradients(method: Any, num_data: int) -> float:
    """How many gradients a fit is expected to take; a rough number where trajectories are adapted."""
    if hasattr(method, "expected_gradients"):
        return float(method.expected_gradients(num_data))
    batch_size = min(getattr(method, "batch_size", None) or num_data, num_data) or 1
    steps_per_epoch = math.ceil(num_data / batch_size)
    own = 0.0
    if hasattr(method, "num_chains"):
        warmup, thinning = getattr(method, "num_warmup", 0), getattr(method, "thinning", 1)
        steps = method.num_chains * getattr(method, "num_replicas", 1) * (warmup + method.num_draws * thinning)
        own += steps * (ASSUMED_LEAPFROGS if _follows_trajectories(method) else getattr(method, "gradients_a_step", 1))
    if hasattr(method, "num_epochs"):
        own += method.num_epochs * steps_per_epoch
    if hasattr(method, "num_snapshots"):
        own += method.num_snapshots * getattr(method, "epochs_per_snapshot", 1) * steps_per_epoch
    inner = sum(expected_gradients(each, num_data) for each in inner_methods(method))
    return ((own + inner) or ASSUMED_STEPS) * getattr(method, "size", 1)


def with_budget(method: Any, gradients: float | None, num_data: int) -> Any:
    """The method with its lengths multiplied so that it is expected to take so many gradients."""
    if gradients is None:
        return method
    if not gradients >= 1:
        raise SettingError(f"budget is {gradients}", "a number of gradient evaluations", "10_000 is a small one")
    if hasattr(method, "with_budget"):
        return method.with_budget(gradients, num_data)
    if getattr(method, "map", None) == "auto":  # it finds the mode by a default of its own
        method = dataclasses.replace(method, map=MAP())
    expected = expected_gradients(method, num_data)
    return _stretched(method, gradients / expected)


def _stretched(method: Any, factor: float) -> Any:
    least = getattr(method, "least_lengths", {})
    changes: Json = {
        name: max(least.get(name, 1), round(getattr(method, name) * factor))
        for name in LENGTHS
        if isinstance(getattr(method, name, None), int)
    }
    if hasattr(method, "polish"):
        changes["polish"] = False  # a budget counts every gradient
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if _is_method(value):
            changes[field.name] = _stretched(value, factor)
    return dataclasses.replace(method, **changes)


def trials(method: Any) -> list[Any]:
    """The settings that tuning tries, its own first: its first field of `TUNED`, or that of a method inside it."""
    if hasattr(method, "trials"):
        return list(method.trials())
    for name, factors in TUNED.items():
        value = getattr(method, name, None)
        is_idle = name == "learning_rate" and getattr(method, "optimizer", None) is not None
        if isinstance(value, float) and not is_idle:
            return [method, *(dataclasses.replace(method, **{name: value * factor}) for factor in factors)]
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if _is_method(value) and len(inner := trials(value)) > 1:
            return [dataclasses.replace(method, **{field.name: each}) for each in inner]
    return [method]


def _follows_trajectories(method: Any) -> bool:
    return hasattr(method, "max_leapfrog") or hasattr(method, "max_doublings")


def _is_method(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and callable(getattr(value, "fit", None))


def inner_methods(method: Any) -> list[Any]:
    return [value for field in dataclasses.fields(method) if _is_method(value := getattr(method, field.name))]
