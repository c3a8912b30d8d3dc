"""One row on one split: what was found, and how it is written down so that no finished row is fitted again."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from posteria.comparison.ask.question import Fold, Problem
from posteria.comparison.enter.entries import Entry
from posteria.data.arrays import rows
from posteria.errors import StoreError
from posteria.methods import registry
from posteria.models.target import Target
from posteria.posteriors import store
from posteria.posteriors.saving import model_to_json


@dataclass
class Record:
    """One row on one split, as it is written to rows/<problem>/<row>-<seed>.json."""

    status: str
    reason: str = ""  # why it failed or was cut short; of one that is done, what went wrong on the way
    scores: dict[str, float | None] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)
    convergence: dict | None = None  # of a reference
    settings: dict | None = None  # of the method as it was fitted: to the budget, tuned
    minutes: float | None = None  # that a reference had, where time ran out
    identity: str = ""
    summary: np.ndarray | None = None  # beside it, as .npy


def run_path(problem: Problem, entry: Entry, fold: Fold) -> str:
    return f"runs/{problem.name}/{entry.name}-{fold.seed}"


def row_path(out: Path, problem: Problem, fold: Fold, entry: Entry, suffix: str) -> Path:
    return out / "rows" / problem.name / f"{entry.name}-{fold.seed}{suffix}"


def run_status(folder: Path | None) -> str:
    """Of a run: "running" (it was killed), "cut short" (by the clock), "complete", or "" where there is none."""
    is_there = folder is not None and (folder / store.MANIFEST).is_file()
    return store.read_manifest(folder)["status"] if is_there else ""  # type: ignore[arg-type]


def identity_of(problem: Problem, fold: Fold, entry: Entry, budget: float | None, tune: bool) -> str:
    """Of everything that decides a row's scores."""
    parts = {
        "model": model_to_json(Target(problem.model, (rows(fold.train[0], slice(0, 1)), None))),
        "method": entry.method and registry.to_json(entry.method),
        "given": None if entry.arrays is None else store.fingerprint(entry.arrays),
        "data": fold.fingerprint,
        "budget": budget if entry.role == "method" else None,
        "tune": tune if entry.role == "method" else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def read(out: Path | None, problem: Problem, fold: Fold, entry: Entry, identity: str) -> Record | None:
    if out is None or not (path := row_path(out, problem, fold, entry, ".json")).is_file():
        return None
    content = store.read_json(path)
    if content["identity"] != identity:
        raise StoreError(
            f"{path} is of other data or other settings",
            "the comparison that the folder began with",
            'choose another folder, or if_exists="replace" (--replace)',
        )
    summary = store.read_arrays(row_path(out, problem, fold, entry, ".npz"))["summary"]
    content["scores"] = {key: np.inf if value == "inf" else value for key, value in content["scores"].items()}
    return Record(**content, summary=summary)


def write(out: Path | None, problem: Problem, fold: Fold, entry: Entry, record: Record) -> None:
    """Arrays first, then the file that makes them count."""
    if out is None or record.summary is None:
        return
    store.write_arrays(row_path(out, problem, fold, entry, ".npz"), {"summary": record.summary})
    content = {name: value for name, value in vars(record).items() if name != "summary"}
    content["scores"] = {
        key: "inf" if isinstance(value, float) and np.isinf(value) else value for key, value in record.scores.items()
    }
    store.write_json(row_path(out, problem, fold, entry, ".json"), content)
