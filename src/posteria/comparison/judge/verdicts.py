"""From the records of all rows to numbers and verdicts: means over seeds, distances to the reference, differences from
the best, and who is best, closest and recommended.

Rows are dicts as results.json has them: "name", "role", "fidelity", "status", "scores", "versus_best".
"""

import math
from typing import Any

import numpy as np

from posteria.comparison.ask import Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge import grades
from posteria.comparison.run.records import Record
from posteria.comparison.run.runner import Ledger
from posteria.tree import Json

_FAR = "AUROC by {what}: can it tell {name} from data like the training rows? 0.5 is chance"
CONFIDENCE = 0.95  # of "indistinguishable"
NOT_JUDGED = "not judged"
JUDGE = "nll"  # the proper score that both kinds of target share
TRUTH = {"regression": "w1", "classes": "tv"}  # the distance that the closest is closest by

Records = list[Record | None]  # a split each


def judged(ledger: Ledger, problem: Problem, entries: list[Entry]) -> Json:
    """The "columns", "rows" and "reference" of a problem: all that is numbers."""
    reference = next((entry for entry in entries if entry.role == "reference"), None)
    truth: Records = [None] * len(problem.folds) if reference is None else ledger.records_of(problem, reference)
    found: Json = {
        "columns": _columns(ledger, problem, entries, reference is not None),
        "reference": None if reference is None else _reference(reference, truth),
    }
    found["rows"] = [
        {
            "name": entry.name,
            "role": entry.role,
            "fidelity": entry.fidelity,
            "status": ledger.status_of(problem, entry)[0],
            "scores": _scores(problem.kind, entry, ledger.records_of(problem, entry), truth, found["columns"]),
            "versus_best": {},
        }
        for entry in entries
    ]
    _compare_with_best(found["columns"], found["rows"], problem)
    return found


# ---- verdicts


def ranked(rows: list[Json], key: str) -> list[Json]:
    """Those that have the score, best first; all scores used so are better when lower."""
    scored = [row for row in rows if row["scores"].get(key, {}).get("value") is not None]
    return sorted((row for row in scored if row["status"] != "failed"), key=lambda row: row["scores"][key]["value"])


def ties(in_order: list[Json], key: str) -> list[Json]:
    """Those behind the first that cannot be told from it."""
    return [row for row in in_order[1:] if row["versus_best"].get(key, {}).get("indistinguishable")]


def best(rows: list[Json]) -> list[Json]:
    """In the order of their scores on held-out data."""
    return ranked(rows, JUDGE)


def closest(rows: list[Json], kind: str) -> list[Json]:
    """Methods, in the order of their distance to the reference; none where it is not there or has not converged."""
    return [row for row in ranked(rows, TRUTH[kind]) if row["role"] == "method"]


def recommended(rows: list[Json]) -> str | None:
    """The best row that is a method (or the reference): the one whose commands are given."""
    return next((row["name"] for row in best(rows) if row["role"] != "baseline" and row["fidelity"]), None)


# ---- scores


def _columns(ledger: Ledger, problem: Problem, entries: list[Entry], has_reference: bool) -> list[Json]:
    foreign = [*problem.folds[0].far, *problem.folds[0].out]
    done = [record for entry in entries for record in ledger.records_of(problem, entry) if record is not None]
    has_evidence = any("log_evidence" in record.scores for record in done)
    return columns_of(problem.kind, foreign, has_reference, problem.data["target"], has_evidence=has_evidence)


def _scores(kind: str, entry: Entry, records: Records, truth: Records, columns: list[Json]) -> dict[str, Json]:
    found = {}
    for column in columns:
        key = column["key"]
        if column["group"] == "truth":
            found[key] = _distance(key, kind, entry, records, truth)
        else:
            by_seed = [None if record is None else record.scores.get(key) for record in records]
            texts = [record.texts[key] for record in records if record and key in record.texts]
            found[key] = score(by_seed, texts[0] if texts else "")
    return found


def score(by_seed: list[float | None], text: str = "") -> Json:
    """Mean and standard error over the seeds that have a value."""
    values = np.array([value for value in by_seed if value is not None], np.float64)
    finite = bool(len(values)) and bool(np.isfinite(values).all())
    value = float(values.mean()) if finite else None
    se = float(values.std(ddof=1) / math.sqrt(len(values))) if finite and len(values) > 1 else None
    if len(values) and not finite:
        text = text or "inf"
    content: Json = {
        "value": value,
        "se": se,
        "by_seed": [v if v is None or math.isfinite(v) else None for v in by_seed],
    }
    return content | ({"text": text} if text else {})


def _is_truth(reference: Record) -> bool:
    return reference.status != "failed" and bool(reference.convergence and reference.convergence["converged"])


def _distance(key: str, kind: str, entry: Entry, records: Records, truth: Records) -> Json:
    """The distance to the reference, on the splits where it has converged; the reference's own is its ceiling."""
    if entry.role == "baseline":
        return score([None] * len(records), "no posterior")
    by_seed: list[float | None] = []
    for record, reference in zip(records, truth):
        if record is None or record.status == "failed" or reference is None or not _is_truth(reference):
            by_seed.append(None)
        elif entry.role == "reference":
            by_seed.append(record.ceiling.get(key))
        else:
            found = grades.distances(record.arrays["summary"], reference.arrays["summary"], kind)
            by_seed.append(found[key])
    is_over = all(reference is not None for reference in truth)
    is_unjudged = is_over and entry.role != "reference" and all(value is None for value in by_seed)
    return score(by_seed, NOT_JUDGED if is_unjudged and any(records) else "")


