"""What is said before and after: the plan before anything is fitted, and in the end the command lines that fit the
recommended method, mend it where that is needed, and use it; what a shift does to the methods, and what held-out rows
say of temperatures."""

import math
from collections.abc import Mapping
from shlex import quote
from typing import Any

import numpy as np

from posteria import nn
from posteria.comparison.ask import Problem
from posteria.comparison.enter.entries import Entry, expected_seconds
from posteria.comparison.judge import verdicts
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
    reference = next((entry for entry in entries if entry.role == "reference"), None)
    cap = settings.minutes if reference and reference.method else None  # what was made elsewhere takes no time
    noise = ", noise inferred" if "infer" in about["likelihood"] else ""
    doing = f"{len(methods)} method{'s' if len(methods) != 1 else ''}"
    doing += f" and {len(baselines)} baselines" if baselines else ""
    doing += f" on {seeds} splits" if seeds > 1 else ""
    doing += f", {settings.budget:,.0f} gradients each" if settings.budget else ""
    duration = _duration(expected_seconds(problem, entries, settings.budget))
    text = f"{data['rows']:,} rows, {columns}, {what}; {split}{noise}; {doing}, about {duration}"
    if reference:
        text += f"; {reference.label}" + (f" capped at {cap:g} min (--minutes)" if cap else "")
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


# ---- temperatures. Where cold is better the model is at fault, and the words name it.
#
# Without underfitting there is no cold-posterior effect (Zhang et al. 2024); a prior that is too narrow (Noci et al.
# 2021) and a likelihood that takes clear labels for noisy ones (Kapoor et al. 2022) underfit. Nothing is cooled here.

NUM_ERRORS = 2.0  # standard errors that chance explains
CLASSES = "where labels were checked, NoisyDirichlet or LabelSmoothing, with the strength that suits rows left out"
OTHERS = "with less noise, or noise that is inferred"


def temperature_words(
    held_out: Mapping[float, np.ndarray], kind: str, fitted: Mapping[float, float] | None = None
) -> str:
    """Of log scores a held-out row, (n,), by temperature, T = 1 among them, else nothing is said.

    `kind` is the likelihood's. `fitted` has the mean log score of the rows that were fitted, by temperature.
    """
    if 1.0 not in held_out or len(held_out) < 2:
        return ""
    best = max(held_out, key=lambda temperature: float(np.mean(held_out[temperature])))
    if best == 1.0:
        return f"T = 1 predicts held-out rows best of {_listed(held_out)}."
    ahead = np.asarray(held_out[best], np.float64) - np.asarray(held_out[1.0], np.float64)
    by, error = float(ahead.mean()), float(ahead.std() / len(ahead) ** 0.5)
    measured = f"by {by:.3f} ± {error:.3f} nats a row"
    if by <= NUM_ERRORS * error:
        return f"T = 1 is within chance of the best of {_listed(held_out)}: T = {best:g} is better {measured}."
    if best > 1:
        return (
            f"T = {best:g} predicts held-out rows better than T = 1, {measured}: the model at T = 1 is surer than the "
            "rows bear. Narrow the prior, or take a likelihood with heavier tails, and compare again at T = 1."
        )
    why = ""
    if fitted is not None:
        why = f" (the rows that were fitted: {fitted[1.0]:.3f} nats at T = 1, {fitted[best]:.3f} at T = {best:g})"
    remedy = CLASSES if kind == "classes" else OTHERS
    return (
        f"T = {best:g} predicts held-out rows better than T = 1, {measured}: the model at T = 1 underfits{why}. Widen "
        f"the prior, or change the likelihood ({remedy}), and compare again at T = 1; nothing was cooled for you."
    )


def _listed(temperatures: Mapping[float, object]) -> str:
    return ", ".join(f"{temperature:g}" for temperature in sorted(temperatures))


# ---- what a shift does to the methods, from the "shift" of results.json and its rows alone

MOST_NAMED = 3  # together
SURE = 1.96  # standard errors
HEADLINE = {"regression": "coverage_90", "classes": "accuracy"}  # a share of rows, with its error
PROMISED = 0.9  # of intervals


