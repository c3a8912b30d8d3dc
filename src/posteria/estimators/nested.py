"""Settings of the parts of an estimator, as scikit-learn names them: `method__num_epochs`, `prior__scale`."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from posteria.errors import SettingError
from posteria.methods import registry

PARTS = ("method", "likelihood", "prior")


def settings_of(part: Any) -> dict[str, Any]:
    """Of a method, by object or name, or another dataclass, and of those inside it; nothing of what has none."""
    if isinstance(part, str):
        try:
            part = registry.as_method(part)
        except SettingError:  # no name of a method: it is refused by `fit`
            return {}
    if not is_dataclass(part) or isinstance(part, type):
        return {}
    found = {}
    for field in fields(part):
        value = getattr(part, field.name)
        found[field.name] = value
        if is_dataclass(value):
            found |= {f"{field.name}__{name}": inner for name, inner in settings_of(value).items()}
    return found


def changed(name: str, part: Any, settings: Mapping[str, Any]) -> Any:
    """The part called `name` with some of its settings, or of its parts' settings, changed."""
    part = registry.as_method(part) if isinstance(part, str | type) and name == "method" else part
    if not is_dataclass(part) or isinstance(part, type):
        raise SettingError(
            f"{name} is {part!r}, and {name}__{next(iter(settings))} is to be set",
            "an object with settings",
            f"give the estimator a {name} first" + (', as method="laplace"' if name == "method" else ""),
        )
    known = {field.name for field in fields(part)}
    own, inner = split(settings)
    if unknown := sorted((set(own) | set(inner)) - known):
        raise SettingError(f"{type(part).__name__} has no {unknown[0]!r}", f"one of {sorted(known)}", "mend the name")
    part = replace(part, **own)
    return replace(part, **{key: changed(f"{name}__{key}", getattr(part, key), of) for key, of in inner.items()})


def split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Those of the thing itself, and those of its parts, by part."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in settings.items():
        first, _, rest = name.partition("__")
        if rest:
            inner[first][rest] = value
        else:
            own[first] = value
    return own, dict(inner)
