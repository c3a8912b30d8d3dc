"""The names in `posteria.__all__`: importable, documented, whatever was imported before, and cheap."""

import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import posteria as po

TOOLS = Path(__file__).parents[1] / "tools"
HEAVY = {"jax", "flax", "optax", "blackjax", "equinox", "sklearn", "pandas", "matplotlib", "scipy", "tensorstore"}
IMPORT_SECONDS = 0.3  # that `import posteria` may add to `import jax`
TRIES = 5  # the best counts: the machine may be busy


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_all_names_what_is_importable():
    assert len(set(po.__all__)) == len(po.__all__)
    assert set(po.__all__) == set(po._HOMES) == set(dir(po))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = po.nonsense


@pytest.mark.parametrize("name", po.__all__)
def test_every_public_name_is_documented(name):
    value = getattr(po, name)
    if name == "infer":  # a value: its type says what it is
        value = type(value)
    assert inspect.getdoc(value), f"po.{name} has no docstring"


def test_the_stub_that_editors_read_has_the_same_names():
    spec = importlib.util.spec_from_file_location("surface", TOOLS / "surface.py")
    surface = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(surface)
    assert surface.STUB.read_text() == surface.stub(), "run `make surface`"


def test_a_name_is_the_same_whatever_was_imported_before():
    """A submodule of the same name would take a function's place as soon as anything imports it."""
    code = """
import importlib, json, pkgutil, posteria as po
for module in pkgutil.walk_packages(po.__path__, "posteria."):
    if not module.name.startswith("posteria.testing"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name != "torch":  # an extra, which that module is for
                raise
wrong = []
for name, home in po._HOMES.items():
    module, _, attribute = home.partition(":")
    value = importlib.import_module(module)
    if getattr(po, name) is not (getattr(value, attribute) if attribute else value):
        wrong.append(name)
print(json.dumps(wrong))
"""
    assert json.loads(run(code)) == []


def test_importing_posteria_imports_nothing_heavy():
    loaded = set(json.loads(run("import json, sys, posteria; print(json.dumps(list(sys.modules)))")))
    assert not loaded & HEAVY


def test_importing_posteria_is_fast():
    code = "import jax, time; began = time.perf_counter(); import posteria; print(time.perf_counter() - began)"
    assert min(float(run(code)) for _ in range(TRIES)) < IMPORT_SECONDS
