"""A module imports what stands below it, never above; and only a few touch disk, clock or terminal."""

import ast
from pathlib import Path

import pytest

import posteria

ROOT = Path(posteria.__file__).parent

# From the ground floor up; rooms on one line may know each other.
FLOORS = [
    {"errors", "own", "settings", "tree", "random"},
    {"diagnostics", "metrics"},
    {"data"},
    {"networks", "nn"},
    {"trace"},
    {"models"},
    {"curvature"},
    {"posteriors"},
    {"engine"},
    {"landscape"},
    {"methods"},
    {"runs"},
    {"evidence"},
    {"testing"},
    {"plots"},
    {"comparison"},
    {"report"},
    {"estimators"},
    {"cli"},
]
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
NUMBERS_ONLY = {"diagnostics", "metrics"}  # arrays in, numbers out: of Posteria they know the errors and themselves

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")

MAY_TOUCH_THE_WORLD = {
    "comparison/tell/results.py",
    "comparison/run/fitting.py",
    "comparison/run/runner.py",
    "comparison/tell/score_tables.py",
    "data/cache.py",
    "data/csv_file.py",
    "data/formats.py",
    "engine/checkpoint.py",
    "engine/loop.py",
    "engine/progress.py",
    "runs.py",
    "posteriors/export.py",
    "posteriors/store.py",
}
MAY_TOUCH_THE_WORLD_UNDER = ("cli/", "posteriors/exported/", "report/")
TOUCHING_CALLS = {"open", "print", "input"}
TOUCHING_MODULES = {"time", "datetime", "shutil", "tempfile", "socket", "urllib", "gzip", "lzma", "zipfile"}
TOUCHING_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink", "rename"}


def room(module: str) -> str:
    """ "methods/chains/hmc.py" -> "methods", "tree.py" -> "tree"."""
    return module.split("/")[0].removesuffix(".py")


def imported_rooms(source: str) -> set[str]:
    """Rooms of Posteria that a module imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("posteria.")}
    return found - {"__version__"}


def touches(source: str) -> set[str]:
    """What a module uses of disk, clock and terminal."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {node.func.id} & TOUCHING_CALLS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found |= {node.func.attr} & TOUCHING_METHODS
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} & TOUCHING_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & TOUCHING_MODULES
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_stands_below_it(module):
    own = room(module)
    assert own in FLOOR_OF, f"{module} has no floor: give it one in FLOORS"
    imported = imported_rooms((ROOT / module).read_text())
    above = {other for other in imported if FLOOR_OF.get(other, len(FLOORS)) > FLOOR_OF[own]}
    assert not above, f"{module} imports {sorted(above)} from above"
    if own in NUMBERS_ONLY:
        assert imported <= {own, "errors"}


@pytest.mark.parametrize("module", MODULES)
def test_only_a_few_modules_touch_disk_clock_or_terminal(module):
    if module in MAY_TOUCH_THE_WORLD or module.startswith(MAY_TOUCH_THE_WORLD_UNDER):
        return
    assert not touches((ROOT / module).read_text())


def test_the_list_of_exceptions_is_not_longer_than_it_must_be():
    for module in MAY_TOUCH_THE_WORLD:
        assert touches((ROOT / module).read_text()), f"{module} no longer needs its exception"


def test_a_wrong_import_is_seen_also_inside_a_function():
    assert imported_rooms("def f():\n    from posteria.methods.chains.hmc import HMC\n") == {"methods"}
    assert imported_rooms("from posteria import cli as c") == {"cli"}
    assert touches("import time\nprint(open('x'))\nPath('y').write_text('')") == {"time", "print", "open", "write_text"}
