"""A posterior's history (what was measured each epoch, as columns) to and from the arrays of a store."""

import numpy as np

from posteria.tree import Arrays, Json

LABELS = ("stage", "chain", "epoch")  # of its rows; the other columns are numbers


def to_json(history: Arrays) -> tuple[Json, Arrays]:
    """For the store: the names of stages and columns, and all columns as three arrays."""
    if not history:
        return {}, {}
    stages = list(dict.fromkeys(map(str, history["stage"])))
    values = [name for name in history if name not in LABELS]
    places = [np.array([stages.index(str(stage)) for stage in history["stage"]]), history["chain"], history["epoch"]]
    labels = np.stack([np.asarray(place, np.int32) for place in places], 1)
    columns = np.stack([np.asarray(history[name], np.float32) for name in values], 1)
    is_known = np.isfinite(columns)  # a store takes NaN for what was lost
    arrays = {"labels": labels, "values": np.where(is_known, columns, 0.0), "known": is_known.astype(np.uint8)}
    named = {f"history.{name}": array for name, array in arrays.items()}
    return {"stages": stages, "columns": values}, named


def from_json(stored: Json, arrays: Arrays) -> Arrays:
    """The way back; takes its arrays out of `arrays`."""
    if not stored:
        return {}
    labels, values, known = (arrays.pop(f"history.{name}") for name in ("labels", "values", "known"))
    values = np.where(known, values, np.float32(np.nan))
    history: Arrays = {
        "stage": np.array(stored["stages"])[labels[:, 0]],
        "chain": labels[:, 1],
        "epoch": labels[:, 2],
    }
    return history | {name: values[:, i] for i, name in enumerate(stored["columns"])}
