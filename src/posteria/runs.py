"""Fits from start to end: `fit`, `resume` and `sample`."""

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from posteria import disk, machine, tree
from posteria.compiled import give_back
from posteria.data.arrays import Data, is_source, rows_in_short
from posteria.data.batches import Augment
from posteria.data.directions import flat_directions
from posteria.engine import mesh as meshes
from posteria.engine.layout import is_layout
from posteria.engine.loop import Run
from posteria.engine.progress import OnLog
from posteria.errors import OUT_OF_MEMORY, DiskError, SettingError, StoreError, TooLargeError
from posteria.machine import check_room
from posteria.methods import registry
from posteria.methods.ensembles.folds import Folds
from posteria.models.empirical_covariance import EmpiricalCovariance
from posteria.models.likelihoods import Likelihood
from posteria.models.model import Model
from posteria.models.priors import Prior
from posteria.models.target import Density, Target
from posteria.posteriors import saving, store
from posteria.posteriors.base import Posterior
from posteria.posteriors.draws import Draws
from posteria.posteriors.scale_summary import prior_scales
from posteria.random import as_key, key_from_json
from posteria.run_record import check_same_run, manifest_of
from posteria.settings import Positive, checked
from posteria.tree import Json

IF_EXISTS = ("error", "resume", "replace")
START_STREAM = 7  # folded into the key for starts drawn from a posterior


class Services(NamedTuple):
    """What a fit is to use: so much time, a terminal, devices."""

    max_seconds: float | None
    progress: bool
    mesh: Mesh | None
    on_log: OnLog | None = None

    def run(self, folder: Path | None = None, **about: Any) -> Run:
        if self.on_log is not None and not callable(self.on_log):
            raise SettingError(f"on_log={self.on_log!r}", "a function of one dictionary", "pass on_log=print")
        is_first = machine.is_first()
        on_log = self.on_log if is_first else None
        return Run(folder, self.progress and is_first, self.max_seconds, on_log=on_log, mesh=self.mesh, **about)


