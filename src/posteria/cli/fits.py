"""`posteria fit` and `posteria resume`: a table to a posterior in a folder."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posteria.cli.app import Json, Quiet, app
from posteria.cli.fitted import OwnMethods, OwnNetwork, in_words, own_again, own_parts, preparation_of
from posteria.cli.printing import print_json, say
from posteria.cli.set_option import build_method
from posteria.cli.table_options import As, Encoding, Ignore, Kind, Target, as_pairs
from posteria.errors import SettingError, StoreError

if TYPE_CHECKING:
    import numpy as np
    from jax.sharding import Mesh

    from posteria.data.arrays import Data
    from posteria.data.origin import Origin
    from posteria.data.preparation import Preparation
    from posteria.models.model import Model
    from posteria.models.priors import Prior
    from posteria.posteriors.base import Posterior

ROWS_DIAGNOSED = 200
INTERRUPTED = 130  # the shell's own exit code of Ctrl-C


def method_names() -> list[str]:
    from posteria.methods import registry

    return registry.names()


NetworkText = Annotated[
    str,
    typer.Option(
        help="mlp:50,50, lenet5, ..., or mypkg.nets:build of your own (a network, or a function of `outputs`)."
    ),
]
Distributed = Annotated[
    bool,
    typer.Option(
        "--distributed", help="This is one process of a job: under SLURM, or with POSTERIA_COORDINATOR and others set."
    ),
]
MeshText = Annotated[
    str | None,
    typer.Option("--mesh", help="Devices as CHAINSxDATA, as 4x2: rows of each chain over 2.", show_default=False),
]
PriorStd = Annotated[
    float | None,
    typer.Option(help="A Normal prior of this std on every weight; scaled by fan-in otherwise.", show_default=False),
]


@app.command()
def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="A CSV, Parquet or Excel file (with --target), an .npz with x and y, or a data set's name."
        ),
    ],
    target: Target = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="See `posteria methods`.  [default: that of --quality]",
            autocompletion=method_names,
            show_default=False,
        ),
    ] = None,
    quality: Annotated[
        str, typer.Option(help="fast (seconds), balanced (a minute) or best (minutes), of a table.")
    ] = "fast",
    target_scale: Annotated[
        str, typer.Option(help="linear, log (a target above 0), or auto: log where a preset's rows ask for it.")
    ] = "auto",
    network: Annotated[
        str | None,
        typer.Option(
            help="mlp:50,50, lenet5, ..., or mypkg.nets:build of your own (a network, or a function of `outputs`)."
            "  [default: that of --quality, or mlp:50,50]",
            show_default=False,
        ),
    ] = None,
    prior_std: PriorStd = None,
    temperature: Annotated[float, typer.Option(help="Below 1: a cold posterior.")] = 1.0,
    kind: Kind = None,
    ignore: Ignore = None,
    as_: As = None,
    encoding: Encoding = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Rows with one value of this column are left out together: widths are those of new ones.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, as num_draws=200.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to write.  [default: runs/DATA-METHOD]", show_default=False),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit in folds: intervals then hold what rows left out show.")
    ] = False,
    if_exists: Annotated[
        str | None,
        typer.Option(help="error, resume or replace.  [default: error; of a job, resume]", show_default=False),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="End early, honestly.", show_default=False)] = None,
    mesh: MeshText = None,
    is_distributed: Distributed = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a Bayesian network to a table; the folder then predicts, and survives a kill."""
    is_first = _join(is_distributed)
    from posteria import runs
    from posteria.data.origin import read_origin
    from posteria.methods.ensembles.folds import Folds, by_groups
    from posteria.models.priors import Normal

    quiet |= not is_first
    taken = as_pairs(as_)
    source = read_origin(data, target, kind, ignore or (), taken, encoding)
    labels = None
    if group is not None:
        source, labels = _grouped(source, group)
        ignore = [*(ignore or ()), group]
    named = named_method(method, settings)
    devices = _devices(mesh, is_distributed)
    prior = None if prior_std is None else Normal(prior_std)
    preparation, (x, y), model, chosen, cost = chosen_for(
        source, named, quality, network, prior, temperature, target_scale
    )
    if labels is not None:
        chosen = by_groups(Folds(chosen) if calibrate and not isinstance(chosen, Folds) else chosen, labels)
    name = method or quality
    folder = out or Path("runs") / f"{source.name}-{name.replace(':', '-')}"
    say(f"{_rows(x)}, {preparation.kind}; {name}{cost}{f', {network}' if network else ''}; writing {folder}", quiet)
    if preparation.plan is not None:
        say(preparation.plan.text(), quiet)
    attached = {
        "preparation": preparation.to_json(),
        "source": {
            "data": data,
            "target": target,
            "kind": kind,
            "ignore": ignore or [],
            "as": taken,
            "encoding": encoding,
            "network": network,
        },
    }
    try:
        posterior = runs.fit(
            model,
            (x, y),
            chosen,
            key=seed,
            out=folder,
            if_exists=if_exists if if_exists is not None else ("resume" if is_distributed else "error"),
            max_seconds=None if minutes is None else 60 * minutes,
            progress=not quiet,
            attach=attached,
            calibrate="folds" if calibrate else None,
            mesh=devices,
        )
    except KeyboardInterrupt:
        _interrupted(folder, own_again(network, [method] if method else []))
    if is_first:
        _conclude(posterior, folder, x, as_json, quiet, own_again(network))


