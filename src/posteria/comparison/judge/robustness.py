"""How a row falls as data stop being like those it learnt from: its scores on the same test rows after every shift at
every severity, and on rows that were moved against it (an attack) or against another network (its transfer).

Nothing is fitted anew but that other network, a MAP of its own start, which stands for somebody who does not have the
method at hand. Single rows' scores are kept, so that who leads under a shift is judged as everywhere.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from posteria import metrics
from posteria.comparison.ask import Fold, Problem
from posteria.comparison.enter.entries import Entry
from posteria.comparison.judge import differences
from posteria.comparison.judge.differences import Drawn
from posteria.comparison.judge.drivers import centre
from posteria.comparison.run.fitting import reason_of
from posteria.comparison.run.records import Record
from posteria.comparison.run.runner import Ledger
from posteria.data.arrays import is_frame, rows
from posteria.methods import registry
from posteria.runs import fit
from posteria.shift import attack
from posteria.shift.conditions import ABOUT, AS_THEY_CAME, Condition, Conditions, conditions, is_images, some_rows
from posteria.tree import Arrays, Json

MOST_DRAWS = 100  # of which predictions of shifted rows are averages
LEVEL = 0.9  # of the intervals
OWN, TRANSFER = "attack", "transfer"
NO_GRADIENT = "pixels are whole numbers, which cannot be moved a little: pass floats in [0, 1]"
ATTACKER_STREAM = 13  # folded into a split's key, beside those of fitting and tuning
SCORES = {
    "regression": (("rmse", "RMSE", "lower"), ("nll", "NLL", "lower"), ("coverage_90", "in 90 %", "near")),
    "classes": (("accuracy", "accuracy", "higher"), ("nll", "NLL", "lower"), ("ece", "ECE", "lower")),
}
BY_ROW = {"regression": "coverage_90", "classes": "accuracy"}  # beside NLL, a share of rows
_FGSM = "one step of the fast gradient sign method, by up to the size in every number"
_ABOUT_ATTACKS = {
    OWN: f"rows are moved against the method itself: {_FGSM}",
    TRANSFER: f"rows are moved against another network, a MAP of its own start: {_FGSM}",
}


def under_shift(problem: Problem, fold: Fold, predictor: Any) -> tuple[Json, Arrays]:
    """Of one row on one split: {"conditions": [[name, level]], "scores": {key: [...]}, "left_out": {name: why}}, and
    scores of single rows, `shift_nll` and `shift_held`: (condition, row)."""
    left_out: dict[str, str] = {}
    names, scores, nll, held = [], [], [], []
    for name, level, x, chosen in _conditions(problem, fold, predictor, left_out):
        count = getattr(predictor, "num_draws", None)
        predictive = fold.predict(predictor, x, None if count is None else min(int(count), MOST_DRAWS))
        found, by_row, is_held = _scored(predictive, fold.y_test[chosen], problem.kind)
        names.append([name, level])
        scores.append(found)
        nll.append(by_row)
        held.append(is_held)
    keys = list(scores[0])
    told = {
        "conditions": names,
        "scores": {key: [_finite(each[key]) for each in scores] for key in keys},
        "left_out": left_out,
    }
    return told, {"shift_nll": np.array(nll, np.float32), "shift_held": np.array(held, np.float32)}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _scored(predictive: Any, y: np.ndarray, kind: str) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """Scores of all rows together; of each its negative log score, and whether it was held (or is right)."""
    by_row = -np.asarray(predictive.log_prob(y), np.float64)
    if kind == "classes":
        probs = np.asarray(predictive.probs, np.float64)
        is_right = (probs.argmax(1) == np.asarray(y)).astype(np.float64)
        found = {"accuracy": is_right.mean(), "nll": by_row.mean(), "ece": metrics.ece(probs, y)}
        return found | {"confidence": probs.max(1).mean()}, by_row, is_right
    y = np.asarray(y, np.float64).reshape(len(y), -1)
    lower, upper = np.asarray(predictive.quantile_table([(1 - LEVEL) / 2, (1 + LEVEL) / 2]), np.float64)
    held = ((lower <= y) & (y <= upper)).mean(-1)
    found = {"rmse": metrics.rmse(centre(predictive), y), "nll": by_row.mean(), "coverage_90": held.mean()}
    return found | {"width_90": (upper - lower).mean()}, by_row, held


# ---- the rows


def _conditions(
    problem: Problem, fold: Fold, predictor: Any, left_out: dict[str, str]
) -> Iterator[tuple[str, float, Any, np.ndarray]]:
    """As they came, shifted, and moved against this predictor and against another: name, level, x and row numbers."""
    assert problem.shift is not None
    shifted = _shifted(problem, fold)
    left_out |= shifted.left_out
    for each in shifted.found:
        yield each.name, float(each.severity), each.x, each.rows
    if not problem.shift.sizes:
        return
    mask = _moved(fold)
    if mask is None:
        why = NO_GRADIENT if _is_bytes(fold.x_test) else "no input is a number that could be moved a little"
        left_out |= dict.fromkeys((OWN, TRANSFER), why)
        return
    came = shifted.found[0]
    for size in problem.shift.sizes:
        yield TRANSFER, size, _transferred(problem, fold, came, size), came.rows
    if not hasattr(predictor, "draws"):
        left_out[OWN] = "it has no gradient"
        return
    try:
        moved = [_attacked(predictor, fold, came, size) for size in problem.shift.sizes]
    except Exception as error:  # a posterior that JAX cannot differentiate
        left_out[OWN] = reason_of(error)
        return
    for size, x in zip(problem.shift.sizes, moved):
        yield OWN, size, x, came.rows


def _transferred(problem: Problem, fold: Fold, came: Condition, size: float) -> Any:
    return _once(fold, f"transfer {size}", lambda: _attacked(_attacker(problem, fold), fold, came, size))


def _shifted(problem: Problem, fold: Fold) -> Conditions:
    found: Conditions = _once(fold, "conditions", lambda: shifted_rows(problem, fold))
    return found


def shifted_rows(problem: Problem, fold: Fold) -> Conditions:
    """The test rows of a split as they came and after every shift that is asked for, and that they can have."""
    assert problem.shift is not None
    features = fold.features
    x = fold.x_test if features is None else features.test
    inputs: Callable[[Any], Any] = _unchanged if features is None else features.inputs
    table = problem.data["table"]
    taken = {column["name"]: column["taken"] for column in table["columns"]} if table else None
    if not is_frame(x) and not _is_floats(x) and not _is_bytes(x):
        chosen = some_rows(x)
        came = Condition(AS_THEY_CAME, 0, rows(x, chosen), chosen)
        return Conditions([came], {"shifts": "the inputs are neither a table nor images"})
    if not problem.shift.is_shifted:
        chosen = some_rows(x)
        came = x.iloc[chosen] if is_frame(x) else rows(x, chosen)
        return Conditions([Condition(AS_THEY_CAME, 0, inputs(came), chosen)], {})
    return conditions(x, inputs, problem.shift.names, taken)


def _unchanged(x: Any) -> Any:
    return x


def _is_floats(x: Any) -> bool:
    return isinstance(x, np.ndarray | jax.Array) and x.ndim in (2, 3, 4) and np.issubdtype(x.dtype, np.floating)


def _is_bytes(x: Any) -> bool:
    return is_images(x) and x.dtype == np.uint8


def _is_pixels(x: Any) -> bool:
    return is_images(x) and _is_floats(x) and bool(x.min() >= 0 and x.max() <= 1)


def _moved(fold: Fold) -> np.ndarray | None:
    """Which inputs an attack may move; None where there are none."""
    x = fold.x_test
    if not _is_floats(x):
        return None
    mask = np.ones(np.shape(x)[1:], bool)
    if fold.preparation is not None and fold.preparation.encoder is not None and x.ndim == 2:
        mask = np.asarray(fold.preparation.is_size, bool)
    return mask if mask.any() else None


def _attacked(posterior: Any, fold: Fold, came: Condition, size: float) -> np.ndarray:
    """One step, so that leaving some inputs where they were is the attack that may not move them."""
    y = fold.y_test[came.rows]
    y = y if fold.scale is None else fold.scale.apply(np.asarray(y, np.float64)).astype(np.float32)
    x = np.asarray(came.x)
    moved = attack(posterior, x, y, size, bounds=(0.0, 1.0) if _is_pixels(x) else None)
    return np.where(np.asarray(_moved(fold)), moved, x)


def _attacker(problem: Problem, fold: Fold) -> Any:
    """Another network of the same model, learnt from the same rows."""
    key = jax.random.fold_in(jax.random.key(fold.seed), ATTACKER_STREAM)
    return _once(fold, "attacker", lambda: fit(problem.model, fold.train, registry.as_method("map"), key=key))


def _once(fold: Fold, name: str, make: Callable[[], Any]) -> Any:
    """The same for all rows of a split."""
    if name not in fold.memory:
        fold.memory[name] = make()
    return fold.memory[name]


# ---- all rows and splits together


def shift_of(ledger: Ledger, problem: Problem, entries: list[Entry]) -> Json:
    """The "shift" of a problem of results.json, without its sentences."""
    records = {entry.name: ledger.records_of(problem, entry) for entry in entries}
    whole = {
        name: found
        for name, found in records.items()
        if all(record is not None and record.status != "failed" and record.shift for record in found)
    }
    first = next(iter(whole.values()), None)
    lists: list[Json] = []
    left_out: dict[str, str] = {}
    for found in whole.values():
        left_out |= {name: why for name, why in found[0].shift["left_out"].items() if name != OWN}  # type: ignore[union-attr, index]
    if first is not None:
        every = {tuple(each) for found in whole.values() for each in found[0].shift["conditions"]}  # type: ignore[union-attr, index]
        names = list(dict.fromkeys(name for name, _ in _in_order(every)))
        lists = [
            _condition(problem, name, sorted({0.0} | {at for each, at in every if each == name})) for name in names
        ]
    drawn = differences.drawn(problem.splits)
    return {
        "rows": 0 if first is None else int(first[0].arrays["shift_nll"].shape[1]),  # type: ignore[union-attr]
        "draws": MOST_DRAWS,
        "scores": [{"key": key, "title": title, "better": better} for key, title, better in SCORES[problem.kind]],
        "conditions": lists,
        "left_out": left_out,
        "found": {
            name: {
                one["name"]: _over_splits(found, one, problem, drawn)
                for one in lists
                if all(_places(record, one) is not None for record in found)
            }
            for name, found in whole.items()
        },
        "leaders": {one["name"]: _leaders(whole, one, problem, drawn) for one in lists},
    }


def _in_order(every: set[tuple[str, float]]) -> list[tuple[str, float]]:
    last = {TRANSFER: 1, OWN: 2}
    known = list(ABOUT)
    return sorted(
        (each for each in every if each[0] != AS_THEY_CAME),
        key=lambda each: (last.get(each[0], 0), known.index(each[0]) if each[0] in known else len(known), each),
    )


def _condition(problem: Problem, name: str, levels: list[float]) -> Json:
    is_attack = name in _ABOUT_ATTACKS
    about = _ABOUT_ATTACKS.get(name) or ABOUT.get(name) or f"{name.replace('_', ' ')}, of images"
    found: Json = {"name": name, "about": about, "is_attack": is_attack, "levels": levels}
    if is_attack:
        x = problem.folds[0].x_test
        is_table = problem.folds[0].preparation is not None and not is_images(x)
        unit = "standard deviations of a column" if is_table else "in the units of x"
        found["unit"] = "of the range of a pixel" if _is_pixels(x) else unit
    return found


def _places(record: Any, one: Json) -> Any:
    """Where the levels of a condition stand in a record, as they came first; None where it has none of them."""
    at = {(name, level): place for place, (name, level) in enumerate(record.shift["conditions"])}
    wanted = [(one["name"], level) if level else (AS_THEY_CAME, 0.0) for level in one["levels"]]
    return [at[each] for each in wanted] if all(each in at for each in wanted) else None


def _over_splits(found: list[Record | None], one: Json, problem: Problem, drawn: Drawn) -> Json:
    """{score: {"value": [a level each], "se": [...]}}: means over splits; errors of scores that single rows have."""
    records: Any = found
    told: Json = {}
    places = [_places(record, one) for record in records]
    for key in records[0].shift["scores"]:
        by_split = [[record.shift["scores"][key][at] for at in where] for record, where in zip(records, places)]
        values = [None if None in each else float(np.mean(each)) for each in zip(*by_split)]
        told[key] = {"value": values, "se": [None] * len(values)}
    for key, name in (("nll", "shift_nll"), (BY_ROW[problem.kind], "shift_held")):
        told[key]["se"] = [
            None
            if told[key]["value"][number] is None
            else differences.estimate(
                [np.asarray(record.arrays[name][where[number]], np.float64) for record, where in zip(records, places)],
                _rows_of(problem, one, level, drawn),
            ).se
            for number, level in enumerate(one["levels"])
        ]
    return told


def _rows_of(problem: Problem, one: Json, level: float, drawn: Drawn) -> Drawn:
    """Clusters of the rows under a condition: a tilt draws some of them more than once."""
    clusters = []
    for fold, of_split in zip(problem.folds, drawn.clusters):
        shifted = _shifted(problem, fold)
        name = AS_THEY_CAME if one["is_attack"] or not level else one["name"]
        wanted = (name, 0 if name == AS_THEY_CAME else level)
        chosen = next(each.rows for each in shifted.found if (each.name, each.severity) == wanted)
        clusters.append(of_split[chosen])
    return Drawn(clusters, drawn.is_series)


def _leaders(whole: dict[str, Any], one: Json, problem: Problem, drawn: Drawn) -> list[str]:
    """Whose NLL is lowest at the last level, and who cannot be told from it."""
    losses = {}
    for name, records in whole.items():
        places = [_places(record, one) for record in records]
        if None in places:
            continue
        by_row = [
            np.asarray(record.arrays["shift_nll"][where[-1]], np.float64) for record, where in zip(records, places)
        ]
        if all(np.isfinite(each).all() for each in by_row):
            losses[name] = by_row
    if len(losses) < 2:  # nobody to be compared with
        return []
    versus = differences.versus_first(losses, _rows_of(problem, one, one["levels"][-1], drawn))
    return sorted((name for name in versus if versus[name]["indistinguishable"]), key=lambda n: versus[n]["difference"])
