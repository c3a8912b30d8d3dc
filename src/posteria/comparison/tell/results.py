"""results.json: what a comparison found, in one file that reports, tables and people read.

    {"schema": 2, "posteria": "0.1.0", "status": "running" | "complete", "command": "posteria compare ...",
     "created": ISO time, "versions": {"jax": ..., ...},
     "problems": [{                                       one for a data set; the tour has four
       "name": "boston", "title": "...",
       "data": {"name", "rows", "train_rows", "test_rows", "columns", "categorical", "kind": "regression" | "classes",
                "target", "class_names", "fingerprint", "notes": [...],
                "directions": {"inputs", "flat": without variance, "constant", "rows"} | null,
                "guess": RMSE of the average, or accuracy of the commonest class | null,
                "table": how each column was taken, as `posteria.data.table_plan` has it | null},
       "setting": {"network", "likelihood", "prior", "temperature", "split", "seeds": [0, ...], "budget", "tune",
                   "reference", "minutes"},
       "columns": [{"key": "rmse", "title": "RMSE", "unit": "", "better": "lower" | "higher" | "near" | "neither",
                    "goal": 0.9 | null, "group": "quality" | "truth" | "cost", "digits": 3, "about": "one line",
                    "minor": false}],                     minor: left out where there is little room
       "rows": [{"name", "label", "role": "method" | "baseline" | "reference", "fidelity",
                 "status": "done" | "failed" | "waiting" | "running" | "cut short", "reason": "",
                 "labels": ["another model: ..."], "about": the first line of its docstring, "settings": {...},
                 "scores": {key: {"value": mean over seeds | null, "by_seed": [...],
                                  "se": standard error by test rows, splits and refits, as far as they are known | null,
                                  "text": shown in place of the number, e.g. "not judged"}},
                 "versus_best": {key: {"difference": to the best row (positive: worse), "se", "p",
                                       "splits": on how many, "indistinguishable"}},     of scores of single rows
                 "promise": {"promised": 0.9, "held": 0.91, "se", "rows": distinct test rows, "holds"} | null,
                 "runs": ["runs/boston/map-0", ...],      folders, relative to results.json, that `po.load` reads
                 "picture": SHA-256 of its file below | null,
                 "prior": scales that it learnt, in words; only where there are some}],
       "reference": {"name", "status", "converged", "rhat_share", "rhat_worst", "weights_rhat_share",
                     "ceiling": {key: chain against the other chains, on judged splits}, "verdict",
                     "by_seed": [is it judged | null where it is to come], "failed": why, "num_failed"} | null,
       "answers": {"best" | "use" | "closest": {"row": the one | null, "rows": those named together, "text"}},
       "next": {"fit": "posteria fit ...", "calibrate": where it is needed, "predict": "posteria predict ..."} | {},
       "shift": {"rows": how many test rows were shifted, "draws": at most so many are averaged,
                 "scores": [{"key", "title", "better"}], "left_out": {shift: why},
                 "conditions": [{"name", "about", "is_attack", "levels": [0 (as they came), ..., 5] or sizes, "unit"}],
                 "found": {row: {condition: {score: {"value": [a level each], "se": [...]}}}}, of rows that are done
                 "leaders": {condition: who has the lowest NLL at its last level, and who is not told from it},
                 "texts": in words} | null,
       "live": {"row", and curves of its training so far, as in its picture, as lists} | null}],
     "sha256": of all this, without white space and with sorted names}

A "promise" is what 90 % intervals say, or what a method says of its likeliest classes, beside what came true.
The "reason" of a row that is done tells what went wrong on the way: settings that tuning tried, and that failed.

A "text" is there only where a number would mislead: "not judged" (the reference has not converged), "> 12.3" (the
seconds of a run that was interrupted: its earlier parts were not timed). Scores that were infinite are null with the
text "inf".

Beside it, for pictures, `pictures/<problem>/<row>.npz`, of the first seed and in the data's own units. n are test rows:

    both        row: (n,) numbers of the test rows in their file, where they came from one; the first is 0
    regression  y, mean, std, epistemic (a variance; 0 where the row has none), pit: (n,);
                lower, upper: (4, n), at LEVELS
    classes     y: (n,) labels; probs: (n, class); entropy, mutual_information: (n,);
                entropy_out: (m,), of `out_of_distribution`, the name of the first partner
    one input   curve_x (g,), curve_mean, curve_std, curve_lower, curve_upper (of the 90 % interval),
                curve_draws (20, g) without noise, train_x, train_y
    columns     driver_names (k,), driver_mean, driver_spread (k,): how far shuffling a column moves predictions, and
                their uncertainty (`judge.drivers`); look (m,): rows worth a look, with look_names (j,), look_values
                (m, j), look_odd (m,): what is unusual about each, in words
    training    learning_epoch, learning_stage, learning_objective (k,), mean over chains or members, of methods that
                have epochs; learning_training, learning_validation: log scores a row, where rows are held out
    draws       by_draws: (2, k), numbers of draws and the NLL of a prediction from so many (if there are several)
    chains      function_rhat, weight_rhat: one value a function value or weight; trace: (chain, draw) log densities
"""

import math
from pathlib import Path

