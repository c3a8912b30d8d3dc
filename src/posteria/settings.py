"""What a setting may hold, said once, in its type: for methods, likelihoods, priors and all else that has settings.

    @dataclass(frozen=True)
    class Mine:
        num_draws: Count = 500
        step_size: Positive | None = None
        schedule: Literal["constant", "cyclical"] = "constant"
        map: MAP = field(default_factory=MAP)

        def __post_init__(self) -> None:
            check_settings(self)

Numbers are finite and fit 32 bits, which is what samplers and optimisers count and compute in; bools are no numbers;
scalars of NumPy's and JAX's become Python's, and whole numbers become floats where a float is wanted. Rules about
several settings follow the call. A class that does not call it is not checked.
"""

import contextlib
import dataclasses
import enum
import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from posteria.errors import SettingError, StoreError

LARGEST_INT = 2**31 - 1
LARGEST_FLOAT, LEAST_FLOAT = 3.4028235e38, 1.1754944e-38  # float32's; beyond them it is infinity, and 0
SHOWN = 100  # characters of a value that a message quotes


class Rule(NamedTuple):
    """A condition on a value, in words ("{}" is what its type says); `fix` where "leave it out" would not help."""

    holds: Callable[[Any], bool]
    words: str
    fix: str = ""


def at_least(least: float) -> Rule:
    return Rule(lambda value: value >= least, f"{{}} of at least {least}")


def above(least: float) -> Rule:
    return Rule(lambda value: value > least, f"{{}} above {least}")


def between(least: float, most: float) -> Rule:
    """Both ends excluded."""
    return Rule(lambda value: least < value < most, f"{{}} between {least} and {most}, without the ends")


def up_to(least: float, most: float) -> Rule:
    """Both ends included."""
    return Rule(lambda value: least <= value <= most, f"{{}} from {least} to {most}")


class Infer(enum.Enum):
    """The type of `infer`, an enumeration of one so that copies and processes share it."""

    INFER = "infer"

    def __repr__(self) -> str:
        return "infer"


infer = Infer.INFER  # in place of a number: "a parameter with a prior, to be inferred with the weights"

Count = Annotated[int, at_least(1)]
CountFromZero = Annotated[int, at_least(0)]
MOST_AT_ONCE = 100_000
Several = Annotated[int, up_to(1, MOST_AT_ONCE)]  # of what is held in memory at once, as chains
Warmup = Annotated[int, up_to(0, 10_000_000)]
Positive = Annotated[float, Rule(lambda value: value > 0, "a positive finite number")]
Share = Annotated[float, Rule(lambda value: 0 <= value < 1, "{} in [0, 1)")]
ProperShare = Annotated[float, between(0, 1)]
Text = Annotated[str, Rule(lambda value: bool(value.strip()), "{} that is not empty")]


