"""All methods by name, and the contracts of methods and of baselines, which stand beside them to say whether a network
is worth its trouble. Built-in ones are listed as import paths, so that looking at the list imports none of them."""

import dataclasses
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from posteria import own
from posteria.errors import SettingError
from posteria.methods.shelf import SHELF

if TYPE_CHECKING:
    import jax

    from posteria.engine.loop import Run
    from posteria.models.target import Target
    from posteria.posteriors.base import Posterior
    from posteria.tree import Json, Params

ENTRY_POINTS = "posteria.methods"

# names of the literature for settings of these: name -> (method, its own methods by name)
ALIASES: dict[str, tuple[str, dict[str, str]]] = {"multiswag": ("ensemble", {"method": "swag"})}
FIDELITIES = ("exact", "family-optimum", "asymptotic", "procedure", "point")

_registered: dict[str, type] = {}
_SHELVED = {home.partition(":")[2]: name for name, home in SHELF.items()}
_baselines: dict[str, "type[Baseline]"] = {}


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass of hyper-parameters, with the fidelity that the laws hold it to."""

    fidelity: ClassVar[str]

    def fit(self, key: "jax.Array", target: "Target", start: "Params | None", run: "Run") -> "Posterior":
        """The posterior of `target`, from `start` (weights, or None); `run` has the loop's services."""


Numbers = Callable[
    [np.ndarray], tuple[np.ndarray, np.ndarray | None]
]  # x (n, column) -> centre (n,), width (n,) or None
Probs = Callable[[np.ndarray], np.ndarray]  # x (n, column) -> (n, class)


