"""Posteriors in MLflow, as a `python_function` that predicts with JAX alone. Needs the extra `mlflow`.

What is logged is the export: a compiled function and how rows are prepared, each file with its SHA-256, checked when it
is loaded; nothing is pickled, and Posteria itself is not needed where it is loaded.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posteria import __version__
from posteria.errors import SettingError
from posteria.posteriors.base import Posterior
from posteria.posteriors.export import CODE
from posteria.tree import Json

LOADER = "posteria_pyfunc"  # the module that goes along
FLAVOR_METADATA = "posteria"


def save_model(model: Any, path: str | Path, num_draws: int | None = None, **settings: Any) -> None:
    """Write a posterior, or a fitted estimator, as a folder that `mlflow.pyfunc.load_model` reads.

    `settings` go to `mlflow.pyfunc.save_model`. `loaded.predict(frame, params={"level": 0.5})` asks for another
    interval than that of 0.9.
    """
    _with_export(model, num_draws, lambda mlflow, parts: mlflow.pyfunc.save_model(str(path), **parts | settings))


def log_model(model: Any, name: str = "model", num_draws: int | None = None, **settings: Any) -> Any:
    """Log a posterior, or a fitted estimator, to the current run, with what its fit recorded; MLflow's `ModelInfo`.

    `settings` go to `mlflow.pyfunc.log_model`, as `registered_model_name="houses"`.
    """
    return _with_export(model, num_draws, lambda mlflow, parts: mlflow.pyfunc.log_model(name=name, **parts | settings))


def _with_export(model: Any, num_draws: int | None, write: Callable[[Any, Json], Any]) -> Any:
    try:
        import mlflow
    except ImportError:
        fix = "pip install 'posteria[mlflow]'"
        raise SettingError("mlflow is not installed", "the extra `mlflow`", fix) from None
    posterior = getattr(model, "posterior_", model)
    if not isinstance(posterior, Posterior):
        raise SettingError(
            f"{type(model).__name__} to log", "a fitted posterior or estimator", "fit it first: model.fit(x, y)"
        )
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "export"
        posterior.export(export, num_draws)
        return write(mlflow, _parts(posterior, export))


def _parts(posterior: Posterior, export: Path) -> Json:
    """The arguments of `mlflow.pyfunc.save_model`."""
    facts = posterior.facts
    about = {"posteria": __version__, "kind": posterior.model.likelihood.kind, "method": facts.get("method")}
    about |= {name: facts[name] for name in ("num_data", "seconds", "notes") if name in facts}
    return {
        "loader_module": LOADER,
        "data_path": str(export),
        "code_paths": [str(CODE["predict.py"].parent / f"{LOADER}.py")],
        "pip_requirements": _requirements(),
        "signature": _signature(posterior),
        "metadata": {FLAVOR_METADATA: about},
    }


def _requirements() -> list[str]:
    """What reads the export: its function is of this JAX's format."""
    from importlib.metadata import version

    return [f"{name}=={version(name)}" for name in ("jax", "jaxlib", "mlflow-skinny", "numpy", "pandas") if _is(name)]


def _is(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def _signature(posterior: Posterior) -> Any:
    """The columns of a table by name, or the shape of an array's rows; and the level of the interval."""
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    preparation = posterior.attached.get("preparation") or {}
    params = ParamSchema([ParamSpec("level", "double", 0.9)])
    if encoder := preparation.get("encoder"):
        # numbers may be whole, categories numbers, dates texts: the export takes them all, and MLflow would not
        inputs = [ColSpec(AnyType(), column["name"], required=False) for column in encoder["columns"]]
        return ModelSignature(Schema(inputs), params=params)
    blank: Any = posterior.target.blank_input
    shape = np.shape(preparation["x"]["mean"]) if preparation.get("x") else blank.shape[1:]
    return ModelSignature(Schema([TensorSpec(np.dtype(blank.dtype), (-1, *shape))]), params=params)
