"""The command lines that fit the recommended method and use it: what was compared, spelled for `posteria fit`."""

from collections.abc import Callable
from shlex import quote
from typing import Any

from posteria.errors import SettingError
from posteria.methods import registry
from posteria.models.priors import Normal

Commands = Callable[..., dict]  # (method, settings it was fitted with, minutes it had) -> {"fit": ..., "predict": ...}


def no_commands(method: Any, settings: dict, minutes: float | None = None) -> dict:
    """For what the command line cannot say."""
    return {}


def commands(source: dict, prior: Any, temperature: float) -> Commands:
    """For data and a network as they were named; a prior only if it is one std for all weights."""
    if not (prior is None or (isinstance(prior, Normal) and isinstance(prior.std, int | float))):
        return no_commands

    def spelled(method: Any, settings: dict, minutes: float | None = None) -> dict:
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
        parts += [f"--prior-std {prior.std:g}"] if prior is not None else []
        parts += [f"--temperature {temperature:g}"] if temperature != 1.0 else []
        parts += ["--seed 0", *(f"--set {quote(change)}" for change in changed), f"--out {quote(folder)}"]
        parts += [f"--minutes {minutes:g}"] if minutes else []
        rows = "new.csv" if source["target"] else "new.npz"
        return {
            "fit": " ".join(parts),
            "predict": f"posteria predict {quote(folder)} {rows} --interval 0.9 -o predictions.csv",
        }

    return spelled


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
