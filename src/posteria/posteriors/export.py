"""A posterior as a folder that predicts with JAX alone: the compiled average over draws, and how rows are prepared."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.errors import SettingError
from posteria.posteriors import predictive, store
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.calibrated import LEAST_WIDTH, MIDDLE, ROUNDING, CalibratedPosterior

PLATFORMS = ("cpu", "cuda", "tpu")
FIXED_BATCH = 64
SCRIPT = Path(__file__).parent / "exported" / "predict.py"


def export(posterior: Posterior, path: str | Path, num_draws: int | None = None, if_exists: str = "error") -> int:
    """Write `function.bin` (StableHLO), `artifact.json` and `predict.py`, and return their size in bytes.

    How a table was prepared travels along, where the posterior knows it (`posterior.attached`).
    """
    blank = posterior.target.blank_input
    if not isinstance(blank, np.ndarray | jax.Array):
        raise SettingError("x is a tree of arrays", "one array", "export a network of one array")
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()) and if_exists != "replace":
        raise SettingError(f"{folder} is not empty", "a new or empty folder", 'pass if_exists="replace"')
    num_draws = posterior.num_draws if num_draws is None else check_num_draws(num_draws)
    function, batch = _exported(_prediction(posterior, num_draws), blank)
    content = _flatbuffers() | {
        "function.bin": bytes(function.serialize()),
        "artifact.json": json.dumps(_about(posterior, blank, num_draws, batch), indent=1).encode(),
        "predict.py": SCRIPT.read_bytes(),
    }
    for name, part in content.items():
        store.write_bytes(folder / name, part)
    return sum(map(len, content.values()))


def _exported(prediction: Any, blank: Any) -> tuple[Any, int | None]:
    """For any number of rows where the network's own code allows it, else for a fixed number at a time."""
    level = jax.ShapeDtypeStruct((), jnp.float32)
    exporting = jax.export.export(jax.jit(prediction), platforms=PLATFORMS)
    (any_size,) = jax.export.symbolic_shape("n")
    try:
        return exporting(jax.ShapeDtypeStruct((any_size, *blank.shape[1:]), blank.dtype), level), None
    except Exception:  # whatever a user's code does with a size that is no number
        return exporting(jax.ShapeDtypeStruct((FIXED_BATCH, *blank.shape[1:]), blank.dtype), level), FIXED_BATCH


def _flatbuffers() -> dict[str, bytes]:
    """The one pure-Python package that JAX needs to read `function.bin` and does not bring: it goes along."""
    import flatbuffers

    home = Path(flatbuffers.__file__).parent
    return {f"flatbuffers/{path.name}": path.read_bytes() for path in sorted(home.glob("*.py"))}


def _about(posterior: Posterior, blank: Any, num_draws: int, batch: int | None) -> dict:
    preparation = posterior.attached.get("preparation") or {}
    encoder = preparation.get("encoder")
    return {
        "format": "posteria-export-1",
        "kind": preparation.get("kind") or posterior.model.likelihood.kind,
        "class_names": preparation.get("class_names", []),
        "columns": encoder and encoder["columns"],
        "x": preparation.get("x"),
        "y": preparation.get("y"),
        "shape": list(blank.shape[1:]),
        "dtype": str(blank.dtype),
        "num_draws": num_draws,
        "batch": batch,
        "jax": jax.__version__,
    }


def _prediction(posterior: Any, num_draws: int) -> Any:
    """(x, level) -> the statistics of the prediction, all of them inside one compiled function."""
    is_calibrated = isinstance(posterior, CalibratedPosterior)
    likelihood: Any = posterior.model.likelihood
    forward = (posterior.inner if is_calibrated else posterior).predict(posterior.target.blank_input, num_draws).forward

    def of_classes(own: Any, outputs: jax.Array, level: jax.Array) -> dict:
        probs, expected_entropy = predictive.entropies_of(likelihood, own, outputs, None)
        plain_entropy = predictive.entropy_of(probs)
        result = {"mutual_information": jnp.maximum(plain_entropy - expected_entropy, 0.0)}
        if is_calibrated:
            probs = jax.nn.softmax(jnp.log(jnp.maximum(probs, 1e-30)) / posterior.temperature)
            result["sets"] = 1.0 - probs <= _threshold(posterior.scores, level)
        return result | {"probs": probs, "entropy": predictive.entropy_of(probs)}

    def of_numbers(own: Any, outputs: jax.Array, level: jax.Array) -> dict:
        mean, aleatoric, epistemic = predictive.moments_of(likelihood, own, outputs, None)
        std = jnp.sqrt(aleatoric + epistemic)
        if is_calibrated:
            quantiles = predictive.quantiles_of(likelihood, own, outputs, None, jnp.asarray(MIDDLE, jnp.float32))
            low, centre, high = jnp.moveaxis(quantiles, 1, 0)
            stretch = _threshold(posterior.scores, level)
            lower = centre - stretch * jnp.maximum(centre - low, LEAST_WIDTH * std)
            upper = centre + stretch * jnp.maximum(high - centre, LEAST_WIDTH * std)
        else:
            levels = jnp.stack([(1 - level) / 2, (1 + level) / 2])
            lower, upper = jnp.moveaxis(predictive.quantiles_of(likelihood, own, outputs, None, levels), 1, 0)
        return {"mean": mean, "std": std, "lower": lower, "upper": upper, "epistemic_std": jnp.sqrt(epistemic)}

    def run(x: jax.Array, level: jax.Array) -> dict:
        outputs, own = forward(x)
        return (of_classes if hasattr(likelihood, "probs") else of_numbers)(own, outputs, level)

    return run


def _threshold(scores: np.ndarray, level: jax.Array) -> jax.Array:
    """As `calibrated.threshold`; past what the calibration rows can promise, infinite."""
    rank = jnp.ceil((len(scores) + 1) * (level - ROUNDING)).astype(int)
    bounded = jnp.asarray(scores, jnp.float32)[jnp.minimum(rank, len(scores)) - 1]
    return jnp.where(rank > len(scores), jnp.inf, bounded)
