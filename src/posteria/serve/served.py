"""What is served: rows to numbers, from a fit or from an export. Nothing that a folder holds is run as Python."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.export
import numpy as np

from posteria.data.preparation import Preparation
from posteria.data.table_columns import Date
from posteria.errors import CapabilityError, DataError, SettingError, StoreError
from posteria.posteriors import store
from posteria.posteriors.calibrated import CalibratedPosterior
from posteria.posteriors.export import ABOUT
from posteria.posteriors.units import in_units
from posteria.tree import Json

if TYPE_CHECKING:
    import pandas as pd

LEVELS_AT_ONCE = (2, 8)  # quantiles that one call computes, padded: one interval, or several
FORMATS = ("posteria-export-2", "posteria-export-3")  # those with checksums


@dataclass(frozen=True)
class Asked:
    levels: tuple[float, ...] = (0.9,)
    quantiles: tuple[float, ...] = ()
    num_draws: int = 0
    seed: int = 0


class Served:
    """A fit; `answer` takes prepared rows, padded to a power of two, and cuts what it computed."""

    can_draw = True

    def __init__(self, posterior: Any, preparation: Preparation) -> None:
        if not isinstance(posterior.target.blank_input, np.ndarray | jax.Array):
            raise SettingError("x is a tree of arrays", "one array", "serve a network of one array")
        self.posterior, self.preparation = posterior, preparation
        self.shape = tuple(posterior.target.blank_input.shape[1:])
        self.dtype = posterior.target.blank_input.dtype
        self.groups: str | None = posterior.attached.get("groups")
        self.is_calibrated = isinstance(posterior, CalibratedPosterior)

    @property
    def is_classes(self) -> bool:
        return self.preparation.kind == "classes"

    def warm(self, most_rows: int) -> int:
        """Compile every shape that requests can have, but for draws; how many there are."""
        sizes = [1 << power for power in range((most_rows - 1).bit_length() + 1)]
        groups = None if self.groups is None else ""
        for size in sizes:
            x = np.zeros((size, *self.shape), self.dtype)
            for levels in ((0.9,), (0.5, 0.9)):
                self.answer(x, Asked(levels), None if groups is None else np.full(size, groups))
        return len(sizes)

    def answer(self, x: np.ndarray, asked: Asked, groups: np.ndarray | None = None) -> Json:
        """Arrays by name, of one row each at their first axis (draws: at their second)."""
        padded = np.minimum(np.arange(1 << (len(x) - 1).bit_length()), len(x) - 1)
        told = self._computed(x[padded], asked, None if groups is None else groups[padded])
        return {name: part[:, : len(x)] if name == "draws" else part[: len(x)] for name, part in told.items()}

    def _computed(self, x: np.ndarray, asked: Asked, groups: np.ndarray | None) -> Json:
        by_group = {} if groups is None else {"groups": groups}
        predictive: Any = in_units(self.posterior.predict(x, **by_group), self.preparation.y)
        told: Json = {}
        if self.is_classes:
            told |= {"probs": predictive.probs, "entropy": predictive.entropy}
            told["mutual_information"] = predictive.mutual_information
            if self.is_calibrated:
                told |= {f"set {level!r}": predictive.sets(level) for level in asked.levels}
        else:
            told |= {"mean": predictive.mean, "std": predictive.std, "epistemic_std": np.sqrt(predictive.epistemic)}
            told |= self._quantiles(predictive, asked)
        if asked.num_draws:
            drawn = predictive.sample(asked.seed, 1 << (asked.num_draws - 1).bit_length())
            told["draws"] = np.asarray(drawn)[: asked.num_draws]
        return told

    def _quantiles(self, predictive: Any, asked: Asked) -> Json:
        if self.is_calibrated:  # it says what it can promise, and compiles nothing
            told: Json = {}
            for level in asked.levels:
                told[f"lower {level!r}"], told[f"upper {level!r}"] = predictive.interval(level)
            return told | {f"quantile {q!r}": predictive.quantile(q) for q in asked.quantiles}
        wanted = {f"lower {level!r}": (1 - level) / 2 for level in asked.levels}
        wanted |= {f"upper {level!r}": (1 + level) / 2 for level in asked.levels}
        wanted |= {f"quantile {q!r}": q for q in asked.quantiles}
        names, qs, values = list(wanted), list(wanted.values()), []
        size = LEVELS_AT_ONCE[len(qs) > LEVELS_AT_ONCE[0]]
        for first in range(0, len(qs), size):
            part = qs[first : first + size]
            values += list(predictive.quantile(part + [part[-1]] * (size - len(part))))[: len(part)]
        return dict(zip(names, values))

    def columns(self) -> list[Json]:
        """Of a table, how each was taken, with an example; where it is known, the range of the training rows."""
        told, first, preparation = [], 0, self.preparation
        for column in preparation.encoder.columns if preparation.encoder else ():
            about: Json = {"name": column.name, "type": type(column).__name__.lower()}
            levels = getattr(column, "levels", None)
            if levels is not None:
                about |= {"levels": list(levels), "example": levels[0] if levels else ""}
            elif isinstance(column, Date):
                about |= {"range": list(column.range_told), "example": column.range_told[0]}
            elif about["type"] == "number":
                about["example"] = getattr(column, "median", 0.0)
                if preparation.lowest.size:
                    about["range"] = [float(preparation.lowest[first]), float(preparation.highest[first])]
            else:
                about["example"] = "some words"
            told.append(about)
            first += len(column.feature_names)
        return told

    def example(self) -> Any:
        """A row, as JSON has it."""
        columns = {column["name"]: column["example"] for column in self.columns()}
        return columns or np.zeros(self.shape).tolist()

    def rows_of(self, rows: "pd.DataFrame | np.ndarray") -> Any:
        """As the preparation wants them."""
        if self.preparation.encoder is not None:
            return rows
        array = np.asarray(rows, np.float64)
        if array.shape[1:] != self.raw_shape:
            raise DataError(f"rows of shape {array.shape[1:]}", f"{self.raw_shape}", "see /schema")
        return array

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return self.shape if self.preparation.x is None else np.shape(self.preparation.x.mean)


class ServedExport(Served):
    """An export: its function is compiled code, its `predict.py` is not looked at."""

    can_draw = False

    def __init__(self, folder: Path) -> None:
        about = store.read_json(folder / ABOUT)
        if about.get("format") not in FORMATS:
            raise StoreError(f"an export of format {about.get('format')!r}", f"one of {FORMATS}", "export again")
        content = (folder / "function.bin").read_bytes()
        if hashlib.sha256(content).hexdigest() != about["files"].get("function.bin"):
            raise StoreError(f"{folder / 'function.bin'} is damaged or was edited", "what was exported", "export again")
        encoder = about["columns"] and {"columns": about["columns"], "dropped": []}
        known = {name: about[name] for name in ("kind", "class_names", "x", "y", "bins")}
        self.preparation = Preparation.from_json(
            {"target": "", "encoder": encoder, "lowest": [], "highest": []} | known
        )
        self.shape, self.dtype, self.groups = tuple(about["shape"]), np.dtype(about["dtype"]), None
        self._batch: int | None = about["batch"]
        self._call: Any = jax.jit(jax.export.deserialize(bytearray(content)).call)
        self.is_calibrated = False

    def _computed(self, x: np.ndarray, asked: Asked, groups: np.ndarray | None) -> Json:
        if asked.num_draws:
            raise CapabilityError("an export has no draws", "a fit", "serve the folder of the fit")
        if self.is_classes:
            level = asked.levels[0] if asked.levels else 0.9
            told = self._at(x, level)
            if "sets" in told:
                sets = {level: told.pop("sets"), **{each: self._at(x, each)["sets"] for each in asked.levels[1:]}}
                told |= {f"set {each!r}": sets[each] for each in asked.levels}
            return told
        told = {}
        for level in asked.levels or (0.9,):
            found = self._at(x, level)
            told |= {name: found[name] for name in ("mean", "std", "epistemic_std")}
            if level in asked.levels:
                told |= {f"lower {level!r}": found["lower"], f"upper {level!r}": found["upper"]}
        for q in asked.quantiles:
            found = self._at(x, max(abs(2 * q - 1), 1e-6))
            told[f"quantile {q!r}"] = found["lower" if q < 0.5 else "upper"]
        return told

    def _at(self, x: np.ndarray, level: float) -> Json:
        size = self._batch or len(x)
        x = np.concatenate([x, np.repeat(x[-1:], -len(x) % size, axis=0)])
        parts = [self._call(x[first : first + size], np.float32(level)) for first in range(0, len(x), size)]
        told = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}
        if self.preparation.y is None:
            return told
        mean, std = np.atleast_1d(self.preparation.y.mean), np.atleast_1d(self.preparation.y.std)
        places = {name: told[name] * std + mean for name in ("mean", "lower", "upper")}
        return places | {name: told[name] * std for name in ("std", "epistemic_std")}
