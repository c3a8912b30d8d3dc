"""Run examples, and keep what each said."""

import ast
import contextlib
import importlib.util
import io
import os
import tempfile
import traceback
import warnings
from collections.abc import Iterator

import numpy as np
from examples import EXAMPLES, NEEDS, SETUP


class Failed(Exception):
    """An example that does not run."""


def run_all(names: list[str] | None = None) -> dict[str, str | None]:
    """What each example said, by name; None where what it needs is not installed."""
    import matplotlib

    matplotlib.use("agg")
    with _elsewhere(), warnings.catch_warnings(), np.printoptions(precision=3, suppress=True):
        warnings.simplefilter("ignore")
        shared = {"__name__": "example"}
        exec(SETUP, shared)
        return {name: _said(name, dict(shared)) for name in names or EXAMPLES}


def _said(name: str, namespace: dict) -> str | None:
    from matplotlib import pyplot

    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        return None
    body = ast.parse(EXAMPLES[name]).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(ast.Module(body, []), name, "exec"), namespace)
            value = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    except Exception:
        raise Failed(f"{name}:\n{EXAMPLES[name]}\n{traceback.format_exc(limit=-3)}") from None
    finally:
        pyplot.close("all")
    return (printed.getvalue() + ("" if value is None else repr(value))).strip()


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
