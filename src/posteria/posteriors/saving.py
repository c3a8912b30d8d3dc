"""Posteriors to and from folders."""

import importlib.metadata
import platform
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteria import __version__, networks
from posteria.data.arrays import Data
from posteria.errors import StoreError
from posteria.models import likelihoods, priors
from posteria.models.likelihoods import Likelihood
from posteria.models.model import Model
from posteria.models.priors import Prior
from posteria.models.target import Target
from posteria.posteriors import publishing, store
from posteria.posteriors.base import Posterior
from posteria.tree import Arrays, Json

# where Posteria's own kinds of posterior live
MODULES = (
    "calibrated",
    "closed_form",
    "compressed",
    "dirichlet",
    "deep_process",
    "draws",
    "flow",
    "indexed",
    "gaussian",
    "latent_process",
    "linearised",
    "masks",
    "mixture",
    "multiplicative",
    "process",
    "pruned",
    "rank_one",
    "restricted",
)
VERSIONS_OF = ("jax", "jaxlib", "flax", "optax", "blackjax", "numpy")


def save(posterior: Posterior, folder: Path, if_exists: str = "error") -> None:
    """Write a posterior to a new folder."""
    manifest = {"format": "posteria", "model": model_to_json(posterior.target), "attached": posterior.attached}
    with store.new_folder(folder, if_exists) as fresh:
        write_posterior(posterior, fresh, manifest)


def write_posterior(posterior: Posterior, folder: Path, manifest: Json, status: str = "complete") -> None:
    """Arrays first, then the manifest that makes them count."""
    content, arrays = _content(posterior)
    store.save_arrays(folder, arrays)
    parts = ("arrays",) if status == "complete" else ("arrays", "stages")
    files = manifest.get("files", store.digests(folder, store.START)) | store.digests(folder, *parts)
    about = {"schema": store.SCHEMA, "status": status, "versions": versions(), "posterior": content, "files": files}
    store.write_manifest(folder, manifest | about)


def pack(posterior: Posterior) -> Json:
    """A posterior as plain data and arrays, for those who store it by other means."""
    content, arrays = _content(posterior)
    return {
        "model": model_to_json(posterior.target),
        "posterior": content,
        "attached": posterior.attached,
        "arrays": arrays,
    }


def unpack(
    packed: Json, network: Any = None, likelihood: Likelihood | None = None, prior: Prior | None = None
) -> Posterior:
    """The posterior that `pack` described; pass again what could not be written down."""
    target = Target(*model_from_json(packed["model"], network, likelihood, prior))
    target.columns = packed["model"].get("columns")
    content, arrays = packed["posterior"], dict(packed["arrays"])
    measured = _history_from_json(content.get("history", {}), arrays)
    posterior = restore(target, content["kind"], content["settings"], arrays, content["facts"])
    posterior.history = measured
    posterior.attached = packed.get("attached", {})
    return posterior


def _content(posterior: Posterior) -> tuple[Json, Arrays]:
    own_settings, arrays = posterior.state()
    measured, columns = _history_to_json(posterior.history)
    arrays = arrays | columns
    content = {"kind": posterior.kind, "settings": own_settings, "arrays": list(arrays), "facts": posterior.facts}
    return content | ({"history": measured} if measured else {}), arrays


def load(
    path: str | Path, network: Any = None, likelihood: Likelihood | None = None, prior: Prior | None = None
) -> Posterior:
    """Read a posterior that `fit(out=...)`, `save` or `publish` wrote; what was published also from a URL.

    Pass again what could not be written down: your own network, likelihood or prior.
    """
    if publishing.is_published(path):
        manifest, arrays = publishing.read(path)
        with store.refuse_damage(Path(str(path))):
            return unpack(manifest | {"arrays": arrays}, network, likelihood, prior)
    folder = Path(path)
    manifest = store.read_manifest(folder)
    if "posterior" not in manifest:
        raise StoreError(
            f"the run in {folder} is not finished", "a finished fit", f"po.resume({str(path)!r}, data=(x, y)) goes on"
        )
    with store.refuse_damage(folder):
        store.check_files(folder, manifest, "arrays")
        arrays = store.load_arrays(folder, manifest["posterior"]["arrays"])
        posterior = unpack(manifest | {"arrays": arrays}, network, likelihood, prior)
        if not store.is_verified(manifest):
            posterior.facts["notes"] = [*posterior.facts.get("notes", []), store.UNVERIFIED]
    return posterior


