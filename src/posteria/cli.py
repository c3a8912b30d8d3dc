"""The command line. Only what `--help` needs is imported at the top: JAX comes with the command that uses it."""

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from posteria import __version__
from posteria.errors import PosteriaError


class Commands(TyperGroup):
    """Commands whose deliberate errors end in two lines on stderr; `--debug` lets the traceback through."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PosteriaError as error:
            if ctx.params["debug"]:
                raise
            typer.echo(f"posteria: {error.got}" + (f"; wanted {error.wanted}" if error.wanted else ""), err=True)
            if error.fix:
                typer.echo(f"hint: {error.fix}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    help="Bayesian deep learning for any JAX network.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"posteria {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass  # both are read elsewhere: `version` by its callback, `debug` by Commands


@app.command()
def methods() -> None:
    """List the inference methods: name, fidelity (what the laws hold it to), and what it does."""
    from posteria.inference import registry

    classes: dict[str, Any] = {name: registry.get(name) for name in registry.names()}
    _print_table(
        ("method", "fidelity", ""),
        [(name, method.fidelity, _first_line(method)) for name, method in classes.items()],
    )


@app.command()
def data(name: Annotated[str | None, typer.Argument(help="Show this data set.", show_default=False)] = None) -> None:
    """List the data sets, where each comes from, and whether it is present; with NAME, show one."""
    from posteria.data import load, names

    if name is None:
        _print_table(
            ("name", "kind", "from", "present"),
            [(each.name, each.kind, each.source, _presence(each)) for each in names()],
        )
        return
    dataset = load(name)
    rows = [("x", f"{dataset.x.shape} {dataset.x.dtype}"), ("y", f"{dataset.y.shape} {dataset.y.dtype}")]
    rows += [("kind", dataset.kind), ("about", dataset.description)]
    if dataset.feature_names:
        rows.append(("features", ", ".join(dataset.feature_names)))
    if dataset.class_names:
        rows.append(("classes", ", ".join(dataset.class_names)))
    _print_table((dataset.name, ""), rows)


def main() -> None:
    app(prog_name="posteria")


def _first_line(method: type) -> str:
    return (inspect.getdoc(method) or "").partition("\n")[0]


def _presence(listing: Any) -> str:
    if listing.present:
        return "yes"
    return f"{' and '.join(listing.parts)} only" if listing.parts else "no"


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: a path may hold square brackets
    Console().print(table)
