"""A method from its name and `--set name=value` pairs."""

import ast
import dataclasses
from typing import TYPE_CHECKING, Any

from posteria.errors import SettingError

if TYPE_CHECKING:
    from posteria.tree import Json

METHODS = ("method", "map", "swag")  # settings that are themselves methods: of an ensemble, a subspace, Laplace, SWAG


def with_settings(names: list[str], pairs: list[str]) -> list[Any]:
    """The methods of these names; `map.num_epochs=30` is a setting of the one called so."""
    own: dict[str, list[str]] = {name: [] for name in names}
    for pair in pairs:
        name = next((name for name in names if pair.startswith(f"{name}.")), None)
        if name is None:
            wanted = f"--set METHOD.SETTING=VALUE, METHOD one of {names}"
            raise SettingError(f"--set {pair}", wanted, f"write --set {names[0]}.{pair.rpartition('.')[2] or 'x=1'}")
        own[name].append(pair[len(name) + 1 :])
    return [build_method(name, own[name]) for name in names]


def build_method(name: str, pairs: list[str]) -> Any:
    """The method with its settings (`method.num_epochs=30` is one of the method inside it); an unknown one is refused
    with the list of those there are."""
    from posteria.methods import registry

    wanted: Json = {}  # by name, "" for the value itself
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals:
            raise SettingError(f"--set {pair}", "--set name=value", "write --set num_draws=200")
        node = wanted
        for part in path.strip().replace("-", "_").split("."):
            node = node.setdefault(part, {})
        node[""] = text.strip()
    return _changed(registry.as_method(name), wanted)


def _changed(method: Any, wanted: "Json") -> Any:
    """All settings at once, since some are only right together."""
    from posteria.methods import registry

    known = {field.name for field in dataclasses.fields(method)}
    settings = {}
    for setting, node in wanted.items():
        if setting not in known:
            name = registry.kebab(type(method).__name__)
            raise SettingError(f"{name} has no setting {setting!r}", f"one of {sorted(known)}", "check its spelling")
        value = _value(setting, node[""]) if "" in node else getattr(method, setting)
        if inner := {name: part for name, part in node.items() if name}:
            if isinstance(value, str) and value in METHODS:  # a start that is named: start.num_epochs=30
                value = registry.as_method(value)
            if not dataclasses.is_dataclass(value):
                raise SettingError(f"{setting} is {value!r}", "a method with settings", f"first --set {setting}=map")
            value = _changed(value, inner)
        settings[setting] = value
    return dataclasses.replace(method, **settings)


def _value(setting: str, text: str) -> Any:
    from posteria.methods import registry

    if setting in METHODS and text.lower() not in ("none", "auto"):
        return registry.as_method(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two of a thousand brackets
        return {"none": None, "true": True, "false": False}.get(text.lower(), text)