def _is_method(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and callable(getattr(value, "fit", None))


def _is_optimizer(value: Any) -> bool:
    parts = (getattr(value, "init", None), getattr(value, "update", None))
    return not isinstance(value, type) and all(map(callable, parts)) and _is_hashable(value)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_posterior_or_weights(value: Any) -> bool:
    import jax
    import jax.numpy as jnp
    import numpy as np

    def is_finite(leaf: Any) -> bool:
        if isinstance(leaf, np.ndarray | np.generic | jax.Array):
            is_number = jnp.issubdtype(leaf.dtype, jnp.number) and not np.ma.is_masked(leaf)
            return is_number and bool(np.isfinite(np.asarray(leaf)).all())
        return _real(leaf) is not REFUSED

    if hasattr(value, "sample_params"):
        return not isinstance(value, type)
    try:
        leaves = jax.tree.leaves(value)
    except (TypeError, ValueError):  # keys that cannot be sorted: not a tree
        return False
    return bool(leaves) and all(map(is_finite, leaves))


AnyMethod = Annotated[Any, Rule(_is_method, "a method such as po.MAP()", "pass an object, not a class or a name")]
Optimizer = Annotated[Any, Rule(_is_optimizer, "an Optax transformation", "pass optax.adam(1e-3)")]
Weights = Annotated[Any, Rule(_is_posterior_or_weights, "weights (a tree of finite arrays, or a fitted posterior)")]
Climber = Annotated[Any, Rule(lambda value: _is_method(value) and hasattr(value, "climb"), "a MAP that finds modes")]
Start = Literal["prior", "map", "init", "ascent"] | Climber | Weights


def check_settings(owner: Any) -> None:
    """Refuse a dataclass unless each field holds what its type says; to be called from `__post_init__`."""
    kinds = get_type_hints(type(owner), include_extras=True)
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        kept = checked(type(owner).__name__, field.name, value, kinds[field.name], field.default)
        if kept is not value:
            object.__setattr__(owner, field.name, kept)  # frozen, and still being made


def check_arguments(function: Callable[..., Any], **values: Any) -> tuple[Any, ...]:
    """Likewise the values of a function's arguments, as their types keep them, in the order in which they come."""
    kinds, parameters = get_type_hints(function, include_extras=True), inspect.signature(function).parameters
    return tuple(
        checked(function.__name__, name, value, kinds[name], parameters[name].default) for name, value in values.items()
    )


def refuse_idle(owner: Any, is_idle: bool, name: str, overruled_by: str) -> None:
    """Refuse a setting that was given though another one leaves it nothing to do: it would be ignored silently."""
    value, default = getattr(owner, name), type(owner).__dataclass_fields__[name].default
    if is_idle and value != default:
        got = f"{type(owner).__name__}({name}={shown(value)}), which {overruled_by} overrules"
        raise SettingError(got, "a setting that is used", f"leave {name} out")


def checked(owner: str, name: str, value: Any, kind: Any, default: Any = dataclasses.MISSING) -> Any:
    """The value as `kind` keeps it; a SettingError that names it, what was wanted and the default otherwise."""
    kept = _kept(kind, value)
    if kept is not REFUSED:
        return kept
    wanted = words(kind) + (", within 32 bits" if _is_beyond(_plain(value)) else "")
    is_plain = default is None or isinstance(default, int | float | str | enum.Enum)
    fix = _fix(kind) or f"leave {name} out" + (f" for its default, {default!r}" if is_plain else "")
    raise SettingError(f"{owner}({name}={shown(value)})", wanted, fix)


def shown(value: Any) -> str:
    """Its repr, on one line and not too long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a repr is the user's code
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def words(kind: Any) -> str:
    """What a value of this kind is, as "a whole number of at least 1, or None"."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        text = words(parts[0])
        for rule in parts[1:]:
            text = rule.words.format(text) if isinstance(rule, Rule) else text
        return text
    if origin in UNIONS:
        return _listed([text for part in parts for text in _choices(part)])
    if origin is Literal:
        return _listed(_choices(kind))
    if origin is tuple:
        return f"a tuple of which each is {words(parts[0])}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " or ".join(map(repr, kind))
    plain = {int: "a whole number", float: "a finite number", str: "a text", bool: "True or False", NoneType: "None"}
    return plain.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _choices(kind: Any) -> list[str]:
    return list(map(repr, get_args(kind))) if get_origin(kind) is Literal else [words(kind)]


def _listed(texts: list[str]) -> str:
    return " or ".join([*([", ".join(texts[:-1])] if texts[1:] else []), texts[-1]])


REFUSED: Any = object()
UNIONS = (Union, UnionType)


def _kept(kind: Any, value: Any) -> Any:
    """The value as it is to be kept, or REFUSED."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        kept = _kept(parts[0], value)
        is_right = kept is not REFUSED and all(rule.holds(kept) for rule in parts[1:] if isinstance(rule, Rule))
        return kept if is_right else REFUSED
    if origin in UNIONS:
        return next((kept for part in parts if (kept := _kept(part, value)) is not REFUSED), REFUSED)
    if origin is Literal:
        return next((part for part in parts if type(part) is type(_plain(value)) and part == value), REFUSED)
    if origin is tuple and parts[1:] == (...,):
        items = [_kept(parts[0], item) for item in value] if isinstance(value, list | tuple) else []
        return REFUSED if not items or any(item is REFUSED for item in items) else tuple(items)
    if kind in SCALARS:
        return SCALARS[kind](_plain(value))
    if kind is NoneType:
        return value if value is None else REFUSED
    is_class = isinstance(kind, type) and kind is not Any  # what else there may be is not checked
    return value if not is_class or isinstance(value, kind) else REFUSED


def _plain(value: Any) -> Any:
    """A scalar of NumPy's or JAX's as Python's."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not getattr(value, "mask", False):
        try:
            return value.item()
        except Exception:  # a tracer's: it has no value yet
            return value
    return value


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return int(value) if is_whole and not _is_beyond(value) else REFUSED


def _real(value: Any) -> Any:
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if is_real and not _is_beyond(value) and math.isfinite(value) else REFUSED


def _is_beyond(value: Any) -> bool:
    """A finite number that 32 bits do not hold."""
    size: Any = abs(value) if isinstance(value, numbers.Real) else 1
    if isinstance(value, numbers.Integral):
        return bool(size > LARGEST_INT)
    return bool(LARGEST_FLOAT < size < math.inf or 0 < size < LEAST_FLOAT)


SCALARS: dict[Any, Callable[[Any], Any]] = {
    int: _whole,
    float: _real,
    str: lambda value: str(value) if isinstance(value, str) else REFUSED,
    bool: lambda value: value if isinstance(value, bool) else REFUSED,
}


def _fix(kind: Any) -> str:
    """The first that a rule gives."""
    if isinstance(kind, Rule):
        return kind.fix
    parts = (*get_args(kind), *getattr(kind, "__metadata__", ()))
    return next((fix for part in parts if (fix := _fix(part))), "")


# ---- settings of likelihoods and priors as JSON


def to_json(obj: Any, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"name", "settings"} of a member of `known`; None for any other class, which cannot be written down."""
    name = type(obj).__name__
    if known.get(name) is not type(obj):
        return None
    values = {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}
    return {"name": name, "settings": {k: "infer" if v is infer else v for k, v in values.items()}}


def from_json(stored: dict[str, Any], known: Mapping[str, Any]) -> Any:
    """The object that `to_json` wrote."""
    with refuse_damage(stored):
        return known[stored["name"]](**{k: infer if v == "infer" else v for k, v in stored["settings"].items()})


@contextlib.contextmanager
def refuse_damage(stored: Any) -> Iterator[None]:
    """Turn what goes wrong while `stored` is read into a StoreError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(
            f"stored settings {stored!r}",
            "a likelihood or prior of Posteria with its settings",
            "the store is damaged or was written by another version",
        ) from error


def check_rows(owner: str, name: str, value: Any) -> None:
    """Refuse what cannot be rows of inputs: an array of numbers, a frame, or a dictionary of arrays."""
    parts = list(value.values()) if isinstance(value, dict) and value else [value]
    kinds = [getattr(getattr(part, "dtype", None), "kind", "") for part in parts]
    is_array = all(kind in "fiub" and kind and getattr(part, "ndim", 0) for kind, part in zip(kinds, parts))
    if value is not None and not is_array and not hasattr(value, "columns"):
        raise SettingError(f"{owner}: {name}={shown(value)}", "rows of inputs, as x is", "pass an array (n, ...)")