def _reference(entry: Entry, records: list[Record | None]) -> Json:
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


# ---- differences


def _compare_with_best(columns: list[Json], rows: list[Json], problem: Problem) -> None:
    """Paired differences from the best row of each column, over the seeds."""
    fold = problem.folds[0]
    overlap = len(fold.y_test) / len(fold.y_train) if problem.splits.share_rows else 0.0
    for column in columns:
        if column["group"] == "cost" or column["better"] == "neither":
            continue
        key = column["key"]
        losses = {
            row["name"]: _loss(row["scores"][key]["by_seed"], column)
            for row in rows
            if row["scores"][key]["value"] is not None and (column["group"] != "truth" or row["role"] == "method")
        }
        full = {name: loss for name, loss in losses.items() if not np.isnan(loss).any()}
        if not full:
            continue
        first = min(full, key=lambda name: full[name].mean())
        for row in rows:
            if row["name"] in full:
                row["versus_best"][key] = _difference(full[row["name"]] - full[first], overlap)


def _loss(by_seed: list[float | None], column: Json) -> np.ndarray:
    values = np.array([np.nan if value is None else value for value in by_seed], np.float64)
    if column["better"] == "near":
        return np.abs(values - column["goal"])
    return -values if column["better"] == "higher" else values


def _difference(differences: np.ndarray, overlap: float) -> Json:
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


# ---- columns


def columns_of(
    kind: str, foreign: list[str], has_reference: bool, unit: str = "", has_evidence: bool = False
) -> list[Json]:
    """What is in the table, in the order it is shown."""
    found = []
    if kind == "regression":
        found += [
            column("rmse", "RMSE", "quality", "root mean squared error of the predictive mean", unit=unit),
            column("nll", "NLL", "quality", "negative log predictive density, nats a row"),
            column("crps", "CRPS", "quality", "continuous ranked probability score", unit=unit),
        ]
        for level in grades.LEVELS:
            percent, minor = round(100 * level), level != 0.9
            title, about = f"in {percent} %", f"share of rows inside the central {percent} % interval"
            found.append(column(f"coverage_{percent}", title, "quality", about, better="near", goal=level, minor=minor))
            title = f"width {percent} %"
            about = f"mean width of the {percent} % interval: at equal coverage, narrower is better"
            found.append(column(f"width_{percent}", title, "quality", about, unit=unit, better="neither", minor=minor))
    else:
        found += [
            column("accuracy", "accuracy", "quality", "share of rows whose likeliest class is right", better="higher"),
            column("nll", "NLL", "quality", "negative log predictive probability, nats a row"),
            column("brier", "Brier", "quality", "squared distance from the truth, summed over classes"),
            column("ece", "ECE", "quality", "expected calibration error, 15 bins"),
        ]
    what = "entropy" if kind == "classes" else "predictive std"
    for name in foreign:
        about = _FAR.format(what=what, name=name.replace("-", " "))
        found.append(column(f"auroc_{name}", f"OOD {name}", "quality", about, better="higher"))
    if has_reference and kind == "classes":
        about = "share of rows with the reference's likeliest class"
        found.append(column("agreement", "agreement", "truth", about, better="higher"))
        found.append(
            column("tv", "TV", "truth", "total variation distance to the reference's class probabilities", digits=4)
        )
    elif has_reference:
        about = "Wasserstein-1 distance to the reference's predictive distribution"
        found.append(column("w1", "W1", "truth", about, unit=unit))
    if has_evidence:
        about = "log p(training data | model) by the method's own approximation: larger for a better model, in nats"
        found.append(column("log_evidence", "log evidence", "quality", about, better="neither", digits=1, minor=True))
    return [*found, *COSTS]


def column(
    key: str,
    title: str,
    group: str,
    about: str,
    *,
    better: str = "lower",
    unit: str = "",
    goal: float | None = None,
    digits: int = 3,
    minor: bool = False,
) -> Json:
    return {
        "key": key,
        "title": title,
        "unit": unit,
        "better": better,
        "goal": goal,
        "group": group,
        "digits": digits,
        "about": about,
        "minor": minor,
    }


_GRADIENTS = "gradient evaluations, tuning included (of batches, if in batches)"
_STORED = "size of the stored posterior, not of memory in use"
COSTS = [
    column("gradients", "gradients", "cost", _GRADIENTS, digits=0),
    column("seconds", "seconds", "cost", "wall-clock time of the fit, with tuning and compiling", unit="s", digits=1),
    column("megabytes", "stored MB", "cost", _STORED, unit="MB", digits=2, minor=True),
    column("draws", "draws", "cost", "draws of the weights that are kept", digits=0),
    column("ms_row", "ms a row", "cost", "milliseconds to predict one row", unit="ms", digits=2),
]