from posteria import __version__
from posteria.comparison.ask import Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge.drivers import remarkable
from posteria.comparison.judge.grades import LEVELS
from posteria.comparison.judge.robustness import shift_of
from posteria.comparison.judge.verdicts import holds, judged, recommended
from posteria.comparison.run.records import RESULTS as FILE
from posteria.comparison.run.records import picture_path, read_picture, run_path
from posteria.comparison.run.runner import Ledger
from posteria.comparison.tell import score_tables, sentences
from posteria.comparison.tell.answers import answers
from posteria.comparison.tell.sentences import shift_words
from posteria.data.directions import in_words
from posteria.errors import StoreError
from posteria.posteriors import store
from posteria.posteriors.saving import versions
from posteria.tree import Json

__all__ = [
    "FILE",
    "LEVELS",
    "in_words",
    "is_verified",
    "picture_path",
    "read",
    "read_picture",
    "recommended",
    "remarkable",
    "results_of",
    "write",
    "write_all",
]


def read(folder: str | Path) -> Json:
    """The results in a folder (or of the file itself)."""
    path = Path(folder) if Path(folder).suffix == ".json" else Path(folder) / FILE
    found = store.read_json(path)
    if not isinstance(found.get("problems"), list):
        raise StoreError(f"{path} tells of no comparison", "what `posteria compare` wrote", "compare again")
    return found


def is_verified(found: Json) -> bool:
    return found.get("schema", 1) != 1


def write(folder: Path, found: Json) -> None:
    """Atomically: a reader sees the old results or the new ones."""
    store.write_json(folder / FILE, found)


def write_all(folder: Path, found: Json) -> None:
    """As JSON, CSV and LaTeX."""
    write(folder, found)
    store.write_bytes(folder / "results.csv", score_tables.as_csv(found).encode())
    store.write_bytes(folder / "results.tex", score_tables.as_latex(found).encode())


def results_of(ledger: Ledger) -> Json:
    """Everything as results.json has it."""
    return {
        "schema": store.SCHEMA,
        "posteria": __version__,
        "status": "complete" if ledger.is_complete else "running",
        "command": ledger.settings.command,
        "created": ledger.created,
        "versions": versions(),
        "problems": [_problem(ledger, problem, entries) for problem, entries in ledger.problems],
    }


def _problem(ledger: Ledger, problem: Problem, entries: list[Entry]) -> Json:
    numbers = judged(ledger, problem, entries)
    found = {
        "name": problem.name,
        "title": problem.title,
        "data": problem.data,
        "setting": problem.setting | _rules(ledger, entries),
        "columns": numbers["columns"],
        "rows": [_row(ledger, problem, *pair) for pair in zip(entries, numbers["rows"])],
        "reference": numbers["reference"],
    }
    found["answers"] = answers(found, ledger.settings.command)
    found["next"] = _next(found, problem, entries)
    found["live"] = _live(ledger, problem)
    found["shift"] = None
    if problem.shift is not None:
        found["shift"] = shift_of(ledger, problem, entries)
        found["shift"]["texts"] = shift_words(found)
    return found


def _live(ledger: Ledger, problem: Problem) -> Json | None:
    if ledger.live is None or ledger.live[0] != problem.name:
        return None
    _, row, curves = ledger.live
    lists = {
        name: [None if isinstance(each, float) and not math.isfinite(each) else each for each in array.tolist()]
        for name, array in curves.items()
    }
    return {"row": row} | lists


def _rules(ledger: Ledger, entries: list[Entry]) -> Json:
    """The part of `setting` that is the entries'."""
    return {
        "budget": ledger.settings.budget,
        "tune": ledger.settings.tune,
        "reference": next((entry.label for entry in entries if entry.role == "reference"), None),
        "minutes": ledger.settings.minutes,
    }


def _row(ledger: Ledger, problem: Problem, entry: Entry, numbers: Json) -> Json:
    records = ledger.records_of(problem, entry)
    status, reason = ledger.status_of(problem, entry)
    is_kept = ledger.settings.out is not None and entry.method is not None
    fitted = [record.settings for record in records if record is not None and record.settings is not None]
    learnt = [record.texts["prior"] for record in records if record is not None and "prior" in record.texts]
    return ({"prior": learnt[0]} if learnt else {}) | {
        "name": entry.name,
        "label": entry.label,
        "role": entry.role,
        "fidelity": entry.fidelity,
        "status": status,
        "reason": reason,
        "labels": entry.labels,
        "about": entry.about,
        "settings": fitted[0] if fitted else entry.settings,
        "scores": numbers["scores"],
        "versus_best": numbers["versus_best"],
        "promise": numbers["promise"],
        "runs": [
            run_path(problem, entry, fold)
            for fold, record in zip(problem.folds, records)
            if is_kept and record and record.status != "failed"
        ],
        "picture": next((record.sums["picture"] for record in records if record and "picture" in record.sums), None),
    }


def _next(found: Json, problem: Problem, entries: list[Entry]) -> Json:
    """The commands that fit and use the recommended method as it was fitted here."""
    name = recommended(found["rows"])
    row = next((row for row in found["rows"] if row["name"] == name), None)
    entry = next((entry for entry in entries if entry.name == name), None)
    if row is None or entry is None:
        return {}
    minutes = found["setting"]["minutes"] if row["status"] == "cut short" else None
    return sentences.commands(problem, entry.method, row["settings"], minutes, not holds(row))