def shift_words(problem: Json) -> list[str]:
    """Sentences, of a problem of results.json; none where nothing was shifted, or no row is finished."""
    shift = problem.get("shift")
    if not shift or not shift["found"]:
        return []
    rows = {row["name"]: row for row in problem["rows"]}
    name = verdicts.recommended(problem["rows"])
    chosen = name if name in shift["found"] else next(iter(shift["found"]))
    kind = problem["data"]["kind"]
    told = [_fall(shift, rows[chosen], kind), _promise(shift, rows[chosen], kind)]
    reference = next((row for row in problem["rows"] if row["role"] == "reference"), None)
    is_truth = bool((problem.get("reference") or {}).get("converged"))  # only then it stands for the exact answer
    if is_truth and reference is not None and reference["name"] in shift["found"] and reference["name"] != chosen:
        told.append(_promise(shift, reference, kind))
    told.append(_first(shift, rows))
    told.append(_left_out(shift))
    return [text for text in told if text]


def _fall(shift: Json, row: Json, kind: str) -> str:
    key = "accuracy" if kind == "classes" else "rmse"
    found = shift["found"][row["name"]]
    if not found:
        return ""
    first = next(iter(found.values()))[key]["value"][0]
    ends = [f"{_spoken(name)} {_score(each[key]['value'][-1], kind)}" for name, each in found.items()]
    what = "names the right class for" if kind == "classes" else "is off by"
    unit = " of 100 rows" if kind == "classes" else " (root mean square)"
    return (
        f"{row['label']} {what} {_score(first, kind)}{unit} on {shift['rows']:,} held-out rows as they came, and at "
        f"the most severe: {', '.join(ends)}."
    )


def _promise(shift: Json, row: Json, kind: str) -> str:
    """What was promised and what came true, at the most severe; where it is too few, by more than chance."""
    found = shift["found"][row["name"]]
    if not found:
        return ""
    key = HEADLINE[kind]
    first = next(iter(found.values()))
    parts, broken = [], []
    for name, each in found.items():
        held, error = each[key]["value"][-1], each[key]["se"][-1] or 0.0
        promised = PROMISED if kind == "regression" else each["confidence"]["value"][-1]
        if held is None or promised is None:
            continue
        said = f"{100 * held:.0f}" if kind == "regression" else f"{100 * held:.0f} where it was {promised:.0%} sure"
        parts.append(f"{_spoken(name)} {said}")
        if promised - held > max(SURE * error, verdicts.TOLERANCE):
            broken.append(_spoken(name))
    if not parts:
        return ""
    came = _of_100(first[key]["value"][0])
    if kind == "regression":
        told = (
            f"Its 90 % intervals held {came} rows as they came"
            if row["role"] != "reference"
            else (f"Those of {row['label']}, which stands for the exact answer, held {came}")
        )
    else:
        sure = first["confidence"]["value"][0]
        who = "It" if row["role"] != "reference" else f"{row['label']}, which stands for the exact answer,"
        told = f"{who} was right for {came} rows as they came, where it was {sure:.0%} sure"
    told += f"; at the most severe: {', '.join(parts)}."
    if broken and row["role"] != "reference":
        told += f" It promises more than it holds under {_list(broken)}."
    elif row["role"] != "reference":
        told += " It holds what it promises under all of them, as far as these rows can tell."
    return told


def _first(shift: Json, rows: dict[str, Json]) -> str:
    parts = []
    for name, leaders in shift["leaders"].items():
        labels = [rows[each]["label"] for each in leaders]
        if len(labels) == 1:
            parts.append(f"{_spoken(name)}: {labels[0]}, by more than chance")
        elif len(labels) > MOST_NAMED:
            parts.append(f"{_spoken(name)}: {len(labels)} of {len(shift['found'])} that cannot be told apart")
        elif labels:
            parts.append(f"{_spoken(name)}: {_list(labels)}, not told apart")
    return f"Best at the most severe, by NLL: {'; '.join(parts)}." if parts else ""


def _left_out(shift: Json) -> str:
    parts = [f"{_spoken(name)} ({why.rstrip('. ')})" for name, why in shift["left_out"].items()]
    return f"Not tried: {'; '.join(parts)}." if parts else ""


def _spoken(name: str) -> str:
    return {"attack": "an attack on itself", "transfer": "an attack on another network"}.get(
        name, name.replace("_", " ")
    )


def _score(value: float | None, kind: str) -> str:
    if value is None:
        return "beyond all numbers"
    return f"{100 * value:.0f}" if kind == "classes" else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _of_100(share: float | None) -> str:
    return "an unknown number of" if share is None else f"{100 * share:.0f} of 100"


def _list(labels: list[str]) -> str:
    return " and ".join([*([", ".join(labels[:-1])] if labels[1:] else []), labels[-1]])
