"""Which tests run a line: recorded once, by coverage.py, while the fast tests ran with the source as it is.

A test is a function, or a class with all its laws. Those that run the line come cheapest first, by what they run beside
it too: of two that take as long, the one that runs fewer lines has more to say of each. A line that a worker's compiled
code had already been traced through is not run again by the next test, so that some tests are missing here: a survivor
may still be killed by one of those.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

from mutations import Mutant


class Reaching:
    def __init__(self, tree: Path, recorded: Path) -> None:
        import coverage

        self.lines: dict[str, dict[int, set[str]]] = {}
        self.seconds: dict[str, float] = {}
        breadth: Counter[str] = Counter()
        for file in sorted(recorded.glob("*.json")):
            self.seconds |= json.loads(file.read_text())
            data = coverage.CoverageData(str(file.with_suffix(".lines")))
            data.read()
            for path in data.measured_files():
                lines = self.lines.setdefault(Path(path).relative_to(tree).as_posix(), defaultdict(set))
                for line, units in data.contexts_by_lineno(path).items():
                    lines[line] |= {unit for unit in units if unit}  # what an import runs has no name
                    breadth.update(units)
        self.breadth = breadth

    def of(self, mutant: Mutant, most: int) -> list[str]:
        """The tests that run it, at most so many; where none runs its line, those that run what stands above it in its
        function, and at last those of its file."""
        lines = self.lines.get(mutant.path, {})
        above = range(mutant.line, mutant.function[0], -1)
        found = next((lines[line] for line in above if lines.get(line)), set[str]().union(*lines.values()))
        dear = {unit: (1.0 + self.seconds.get(unit, 0.0)) * self.breadth[unit] for unit in found}
        best = sorted(found, key=lambda unit: (dear[unit], unit))[:most]
        files = list(dict.fromkeys(unit.partition("::")[0] for unit in best))  # a file's compiled code is kept for it
        return sorted(best, key=lambda unit: files.index(unit.partition("::")[0]))
