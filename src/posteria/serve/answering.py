"""A body to an answer, in the one thread that predicts."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from posteria.data import cells
from posteria.data.encode import Encoded
from posteria.errors import DataError, SettingError
from posteria.serve.bodies import asked_of, finite, parse
from posteria.serve.served import Asked, Served
from posteria.serve.watching import Watch
from posteria.tree import Json

MOST_VALUES_TOLD = 5


class Answering:
    def __init__(self, served: Served, watch: Watch, most_rows: int) -> None:
        self.served, self.watch, self.most_rows = served, watch, most_rows

    def predict(self, content: bytes, kind: str, query: Mapping[str, str]) -> bytes:
        rows, others = parse(content, kind, query, self.served, self.most_rows)
        _check_names(others, {"intervals", "quantiles", "draws", "seed"})
        encoded, x, groups = self._prepared(rows)
        asked = asked_of(others, len(rows), self.watch.level)
        told = self.served.answer(x, asked, groups)
        outside = self.served.preparation.num_outside(encoded.x) + encoded.num_unseen
        uncertainty = told["entropy"] if self.served.is_classes else np.mean(told["std"], axis=1)
        self.watch.saw_rows(encoded, outside, np.asarray(uncertainty))
        answer = {"rows": len(rows)} | self._named(told, asked) | {"features_outside": outside.tolist()}
        return json.dumps(answer | {"notes": _notes(encoded)}, allow_nan=False).encode()

    def outcomes(self, content: bytes, kind: str, query: Mapping[str, str]) -> bytes:
        """Rows again, with what came of them: predicted as before, and counted."""
        rows, others = parse(content, kind, query, self.served, self.most_rows)
        _check_names(others, {"outcomes"})
        truths = others.get("outcomes")
        if not isinstance(truths, list) or len(truths) != len(rows):
            raise DataError('"outcomes"', f"a list of {len(rows)}, one for each row", "in the order of the rows")
        _, x, groups = self._prepared(rows)
        told = self.served.answer(x, Asked((self.watch.level,)), groups)
        self.watch.saw_outcomes(*self._missed(told, truths))
        return json.dumps(self.watch.told()["coverage"], allow_nan=False).encode()

    def _prepared(self, rows: Any) -> tuple[Encoded, np.ndarray, np.ndarray | None]:
        preparation, groups = self.served.preparation, None
        try:
            encoded = preparation.encode(rows)
            x = np.asarray(preparation.standardised(encoded.x), self.served.dtype)
        except (ValueError, TypeError, OverflowError, KeyError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"rows that cannot be read ({error})", "rows as in the fit", "see /schema") from None
        if not np.isfinite(x).all():
            raise DataError("values too large for single precision, or infinite", "finite numbers", "correct them")
        if (column := self.served.groups) is not None:
            if column not in rows.columns:
                raise DataError(f"the rows lack {column!r}", "the column that it was calibrated by", "add it")
            groups = rows[column].astype(str).to_numpy()
        return encoded, x, groups

    def _named(self, told: Json, asked: Asked) -> Json:
        names = self.served.preparation.class_names
        if self.served.is_classes:
            probs = np.asarray(told["probs"])
            answer: Json = {"classes": list(names), "predicted": [names[i] for i in probs.argmax(1)]}
            answer |= {"probabilities": finite(probs)}
            answer |= {name: finite(told[name]) for name in ("entropy", "mutual_information")}
            sets = [(level, told[f"set {level!r}"]) for level in asked.levels if f"set {level!r}" in told]
            if sets:
                answer["sets"] = [
                    {"level": level, "sets": [[names[i] for i in np.flatnonzero(row)] for row in rows]}
                    for level, rows in sets
                ]
            if "draws" in told:
                answer["draws"] = [[names[i] for i in row] for row in np.asarray(told["draws"])]
            return answer
        of = {name: finite(_flat(part)) for name, part in told.items()}
        answer = {name: of[name] for name in ("mean", "std", "epistemic_std")}
        bounds = [(level, of[f"lower {level!r}"], of[f"upper {level!r}"]) for level in asked.levels]
        answer["intervals"] = [{"level": level, "lower": low, "upper": high} for level, low, high in bounds]
        answer["quantiles"] = [{"q": q, "values": of[f"quantile {q!r}"]} for q in asked.quantiles]
        return answer | ({"draws": of["draws"]} if "draws" in of else {})

    def _missed(self, told: Json, truths: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """How far each row was missed, 0 to 1, and the chance of it that was promised: of classes without sets, the
        most probable one is right with its own probability."""
        level = self.watch.level
        if not self.served.is_classes:
            try:
                y = np.asarray(truths, np.float64).reshape(np.shape(told["mean"]))
            except (ValueError, TypeError, OverflowError):
                raise DataError('"outcomes" of another shape, or no numbers', "numbers", "one a row") from None
            if not np.isfinite(y).all():
                raise DataError('"outcomes" that are missing', "finite numbers", "leave those rows out")
            missed = ((y < told[f"lower {level!r}"]) | (y > told[f"upper {level!r}"])).mean(1)
            return missed, np.full(len(y), 1 - level)
        names = self.served.preparation.class_names
        labels = cells.levels(np.array(truths, object)).tolist() if all(map(_is_label, truths)) else [None]
        if unknown := [label for label in labels if label not in names]:
            raise DataError(f'"outcomes" with {unknown[0]!r}', f"classes of the fit, {list(names)[:20]}", "correct it")
        at = np.array([names.index(label) for label in labels])
        if f"set {level!r}" in told:
            return 1.0 - np.asarray(told[f"set {level!r}"])[np.arange(len(at)), at], np.full(len(at), 1 - level)
        probs = np.asarray(told["probs"], np.float64)
        return (probs.argmax(1) != at).astype(float), 1.0 - probs.max(1)


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _flat(values: Any) -> np.ndarray:
    """Without the axis of targets, where there is one target."""
    array = np.asarray(values)
    return array[..., 0] if array.shape[-1] == 1 else array


def _check_names(others: Json, known: set[str]) -> None:
    if unknown := sorted(set(others) - known):
        raise SettingError(f'"{unknown[0]}"', f"rows and {sorted(known)}", "leave it out")


def _notes(encoded: Encoded) -> list[str]:
    notes = [
        f"{column}: {', '.join(map(repr, values[:MOST_VALUES_TOLD]))} not known to the fit"
        for column, values in encoded.unseen.items()
    ]
    notes += [f"{column}: {count:,} dates before {a} or after {b}" for column, (count, a, b) in encoded.far.items()]
    notes += [f"{column}: {count:,} missing, taken as its median" for column, count in encoded.filled.items()]
    return notes + ([f"columns not used: {', '.join(encoded.ignored)}"] if encoded.ignored else [])
