"""`posteria compare`: which method can be trusted on this data, and what does it cost?"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posteria.cli.app import Json, Quiet, app
from posteria.cli.fits import INTERRUPTED, NetworkText, PriorStd
from posteria.cli.printing import print_json, say
from posteria.cli.table_options import As, Encoding, Ignore, Kind, Target, as_pairs
from posteria.errors import SettingError

if TYPE_CHECKING:
    from posteria.comparison.api import Comparison

OUT = "report"


@app.command()
def compare(
    data: Annotated[
        str | None,
        typer.Argument(
            help="A CSV, Parquet or Excel file (with --target), an .npz, or a data set's name; without it, the tour.",
            show_default=False,
        ),
    ] = None,
    target: Target = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names, separated by commas (also mypkg:Mine); those that matter otherwise.", show_default=False
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of a method, as map.num_epochs=30; may be given again.", show_default=False
        ),
    ] = None,
    network: NetworkText = "mlp:50,50",
    prior_std: PriorStd = None,
    temperature: Annotated[float, typer.Option(help="Below 1: a cold posterior.")] = 1.0,
    kind: Kind = None,
    reference: Annotated[
        str,
        typer.Option(help="nuts, hmc, none, a published folder or its URL, or an .npz or .csv of predictions."),
    ] = "nuts",
    minutes: Annotated[
        float | None, typer.Option(help="For the reference.  [default: 10; the tour: 2]", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many random splits.")] = 1,
    splits: Annotated[str, typer.Option(help="random, or uci for the standard splits.")] = "random",
    group: Annotated[
        str | None, typer.Option(help="Rows with one value of this column stay together.", show_default=False)
    ] = None,
    time: Annotated[str | None, typer.Option(help="Test on the last rows by this column.", show_default=False)] = None,
    test: Annotated[str | None, typer.Option(help="A file of test rows.", show_default=False)] = None,
    ignore: Ignore = None,
    as_: As = None,
    encoding: Encoding = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Gradient evaluations for each method; its own defaults otherwise.", show_default=False),
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose settings on validation rows, at the method's cost.")
    ] = False,
    shift: Annotated[
        bool,
        typer.Option("--shift", help="Score at five severities of shift too: noise, missing, drift, unseen, tilt."),
    ] = False,
    shift_by: Annotated[
        str | None,
        typer.Option(help="Only these shifts, separated by commas; of images, corruptions.", show_default=False),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(help="Score on rows moved against it, by sizes, as 0.05,0.1.", show_default=False),
    ] = None,
    baselines: Annotated[bool, typer.Option(help="Linear and boosted models of scikit-learn beside.")] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; run again, it goes on.")] = Path(OUT),
    replace: Annotated[bool, typer.Option("--replace", help="Begin anew where the folder holds a comparison.")] = False,
    num_workers: Annotated[
        int | None, typer.Option("--workers", help="Processes on this machine that share the rows.", show_default=False)
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Rows over a Dask cluster, as tcp://host:8786, or slurm (submitit).", show_default=False),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit many methods, grade each against HMC, and write a report; without DATA, a tour."""
    from posteria.cli import workers
    from posteria.comparison.tell.score_tables import WIDTH

    workers.check(num_workers, cluster)
    recipe: dict[str, Any] = {
        "data": data,
        "methods": None if methods is None else [name.strip() for name in methods.split(",") if name.strip()],
        "reference": None if reference == "none" else reference,
        "num_devices": len(os.sched_getaffinity(0)),
    } | ({} if minutes is None else {"minutes": minutes})
    if data is not None:
        recipe |= {
            "target": target,
            "settings": settings or [],
            "kind": kind,
            "network": network,
            "prior_std": prior_std,
            "temperature": temperature,
            "baselines": baselines,
            "seeds": seeds,
            "split": splits,
            "group": group,
            "time": time,
            "test": test,
            "ignore": ignore or [],
            "as_": as_pairs(as_),
            "encoding": encoding,
            "budget": budget,
            "tune": tune,
            "shift": _shifts(shift_by) or shift or None,
            "attack": _sizes(attack),
        }
    planned = workers.planned(recipe)
    say(f"{planned.text}\nreport, rewritten after each row: {out / 'index.html'}", quiet)
    command = " ".join(["posteria", *map(shlex.quote, sys.argv[1:])])
    try:
        comparison = planned.run(
            out,
            if_exists="replace" if replace else "resume",
            progress=not quiet,
            command=command,
            on_update=lambda comparison: _rewrite(out, comparison, quiet),
            elsewhere=workers.elsewhere(recipe, out, num_workers, cluster),
        )
    except KeyboardInterrupt:
        say(f"Interrupted; the finished rows are kept. To continue: {command}")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(comparison.results)
    else:
        typer.echo(comparison.table(shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH))
        for problem in comparison.results["problems"]:
            typer.echo(problem["title"])
            for answer in problem["answers"].values():
                typer.echo(f"  {answer['text']}")
            for text in (problem["shift"] or {"texts": []})["texts"]:
                typer.echo(f"  {text}")
    say(f"report: {out / 'index.html'}", quiet)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _shifts(text: str | None) -> list[str]:
    if text is not None and not _names(text):
        raise SettingError(
            f"--shift-by {text!r}", "names of shifts, separated by commas", "--shift takes all that apply"
        )
    return _names(text)


def _sizes(text: str | None) -> list[float]:
    try:
        sizes = [float(each) for each in _names(text)]
    except ValueError:
        sizes = []
    if text is not None and not sizes:
        raise SettingError(f"--attack {text!r}", "numbers, separated by commas", "as --attack 0.05,0.1")
    return sizes


def _rewrite(out: Path, comparison: "Comparison", quiet: bool) -> None:
    """The page again, after each row; a row that has just ended is told."""
    from posteria.report import write

    write(out)
    if comparison.just_done is None or quiet:
        return
    name, row, seed = comparison.just_done
    record = comparison.records[comparison.just_done]
    seeds = next(len(problem.folds) for problem, _ in comparison.problems if problem.name == name)
    told = f"  {name} / {row}" + (f", split {seed}" if seeds > 1 else "") + f": {record.status}"
    if record.reason:
        told += f" ({record.reason})"
    if record.status != "failed":
        told += f", NLL {record.scores['nll']:.3g}"
    say(told)
