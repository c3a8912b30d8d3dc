"""An exported posterior as MLflow's `python_function`: goes along with a logged model, and needs no Posteria.

The folder's own `predict.py` is checked by its SHA-256 before it is run, and then checks every other file: nothing here
is pickled. The prediction is a frame: `mean`, `std`, `lower`, `upper`, `epistemic_std`, or of classes `predicted`,
`probability NAME` of each, `entropy`, `mutual_information`.
"""

import hashlib
import json
import types
from pathlib import Path
from typing import Any

import numpy as np


class PyFunc:
    def __init__(self, folder: Path) -> None:
        self._predictor = _reader(folder).load(folder)

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """A frame with a row for each; `params={"level": 0.9}` is that of the interval."""
        import pandas as pd

        columns = pd.DataFrame(index=getattr(model_input, "index", None))
        names = self._predictor.about["class_names"]
        is_table = self._predictor.about["columns"] is not None
        rows = model_input if is_table else np.asarray(model_input)
        told = self._predictor(rows, level=float((params or {}).get("level", 0.9)))
        if "probs" in told:
            names = names or [str(number) for number in range(told["probs"].shape[1])]
            columns["predicted"] = np.array(names, object)[told["probs"].argmax(1)]
            for kind, word in (("probs", "probability"), ("sets", "in set")):
                for name, values in zip(names, told[kind].T if kind in told else ()):
                    columns[f"{word} {name}"] = values
            return columns.assign(entropy=told["entropy"], mutual_information=told["mutual_information"])
        for name, values in told.items():
            parts = values.reshape(len(values), -1).T
            for number, part in enumerate(parts):
                columns[name if len(parts) == 1 else f"{name} {number}"] = part
        return columns


def _reader(folder: Path) -> Any:
    """The folder's `predict.py` as a module, made from the content that was checked."""
    path = folder / "predict.py"
    content = path.read_bytes()
    try:
        wanted = json.loads((folder / "artifact.json").read_bytes())["files"]["predict.py"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / 'artifact.json'} cannot be read ({error}): log the model again") from None
    if hashlib.sha256(content).hexdigest() != wanted:
        raise ValueError(f"{path} is damaged or was edited, its SHA-256 is another: log the model again")
    module = types.ModuleType("posteria_exported_predict")
    module.__file__ = str(path)
    exec(compile(content, str(path), "exec"), vars(module))
    return module


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> PyFunc:
    """What MLflow calls: `path` is the exported folder."""
    return PyFunc(Path(path))
