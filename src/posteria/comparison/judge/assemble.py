"""Records into results: means over seeds, distances to the reference, differences from the best, words."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from posteria import __version__
from posteria.comparison.ask.question import Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge import grades
from posteria.comparison.tell import answers, results
from posteria.posteriors.saving import versions

if TYPE_CHECKING:
    from posteria.comparison.run.runner import Comparison, Record

CONFIDENCE = 0.95  # of "indistinguishable"
NOT_JUDGED = "not judged"
RESAMPLED = ("random", "uci", "group")  # splits that share rows


def results_of(comparison: "Comparison") -> dict:
    """Everything as results.json has it."""
    return {
        "posteria": __version__,
        "status": "complete" if comparison.is_complete else "running",
        "command": comparison.settings.command,
        "created": comparison.created,
        "versions": versions(),
        "problems": [_problem(comparison, problem, entries) for problem, entries in comparison.problems],
    }


def _problem(comparison: "Comparison", problem: Problem, entries: list[Entry]) -> dict:
    records = {
        entry.name: [comparison.records.get((problem.name, entry.name, fold.seed)) for fold in problem.folds]
        for entry in entries
    }
    reference = next((entry for entry in entries if entry.role == "reference"), None)
    truth: list = [None] * len(problem.folds) if reference is None else records[reference.name]
    foreign = [*problem.folds[0].far, *problem.folds[0].out]
    has_evidence = any(record and "log_evidence" in record.scores for seeds in records.values() for record in seeds)
    columns = grades.columns(
        problem.kind, foreign, reference is not None, problem.data["target"], has_evidence=has_evidence
    )
    found = {
        "name": problem.name,
        "title": problem.title,
        "data": problem.data,
        "setting": problem.setting,
        "columns": columns,
        "rows": [_row(comparison, problem, entry, records[entry.name], truth, columns) for entry in entries],
        "reference": None if reference is None else _reference(reference, truth, problem),
    }
    _compare_with_best(found, problem)
    found["answers"] = answers.answers(found)
    found["next"] = _next(found, problem, entries)
    return found


def _row(
    comparison: "Comparison", problem: Problem, entry: Entry, records: list, truth: list, columns: list[dict]
) -> dict:
    scores = {}
    for column in columns:
        if column["group"] == "truth":
            scores[column["key"]] = _truth(column["key"], problem.kind, entry, records, truth)
        else:
            by_seed = [None if record is None else record.scores.get(column["key"]) for record in records]
            texts = [record.texts[column["key"]] for record in records if record and column["key"] in record.texts]
            scores[column["key"]] = results.score(by_seed, texts[0] if texts else "")
    status, reason = _status(comparison, problem, entry, records)
    runs = [
        f"runs/{problem.name}/{entry.name}-{fold.seed}"
        for fold, record in zip(problem.folds, records)
        if comparison.settings.out is not None and entry.method is not None and record and record.status != "failed"
    ]
    fitted = [record.settings for record in records if record is not None and record.settings is not None]
    return {
        "name": entry.name,
        "label": entry.label,
        "role": entry.role,
        "fidelity": entry.fidelity,
        "status": status,
        "reason": reason,
        "labels": entry.labels,
        "about": entry.about,
        "settings": fitted[0] if fitted else entry.settings,
        "scores": scores,
        "versus_best": {},
        "runs": runs,
    }


def _status(comparison: "Comparison", problem: Problem, entry: Entry, records: list) -> tuple[str, str]:
    done = [record for record in records if record is not None]
    failed = [record for record in done if record.status == "failed"]
    if failed:
        return "failed", failed[0].reason
    if comparison.running == (problem.name, entry.name) and len(done) < len(records):
        return "running", ""
    if not done:
        return "waiting", ""
    if len(done) < len(records):
        return "running", ""
    cut = [record for record in done if record.status == "cut short"]
    if cut:
        return "cut short", cut[0].reason
    return "done", next((record.reason for record in done if record.reason), "")


def _truth(key: str, kind: str, entry: Entry, records: list, truth: list) -> dict:
    """The distance to the reference, on the splits where it has converged; the reference's own is its ceiling."""
    if entry.role == "baseline":
        return results.score([None] * len(records), "no posterior")
    by_seed: list[float | None] = []
    for record, reference in zip(records, truth):
        is_judged = reference is not None and reference.status != "failed" and reference.convergence["converged"]
        if record is None or record.status == "failed" or not is_judged:
            by_seed.append(None)
        elif entry.role == "reference":
            by_seed.append(record.ceiling.get(key))
        else:
            by_seed.append(grades.distances(record.summary, reference.summary, kind)[key])
    is_over = all(reference is not None for reference in truth)
    is_unjudged = is_over and entry.role != "reference" and all(value is None for value in by_seed)
    return results.score(by_seed, NOT_JUDGED if is_unjudged and any(records) else "")


