"""What a run is recorded as before it begins, and whether a stored one is the same: data, model, method and key.

A function cannot be written down: a network, a likelihood of the user's own, an optimiser and what augments batches are
known by what they return for fixed arguments.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.data.arrays import rows
from posteria.errors import PosteriaError, StoreError
from posteria.methods import registry
from posteria.models import likelihoods, priors
from posteria.models.target import Target
from posteria.posteriors import saving, store
from posteria.random import key_to_json
from posteria.tree import Json


def manifest_of(target: Target, method: Any, key: jax.Array) -> Json:
    return {
        "format": "posteria",
        "schema": store.SCHEMA,
        "status": "running",
        "files": {},
        "versions": saving.versions(),
        "model": saving.model_to_json(target),
        "run": {
            "method": registry.to_json(method),
            "key": key_to_json(key),
            "data": store.fingerprint(target.data),
            "density": _density_fingerprint(target),
            "optimizer": _optimizer_fingerprint(method, target),
        }
        | ({"augment": _augment_fingerprint(target)} if target.augment else {}),
    }


def check_same_run(folder: Path, stored: Json, manifest: Json) -> None:
    """Refuse to continue a run with other data, another model or another method than it began with."""
    with store.refuse_damage(folder):
        _compare_runs(stored, manifest)


def _compare_runs(stored: Json, manifest: Json) -> None:
    if "run" not in stored:
        raise StoreError("the folder holds a saved posterior", "the folder of a fit", "choose another folder")
    old, new = stored["run"], manifest["run"]
    if old["data"] != new["data"]:
        raise StoreError(
            "the data are not those of the run", "the same x and y, in the same order", "pass the data it began with"
        )
    if stored["model"]["structure"] != manifest["model"]["structure"]:
        raise StoreError(
            "the network has other parameters than the run's", "the same network", "pass the network it began with"
        )
    parts = ("likelihood", "prior", "temperature")  # written down exactly, or judged by the density
    then = stored["model"] | {
        "likelihood": _as_written_now(stored["model"]["likelihood"], likelihoods),
        "prior": _as_written_now(stored["model"]["prior"], priors),
    }
    is_same = all(then[part] == manifest["model"][part] for part in parts)
    if not is_same or not np.allclose(old["density"], new["density"], rtol=1e-2, atol=1e-3):
        raise StoreError(
            "the model's density is not that of the run",
            "the same network, likelihood, prior and temperature",
            "pass the model it began with",
        )
    if _as_written_now(old["method"], registry) != new["method"] or not np.allclose(
        old["optimizer"], new["optimizer"], rtol=1e-2
    ):
        raise StoreError(
            f"the method is {new['method']}", f"{old['method']}, as the run began", "pass the same settings"
        )
    augments = [run.get("augment", []) for run in (old, new)]
    if len(augments[0]) != len(augments[1]) or not np.allclose(augments[0], augments[1], rtol=1e-2):
        raise StoreError("augment is not that of the run", "the same function", "pass the one it began with")
    if old["key"] != new["key"]:
        raise StoreError("the key is not that of the run", "the same key", "pass the key it began with")


def _as_written_now(stored: Json | None, home: Any) -> Json | None:
    """With the defaults of settings that were not there yet when it was written; as it is where it is a user's own."""
    if stored is None:
        return None
    try:
        written: Json | None = home.to_json(home.from_json(stored))
    except PosteriaError:
        return stored
    return written


def _density_fingerprint(target: Target) -> list[float]:
    """Log prior and log likelihoods of a few rows at fixed weights: another network, prior or likelihood would show."""
    params = _fixed_params(target)
    numbers = [float(target.log_prior(params))]
    if target.data is not None:
        batch = rows(target.data, slice(8))
        numbers += [float(v) for v in target.log_likelihood(params, batch)]
    return [float(f"{number:.4e}") for number in np.nan_to_num(numbers)] + [float(target.temperature)]


def _optimizer_fingerprint(method: Any, target: Target) -> list[float]:
    """The size of two updates of the user's optimiser at fixed gradients."""
    optimizer = registry.optimizer_of(method)
    if optimizer is None:
        return []
    params = _fixed_params(target)
    state, numbers = optimizer.init(params), []
    for _ in range(2):
        updates, state = optimizer.update(params, state, params)
        numbers.append(float(f"{float(jnp.abs(tree.ravel(updates)).sum()):.4e}"))
    return numbers


def _augment_fingerprint(target: Target) -> list[float]:
    """Of the first rows, changed by a fixed key."""
    batch = jax.tree.map(jnp.asarray, rows(target.data, slice(8)))
    changed = target.augment(jax.random.key(7), batch)  # type: ignore[misc]
    return [float(f"{float(np.abs(np.asarray(leaf, np.float64)).sum()):.4e}") for leaf in jax.tree.leaves(changed)]


def _fixed_params(target: Target) -> tree.Params:
    flat = 0.1 * jax.random.normal(jax.random.key(7), (tree.size(target.structs),))
    return tree.unraveller(target.structs)(flat)
