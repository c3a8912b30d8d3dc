"""From the records of all rows to numbers and verdicts: means over splits, distances to the reference, differences from
the best, who holds what it promises, and who is best, closest and recommended.

Rows are dicts as results.json has them: "name", "role", "fidelity", "status", "scores", "versus_best", "promise".
"""

import math
from typing import Any

import numpy as np

from posteria.comparison.ask import Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge import differences, grades
from posteria.comparison.judge.columns import columns_of
from posteria.comparison.judge.differences import Drawn
from posteria.comparison.run.records import Record
from posteria.comparison.run.runner import Ledger
from posteria.tree import Json

NOT_JUDGED = "not judged"
JUDGE = "nll"  # the proper score that both kinds of target share
TRUTH = {"regression": "w1", "classes": "tv"}  # the distance that the closest is closest by
TOLERANCE = 0.01  # of a share held: a point below what was promised is no reason against a method, however sure

Records = list[Record | None]  # a split each
ByRow = list[np.ndarray | None]  # a split each: scores of its test rows


def judged(ledger: Ledger, problem: Problem, entries: list[Entry]) -> Json:
    """The "columns", "rows" and "reference" of a problem: all that is numbers."""
    reference = next((entry for entry in entries if entry.role == "reference"), None)
    truth: Records = [None] * len(problem.folds) if reference is None else ledger.records_of(problem, reference)
    columns = _columns(ledger, problem, entries, reference is not None)
    drawn = differences.drawn(problem.splits)
    rows, by_row = [], {}
    for entry in entries:
        records = ledger.records_of(problem, entry)
        by_row[entry.name] = {column["key"]: _by_row(column, problem, entry, records, truth) for column in columns}
        row = {
            "name": entry.name,
            "role": entry.role,
            "fidelity": entry.fidelity,
            "status": ledger.status_of(problem, entry)[0],
            "scores": _scores(entry, records, truth, columns, by_row[entry.name], drawn),
            "versus_best": {},
            "promise": _promise(problem, records, drawn),
        }
        rows.append(row)
    for column in columns:
        _compare_with_best(column, rows, {name: found[column["key"]] for name, found in by_row.items()}, drawn)
    return {
        "columns": columns,
        "rows": rows,
        "reference": None if reference is None else _reference(reference, truth),
    }


# ---- verdicts


def ranked(rows: list[Json], key: str) -> list[Json]:
    """Those that are compared by the score, best first: it is finite on every split that is judged."""
    compared = [row for row in rows if key in row["versus_best"] and row["status"] != "failed"]
    return sorted(compared, key=lambda row: row["versus_best"][key]["difference"])


def leaders(in_order: list[Json], key: str) -> list[Json]:
    """The first, and those behind it that cannot be told from it."""
    return [*in_order[:1], *(row for row in in_order[1:] if row["versus_best"][key]["indistinguishable"])]


def best(rows: list[Json]) -> list[Json]:
    """In the order of their scores on held-out data."""
    return ranked(rows, JUDGE)


def closest(rows: list[Json], kind: str) -> list[Json]:
    """Methods, in the order of their distance to the reference; none where it is not there or has not converged."""
    return [row for row in ranked(rows, TRUTH[kind]) if row["role"] == "method"]


def recommended(rows: list[Json]) -> str | None:
    """The cheapest of the methods (and the reference) that cannot be told from the best and hold what they promise; of
    those that do not, where none does. Where baselines alone lead, the best method: its commands are given."""
    in_order = best(rows)
    usable = [row for row in leaders(in_order, JUDGE) if _is_method(row)] or list(filter(_is_method, in_order))[:1]
    return min(map_held(usable), key=seconds)["name"] if usable else None


def map_held(rows: list[Json]) -> list[Json]:
    """Those that hold what they promise, or all where none does."""
    return [row for row in rows if holds(row)] or rows


def holds(row: Json) -> bool:
    """Its 90 % intervals, or its class probabilities, came true as often as they say, but for chance."""
    return bool((row.get("promise") or {"holds": True})["holds"])


def seconds(row: Json) -> float:
    value = row["scores"]["seconds"]["value"]
    return math.inf if value is None else value


def _is_method(row: Json) -> bool:
    return row["role"] != "baseline" and bool(row["fidelity"])


# ---- scores


def _columns(ledger: Ledger, problem: Problem, entries: list[Entry], has_reference: bool) -> list[Json]:
    foreign = [*problem.folds[0].far, *problem.folds[0].out]
    done = [record for entry in entries for record in ledger.records_of(problem, entry) if record is not None]
    has_evidence, has_joint = (any(key in record.scores for record in done) for key in ("log_evidence", "joint"))
    facts = {"has_evidence": has_evidence, "has_joint": has_joint}
    return columns_of(problem.kind, foreign, has_reference, problem.data["target"], **facts)


def _by_row(column: Json, problem: Problem, entry: Entry, records: Records, truth: Records) -> ByRow:
    """The score of each test row on each split; None where a score is of all rows together, or there is none."""
    key = column["key"]
    found: ByRow = []
    for record, reference in zip(records, truth):
        if record is None or record.status == "failed":
            found.append(None)
        elif column["group"] == "truth":
            is_compared = entry.role == "method" and reference is not None and _is_truth(reference)
            summaries = (record.arrays["summary"], reference.arrays["summary"]) if is_compared and reference else None
            found.append(grades.distances(*summaries, problem.kind)[key] if summaries else None)
        elif key == JUDGE:
            found.append(-record.arrays["row_scores"] if "row_scores" in record.arrays else None)
        else:
            found.append(record.arrays.get(f"row_{key}"))
    return [None if each is None or not np.isfinite(each).all() else each for each in found]


