"""One row on one split: what was found, and how it is written down so that no finished row is fitted again.

results.json, results.csv, results.tex    all rows, as they are told
rows/<problem>/<row>-<seed>.json, .npz    records
runs/<problem>/<row>-<seed>/              posteriors
pictures/<problem>/<row>.npz              arrays behind pictures, of the first seed

A record has the SHA-256 of its own content, of the files that go with it and of its run's manifest, which has those of
the run's files; results.json has that of the pictures.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from posteria import disk
from posteria.comparison.ask import Fold, Problem
from posteria.comparison.enter.entries import Entry
from posteria.data.arrays import rows
from posteria.errors import StoreError
from posteria.methods import registry
from posteria.models.target import Target
from posteria.posteriors import store
from posteria.posteriors.saving import model_to_json
from posteria.tree import Json

RESULTS = "results.json"
PARTS = ("runs", "rows", "pictures")


@dataclass(frozen=True)
class Grades:
    """What a judge found of one row on one split."""

    scores: dict[str, float]
    arrays: dict[str, np.ndarray]  # kept with the record: what it is compared with others by
    picture: dict[str, np.ndarray] = field(default_factory=dict)
    convergence: Json | None = None  # of a reference
    ceiling: dict[str, float] = field(default_factory=dict)  # likewise
    shift: Json | None = None  # scores under shift, where they were asked for


@dataclass
class Record:
    """One row on one split, as it is written to rows/<problem>/<row>-<seed>.json."""

    status: str
    reason: str = ""  # why it failed or was cut short; of one that is done, what went wrong on the way
    scores: dict[str, float | None] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)
    convergence: Json | None = None  # of a reference
    settings: Json | None = None  # of the method as it was fitted: to the budget, tuned
    minutes: float | None = None  # that a reference had, where time ran out
    shift: Json | None = None  # as `judge.robustness.under_shift` has it
    identity: str = ""
    sums: dict[str, str] = field(default_factory=dict)  # SHA-256 of its "arrays", "picture" and "run"
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # beside it, as .npz


def run_path(problem: Problem, entry: Entry, fold: Fold) -> str:
    return f"runs/{problem.name}/{entry.name}-{fold.seed}"


def run_status(folder: Path | None) -> str:
    """Of a run: "running" (it was killed), "cut short" (by the clock), "complete", or "" where there is none."""
    is_there = folder is not None and (folder / store.MANIFEST).is_file()
    return store.read_manifest(folder)["status"] if is_there else ""  # type: ignore[arg-type]


def identity_of(problem: Problem, fold: Fold, entry: Entry, budget: float | None, tune: bool) -> str:
    """Of everything that decides a row's scores."""
    parts = {
        "model": model_to_json(Target(problem.model, (rows(fold.train[0], slice(0, 1)), None))),
        "method": entry.method and registry.to_json(entry.method),
        "given": _given(entry),
        "data": fold.fingerprint,
        "budget": budget if entry.role == "method" else None,
        "tune": tune if entry.role == "method" else None,
    } | ({} if problem.shift is None else {"shift": dataclasses.asdict(problem.shift)})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def read(out: Path | None, problem: Problem, fold: Fold, entry: Entry, identity: str) -> Record | None:
    if out is None or not (path := _row_path(out, problem, fold, entry, ".json")).is_file():
        return None
    try:
        record = _read(path, identity)
        _check_run(out / run_path(problem, entry, fold), record.sums.get("run"))
        return record
    except StoreError as error:
        fix = f"restore it, or remove {path}: what it says is then found anew"
        raise StoreError(error.got, error.wanted, fix if error.fix == store.RESTORE else error.fix) from error


def _read(path: Path, identity: str) -> Record:
    content = store.read_json(path)
    with store.refuse_damage(path):
        is_signed = content.pop("schema", 1) > 1
        if content["identity"] != identity:
            raise StoreError(
                f"{path} is of other data or other settings",
                "the comparison that the folder began with",
                'choose another folder, or if_exists="replace" (--replace)',
            )
        if content.pop("row", _place(path)) != _place(path):
            raise StoreError(f"{path} is the record of another row", "its own", store.RESTORE)
        content["scores"] = {key: np.inf if value == "inf" else value for key, value in content["scores"].items()}
        record = Record(**content)
        for value in (*record.scores.values(), *record.ceiling.values()):
            if not isinstance(value, int | float | None):
                raise TypeError(f"a score is {value!r}")
        record.arrays = store.read_arrays(path.with_suffix(".npz"), is_signed, record.sums.get("arrays"))
    return record


def _check_run(folder: Path, wanted: str | None) -> None:
    """Refuse a run that is whole, but not the one that was graded; one that was removed is missed by nobody here."""
    if wanted is not None and _sum_of_run(folder) not in (wanted, None):
        raise StoreError(f"{folder} holds another run than the one that was graded", "that one", store.RESTORE)


def _sum_of_run(folder: Path) -> str | None:
    return store.digests(folder, store.MANIFEST).get(store.MANIFEST)


def write(out: Path | None, problem: Problem, fold: Fold, entry: Entry, record: Record, picture: Json) -> None:
    """Arrays first, then the file that makes them count."""
    if out is None:
        return
    if picture:
        record.sums["picture"] = write_picture(out, problem.name, entry.name, picture)
    record.sums["arrays"] = store.write_arrays(_row_path(out, problem, fold, entry, ".npz"), record.arrays)
    if (run := _sum_of_run(out / run_path(problem, entry, fold))) is not None:
        record.sums["run"] = run
    path = _row_path(out, problem, fold, entry, ".json")
    content = {name: value for name, value in vars(record).items() if name != "arrays"}
    content["scores"] = {
        key: "inf" if isinstance(value, float) and np.isinf(value) else value for key, value in record.scores.items()
    }
    store.write_json(path, content | {"schema": store.SCHEMA, "row": _place(path)})


def _place(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _row_path(out: Path, problem: Problem, fold: Fold, entry: Entry, suffix: str) -> Path:
    return out / "rows" / problem.name / f"{entry.name}-{fold.seed}{suffix}"


def write_picture(folder: Path, problem: str, row: str, arrays: dict[str, np.ndarray]) -> str:
    """Returns the SHA-256 of the file."""
    return store.write_npz(picture_path(folder, problem, row), arrays)


def read_picture(folder: str | Path, problem: str, row: str, wanted: str | None = None) -> dict[str, np.ndarray] | None:
    """The arrays behind a row's pictures; None where there are none. `wanted` is what `write_picture` returned."""
    path = picture_path(Path(folder), problem, row)
    if wanted is None and not path.is_file():
        return None
    return store.read_npz(path, wanted is not None, wanted)


def picture_path(folder: Path, problem: str, row: str) -> Path:
    return disk.inside(folder, f"pictures/{problem}/{row}.npz")


def _given(entry: Entry) -> str | None:
    """Of what was made elsewhere."""
    if entry.posterior is not None:
        return store.fingerprint(entry.posterior.state()[1])
    return None if entry.arrays is None else store.fingerprint(entry.arrays)
