"""The application: what its errors look like, and the options of every command."""

import errno
import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from posteria import __version__, own
from posteria.engine import distributed
from posteria.errors import OUT_OF_MEMORY, DiskError, PosteriaError

CANNOT_WRITE = 2  # exit code
USAGE_ERRORS: Any = typer.BadParameter.__mro__[:-3]  # typer shows these itself
MOST_TOLD, MOST_OF_A_PATH = 500, 120  # characters of a line: what is longer quotes something long
FIXES = {  # of what the system says
    errno.ENOSPC: "make room on the disk, and run it again",
    errno.EDQUOT: "make room in the quota, and run it again",
    errno.EROFS: "choose a place that may be written to",
    errno.EACCES: "choose a place that you may read or write",
    errno.EPERM: "choose a place that you may read or write",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "one part of the path is a file: choose another",
    errno.EEXIST: "one part of the path is a file: choose another",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "one part of the path is a link to itself: choose another",
}


class Commands(TyperGroup):
    """Commands whose errors end in two lines on stderr; `--debug` lets the traceback through."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError, *USAGE_ERRORS):  # the pipe's end is shown by no line
            raise
        except Exception as error:
            if ctx.params["debug"]:
                raise
            if distributed.WATCHED in os.environ:
                distributed.leave_if_lost(error)
            what, fix = told(error)
            typer.echo(f"posteria: {shortened(what)}", err=True)
            if fix:
                typer.echo(f"hint: {shortened(fix)}", err=True)
            raise typer.Exit(CANNOT_WRITE if isinstance(error, DiskError) else 1) from None


def told(error: Exception) -> tuple[str, str]:
    """What went wrong, and what to do."""
    if isinstance(error, PosteriaError):
        return error.got + (f"; wanted {error.wanted}" if error.wanted else ""), error.fix
    if isinstance(error, OSError) and error.errno is not None:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        where = " to ".join(shortened(name, MOST_OF_A_PATH) for name in names)
        return f"{where}: {error.strerror}" if where else str(error.strerror), FIXES.get(error.errno, "check the path")
    if os.strerror(errno.ENOSPC) in str(error):  # as tensorstore says it
        return os.strerror(errno.ENOSPC), FIXES[errno.ENOSPC]
    if isinstance(error, MemoryError) or OUT_OF_MEMORY in str(error):
        return "this machine's memory does not suffice", "take a smaller network, fewer draws or chains, or less data"
    return f"{type(error).__name__}: {error}", "this was not foreseen; posteria --debug ... shows where it happened"


def shortened(text: str, most: int = MOST_TOLD) -> str:
    """On one line; where it is too long, its middle is left out."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"


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
