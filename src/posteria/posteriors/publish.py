"""Publish a posterior: the folder that `publishing` reads, with a card for people."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteria import disk
from posteria.bridges import safetensors_file
from posteria.data.arrays import rows_in_short
from posteria.errors import SettingError, StoreError
from posteria.metrics.scores import accuracy, ece
from posteria.posteriors import saving, store
from posteria.posteriors.base import Posterior
from posteria.posteriors.publishing import CARD, DRAWS, FILES, STATUS
from posteria.tree import Json

SCALARS = (bool, int, float, str)


def publish(posterior: Posterior, path: str | Path, data: Any = None, *, if_exists: str = "error") -> int:
    """Write a folder that others can rely on, and return its size in bytes: draws as safetensors, a manifest with the
    SHA-256 of every file, and a card with what was measured on `data = (x, y)`, rows that were not fitted to.

    `po.load` reads it from a path or a URL. It takes the place of another, whole, or nothing changes.
    """
    if not isinstance(posterior, Posterior):
        raise SettingError(f"{type(posterior).__name__} to publish", "a fitted posterior", "pass model.posterior_")
    out = Path(path)
    _check_free(out, if_exists)
    scores = {} if data is None else _measured(posterior, *data)
    packed = saving.pack(posterior)
    arrays = {name: np.asarray(array) for name, array in packed.pop("arrays").items()}
    content = {DRAWS: safetensors_file.written(arrays), CARD: _card(posterior, out.name, scores).encode()}
    manifest = packed | {
        "format": "posteria",
        "schema": store.SCHEMA,
        "status": STATUS,
        "versions": saving.versions(),
        "scores": scores,
        "files": {name: hashlib.sha256(part).hexdigest() for name, part in content.items()},
    }
    with disk.written_whole(out) as fresh:
        for name, part in content.items():
            disk.write_bytes(fresh / name, part)
        store.write_json(fresh / store.MANIFEST, manifest)  # last: with it, it is published
    return sum(file.stat().st_size for file in out.iterdir())


def _measured(posterior: Posterior, x: Any, y: Any) -> Json:
    """What a prediction of these rows is worth."""
    predicted = posterior.predict(x)
    log_probs = predicted.log_prob(y)
    y = predicted.check_y(y)
    is_own = "rows" in posterior.facts and posterior.facts["rows"] == rows_in_short(posterior.check_x(x), y)
    scores: Json = {
        "rows": f"{len(log_probs)}{', those that it was fitted to: others it predicts less well' if is_own else ''}",
        "log_likelihood a row": round(float(np.mean(log_probs)), 4),
    }
    if posterior.model.likelihood.kind == "classes":
        found = {"accuracy": accuracy(predicted.probs, y), "ece": ece(predicted.probs, y)}
    else:
        lower, upper = predicted.interval(0.9)
        covered = np.mean((lower <= y) & (y <= upper))
        found = {"rmse": np.sqrt(np.mean((predicted.mean - y) ** 2)), "share within the 90 % interval": covered}
    return scores | {name: round(float(value), 4) for name, value in found.items()}


def _check_free(out: Path, if_exists: str) -> None:
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out} is a file", "a folder", "choose another path")
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")} if out.exists() else set()
    if names and if_exists != "replace":
        raise StoreError(
            f"{out} is not empty", "a new or empty folder", 'if_exists="replace" replaces what was published'
        )
    if foreign := sorted(names - FILES - {store.MANIFEST}):
        raise StoreError(
            f"{out} also holds {foreign[:5]}", "what was published alone, to replace", "choose another path"
        )


# ---- the card


def _card(posterior: Posterior, title: str, scores: Json) -> str:
    """For people; every number is one that was recorded."""
    facts, model = posterior.facts, posterior.model
    method = facts.get("method", {})
    settings = ", ".join(f"{k}={v}" for k, v in method.get("settings", {}).items() if isinstance(v, SCALARS))
    needs_network = model.network.spec is None
    call = f'po.load("{title}", network=...)' if needs_network else f'po.load("{title}")'
    lines = [
        *_front_matter(posterior),
        f"# {title}",
        "",
        "Samples of a Bayesian posterior, published by Posteria. It reads the folder from a path or a URL, checks",
        "the SHA-256 of every file, and imports nothing from it.",
        "",
        "```python",
        "import posteria as po",
        "",
        f"posterior = {call}",
        "prediction = posterior.predict(x)  # mean, std, probs, log_prob(y), interval(0.9)",
        "```",
        "",
        "| | |",
        "| --- | --- |",
        f"| kind | {posterior.kind} |",
        f"| method | {method.get('name', 'not recorded')} ({settings}) |",
        f"| network | {model.network.spec or 'your own: pass network='} |",
        f"| likelihood | {model.likelihood!r} |",
        f"| prior | {model.prior!r} |",
        f"| temperature | {model.temperature} |",
        f"| draws in a prediction | {posterior.num_draws} |",
        f"| rows it was fitted to | {facts.get('num_data', 'not recorded')} |",
        f"| seconds, gradients | {facts.get('seconds', 0):.1f}, {facts.get('gradients', 0):,} |",
        f"| a datum | {jax.tree.map(lambda leaf: (leaf.shape[1:], leaf.dtype.name), posterior.target.blank_input)} |",
    ]
    lines += ["", "## Measured", ""]
    lines += [f"- {name}: {value}" for name, value in scores.items()] or ["No scores were given when it was published."]
    if facts.get("notes"):
        lines += ["", "## What was noted", "", *(f"- {note}" for note in facts["notes"])]
    lines += ["", f"Versions: {', '.join(f'{name} {version}' for name, version in saving.versions().items())}.", ""]
    return "\n".join(lines)


def _front_matter(posterior: Posterior) -> list[str]:
    """What a hub of models reads first, as YAML; a JSON text is one."""
    tags = ["bayesian", "uncertainty", "jax", posterior.facts.get("method", {}).get("name", ""), posterior.kind]
    lines = ["---", "library_name: posteria", "tags:", *(f"- {json.dumps(tag)}" for tag in dict.fromkeys(tags) if tag)]
    if (posterior.attached.get("preparation") or {}).get("encoder"):
        kind = "classification" if posterior.model.likelihood.kind == "classes" else "regression"
        lines.append(f"pipeline_tag: tabular-{kind}")
    return [*lines, "---", ""]
