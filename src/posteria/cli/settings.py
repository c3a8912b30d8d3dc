"""A method from its name and `--set name=value` pairs."""

import ast
import dataclasses
from typing import Any

from posteria.errors import SettingError


def build_method(name: str, pairs: list[str]) -> Any:
    """The method with its settings; an unknown one is refused with the list of those there are."""
    from posteria.inference import registry

    method = registry.as_method(name)
    known = {field.name for field in dataclasses.fields(method)}
    settings = {}
    for pair in pairs:
        setting, equals, text = pair.partition("=")
        setting = setting.strip().replace("-", "_")
        if not equals:
            raise SettingError(f"--set {pair}", "--set name=value", "write --set num_draws=200")
        if setting not in known:
            raise SettingError(f"{name} has no setting {setting!r}", f"one of {sorted(known)}", "check its spelling")
        settings[setting] = _value(setting, text.strip())
    return dataclasses.replace(method, **settings)


def _value(setting: str, text: str) -> Any:
    from posteria.inference import registry

    if setting == "method":  # of an ensemble or a subspace
        return registry.as_method(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"none": None, "true": True, "false": False}.get(text.lower(), text)
