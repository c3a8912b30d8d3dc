"""results.json: what a comparison found, in one file that reports, tables and people read.

    {"posteria": "0.1.0", "status": "running" | "complete", "command": "posteria compare ...", "created": ISO time,
     "versions": {"jax": ..., ...},
     "problems": [{                                       one for a data set; the tour has three
       "name": "boston", "title": "...",
       "data": {"name", "rows", "train_rows", "test_rows", "columns", "categorical", "kind": "regression" | "classes",
                "target", "class_names", "fingerprint", "notes": [...]},
       "setting": {"network", "likelihood", "prior", "temperature", "split", "seeds": [0, ...], "budget", "tune",
                   "reference", "minutes"},
       "columns": [{"key": "rmse", "title": "RMSE", "unit": "", "better": "lower" | "higher" | "near" | "neither",
                    "goal": 0.9 | null, "group": "quality" | "truth" | "cost", "digits": 3, "about": "one line",
                    "minor": false}],                     minor: left out where there is little room
       "rows": [{"name", "label", "role": "method" | "baseline" | "reference", "fidelity",
                 "status": "done" | "failed" | "waiting" | "running" | "cut short", "reason": "",
                 "labels": ["another model: ..."], "about": the first line of its docstring, "settings": {...},
                 "scores": {key: {"value": mean over seeds | null, "se": standard error | null, "by_seed": [...],
                                  "text": shown in place of the number, e.g. "not judged"}},
                 "versus_best": {key: {"difference": to the best row (positive: worse), "se", "indistinguishable"}},
                 "runs": ["runs/boston/map-0", ...]}],    folders, relative to results.json, that `po.load` reads
       "reference": {"name", "status", "converged", "rhat_share", "rhat_worst", "weights_rhat_share",
                     "ceiling": {key: chain against the other chains}, "verdict", "by_seed": [...]} | null,
       "answers": {"best": {"row", "text"}, "closest": {"row" | null, "text"}},
       "next": {"fit": "posteria fit ...", "predict": "posteria predict ..."} | {}}]}

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
    draws       by_draws: (2, k), numbers of draws and the NLL of a prediction from so many (if there are several)
    chains      function_rhat, weight_rhat: one value a function value or weight; trace: (chain, draw) log densities
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from posteria.posteriors import store

LEVELS = (0.5, 0.8, 0.9, 0.95)  # of the intervals that are graded
FILE = "results.json"


def read(folder: str | Path) -> dict:
    """The results in a folder (or of the file itself)."""
    path = Path(folder)
    return store.read_json(path / FILE if path.suffix != ".json" else path)


def write(folder: Path, results: dict) -> None:
    """Atomically: a reader sees the old results or the new ones."""
    store.write_json(folder / FILE, results)


def write_picture(folder: Path, problem: str, row: str, arrays: dict[str, np.ndarray]) -> None:
    import io

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    store.write_bytes(picture_path(folder, problem, row), buffer.getvalue())


def read_picture(folder: str | Path, problem: str, row: str) -> dict[str, np.ndarray] | None:
    """The arrays behind a row's pictures; None where there are none."""
    path = picture_path(Path(folder), problem, row)
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def picture_path(folder: Path, problem: str, row: str) -> Path:
    return folder / "pictures" / problem / f"{row}.npz"


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
) -> dict:
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


def score(by_seed: list[float | None], text: str = "") -> dict[str, Any]:
    """Mean and standard error over the seeds that have a value."""
    values = np.array([value for value in by_seed if value is not None], np.float64)
    finite = bool(len(values)) and bool(np.isfinite(values).all())
    value = float(values.mean()) if finite else None
    se = float(values.std(ddof=1) / math.sqrt(len(values))) if finite and len(values) > 1 else None
    if len(values) and not finite:
        text = text or "inf"
    content: dict[str, Any] = {
        "value": value,
        "se": se,
        "by_seed": [v if v is None or math.isfinite(v) else None for v in by_seed],
    }
    return content | ({"text": text} if text else {})
