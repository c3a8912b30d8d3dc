"""What is said in words, from the numbers alone: the plan before anything is fitted, and the two answers after it, best
on held-out data and closest to the posterior; with the command lines that fit the recommended method and use it."""

import math
from shlex import quote
from typing import Any

import numpy as np

from posteria import nn
from posteria.comparison.ask import Problem
from posteria.comparison.enter.entries import Entry, expected_seconds
from posteria.comparison.judge import verdicts
from posteria.comparison.run.fitting import Settings
from posteria.errors import SettingError
from posteria.methods import registry
from posteria.methods.shelf import SHELF
from posteria.tree import Json

TRUTH_NAMES = {"w1": "Wasserstein-1 distance", "tv": "total variation"}


def plan(problem: Problem, entries: list[Entry], settings: Settings) -> str:
    """What was understood of the user's data, and what will be done with it."""
    data, about = problem.data, problem.setting
    columns = f"{data['columns']} columns" + (f" ({data['categorical']} categorical)" if data["categorical"] else "")
    what = "regression" if data["kind"] == "regression" else f"{len(data['class_names'])} classes"
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
    return "\n".join([text, *(f"note: {note}" for note in data["notes"])])


def _duration(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def answers(problem: Json) -> Json:
    """Of a problem of results.json that has its rows."""
    return {"best": _best(problem), "closest": _closest(problem)}


def _best(problem: Json) -> Json:
    ranked, score = verdicts.best(problem["rows"]), verdicts.JUDGE
    if not ranked:
        return {"row": None, "text": "Best on held-out data: nothing is finished yet."}
    first = ranked[0]
    text = f"Best on held-out data: {first['label']}, NLL {_value(first, score)}{_headline(problem, first)}"
    text += f"; {_cost(first)}."
    close = verdicts.ties(ranked, score)
    if len(problem["setting"]["seeds"]) < 2:
        text += " One split: differences have no standard error."
    elif close:
        cheapest = min(close, key=_seconds)
        names = " and ".join([", ".join(row["label"] for row in close[:-1]), close[-1]["label"]]).removeprefix(" and ")
        text += f" Indistinguishable from it on {len(problem['setting']['seeds'])} splits: {names}"
        text += f" ({cheapest['label']} {_cost(cheapest)})." if _seconds(cheapest) < _seconds(first) else "."
    else:
        text += f" All others are worse by more than chance on {len(problem['setting']['seeds'])} splits."
    if first["role"] == "reference" and len(ranked) > 1:
        others = [row for row in ranked if row["role"] == "method"]
        text += " It was cut short by the clock." if first["status"] == "cut short" else ""
        text += f" Next: {others[0]['label']}, NLL {_value(others[0], score)}; {_cost(others[0])}." if others else ""
    if first["role"] == "baseline":
        text += " No network is needed for that score on these data."
    return {"row": first["name"], "text": text}


def _closest(problem: Json) -> Json:
    reference = problem["reference"]
    kind = problem["data"]["kind"]
    key = verdicts.TRUTH[kind]
    if reference is None:
        return {"row": None, "text": "Closest to the posterior: not judged, since there is no reference."}
    if reference["status"] in ("waiting", "running"):
        return {"row": None, "text": "Closest to the posterior: not judged yet, the reference is still to come."}
    ranked = verdicts.closest(problem["rows"], kind)
    if not ranked:
        return {"row": None, "text": f"Closest to the posterior: not judged, since {_why_not(reference)}."}
    first = ranked[0]
    text = f"Closest to the posterior: {first['label']}, {TRUTH_NAMES[key]} {_value(first, key)} to the reference"
    text += f"; {_cost(first)}."
    if key in reference["ceiling"]:
        text += (
            f" One chain of the reference is {_number(reference['ceiling'][key])} from its others: the limit of what"
        )
        text += " can be told."
    for label in first["labels"]:
        text += f" It has {label}."
    close = [row["label"] for row in verdicts.ties(ranked, key)]
    if close:
        text += f" Indistinguishable from it: {', '.join(close)}."
    return {"row": first["name"], "text": text}


def _why_not(reference: Json) -> str:
    if reference["status"] == "failed":
        return f"the reference failed: {reference['verdict']}".rstrip(". ")
    text = "the reference has not converged"
    if reference["rhat_share"] is not None:
        text += f" (R-hat is good for {reference['rhat_share']:.0%} of function values)"
    if reference["status"] == "cut short":
        text += "; run again with more minutes (--minutes), it alone is fitted anew"
    return text


def _headline(problem: Json, row: Json) -> str:
    key, title = ("accuracy", "accuracy") if problem["data"]["kind"] == "classes" else ("rmse", "RMSE")
    return f", {title} {_value(row, key)}"


def _value(row: Json, key: str) -> str:
    score = row["scores"][key]
    return _number(score["value"]) + (f" ± {_number(score['se'])}" if score["se"] else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _seconds(row: Json) -> float:
    value = row["scores"]["seconds"]["value"]
    return np.inf if value is None else value


def _cost(row: Json) -> str:
    gradients = row["scores"]["gradients"]["value"]
    seconds = f"{_seconds(row):.1f} s a fit" if np.isfinite(_seconds(row)) else "at no cost here"
    return seconds + (f" and {gradients:,.0f} gradients" if gradients else "")


# ---- commands


def commands(problem: Problem, method: Any, settings: Json, minutes: float | None = None) -> Json:
    """{"fit": ..., "predict": ...} for a method with the settings it was fitted with, and the minutes it had; empty for
    what the command line cannot say."""
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
    parts += [f"--method {name} --network {quote(source['network'])}"]
    parts += [f"{option} {value}" for option, value in problem.options.items()]
    parts += ["--seed 0", *(f"--set {quote(change)}" for change in changed), f"--out {quote(folder)}"]
    parts += [f"--minutes {minutes:g}"] if minutes else []
    rows = "new.csv" if source["target"] else "new.npz"
    rows += f" --network {quote(source['network'])}" if nn.is_own(source["network"]) else ""
    return {
        "fit": " ".join(parts),
        "predict": f"posteria predict {quote(folder)} {rows} --interval 0.9 -o predictions.csv",
    }


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
