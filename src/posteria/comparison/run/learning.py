"""What a fit measured along the way, thin enough to be drawn: its curves of training by epoch."""

from typing import Any

import numpy as np

from posteria.tree import Arrays

MOST_POINTS = 150
SCORES = ("objective", "training", "validation")


def learning_curves(history: Arrays) -> Arrays:
    """`learning_epoch` (k,), over stages that follow one another, `learning_stage` (k,) U, and of each epoch the mean
    over chains or members: `learning_objective`, and `learning_training` and `learning_validation` where a share of the
    rows was held out. Empty where there were no epochs."""
    if not history or not len(history["epoch"]):
        return {}
    names = [name for name in SCORES if name in history]
    stages = list(dict.fromkeys(map(str, history["stage"])))
    epochs, labels, values = [], [], []
    before = 0
    for stage in stages:
        here = np.asarray([str(each) == stage for each in history["stage"]])
        epoch = np.asarray(history["epoch"])[here]
        every = np.unique(epoch)
        place = np.searchsorted(every, epoch)
        columns = [_means(np.asarray(history[name], np.float64)[here], place, len(every)) for name in names]
        epochs.append(before + every)
        labels += [stage] * len(every)
        values.append(np.stack(columns, 1))
        before += int(every.max())
    epoch, value = np.concatenate(epochs), np.concatenate(values)
    keep = np.unique(np.linspace(0, len(epoch) - 1, min(len(epoch), MOST_POINTS)).round().astype(int))
    found: Arrays = {"learning_epoch": epoch[keep], "learning_stage": np.array(labels, str)[keep]}
    return found | {f"learning_{name}": value[keep, number] for number, name in enumerate(names)}


def _means(values: np.ndarray, place: np.ndarray, count: int) -> np.ndarray:
    """Of the finite ones of each epoch; NaN where there is none."""
    is_known = np.isfinite(values)
    sums = np.bincount(place[is_known], values[is_known], count)
    numbers = np.bincount(place[is_known], minlength=count)
    return np.where(numbers > 0, sums / np.maximum(numbers, 1), np.nan)


class Live:
    """Curves of a fit that is under way, from the entries that `on_log` is handed."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def add(self, entry: dict[str, Any]) -> None:
        if "epoch" in entry:
            self._entries.append(entry)

    def curves(self) -> Arrays:
        if not self._entries:
            return {}
        names = list(dict.fromkeys(name for entry in self._entries for name in entry if name not in ("seconds",)))
        columns: Arrays = {
            name: np.array([entry.get(name, np.nan) for entry in self._entries]) for name in names if name != "stage"
        }
        return learning_curves(columns | {"stage": np.array([entry["stage"] for entry in self._entries])})
