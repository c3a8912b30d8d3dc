"""A module imports what stands below it, never above, and no two import each other; only a few touch disk, clock or
terminal; a comparison's rooms look one way; no two files have one name."""

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import posteria

ROOT = Path(posteria.__file__).parent

# From the ground floor up; rooms on one line may know each other.
FLOORS = [
    {"cards", "compiled", "disk", "errors", "logs", "machine", "own", "settings", "tree", "random"},
    {"diagnostics", "functions", "metrics"},
    {"data"},
    {"bridges", "modules", "networks", "nn"},
    {"trace"},
    {"models"},
    {"curvature"},
    {"posteriors"},
    {"engine"},
    {"landscape"},
    {"methods"},
    {"recipes"},
    {"run_record", "runs"},
    {"mlflow", "planning"},
    {"evidence"},
    {"shift"},
    {"testing"},
    {"plots"},
    {"comparison"},
    {"report"},
    {"estimators"},
    {"serve"},
    {"cli"},
    {"__main__"},
]
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
NUMBERS_ONLY = {"diagnostics", "metrics"}  # arrays in, numbers out: of Posteria they know the errors and themselves

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")

# A comparison goes through these, one way: each imports itself and what stands before it.
ROOMS_OF_A_COMPARISON = ("ask", "enter", "run", "judge", "tell", "api", "tour")
REPORT_READS = ("comparison.tell", "plots", "disk", "errors", "report")

SAME_NAMES: dict[str, str] = {}  # files that must be called alike, and why

MAY_TOUCH_THE_WORLD = {
    "bridges/safetensors_file.py",
    "comparison/run/fitting.py",
    "comparison/run/runner.py",
    "comparison/tell/results.py",
    "compiled.py",
    "data/cache.py",
    "data/table_file.py",
    "data/texts.py",
    "data/formats.py",
    "disk.py",
    "logs.py",
    "engine/checkpoint.py",
    "engine/chunks.py",
    "engine/distributed.py",
    "engine/loop.py",
    "engine/streaming.py",
    "engine/progress.py",
    "mlflow.py",
    "planning.py",
    "posteriors/publish.py",
    "posteriors/publishing.py",
    "runs.py",
    "posteriors/export.py",
    "posteriors/store.py",
}
MAY_TOUCH_THE_WORLD_UNDER = ("cli/", "posteriors/exported/", "report/", "serve/")
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


def dotted(module: str) -> str:
    """ "methods/chains/hmc.py" -> "methods.chains.hmc", "data/__init__.py" -> "data"."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


GRAPH_NODES = {dotted(module) for module in MODULES}


def imported_modules(source: str) -> set[str]:
    """Modules of Posteria that a module imports by name, at its top, for types, or inside its functions."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if name.removeprefix("posteria.") in GRAPH_NODES else str(node.module) for name in whole]
    return {name.removeprefix("posteria.") for name in names if name.startswith("posteria.")} & GRAPH_NODES


def graph() -> dict[str, set[str]]:
    return {dotted(module): imported_modules((ROOT / module).read_text()) - {dotted(module)} for module in MODULES}


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


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring, or none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside functions count."""
    assert not circle(graph())


def test_a_circle_is_seen():
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
    lazy = "def f():\n    from posteria.methods import registry\n    import posteria.models.model\n"
    assert imported_modules(lazy) == {"methods.registry", "models.model"}
    assert imported_modules("from posteria.data.arrays import rows, check_x") == {"data.arrays"}
    assert imported_modules("from posteria.data import rows, arrays") == {"data", "data.arrays"}


def test_a_room_of_a_comparison_knows_only_itself_and_those_before_it():
    rooms = {f"comparison.{name}": place for place, name in enumerate(ROOMS_OF_A_COMPARISON)}

    def place(module: str) -> int | None:
        return next((number for name, number in rooms.items() if f"{module}.".startswith(f"{name}.")), None)

    inside = {module for module in GRAPH_NODES if module.startswith("comparison.")}
    assert {module for module in inside if place(module) is None} == set(), "a file that stands in no room"
    for module, imported in graph().items():
        if module in inside:
            assert not [name for name in imported & inside if place(name) > place(module)], module
            assert "comparison" not in imported


def test_the_report_reads_what_is_told_and_nothing_else():
    for module, imported in graph().items():
        if room(module.replace(".", "/")) == "report":
            assert not [name for name in imported if not f"{name}.".startswith(tuple(f"{r}." for r in REPORT_READS))]


def test_no_two_files_have_one_name():
    names = Counter(Path(module).name for module in MODULES)
    twice = {name for name, count in names.items() if count > 1 and name != "__init__.py"}
    assert twice == set(SAME_NAMES)
