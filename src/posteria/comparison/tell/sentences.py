"""What is said before and after: the plan before anything is fitted, and in the end the command lines that fit the
recommended method, mend it where that is needed, and use it."""

import math
from shlex import quote
from typing import Any

from posteria import nn
from posteria.comparison.ask import Problem
from posteria.comparison.enter.entries import Entry, expected_seconds
from posteria.comparison.run.fitting import Settings
from posteria.data.table_plan import as_text
from posteria.errors import SettingError
from posteria.methods import registry
from posteria.methods.shelf import SHELF
from posteria.tree import Json


def plan(problem: Problem, entries: list[Entry], settings: Settings) -> str:
    """What was understood of the user's data, and what will be done with it."""
    data, about = problem.data, problem.setting
    columns = f"{data['columns']} columns" + (f" ({data['categorical']} categorical)" if data["categorical"] else "")
    what = "regression" if data["kind"] == "regression" else f"{len(data['class_names'])} classes"
    what = "counts" if problem.model.likelihood.kind == "counts" else what
    split = about["split"].split(",")[0]
    if "split" not in split and "rows" not in split:  # "random", "group by who"
        split = split.replace(" by ", " split by ") if " by " in split else f"{split} split"
    seeds = len(about["seeds"])
    methods = [entry for entry in entries if entry.role == "method"]
    baselines = [entry for entry in entries if entry.role == "baseline"]
    reference = next((entry.label for entry in entries if entry.role == "reference"), None)
    noise = ", noise inferred" if "infer" in about["likelihood"] else ""
    doing = f"{len(methods)} method{'s' if len(methods) != 1 else ''}"
    doing += f" and {len(baselines)} baselines" if baselines else ""
    doing += f" on {seeds} splits" if seeds > 1 else ""
    doing += f", {settings.budget:,.0f} gradients each" if settings.budget else ""
    duration = _duration(expected_seconds(problem, entries, settings.budget))
    text = f"{data['rows']:,} rows, {columns}, {what}; {split}{noise}; {doing}, about {duration}"
    if reference:
        text += f"; {reference}" + (f" capped at {settings.minutes:g} min (--minutes)" if settings.minutes else "")
    shown = [] if data["table"] is None else data["table"]["notes"]  # below how the table is read
    read = [] if data["table"] is None else [as_text(data["table"])]
    return "\n".join([text, *read, *(f"note: {note}" for note in data["notes"] if note not in shown)])


def _duration(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# ---- commands


def commands(
    problem: Problem, method: Any, settings: Json, minutes: float | None = None, is_mended: bool = False
) -> Json:
    """{"fit": ..., "predict": ...} for a method with the settings it was fitted with, and the minutes it had, with
    {"calibrate": ...} in between where it is to be mended; empty for what the command line cannot say."""
    source = problem.source
    if problem.options is None or not source:
        return {}
    try:
        changed = _changes(method, settings)
    except SettingError:
        return {}
    name = _method_name(method)
    folder = f"runs/{name.rpartition(':')[2]}"
    parts = ["posteria fit", quote(source["data"])]
    parts += [f"--target {quote(source['target'])}"] if source["target"] else []
    parts += [f"--kind {source['kind']}"] if source["kind"] else []
    parts += [f"--ignore {quote(column)}" for column in source["ignore"]]
    parts += [f"--as {quote(f'{column}={taken}')}" for column, taken in source.get("as", {}).items()]
    parts += [f"--encoding {quote(source['encoding'])}"] if source.get("encoding") else []
    parts += [f"--method {name} --network {quote(source['network'])}"]
    parts += [f"{option} {value}" for option, value in problem.options.items()]
    parts += ["--seed 0", *(f"--set {quote(change)}" for change in changed), f"--out {quote(folder)}"]
    parts += [f"--minutes {minutes:g}"] if minutes else []
    rows = "new.csv" if source["target"] else "new.npz"
    rows += f" --network {quote(source['network'])}" if nn.is_own(source["network"]) else ""
    found = {"fit": " ".join(parts)}
    if is_mended and source["target"]:
        found["calibrate"] = f"posteria calibrate {quote(folder)} unseen.csv"
        folder += "-calibrated"
    return found | {"predict": f"posteria predict {quote(folder)} {rows} --interval 0.9 -o predictions.csv"}


def _method_name(method: Any) -> str:
    """As `--method` understands it."""
    path = f"{type(method).__module__}:{type(method).__qualname__}"
    packaged = {point.value: name for name, point in registry.installed().items()}
    built_in = {value: name for name, value in SHELF.items()}
    return (built_in | packaged).get(path, path)


def _changes(method: Any, settings: Json, before: str = "") -> list[str]:
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
            found.append(f"{before}{name}={_method_name(inner)}")
        found += _changes(inner, value["settings"], f"{before}{name}.")
    return found
