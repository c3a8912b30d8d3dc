"""The application: what its errors look like, and the options of every command."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from posteria import __version__, own
from posteria.errors import DiskError, PosteriaError

CANNOT_WRITE = 2  # exit code
USAGE_ERRORS: Any = typer.BadParameter.__mro__[:-3]  # typer shows these itself


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
            raise typer.Exit(CANNOT_WRITE if isinstance(error, DiskError) else 1) from None
        except (typer.Exit, typer.Abort, *USAGE_ERRORS):
            raise
        except Exception as error:
            if ctx.params["debug"]:
                raise
            typer.echo(f"posteria: {type(error).__name__}: {error}".partition("\n")[0], err=True)
            typer.echo("hint: this was not foreseen; posteria --debug ... shows where it happened", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    help="Bayesian deep learning for any JAX network.",
    add_completion=True,
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


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result.")]


def main() -> None:
    own.seek_here()  # mypkg:Mine and mypkg.nets:build, where the user writes them
    app(prog_name="posteria")
