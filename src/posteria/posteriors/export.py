"""A posterior as a folder that predicts with JAX alone: the compiled average over draws, and how rows are prepared.

artifact.json     how rows are prepared, and the SHA-256 of itself and of every other file
function.bin      (x, level) -> the statistics of the prediction, as StableHLO
predict.py        what runs it: a module and a script; it checks all of them before it uses them
cells.py          how a table's values become numbers, the same file that the package itself uses
texts.py          how a CSV becomes its values, likewise
flatbuffers/      the one package that JAX needs to read the function and does not bring
"""

import contextlib
import hashlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import disk, tree
from posteria.data import cells, texts
from posteria.data.standardise import Standardiser
from posteria.errors import SettingError, StoreError
from posteria.posteriors import predictive, store
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.calibrated import CalibratedPosterior
from posteria.posteriors.conformal import ROUNDING, ScoreDistribution
from posteria.posteriors.units import MIDDLE_LEVELS, middle_moments
from posteria.tree import Json

PLATFORMS = ("cpu", "cuda", "tpu")
FIXED_BATCH = 64
ABOUT = "artifact.json"
CODE = {
    "predict.py": Path(__file__).parent / "exported" / "predict.py",
    "cells.py": Path(cells.__file__),
    "texts.py": Path(texts.__file__),
}
OURS = {ABOUT, "function.bin", "flatbuffers", "__pycache__", *CODE}


def export(posterior: Posterior, path: str | Path, num_draws: int | None = None, if_exists: str = "error") -> int:
    """Write the folder, and return its size in bytes; it takes the place of another export, whole, or nothing changes.

    How a table was prepared travels along, where the posterior knows it (`posterior.attached`).
    """
    blank = posterior.target.blank_input
    if not isinstance(blank, np.ndarray | jax.Array):
        raise SettingError("x is a tree of arrays", "one array", "export a network of one array")
    if isinstance(posterior, CalibratedPosterior) and (
        posterior.groups is not None or posterior.model.likelihood.kind == "counts"
    ):
        raise SettingError(
            "a calibration by groups, or of counts", "one calibration for all numbers or classes", "calibrate without"
        )
    folder = Path(path)
    _check_free(folder, if_exists)
    num_draws = posterior.num_draws if num_draws is None else check_num_draws(num_draws)
    with _uninterrupted():
        function, batch = _exported(_prediction(posterior, num_draws), blank)
        content = {"function.bin": bytes(function.serialize())}
    content |= {name: source.read_bytes() for name, source in CODE.items()} | _flatbuffers()
    about = _about(posterior, blank, num_draws, batch)
    about["files"] = {name: hashlib.sha256(part).hexdigest() for name, part in content.items()}
    with disk.written_whole(folder) as fresh:
        for name, part in content.items():
            disk.write_bytes(fresh / name, part)
        store.write_json(fresh / ABOUT, about)  # last: with it, it is an export
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _check_free(folder: Path, if_exists: str) -> None:
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file", "a folder", "choose another path")
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.exists() else set()
    if ABOUT not in names and names <= OURS:  # nothing, or what a kill left
        return
    if if_exists != "replace":
        raise SettingError(f"{folder} is not empty", "a new or empty folder", 'pass if_exists="replace"')
    if foreign := sorted(names - OURS):
        raise StoreError(f"{folder} also holds {foreign[:5]}", "an export alone, to replace", "move them elsewhere")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of this: in the midst of JAX's own code it may be lost, or end in a crash."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if caught:
        raise KeyboardInterrupt


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