def restore(target: Target, kind: str, own_settings: Json, arrays: Arrays, facts: Json) -> Posterior:
    for module in MODULES:
        import_module(f"posteria.posteriors.{module}")
    if kind not in Posterior.kinds:
        raise StoreError(
            f"the posterior is of kind {kind!r}",
            f"one of {list(Posterior.kinds)}",
            "import the package that defines it (on the command line, --method mypkg:Mine): a file imports nothing",
        )
    return Posterior.kinds[kind].from_state(target, own_settings, arrays, facts)


def model_to_json(target: Target) -> Json:
    """A model as far as it can be written down, with a fingerprint of the network."""
    model = target.model
    return {
        "network": model.network.spec,
        "likelihood": likelihoods.to_json(model.likelihood),
        "prior": priors.to_json(model.prior),
        "temperature": float(model.temperature),
        "columns": target.columns,
        "input": store.input_to_json(target.blank_input),
        "structure": networks.structure(target.structs["network"]),
        "fingerprint": _fingerprint(model.network, target.blank_input),
    }


def model_from_json(
    stored: Json, network: Any, likelihood: Likelihood | None, prior: Prior | None
) -> tuple[Model, tuple[Data, None]]:
    """The model again, and (x, None) that gives its shapes; what is passed is checked against the fingerprint."""
    from posteria import nn

    if network is None:
        if stored["network"] is None:
            raise StoreError("this posterior is of your own network", "that network", "pass network=")
        network = nn.build(stored["network"])
    network = networks.network(network)
    for name, part in {"likelihood": likelihood, "prior": prior}.items():
        if part is None and stored[name] is None:
            raise StoreError(f"this posterior has your own {name}", f"that {name}", f"pass {name}=")
    likelihood = likelihood or likelihoods.from_json(stored["likelihood"])
    prior = prior or priors.from_json(stored["prior"])
    model = Model(network, likelihood, prior, stored["temperature"])
    x = store.input_from_json(stored["input"])
    check_network(model.network, x, stored)
    return model, (x, None)


def check_network(network: networks.Network, x: Data, stored: Json) -> None:
    """Refuse another network than the one that was fitted."""
    structs = jax.eval_shape(lambda key: network.init(key, x), jax.random.key(0))
    structure = networks.structure(structs)
    if structure != stored["structure"]:
        differing = [pair for pair in zip_longest(structure, stored["structure"]) if pair[0] != pair[1]]
        has_other_bits = all(mine and theirs and mine[:2] == theirs[:2] for mine, theirs in differing)
        raise StoreError(
            f"the network has parameters {_short([mine for mine, _ in differing])}",
            _short([theirs for _, theirs in differing]),
            "set jax_enable_x64 as in the fit" if has_other_bits else "pass the network that was fitted",
        )
    got, wanted = _fingerprint(network, x), stored["fingerprint"]
    if not np.allclose(got, wanted, rtol=1e-2, atol=1e-4):
        raise StoreError(
            "the network computes another function than the one that was fitted",
            "the same layers and activations",
            "pass the network that was fitted",
        )


def _fingerprint(network: networks.Network, x: Data) -> list[float]:
    return [] if x is None else networks.fingerprint(network, x)


def versions() -> dict[str, str]:
    others = {name: importlib.metadata.version(name) for name in VERSIONS_OF}
    return {"posteria": __version__} | others | {"python": platform.python_version()}


def _short(structure: list[Any]) -> str:
    shown = ", ".join("none" if leaf is None else f"{leaf[0]} {tuple(leaf[1])} {leaf[2]}" for leaf in structure[:6])
    return shown + (f" and {len(structure) - 6} more" if len(structure) > 6 else "")


# ---- a history: what was measured each epoch, as columns

LABELS = ("stage", "chain", "epoch")  # of its rows; the other columns are numbers


def _history_to_json(history: Arrays) -> tuple[Json, Arrays]:
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


def _history_from_json(stored: Json, arrays: Arrays) -> Arrays:
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
