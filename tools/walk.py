"""The walk: the files of Posteria that a few journeys pass through, in the order in which they are first entered.

    python tools/walk.py [fit | compare | regressor | export ...]

Files stand on floors, and a comparison's in rooms (`tests/test_layering.py`). A file may send one to those below, which
it can import. Where one below sends one up, it does so through what it was handed (a callable, an object), and these
ways are listed; if it imports what it enters, or a journey passes through more files than its limit, the script fails.
What a file is there for is its own first sentence.
Each journey is walked in a process of its own, so that nothing is compiled yet.
"""

import ast
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import posteria as po

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import test_layering as layering

ROOT = Path(po.__file__).parent
LIMITS = {"fit": 30, "compare": 45}  # files; 39 and 66 before there were rooms


@dataclass
class Walk:
    """Entries by file, in the order of the first, and by way: (from which file, to which)."""

    entries: Counter[str] = field(default_factory=Counter)
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    _here: threading.local = field(default_factory=threading.local)

    def watch(self, journey: Callable[[], Any]) -> "Walk":
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            journey()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return self

    def first_way(self, file: str) -> str:
        return next((source for source, entered in self.ways if entered == file), file)

    def up(self) -> list[tuple[str, str]]:
        """Ways from below."""
        return [way for way in self.ways if place(way[0]) < place(way[1])]

    def up_by_import(self) -> list[tuple[str, str]]:
        imports = layering.graph()
        return [way for way in self.up() if layering.dotted(way[1]) in imports[layering.dotted(way[0])]]

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        file = _file(frame.f_code.co_filename) if event in ("call", "return") else None
        if file is None:
            return
        num_bodies = getattr(self._here, "num_bodies", 0)
        if frame.f_code.co_name == "<module>":  # what runs in the body of a module is an import, and no visit
            self._here.num_bodies = num_bodies + (1 if event == "call" else -1)
        elif event == "call" and not num_bodies:
            self.entries[file] += 1
            if (source := _sender(frame)) != file:
                self.ways[source, file] += 1


def place(file: str) -> tuple[int, int]:
    """The floor, from the ground up; within a comparison, the room."""
    if file in (YOU, "__init__.py"):
        return len(layering.FLOORS), 0
    room = layering.room(file.partition("/")[2]) if file.startswith("comparison/") else ""
    order = layering.ROOMS_OF_A_COMPARISON
    return layering.FLOOR_OF[layering.room(file)], order.index(room) if room in order else 0


YOU = "you"
_files: dict[str, str | None] = {}


def _file(path: str) -> str | None:
    """Within Posteria, or None."""
    if path not in _files:
        _files[path] = path.removeprefix(f"{ROOT}/") if path.startswith(f"{ROOT}/") else None
    return _files[path]


def _sender(frame: FrameType) -> str:
    """The nearest file of Posteria below on the stack: JAX and others may stand between."""
    caller = frame.f_back
    while caller is not None:
        if file := _file(caller.f_code.co_filename):
            return file
        caller = caller.f_back
    return YOU


# ---- the journeys: each makes ready what is not looked at, and returns what is


def fit(folder: Path) -> Callable[[], Any]:
    """HMC's fit, into a folder."""
    data, method = rows(), po.HMC(num_chains=2, num_draws=5, num_warmup=5)
    return lambda: po.fit(network_model(), data, method, out=folder / "run", progress=False)


def compare(folder: Path) -> Callable[[], Any]:
    """MAP and Laplace compared with NUTS and the baselines on a table, into a folder."""
    data, reference = rows(), po.NUTS(num_draws=20, num_warmup=20)
    methods = [po.MAP(num_epochs=5), po.Laplace()]
    return lambda: po.compare(network_model(), data, methods, reference=reference, seeds=2, out=folder / "report")


def regressor(folder: Path) -> Callable[[], Any]:
    """A Regressor's fit, and its predictions."""
    x, y = rows()
    return lambda: po.Regressor(network="mlp:5").fit(x, y).predict(x, return_std=True)


def export(folder: Path) -> Callable[[], Any]:
    """A fitted Regressor's export."""
    fitted = po.Regressor(network="mlp:5").fit(*rows())
    return lambda: fitted.export(folder / "artifact")


JOURNEYS = {"fit": fit, "compare": compare, "regressor": regressor, "export": export}


def network_model() -> po.Model:
    return po.Model(po.nn.mlp((5,), outputs=1))


def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2)).astype("float32")
    return x, (x[:, 0] + 0.1 * random.normal(size=60)).astype("float32")


# ---- what is said of them


def walk(name: str) -> Walk:
    with tempfile.TemporaryDirectory() as folder:
        return Walk().watch(JOURNEYS[name](Path(folder)))


def tell(name: str) -> int:
    """Print the walk; how much is wrong with it."""
    seen = walk(name)
    limit, num_files, wrong = LIMITS.get(name), len(seen.entries), seen.up_by_import()
    print(f"{name}: {JOURNEYS[name].__doc__}")
    for number, (file, count) in enumerate(seen.entries.items(), start=1):
        print(f"{number:4} {file:45} {count:7,} times, first from {seen.first_way(file)}")
    num_lines = sum(len((ROOT / file).read_text().splitlines()) for file in seen.entries)
    print(f"  {num_files} files" + (f", at most {limit}" if limit else "") + f"; {num_lines:,} lines in all of them")
    rooms = Counter(layering.room(file) for file in sorted(seen.entries, key=place))
    print(
        "  from the ground up: " + ", ".join(f"{room} {count}" if count > 1 else room for room, count in rooms.items())
    )
    print("  what they are there for, from the ground up:")
    for file in sorted(seen.entries, key=place):
        print(f"    {file:45} {purpose(file)}")
    for title, ways in (
        ("entered from below, through what was handed down", [way for way in seen.up() if way not in wrong]),
        ("ENTERED FROM BELOW BY AN IMPORT", wrong),
    ):
        print(f"  {title}: {len(ways) or 'none'}")
        for source, file in ways:
            print(f"    {source} -> {file}, {seen.ways[source, file]:,} times")
    return len(wrong) + (limit is not None and num_files > limit)


def purpose(file: str) -> str:
    """The first sentence of a file."""
    said = " ".join((ast.get_docstring(ast.parse((ROOT / file).read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) ", said)[0].rstrip(".")


def main(names: list[str]) -> int:
    if len(names) == 1:
        return tell(names[0])
    return sum(subprocess.run([sys.executable, __file__, name]).returncode for name in names or JOURNEYS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