def _scores(
    entry: Entry,
    records: Records,
    truth: Records,
    columns: list[Json],
    by_row: dict[str, ByRow],
    drawn: Drawn,
) -> dict[str, Json]:
    found = {}
    for column in columns:
        key = column["key"]
        if column["group"] == "truth":
            found[key] = _distance(key, entry, records, truth, by_row[key])
        else:
            by_seed = [None if record is None else record.scores.get(key) for record in records]
            texts = [record.texts[key] for record in records if record and key in record.texts]
            found[key] = score(by_seed, texts[0] if texts else "")
        known = [number for number, each in enumerate(by_row[key]) if each is not None]
        if known and found[key]["value"] is not None:
            values: Any = [by_row[key][number] for number in known]
            found[key]["se"] = differences.estimate(values, drawn.on(known)).se
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


def _promise(problem: Problem, records: Records, drawn: Drawn) -> Json | None:
    """What was promised and what was held: rows inside 90 % intervals, or likeliest classes that were right."""
    held, promised, known = [], [], []
    for number, record in enumerate(records):
        arrays = {} if record is None else record.arrays
        if problem.kind == "classes" and "row_accuracy" in arrays:
            held.append(arrays["row_accuracy"])
            promised.append(arrays["summary"].max(1))
        elif "row_held" in arrays:
            held.append(arrays["row_held"])
            promised.append(np.full(len(arrays["row_held"]), grades.HEADLINE))
        else:
            continue
        known.append(number)
    if not held:
        return None
    num_rows = len(np.unique(np.concatenate([problem.splits.parts[number][1] for number in known])))
    return differences.held(held, promised, drawn.on(known), num_rows, TOLERANCE)


# ---- the truth


def _is_truth(reference: Record) -> bool:
    return reference.status != "failed" and bool(reference.convergence and reference.convergence["converged"])


def _distance(key: str, entry: Entry, records: Records, truth: Records, by_row: ByRow) -> Json:
    """The distance to the reference, on the splits where it has converged; the reference's own is its ceiling."""
    if entry.role == "baseline":
        return score([None] * len(records), "no posterior")
    if entry.role == "reference":
        own = [r.ceiling.get(key) if r is not None and _is_truth(r) else None for r in records]
        return score(own)
    by_seed = [None if each is None else float(each.mean()) for each in by_row]
    is_over = all(reference is not None for reference in truth)
    is_unjudged = is_over and all(value is None for value in by_seed)
    return score(by_seed, NOT_JUDGED if is_unjudged and any(records) else "")


def _reference(entry: Entry, records: Records) -> Json:
    """What is known of the reference. Its ceiling is that of the splits that are judged: those where it converged."""
    done = [record for record in records if record is not None and record.status != "failed"]
    facts = [record.convergence or {} for record in done]
    ceilings = [record.ceiling for record in done if record.ceiling and _is_truth(record)]
    failed = [record.reason for record in records if record is not None and record.status == "failed"]
    by_seed = [None if record is None else _is_truth(record) for record in records]
    doubted = [fact for fact in facts if not fact.get("converged")]
    is_cut = any(record.status == "cut short" for record in done)
    told = doubted or facts

    def worst(key: str, of: Any) -> Any:
        values = [fact[key] for fact in facts if fact.get(key) is not None]
        return of(values) if values else None

    return {
        "name": entry.name,
        "status": "failed" if failed and not done else "waiting" if not done else "cut short" if is_cut else "done",
        "converged": None not in by_seed and all(by_seed),
        "rhat_share": worst("rhat_share", min),
        "rhat_worst": worst("rhat_worst", max),
        "weights_rhat_share": worst("weights_rhat_share", min),
        "ceiling": {key: float(np.mean([each[key] for each in ceilings])) for key in ceilings[0]} if ceilings else {},
        "verdict": failed[0] if failed and not done else (told[0].get("verdict", "") if told else ""),
        "by_seed": by_seed,
        "failed": failed[0] if failed else "",
        "num_failed": len(failed),
    }


# ---- differences


def _compare_with_best(column: Json, rows: list[Json], by_row: dict[str, ByRow], drawn: Drawn) -> None:
    """Differences from the best row of a column, row by row on the same test rows.

    Compared are those that have all splits that any has: others have failed, or are still to come.
    """
    if column["group"] == "cost" or column["better"] not in ("lower", "higher"):
        return
    key, sign = column["key"], 1 if column["better"] == "lower" else -1
    known = {
        row["name"]: {number for number, each in enumerate(by_row[row["name"]]) if each is not None}
        for row in rows
        if row["status"] != "failed"
    }
    judged_on = max(known.values(), key=len, default=set())
    losses: Any = {
        name: [sign * by_row[name][number] for number in sorted(judged_on)]  # type: ignore[operator]
        for name, numbers in known.items()
        if numbers == judged_on
    }
    if not judged_on:
        return
    found = differences.versus_first(losses, drawn.on(sorted(judged_on)))
    for row in rows:
        if row["name"] in found:
            row["versus_best"][key] = found[row["name"]] | {"splits": len(judged_on)}