def _join(is_distributed: bool) -> bool:
    """Whether this is the first process of its job, or the only one: it alone speaks."""
    if not is_distributed:
        return True
    from posteria import machine
    from posteria.engine import distributed

    distributed.distributed()
    return machine.is_first()


def _devices(text: str | None, is_distributed: bool) -> "Mesh | None":
    """The mesh that is asked for; without one, every core is a device, but for a job, whose devices are as they are."""
    from posteria.engine import layout, mesh

    if text is None:
        if not is_distributed:
            layout.use_cores()
        return None
    sizes = text.split("x")
    if len(sizes) != 2 or not all(size.isdecimal() for size in sizes):
        raise SettingError(
            f"--mesh {text!r}", "CHAINSxDATA", "as --mesh 4x2: four chains at once, each over two devices"
        )
    return mesh.mesh(*map(int, sizes))


def _grouped(source: "Origin", column: str) -> "tuple[Origin, np.ndarray]":
    """The rows without a column that only says which belong together, and what it says."""
    from posteria.data.splits import labels_of

    if source.frame is None or column == source.target:
        raise SettingError(f"--group {column} of {source.name}", "another column than the target, of a CSV")
    labels = labels_of(source.frame, column)  # it refuses a column that is not there
    without = source.without(column)
    return replace(without, plan=without.plan and without.plan.by_groups()), labels


def named_method(method: str | None, settings: list[str] | None) -> Any:
    """The method of that name with its settings; None where none is named."""
    if method is None and settings:
        raise SettingError(
            f"--set {settings[0]} without a method", "--method beside it", "`posteria methods` lists them"
        )
    return None if method is None else build_method(method, settings or [])