def _reference(entry: Entry, records: list["Record | None"], problem: Problem) -> dict:
    done = [record for record in records if record is not None and record.status != "failed"]
    facts = [record.convergence or {} for record in done]
    ceilings = [record.ceiling for record in done if record.ceiling]
    failed = [record.reason for record in records if record is not None and record.status == "failed"]

    def worst(key: str, of: Any) -> Any:
        values = [fact[key] for fact in facts if fact.get(key) is not None]
        return of(values) if values else None

    return {
        "name": entry.name,
        "status": done[-1].status if done else ("failed" if failed else "waiting"),
        "converged": bool(facts) and all(fact["converged"] for fact in facts),
        "rhat_share": worst("rhat_share", min),
        "rhat_worst": worst("rhat_worst", max),
        "weights_rhat_share": worst("weights_rhat_share", min),
        "ceiling": {key: float(np.mean([each[key] for each in ceilings])) for key in ceilings[0]} if ceilings else {},
        "verdict": failed[0] if failed and not done else (facts[0].get("verdict", "") if facts else ""),
        "by_seed": [fact["converged"] for fact in facts],
    }


def _compare_with_best(found: dict, problem: Problem) -> None:
    """Paired differences from the best row of each column, over the seeds."""
    fold = problem.folds[0]
    overlap = len(fold.y_test) / len(fold.y_train) if problem.setting["split"].startswith(RESAMPLED) else 0.0
    for column in found["columns"]:
        if column["group"] == "cost" or column["better"] == "neither":
            continue
        key = column["key"]
        losses = {
            row["name"]: _loss(row["scores"][key]["by_seed"], column)
            for row in found["rows"]
            if row["scores"][key]["value"] is not None and (column["group"] != "truth" or row["role"] == "method")
        }
        full = {name: loss for name, loss in losses.items() if not np.isnan(loss).any()}
        if not full:
            continue
        best = min(full, key=lambda name: full[name].mean())
        for row in found["rows"]:
            if row["name"] in full:
                row["versus_best"][key] = _difference(full[row["name"]] - full[best], overlap)


def _loss(by_seed: list, column: dict) -> np.ndarray:
    values = np.array([np.nan if value is None else value for value in by_seed], np.float64)
    if column["better"] == "near":
        return np.abs(values - column["goal"])
    return -values if column["better"] == "higher" else values


def _difference(differences: np.ndarray, overlap: float) -> dict:
    """Mean, standard error, and whether zero is inside the 95 % interval of a t distribution.

    Splits drawn again from the same rows are not independent: their variance is raised by test rows / training rows.
    Nadeau & Bengio 2003.
    """
    from scipy.stats import t

    count = len(differences)
    mean = float(differences.mean())
    if count < 2:
        return {"difference": mean, "se": None, "indistinguishable": mean == 0.0}
    se = float(differences.std(ddof=1) * math.sqrt(1 / count + overlap))
    critical = float(t.ppf((1 + CONFIDENCE) / 2, count - 1))
    return {"difference": mean, "se": se, "indistinguishable": abs(mean) <= critical * se}


def _next(found: dict, problem: Problem, entries: list[Entry]) -> dict:
    """The commands that fit and use the recommended method as it was fitted here."""
    name = answers.recommended(found)
    row = next((row for row in found["rows"] if row["name"] == name), None)
    entry = next((entry for entry in entries if entry.name == name), None)
    if row is None or entry is None:
        return {}
    minutes = problem.setting["minutes"] if row["status"] == "cut short" else None
    return problem.next_commands(entry.method, row["settings"], minutes)