class Baseline:
    """Subclass it, and `po.register(Mine)`: it then stands in every comparison, under its name in kebab case.

    `fit_numbers` and `fit_classes` learn from x (n, column), standardised as networks get it, and y, in its own units
    or labels; either may be left out. What they return predicts: a centre and a width a row (None: no width), or
    probabilities. Widths need not be right: each row's distribution is centre + width x score, where scores are those
    of rows left out, in five folds, so that its intervals hold and its density means something.
    """

    about: ClassVar[str] = ""  # one line, shown in the page
    needs: ClassVar[str] = ""  # a package without which it is left out

    def fit_numbers(self, x: np.ndarray, y: np.ndarray) -> Numbers:
        raise NotImplementedError

    def fit_classes(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Probs:
        raise NotImplementedError

    def takes(self, kind: str, num_rows: int, num_columns: int) -> bool:
        """Whether it takes part on such data."""
        hook = type(self).fit_classes if kind == "classes" else type(self).fit_numbers
        return hook not in (Baseline.fit_classes, Baseline.fit_numbers)

    @classmethod
    def is_there(cls) -> bool:
        return not cls.needs or find_spec(cls.needs) is not None


def register(method: type) -> type:
    """Make your own method, or baseline, known under its name in kebab case; usable as a decorator."""
    if isinstance(method, type) and issubclass(method, Baseline):
        _baselines[kebab(method.__name__)] = method
        return method
    fidelity = getattr(method, "fidelity", None)
    if not (isinstance(method, type) and dataclasses.is_dataclass(method) and callable(getattr(method, "fit", None))):
        raise SettingError(
            f"{method!r} is not a method", "a frozen dataclass with a fit", "see posteria.methods.registry.Method"
        )
    if fidelity not in FIDELITIES:
        raise SettingError(
            f"{method.__name__}.fidelity is {fidelity!r}", f"one of {FIDELITIES}", "say what its draws promise"
        )
    name = kebab(method.__name__)
    if name in SHELF or name in ALIASES or _registered.get(name, method).__qualname__ != method.__qualname__:
        raise SettingError(f"the name {name!r} is taken", "a name of its own", "rename the class")
    _registered[name] = method
    return method


def baselines() -> dict[str, type[Baseline]]:
    """Those that were registered, by name."""
    return dict(_baselines)


def installed() -> dict[str, EntryPoint]:
    """Entry points of installed packages, by name; of the current folder, which may be anybody's, none."""
    here = os.path.realpath("")
    places = [place for place in sys.path if place and os.path.realpath(place) != here]
    found: dict[str, EntryPoint] = {}
    for distribution in distributions(path=places):
        for point in distribution.entry_points.select(group=ENTRY_POINTS):
            found.setdefault(point.name, point)
    return found


def names() -> list[str]:
    """Of all methods: built in, registered, and from the entry points of installed packages."""
    return list(dict.fromkeys([*SHELF, *_registered, *installed()]))


def get(name: str) -> type:
    """The class of a method that a user names: in kebab case; their own, not registered, as "mypkg.methods:Mine"."""
    if (method := _known(name)) is not None:
        return method
    if ":" in name:
        return register(own.imported(name, "method"))
    near = get_close_matches(name, names(), n=1)
    fix = f"did you mean {near[0]!r}?" if near else "`posteria methods` lists them"
    raise SettingError(f"there is no method {name!r}", f"one of {names()}", fix)


def _known(name: str) -> type | None:
    """A method of this package, a registered one, or one of an installed package."""
    if name in SHELF:
        module, attribute = SHELF[name].split(":")
        method: type = getattr(import_module(module), attribute)
        return method
    if name in _registered:
        return _registered[name]
    point = installed().get(name)
    return None if point is None else point.load()


def as_method(method: "Method | type | str") -> Any:
    """A method from an object, a class or a name."""
    if isinstance(method, str) and method in ALIASES:
        name, inner = ALIASES[method]
        return get(name)(**{setting: get(each)() for setting, each in inner.items()})
    if isinstance(method, str):
        return get(method)()
    if isinstance(method, type):
        return method()
    if not (callable(getattr(method, "fit", None)) and dataclasses.is_dataclass(method)):
        raise SettingError(f"method is {method!r}", "a method such as po.HMC(), or its name", "see po.methods()")
    return method


def kebab(class_name: str) -> str:
    """ "MetropolisHastings" -> "metropolis-hastings", "HMC" -> "hmc", "MCDropout" -> "mc-dropout"; on the shelf, the
    name that it has there: "SMSUBU" -> "sms-ubu"."""
    return (
        _SHELVED.get(class_name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name).lower()
    )


# ---- methods as JSON

UNWRITABLE = "passed again"


def to_json(method: Any) -> "Json":
    """Name and settings; what cannot be written down is marked, and must be passed again on resuming."""
    settings = {field.name: _value_to_json(getattr(method, field.name)) for field in dataclasses.fields(method)}
    return {"name": kebab(type(method).__name__), "settings": settings}


def from_json(stored: "Json") -> Any:
    """The method again; raises where a setting could not be written down, or it is none that is known: what a file
    names is never imported."""
    method = _known(stored["name"])
    if method is None:
        raise SettingError(
            f"the method is your own, {stored['name']!r}",
            "one that is registered or installed: a file's word imports nothing",
            "pass it: method= in Python, --method mypkg:Mine on the command line",
        )
    settings = {name: _value_from_json(stored["name"], name, value) for name, value in stored["settings"].items()}
    return method(**settings)


def _value_to_json(value: Any) -> Any:
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:  # a scalar of NumPy's
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and hasattr(value, "fit"):
        return to_json(value)
    if isinstance(value, tuple) and all(isinstance(item, str | int | float) for item in value):
        return list(value)
    return {UNWRITABLE: type(value).__name__}


def _value_from_json(method: str, name: str, value: Any) -> Any:
    if isinstance(value, dict) and UNWRITABLE in value:
        raise SettingError(
            f"{method}'s {name} ({value[UNWRITABLE]}) could not be written down",
            "that setting",
            "pass method= with it again",
        )
    if isinstance(value, list):  # only tuples are written as one
        return tuple(value)
    return from_json(value) if isinstance(value, dict) else value


# ---- what a method wants: itself, or one inside it


def inside(method: Any) -> list[Any]:
    """The methods that are settings of this one."""
    if not dataclasses.is_dataclass(method):
        return []
    settings = (getattr(method, field.name) for field in dataclasses.fields(method))
    return [setting for setting in settings if hasattr(setting, "fit")]


def streams(method: Any, num_data: int, has_start: bool = False) -> bool:
    """Whether a method is content with batches: itself, and those inside it."""
    inner = inside(method)
    if getattr(method, "variance_reduction", None) or getattr(method, "tune", None) or getattr(method, "polish", None):
        return False
    if hasattr(method, "batch_size"):
        is_small = method.batch_size is not None and method.batch_size < num_data
        return is_small and all(streams(part, num_data) for part in inner)
    if hasattr(method, "structure"):  # Laplace's curvature is a sum over rows; its mode is `map`'s, or given
        is_sum = method.structure in ("diagonal", "kron")
        return is_sum and (all(streams(part, num_data) for part in inner) if inner else has_start)
    return bool(inner) and all(streams(part, num_data) for part in inner)


def takes_batches(method: Any) -> bool:
    return hasattr(method, "batch_size") or any(map(takes_batches, inside(method)))


def optimizer_of(method: Any) -> Any:
    """The user's optimiser; None where there is none."""
    own_optimizer = getattr(method, "optimizer", None)
    found = (optimizer_of(part) for part in inside(method))
    return own_optimizer if own_optimizer is not None else next((one for one in found if one is not None), None)


def batch_size_of(method: Any) -> int | None:
    """Rows a gradient; None: all of them."""
    own_size: int | None = getattr(method, "batch_size", None)
    inner = getattr(method, "method", getattr(method, "map", None))
    return own_size if own_size is not None or not hasattr(inner, "fit") else batch_size_of(inner)