def chosen_for(
    source: "Origin",
    method: Any,
    quality: str,
    network: str | None,
    prior: "Prior | None" = None,
    temperature: float = 1.0,
    target_scale: str = "auto",
) -> "tuple[Preparation, tuple[Data, np.ndarray], Model, Any, str]":
    """How rows are prepared, those rows, the model, the method, and what it costs in words.

    As the estimators choose: a recipe where no method is named. Images and texts have none, and get HMC.
    """
    from posteria import nn, recipes
    from posteria.methods.chains.hmc import HMC
    from posteria.models.model import Model, model_for

    preparation, (x, y) = source.prepare()
    if method is not None or preparation.x is None:
        num_outputs, text = preparation.num_outputs, "mlp:50,50" if network is None else network
        preparation = recipes.with_target_scale(preparation, target_scale, lambda: x, source.y, is_free=False)
        x, y = source.training(preparation)
        model = model_for(preparation.kind, num_outputs, len(y), text, prior=prior, temperature=temperature)
        return preparation, (x, y), model, HMC() if method is None else method, "" if method else ": HMC"
    recipe = recipes.recipe_for(
        quality, preparation.kind, y, preparation.num_outputs, num_columns=preparation.num_columns
    )
    preparation = source.with_bins(preparation, recipe.num_bins(int(preparation.is_size.sum())))
    is_free = preparation.kind == "regression"
    preparation = recipes.with_target_scale(
        preparation, target_scale, lambda: source.training(preparation)[0], source.y, is_free
    )
    x, y = source.training(preparation)
    recipe = recipes.recipe_for(
        quality, preparation.kind, y, preparation.num_outputs, num_columns=preparation.num_columns
    )
    outputs = preparation.num_outputs * getattr(recipe.likelihood, "outputs_per_target", 1)
    chosen = recipe.network if network is None else nn.parse(network, outputs)
    model = Model(chosen, recipe.likelihood, recipe.prior if prior is None else prior, temperature)
    return preparation, (x, y), model, recipe.method, f" ({recipe.cost})"


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of an interrupted fit.")],
    data: Annotated[
        str | None, typer.Option(help="The same data, where the file has moved.", show_default=False)
    ] = None,
    network: OwnNetwork = None,
    methods: OwnMethods = None,
    minutes: Annotated[float | None, typer.Option(help="End early, honestly.", show_default=False)] = None,
    mesh: MeshText = None,
    is_distributed: Distributed = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted fit, bit-identically; a finished one is shown."""
    is_first = _join(is_distributed)
    from posteria import disk, runs
    from posteria.data.origin import read_origin
    from posteria.posteriors import store

    quiet |= not is_first

    manifest = store.read_manifest(folder)
    attached = manifest.get("attached", {})
    if "source" not in attached:
        raise StoreError(f"{folder} was not fitted by `posteria fit`", "a folder that was", "use po.resume in Python")
    if not store.is_verified(manifest):
        say(store.UNVERIFIED)
    devices = _devices(mesh, is_distributed)
    preparation = preparation_of(attached, folder)
    with disk.refuse_damage(folder):
        origin = attached["source"]
        kind = preparation.kind if origin["kind"] is None and preparation.encoder is not None else origin["kind"]
        words = data or origin["data"], origin["target"], kind
        read = origin.get("ignore", ()), origin.get("as", {}), origin.get("encoding")
    source = read_origin(*words, *read)
    x, y = source.training(preparation)
    own_network = own_parts(manifest, preparation, network, methods)
    max_seconds = None if minutes is None else 60 * minutes
    try:
        posterior = runs.resume(
            folder, (x, y), network=own_network, max_seconds=max_seconds, progress=not quiet, mesh=devices
        )
    except KeyboardInterrupt:
        _interrupted(folder, own_again(network, methods))
    if is_first:
        _conclude(posterior, folder, x, as_json, quiet, own_again(network))


def _interrupted(folder: Path, own_again: str) -> None:
    say(f"posteria resume {shlex.quote(str(folder))}{own_again}")
    raise typer.Exit(INTERRUPTED)


def _conclude(posterior: "Posterior", folder: Path, x: "Data", as_json: bool, quiet: bool, own_again: str = "") -> None:
    from posteria.data.arrays import num_rows, rows

    facts = posterior.facts
    summary = {
        "folder": str(folder),
        "method": facts["method"]["name"],
        "seconds": round(facts["seconds"], 2),
        "gradients": facts["gradients"],
        "draws": posterior.num_draws,
        "is_whole": facts["is_whole"],
        "notes": facts["notes"],
        "verdict": "",
        "coverage": {f"{level:g}": shares for level, shares in getattr(posterior, "coverage", {}).items()},
    }
    if scales := facts.get("prior_scales"):
        summary["prior_scales"] = scales
    if hasattr(posterior, "diagnose") and posterior.num_draws > 1:
        verdict = posterior.diagnose(rows(x, slice(min(ROWS_DIAGNOSED, num_rows(x)))))
        summary["verdict"] = verdict.verdict
    if as_json:
        print_json(summary)
        return
    typer.echo(
        f"{summary['method']}: {summary['draws']} draws, {summary['gradients']:,} gradients, {summary['seconds']} s"
    )
    if posterior.model.learnt:
        typer.echo(f"scales learnt: {posterior.model.learnt}")
    if summary["verdict"]:
        typer.echo(summary["verdict"])
    if covered := in_words(posterior):
        typer.echo(covered)
    for note in summary["notes"]:
        typer.echo(f"note: {note}")
    say(f"next: posteria predict {shlex.quote(str(folder))} NEW.csv{own_again} -o predictions.csv", quiet)


def _rows(x: "Data") -> str:
    from posteria.data.arrays import num_rows

    return f"{num_rows(x):,} rows, {x.shape[1]} features" if getattr(x, "ndim", 0) == 2 else f"{num_rows(x):,} rows"
