"""The rows of a comparison: methods by name or as objects, baselines, the reference; and what each is expected to cost.

**Budgets.** A method says what it costs (`expected_gradients(num_data)`), makes itself cost another number of gradients
(`with_budget(gradients, num_data)`), and names the settings that tuning tries (`trials()`): see
`posteria.methods.costs`. One that says nothing takes part as it is, without a budget and untuned.
"""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posteria import tree
from posteria.comparison.ask import Problem, num_features
from posteria.comparison.enter import baselines, given
from posteria.data.arrays import num_rows, rows
from posteria.errors import SettingError
from posteria.methods import registry
from posteria.methods.costs import DECLARATION, check_budget
from posteria.models.target import Target
from posteria.posteriors import publishing, saving
from posteria.tree import Json

DEFAULT_METHODS = ("map", "ensemble", "laplace", "mean-field", "mc-dropout", "swag", "sghmc")
DEFAULT_SLOTS = 6
OF_TABLES = "folds"  # a seventh: what `posteria fit` does where nothing is named, with the network of the comparison
REFERENCE = "nuts"
FLOPS = 4e9  # a second on two cores, roughly, of small matrices
STEP_SECONDS = 3e-5  # of a gradient of nothing
ROW_SECONDS = 6.0  # for compiling and grading one row of the table
ASSUMED_GRADIENTS = 1000.0  # of a method that does not say what it costs
OVER = 1.1  # times its budget, from which on a method that cannot do with less says so


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row: `method` is None for a baseline and for a reference that was made elsewhere."""

    name: str
    label: str
    role: str  # "method", "baseline" or "reference"
    method: Any = None
    arrays: Any = None  # predictions made elsewhere
    posterior: Any = None  # one that was published

    @property
    def fidelity(self) -> str:
        return getattr(self.method, "fidelity", "")

    @property
    def about(self) -> str:
        if self.role == "baseline":
            return baselines.present()[self.name].about
        if self.method is None:
            told = "A posterior that was published." if self.posterior is not None else ""
            return "Predictions made elsewhere, as they were given." if self.arrays is not None else told
        return (inspect.getdoc(type(self.method)) or "").partition("\n")[0]

    @property
    def labels(self) -> list[str]:
        if self.method is None:
            order = [] if given.INDEX in (self.arrays or {}) else ["no index: taken in the order of the test rows"]
            return [] if self.arrays is None else ["made elsewhere: its convergence is not known here", *order]
        found = [getattr(each, "model_differs", "") for each in _with_inner(self.method)]
        return [f"another model: {text}" for text in dict.fromkeys(filter(None, found))]

    @property
    def settings(self) -> Json:
        return {} if self.method is None else registry.to_json(self.method)["settings"]


def default_methods(is_table: bool = False) -> list[str]:
    """The first six that are there, of those that matter most; of a table, folds beside them."""
    present = registry.names()
    found = [name for name in DEFAULT_METHODS if name in present][:DEFAULT_SLOTS]
    return [*found, OF_TABLES] if is_table and OF_TABLES in present else found


def as_entries(methods: Iterable[Any] | Mapping[str, Any] | None, with_baselines: bool, reference: Any) -> list[Entry]:
    """All rows, the fast ones first, so that an answer is there early; slower baselines and the reference last."""
    if isinstance(methods, str):
        methods = [name.strip() for name in methods.split(",") if name.strip()]
    if methods is not None and not methods:
        raise SettingError("no methods", f"some of {registry.names()}", "leave methods out for six that matter")
    named = list(methods.items()) if isinstance(methods, Mapping) else [("", m) for m in methods or default_methods()]
    entries: list[Entry] = []
    present = baselines.present() if with_baselines else {}
    taken = set(present)
    for name, method in named:
        method = registry.as_method(method)
        entries.append(Entry(_unique(name or _name(method), taken), name or _label(method), "method", method))
    entries.sort(key=lambda entry: _order(entry.method))
    labels = {name: f"{name} (scikit-learn)" if name in ("linear", "boosting") else name for name in present}
    rivals = [Entry(name, label, "baseline") for name, label in labels.items()]
    entries = [*rivals[:1], *entries, *rivals[1:]]
    if reference is not None:
        entries.append(_reference(reference, taken))
    return entries


def for_problem(entries: list[Entry], problem: Problem) -> list[Entry]:
    """Without baselines that do not take such data; predictions made elsewhere that are not of it are refused."""
    for entry in entries:
        if entry.arrays is not None:
            for fold in problem.folds:
                given.of_fold(entry.arrays, problem, fold)
    x = problem.folds[0].train[0]
    shape = num_rows(x), num_features(x)
    there = baselines.present()
    return [each for each in entries if each.role != "baseline" or there[each.name]().takes(problem.kind, *shape)]


def _reference(reference: Any, taken: set[str]) -> Entry:
    if isinstance(reference, str | Path) and str(reference).endswith(given.SUFFIXES):
        arrays = given.read(Path(reference))
        return Entry(
            _unique("given-reference", taken), f"{Path(reference).name} (reference)", "reference", arrays=arrays
        )
    if isinstance(reference, str | Path) and publishing.is_published(reference):
        found = saving.load(reference)
        name = str(reference).rstrip("/").rpartition("/")[2]
        return Entry(_unique("published-reference", taken), f"{name} (reference)", "reference", posterior=found)
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
    return expected_gradients(method, 1000)


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
    if not hasattr(method, "expected_gradients"):
        return ASSUMED_GRADIENTS
    return float(method.expected_gradients(num_data))


def with_budget(method: Any, gradients: float | None, num_data: int) -> Any:
    """The method at a cost of so many gradients."""
    if gradients is None:
        return method
    check_budget(gradients)
    if not hasattr(method, "with_budget"):
        raise SettingError(
            f"{type(method).__name__} does not say what it costs, and there is a budget",
            "its `expected_gradients` and `with_budget`",
            f"leave the budget out, or write {DECLARATION}",
        )
    return method.with_budget(gradients, num_data)


def over_budget(method: Any, gradients: float | None, num_data: int) -> str:
    """Words, where its least is more than the budget."""
    if gradients is None or (least := expected_gradients(method, num_data)) <= OVER * gradients:
        return ""
    return f"the least that it can do takes {least:,.0f} gradients, more than the budget of {gradients:,.0f}"


def trials(method: Any) -> list[Any]:
    """The settings that tuning tries, its own first."""
    return list(method.trials()) if hasattr(method, "trials") else [method]


def _is_method(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and callable(getattr(value, "fit", None))


def inner_methods(method: Any) -> list[Any]:
    return [value for field in dataclasses.fields(method) if _is_method(value := getattr(method, field.name))]