def spread(given: Mesh | None, method: Any) -> Mesh | None:
    """The user's mesh; of several processes, one over all devices, as many chains at once as divide them."""
    if given is None and machine.are_several():
        num_devices = len(jax.devices())
        chains = math.gcd(_num_starts(method), num_devices)
        given = meshes.mesh(chains, num_devices // chains)
    return None if given is None else meshes.as_mesh(given)


def _num_starts(method: Any) -> int:
    return getattr(method, "num_chains", getattr(method, "size", 1))


def fit(
    model: Model,
    data: Data,
    method: Any = "hmc",
    *,
    key: int | jax.Array = 0,
    start: Any = None,
    out: str | Path | None = None,
    if_exists: str = "error",
    max_seconds: float | None = None,
    progress: bool = True,
    attach: Json | None = None,
    calibrate: str | None = None,
    on_log: OnLog | None = None,
    augment: Augment | None = None,
    mesh: Mesh | None = None,
) -> Posterior:
    """The posterior of `model` given `data = (x, y)` (None: the prior), by `method`: an object or a name.

    With `data = (x, y, weight)` each row counts as often as its weight says: 2 is the row twice, 0 leaves it out.
    `start` are weights to start from (in the network's own tree, or with a leading chain axis) or a fitted posterior.
    With `out` the fit is written to that folder as it runs, survives a kill, and goes on with `resume`. `max_seconds`
    ends it early: what was drawn by then is the posterior, and it says so. `attach` is JSON that travels with the
    posterior, as `posterior.attached`. `calibrate="folds"` fits five times, each without a fifth of the rows, and has
    the prediction cover as those rows show: `po.Folds(method)`. `mesh`, such as `po.mesh(chains=4, data=2)`, spreads
    chains over devices, and the rows of each chain over others; after `po.distributed()`, over several processes.

    `on_log` is called with a dictionary for each epoch (of a sampler: each kept draw): "stage", "epoch" (or "draw"),
    "seconds" and what was measured; `po.logs.CSV(path)` and `po.logs.TensorBoard(folder)` are such. `augment(key,
    (x, y))` returns a batch changed at random, such as images shifted; it is compiled with each step of methods that
    take batches, and noted: the likelihood then is of changed rows, while N counts those that were given.
    """
    method = _folded(registry.as_method(method), calibrate)
    if if_exists not in IF_EXISTS:
        raise SettingError(
            f"if_exists is {if_exists!r}", f"one of {IF_EXISTS}", "the default refuses to touch a folder in use"
        )
    _check_seconds(max_seconds)
    key = as_key(key)
    target = _augmented(_read_if_needed(Target(model, data), method, start), method, augment)
    _check_draws(method, target, max_seconds)
    method, start = _written_start(method, start, target, key)
    folder, services = None if out is None else Path(out), Services(max_seconds, progress, spread(mesh, method), on_log)
    if folder is None:
        return _run(None, {"attached": attach or {}}, target, method, key, start, services)
    manifest = manifest_of(target, method, key) | {"attached": attach or {}}
    if machine.on_first(lambda: _is_there(folder, manifest, if_exists)):
        return _resume(folder, target, method, key, services)
    if not machine.is_first():
        return _follow(target, method, key, services)
    with store.new_folder(folder, if_exists) as fresh:
        if start is not None:
            leaves = {str(i): leaf for i, leaf in enumerate(jax.tree.leaves(start))}
            manifest["files"][store.START] = store.write_arrays(fresh / store.START, leaves)
        store.write_manifest(fresh, manifest)
    with store.locked(folder):
        return _run(folder, manifest, target, method, key, start, services)


def _is_there(folder: Path, manifest: Json, if_exists: str) -> bool:
    """Whether the folder has this run, to go on with; another is refused."""
    if if_exists != "resume" or not (folder / store.MANIFEST).is_file():
        return False
    check_same_run(folder, store.read_manifest(folder), manifest)
    return True


def resume(
    path: str | Path,
    data: Data,
    *,
    network: Any = None,
    likelihood: Likelihood | None = None,
    prior: Prior | None = None,
    method: Any = None,
    max_seconds: float | None = None,
    progress: bool = True,
    on_log: OnLog | None = None,
    augment: Augment | None = None,
    mesh: Mesh | None = None,
) -> Posterior:
    """Continue an interrupted fit, bit-identically; a finished one is loaded.

    The data must be the same. Pass again what could not be written down: your own network, likelihood, prior, a method
    with an optimiser, or what augments batches. A run over a mesh goes on over one of the same shape where there are as
    many devices; over another `mesh` its draws are as valid, and it is noted.
    """
    _check_seconds(max_seconds)
    folder = Path(path)
    stored = store.read_manifest(folder)
    if "run" not in stored:
        raise StoreError(f"{folder} holds a saved posterior", "the folder of a fit", "po.load reads it")
    with store.refuse_damage(folder):
        model, _ = saving.model_from_json(stored["model"], network, likelihood, prior)
    target = Target(model, data)
    with store.refuse_damage(folder):
        key = key_from_json(stored["run"]["key"])
        if method is None:
            method = registry.from_json(stored["run"]["method"])
    method = registry.as_method(method)
    target = _augmented(_read_if_needed(target, method, None), method, augment)
    method, _ = _written_start(method, None, target, jax.random.key(0))
    check_same_run(folder, stored, manifest_of(target, method, key))
    return _resume(folder, target, method, key, Services(max_seconds, progress, spread(mesh, method), on_log))


def sample(
    log_density: Callable[[tree.Params], jax.Array],
    start: tree.Params,
    method: Any = "nuts",
    *,
    key: int | jax.Array = 0,
    max_seconds: float | None = None,
    progress: bool = True,
    mesh: Mesh | None = None,
) -> Draws:
    """Draws from any log density over any pytree, by a sampler; `draws.params` has leaves (chain, draw, ...)."""
    method = registry.as_method(method)
    if not hasattr(method, "num_chains"):
        raise SettingError(f"method is {method!r}", "a sampler", "take po.NUTS() or po.HMC()")
    _check_seconds(max_seconds)
    start = jax.tree.map(jnp.asarray, start)
    target = Density(log_density, start)
    _check_draws(method, target, max_seconds)
    draws: Draws = _fit_and_record(
        method, as_key(key), target, start, Services(max_seconds, progress, spread(mesh, method)).run()
    )
    return draws


def _folded(method: Any, calibrate: str | None) -> Any:
    if calibrate not in (None, "folds"):
        raise SettingError(f"calibrate is {calibrate!r}", 'None or "folds"', "or calibrate(x, y) of the posterior")
    return method if calibrate is None or isinstance(method, Folds) else Folds(method)


def _run(
    folder: Path | None,
    manifest: Json,
    target: Target,
    method: Any,
    key: jax.Array,
    start: Any,
    services: Services,
) -> Posterior:
    run = services.run(
        folder,
        identity=None if folder is None else store.identity(manifest),
        recorded_layout=manifest.get("run", {}).get("layout"),
        on_layout=lambda name: _record_layout(folder, manifest, name),
    )
    if folder is not None and not store.is_verified(manifest):
        run.note(store.UNVERIFIED)
    try:
        posterior: Posterior = _fit_and_record(method, key, target, _same_start(start, target, method), run)
        posterior.attached = manifest.get("attached", {})
        if folder is not None:
            saving.write_posterior(posterior, folder, manifest, "complete" if run.is_whole else "cut short")
    except KeyboardInterrupt:
        if folder is not None:
            run.progress.say(f"{_what_is_kept(folder)} To continue: po.resume({str(folder)!r}, data=(x, y))")
        raise
    except DiskError as error:
        if folder is None:
            raise
        fix = f"{error.fix}: po.resume({str(folder)!r}, data=(x, y)) goes on from what is kept"
        raise DiskError(error.got, error.wanted, fix) from error
    if folder is not None and run.is_whole:
        shutil.rmtree(folder / "stages", ignore_errors=True)
    return posterior


def _what_is_kept(folder: Path) -> str:
    if any((folder / "stages").rglob("state.npz")):
        return "Interrupted, and saved."
    return "Interrupted before anything was drawn: it would begin anew."


def _fit_and_record(method: Any, key: jax.Array, target: Target | Density, start: Any, run: Run) -> Any:
    """The method's posterior (or draws), with the facts of the fit."""
    began = time.monotonic()
    if target.caveat:
        run.note(target.caveat)
        run.progress.say(f"note: {target.caveat}")
    try:
        posterior = method.fit(key, target, start, run)
    except jax.errors.JaxRuntimeError as error:
        if OUT_OF_MEMORY not in str(error):
            raise
        raise TooLargeError(
            f"{type(method).__name__} needs more memory than there is ({str(error).splitlines()[0][:100]})",
            "arrays that fit",
            "take a smaller network, fewer draws, chains or hidden units, or less data; po.plan tells before",
        ) from error
    finally:
        run.progress.close()
        give_back()
    if not isinstance(posterior, Posterior | Draws):
        raise SettingError(
            f"{type(method).__name__}.fit returned {type(posterior).__name__}",
            "a po.Posterior",
            "subclass po.Posterior",
        )
    if not run.is_whole:
        run.note("max_seconds ended the fit early")
    if isinstance(posterior, Posterior):
        posterior.history = run.history
    if isinstance(posterior, Posterior) and isinstance(target, Target) and (flat := _flat_directions(target)):
        posterior.facts["flat_directions"] = flat
    if target.scales and hasattr(posterior, "sample_params"):
        posterior.facts["prior_scales"] = prior_scales(posterior)
    if isinstance(target, Target) and isinstance(target.data, tuple) and (rows := rows_in_short(*target.data[:2])):
        posterior.facts["rows"] = rows
    posterior.facts |= {
        "method": registry.to_json(method),
        "seconds": run.seconds_before + time.monotonic() - began,
        "gradients": run.num_gradients,
        "num_data": target.num_data,
        "notes": run.notes,
        "cut": run.cut,
        "is_whole": run.is_whole,
    }
    return posterior


def _flat_directions(target: Target) -> Json | None:
    """Of the training inputs, where the prior is not one that knows of them."""
    if not isinstance(target.data, tuple) or isinstance(target.model.prior, EmpiricalCovariance):
        return None
    shapes = [leaf.shape for leaf in jax.tree.leaves(target.structs)]
    return flat_directions(target.data[0], shapes)


def _check_draws(method: Any, target: Target | Density, max_seconds: float | None) -> None:
    """Refuse more draws than this machine holds, before anything runs; unless it is to end before."""
    num_draws = getattr(method, "num_chains", 1) * getattr(method, "num_draws", 0)
    if max_seconds is None:
        check_room(num_draws * tree.num_bytes(target.structs), f"{num_draws:,} draws")


def _check_seconds(max_seconds: float | None) -> None:
    checked("fit", "max_seconds", max_seconds, Positive | None, None)


def _resume(folder: Path, target: Target, method: Any, key: jax.Array, services: Services) -> Posterior:
    if (
        machine.on_first(lambda: store.read_manifest(folder)["status"]) == "complete"
    ):  # which may be a folder to read only
        return saving.load(folder, target.model.network, target.model.likelihood, target.model.prior)
    if not machine.is_first():
        return _follow(target, method, key, services)
    with store.locked(folder):
        stored = store.read_manifest(folder)
        if stored["status"] == "complete":  # by now
            return saving.load(folder, target.model.network, target.model.likelihood, target.model.prior)
        return _continue(folder, stored, target, method, services)


def _follow(target: Target, method: Any, key: jax.Array, services: Services) -> Posterior:
    """The same fit on a process that is not the first, and has no folder."""
    return _run(None, {}, target, method, key, None, services)


def _same_start(start: Any, target: Target, method: Any) -> Any:
    """The first process's, which may have read it from its folder."""
    (is_given,) = machine.agreed(start is not None)
    return machine.told_tree(start, tree.with_lead(target.structs, (_num_starts(method),))) if is_given else None


def _continue(folder: Path, stored: Json, target: Target, method: Any, services: Services) -> Posterior:
    start = None
    with store.refuse_damage(folder):
        disk.refuse_links(folder)
        store.check_files(folder, stored, store.START, *(["stages"] if stored["status"] == "cut short" else []))
        files = {name: digest for name, digest in stored.get("files", {}).items() if name == store.START}
        if (folder / store.START).is_file():
            leaves = store.read_arrays(folder / store.START, store.is_verified(stored))
            start = jax.tree.structure(target.structs).unflatten(leaves[str(i)] for i in range(len(leaves)))
        key = key_from_json(stored["run"]["key"])
        if not is_layout(stored["run"].get("layout")):
            raise ValueError(f"layout {stored['run']['layout']!r}")
    manifest = {name: part for name, part in stored.items() if name != "posterior"}
    manifest |= {"status": "running", "files": files}
    store.write_manifest(folder, manifest)  # from here on, the arrays of a run that was cut short count no more
    shutil.rmtree(folder / "arrays", ignore_errors=True)
    return _run(folder, manifest, target, method, key, start, services)


def _written_start(method: Any, start: Any, target: Target, key: jax.Array) -> tuple[Any, Any]:
    """Starts as plain weights, so that they can be written down, and the method without them."""
    own = getattr(method, "start", None)
    if isinstance(start, str) or hasattr(start, "climb"):  # "prior", "map" or a MAP, as a sampler's own setting
        if own is None:
            raise SettingError(f"start is {start!r}", f"weights: {type(method).__name__} has no start", "leave it out")
        return replace(method, start=start), None
    if own is not None and not isinstance(own, str) and not hasattr(own, "climb"):
        method, start = replace(method, start="prior"), own if start is None else start
    if start is None:
        return method, None
    num = _num_starts(method)
    if hasattr(start, "sample_params"):
        return method, start.sample_params(jax.random.fold_in(key, START_STREAM), num)
    return method, target.as_starts(start, num)


def _record_layout(folder: Path | None, manifest: Json, layout: str) -> None:
    if folder is not None:
        manifest["run"]["layout"] = layout
        store.write_manifest(folder, manifest)


def _augmented(target: Target, method: Any, augment: Augment | None) -> Target:
    if augment is None or target.data is None:
        return target
    if not registry.takes_batches(method) or getattr(method, "tune", None):
        raise SettingError(
            f"augment= with {method!r}",
            "a method that takes batches, such as po.MAP, po.SGHMC, po.MeanField or po.SWAG (tune: none)",
            "a full gradient has no batches to change: pass the changed rows as data",
        )
    return target.augmented(augment)


def _read_if_needed(target: Target, method: Any, start: Any) -> Target:
    """With the rows of a source in memory, where the method needs all of them at once."""
    if not is_source(target.data) or registry.streams(method, target.num_data, start is not None):
        return target
    return target.in_memory(type(method).__name__)
