"""The command lines that fit the recommended method and use it: what was compared, spelled for `posteria fit`."""

from shlex import quote
from typing import Any

from posteria.comparison.ask.question import Problem
from posteria.errors import SettingError
from posteria.methods import registry


def commands(problem: Problem, method: Any, settings: dict, minutes: float | None = None) -> dict:
    """{"fit": ..., "predict": ...} for a method with the settings it was fitted with, and the minutes it had; empty for
    what the command line cannot say."""
    source = problem.source
    if problem.options is None or not source:
        return {}
    try:
        changed = _changes(method, settings)
    except SettingError:
        return {}
    name = _name(method)
    folder = f"runs/{name.rpartition(':')[2]}"
    parts = ["posteria fit", quote(source["data"])]
    parts += [f"--target {quote(source['target'])}"] if source["target"] else []
    parts += [f"--kind {source['kind']}"] if source["kind"] else []
    parts += [f"--ignore {quote(column)}" for column in source["ignore"]]
    parts += [f"--method {name} --network {quote(source['network'])}"]
    parts += [f"{option} {value}" for option, value in problem.options.items()]
    parts += ["--seed 0", *(f"--set {quote(change)}" for change in changed), f"--out {quote(folder)}"]
    parts += [f"--minutes {minutes:g}"] if minutes else []
    rows = "new.csv" if source["target"] else "new.npz"
    return {
        "fit": " ".join(parts),
        "predict": f"posteria predict {quote(folder)} {rows} --interval 0.9 -o predictions.csv",
    }


def _name(method: Any) -> str:
    """As `--method` understands it."""
    path = f"{type(method).__module__}:{type(method).__qualname__}"
    packaged = {point.value: name for name, point in registry.installed().items()}
    built_in = {value: name for name, value in registry.SHELF.items()}
    return (built_in | packaged).get(path, path)


def _changes(method: Any, settings: dict, before: str = "") -> list[str]:
    """ "num_draws=200", "method.num_epochs=30", ...: what differs from the defaults."""
    try:
        defaults = registry.to_json(type(method)())["settings"]
    except TypeError:  # it has settings without a default
        defaults = {}
    found = []
    for name, value in settings.items():
        default = defaults.get(name)
        if value == default:
            continue
        if not isinstance(value, dict):
            found.append(f"{before}{name}={value}")
            continue
        if registry.UNWRITABLE in value:
            raise SettingError(f"{name} cannot be written down")
        inner = registry.from_json(value)
        if not isinstance(default, dict) or default.get("name") != value["name"]:
            found.append(f"{before}{name}={_name(inner)}")
        found += _changes(inner, value["settings"], f"{before}{name}.")
    return found
