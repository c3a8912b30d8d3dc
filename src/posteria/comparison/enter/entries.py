"""The rows of a comparison: methods by name or as objects, baselines, the reference; and how long all will take."""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posteria import tree
from posteria.comparison.ask.question import Problem
from posteria.comparison.enter import baselines
from posteria.comparison.enter.budgets import expected_gradients, inner_methods
from posteria.data.arrays import num_rows, rows
from posteria.data.formats import read_all_npz
from posteria.errors import DataError, SettingError
from posteria.methods import registry
from posteria.models.target import Target

DEFAULT_METHODS = ("map", "ensemble", "laplace", "mean-field", "mc-dropout", "swag", "sghmc")
DEFAULT_SLOTS = 6
REFERENCE = "nuts"
FLOPS = 4e9  # a second on two cores, roughly, of small matrices
STEP_SECONDS = 3e-5  # of a gradient of nothing
ROW_SECONDS = 6.0  # for compiling and grading one row of the table


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
    def settings(self) -> dict:
        return {} if self.method is None else registry.to_json(self.method)["settings"]


def default_methods() -> list[str]:
    """The first six that are there, of those that matter most."""
    present = registry.names()
    return [name for name in DEFAULT_METHODS if name in present][:DEFAULT_SLOTS]


def as_entries(methods: Iterable | Mapping | None, with_baselines: bool, reference: Any) -> list[Entry]:
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