def _about(posterior: Posterior, blank: Any, num_draws: int, batch: int | None) -> Json:
    preparation = posterior.attached.get("preparation") or {}
    encoder = preparation.get("encoder")
    return {
        "format": "posteria-export-3",
        "kind": preparation.get("kind") or posterior.model.likelihood.kind,
        "class_names": preparation.get("class_names", []),
        "columns": encoder and encoder["columns"],
        "x": preparation.get("x"),
        "y": None if _log_scale(posterior) else preparation.get("y"),  # the function itself has left the logarithms
        "bins": preparation.get("bins"),
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
    plain = posterior.inner if is_calibrated else posterior
    forward = plain.predict(posterior.target.blank_input, num_draws).forward
    scale = _log_scale(posterior)

    def of_classes(x: jax.Array, own: tree.Params, outputs: jax.Array, level: jax.Array) -> Json:
        probs, expected_entropy = predictive.entropies_of(likelihood, own, outputs, None)
        entropy = predictive.entropy_of(probs)
        epistemic = jnp.maximum(entropy - expected_entropy, 0.0)
        if not is_calibrated:
            return {"mutual_information": epistemic, "probs": probs, "entropy": entropy}
        share = jnp.where(entropy > 0, jnp.clip(epistemic / jnp.where(entropy > 0, entropy, 1.0), 0.0, 1.0), 0.0)
        probs = jax.nn.softmax(jnp.log(jnp.maximum(probs, 1e-30)) / posterior.temperature)
        entropy = predictive.entropy_of(probs)
        sets = 1.0 - probs <= _threshold(np.sort(posterior.scores), level)
        return {"mutual_information": share * entropy, "probs": probs, "entropy": entropy, "sets": sets}

    def of_numbers(x: jax.Array, own: tree.Params, outputs: jax.Array, level: jax.Array) -> Json:
        mean, aleatoric, epistemic = predictive.moments_of(likelihood, own, outputs, None)
        variance = aleatoric + epistemic
        levels = jnp.stack([(1 - level) / 2, (1 + level) / 2])
        if is_calibrated:
            share = jnp.where(jnp.isfinite(variance), epistemic / variance, 0.0)
            half_widths = plain.half_widths_of(x, own, outputs)
            mean, variance, (lower, upper) = _calibrated(posterior, half_widths, level, levels)
            epistemic = share * variance
        else:
            lower, upper = jnp.moveaxis(predictive.quantiles_of(likelihood, own, outputs, None, levels), 1, 0)
        if scale is not None:
            middle = jnp.asarray(MIDDLE_LEVELS, jnp.float32)
            if is_calibrated:
                at = _quantiles(ScoreDistribution.of(posterior.scores), half_widths, middle)
            else:
                at = jnp.moveaxis(predictive.quantiles_of(likelihood, own, outputs, None, middle), 1, 0)
            share = jnp.where(variance > 0, epistemic / variance, 0.0)
            lower, upper, at = (jnp.exp(values * scale.std + scale.mean) for values in (lower, upper, at))
            mean, variance = middle_moments(at)
            epistemic = share * variance
        std, epistemic_std = jnp.sqrt(variance), jnp.sqrt(epistemic)
        return {"mean": mean, "std": std, "lower": lower, "upper": upper, "epistemic_std": epistemic_std}

    def run(x: jax.Array, level: jax.Array) -> Json:
        outputs, own = forward(x)
        return (of_classes if hasattr(likelihood, "probs") else of_numbers)(x, own, outputs, level)

    return run


def _calibrated(posterior: Any, half_widths: Any, level: jax.Array, levels: jax.Array) -> tuple[Any, Any, Any]:
    """Mean, variance and quantiles as `CalibratedNumbers` has them; past what the rows can promise, infinite."""
    scores = ScoreDistribution.of(posterior.scores)
    centre, below, above = half_widths
    up, up_square, down, down_square = (jnp.asarray(part, centre.dtype) for part in scores.partial_moments())
    shift = above * up - below * down
    variance = above**2 * up_square + below**2 * down_square - shift**2
    is_promised = level <= len(posterior.scores) / (len(posterior.scores) + 1) + ROUNDING
    return centre + shift, variance, _quantiles(scores, half_widths, levels, is_promised)


def _quantiles(scores: ScoreDistribution, half_widths: Any, levels: jax.Array, is_promised: Any = True) -> jax.Array:
    """(level, row, target)."""
    centre, below, above = half_widths
    z = jax.scipy.special.ndtri(levels)
    knots, columns = jnp.asarray(scores.z, jnp.float32), jnp.asarray(scores.scores, jnp.float32)
    at = jnp.stack([jnp.interp(z, knots, column) for column in columns.T], axis=-1)[:, None]  # (level, 1, target)
    at = jnp.where(is_promised, at, jnp.inf * jnp.sign(at))
    return centre + jnp.where(at > 0, above, below) * at


def _log_scale(posterior: Any) -> Standardiser | None:
    """Of targets that were fitted as logarithms."""
    scale = (posterior.attached.get("preparation") or {}).get("y")
    return Standardiser.from_json(scale) if scale and scale.get("is_log") else None


def _threshold(scores: np.ndarray, level: jax.Array) -> jax.Array:
    """As `conformal.threshold`, of a level that comes as 32 bits; past what the rows can promise, infinite."""
    counts = np.arange(len(scores) + 1) / (len(scores) + 1) + ROUNDING  # each level below has so many smaller ranks
    rank = jnp.searchsorted(jnp.asarray(counts, jnp.float32), level)
    bounded = jnp.asarray(scores, jnp.float32)[jnp.clip(rank, 1, len(scores)) - 1]
    return jnp.where(rank > len(scores), jnp.inf, bounded)
