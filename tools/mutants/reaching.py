"""Which tests are likely to notice a change, without running any: those that use the rarest of the same words.

A test is a function, or a class with all its laws. It has the words of its own text, and of what it names at the top of
its file. A change has words too: the function and class around it count most, then its line, its file, what else the
function says, and what the modules that import it define. A word counts by how few tests have it.
"""

import ast
import math
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from mutations import Mutant

WEIGHTS = {"around": 3.0, "file": 2.0, "line": 1.0, "defined": 1.0, "said": 0.3, "users": 0.5}
LIKELY = 5.0  # seconds, of a test that was not timed yet; dearer ones wait behind cheaper ones that are as near
WORD = re.compile(r"[A-Za-z_]\w+")
CLOCK = re.compile(r"perf_counter|monotonic|max_seconds")  # such tests fail on a busy machine, whatever the source


class Test(NamedTuple):
    name: str  # as pytest has it: file::function or file::Class
    words: frozenset[str]


class Reaching:
    def __init__(self, tree: Path, seconds: dict[str, float]) -> None:
        self.tree, self.seconds = tree, seconds
        self.tests = [test for path in sorted((tree / "tests").rglob("test_*.py")) for test in tests_of(path, tree)]
        seen = Counter(word for test in self.tests for word in test.words)
        self.rarity = {word: math.log(len(self.tests) / num) for word, num in seen.items()}
        self.defined: dict[str, set[str]] = {}
        self.users: dict[str, set[str]] = defaultdict(set)
        for path in sorted((tree / "src/posteria").rglob("*.py")):
            name, parsed = path.relative_to(tree).as_posix(), ast.parse(path.read_text())
            self.defined[name] = {node.name for node in parsed.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
            for module in imported(parsed):
                self.users[module].add(name)

    def nearest(self, mutant: Mutant) -> list[str]:
        """The tests that have anything in common with it, the nearest first."""
        weights: dict[str, float] = {}
        for sort, words in self.words(mutant).items():
            for word in words:
                weights[word] = max(weights.get(word, 0.0), WEIGHTS[sort] * self.rarity.get(word, 0.0))
        near = {  # a long text has many words: less for each
            test.name: sum(weights[word] for word in weights.keys() & test.words) / math.sqrt(20 + len(test.words))
            for test in self.tests
        }
        worth = {test: near[test] / (LIKELY + self.seconds.get(test, LIKELY)) for test in near if near[test] > 0}
        return sorted(worth, key=lambda test: (-worth[test], test))

    def words(self, mutant: Mutant) -> dict[str, set[str]]:
        lines = (self.tree / mutant.path).read_text().splitlines()
        said = "\n".join(lines[mutant.function[0] - 1 : mutant.function[1]])
        module = mutant.path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        users = set(self.users[module])
        users |= {further for user in users for further in self.users[module_of(user)]}
        return {
            "around": set(around(ast.parse("\n".join(lines)), mutant.line)),
            "file": {Path(mutant.path).stem},
            "line": set(WORD.findall(lines[mutant.line - 1])),
            "defined": self.defined[mutant.path],
            "said": set(WORD.findall(said)),
            "users": {word for user in users for word in self.defined[user]},
        }


def tests_of(path: Path, tree: Path) -> list[Test]:
    """The fast ones of a file, none with a clock."""
    text = path.read_text()
    lines, body = text.splitlines(), ast.parse(text).body
    tops: dict[str, set[str]] = {}
    for node in body:
        names = (
            [node.name] if hasattr(node, "name") else [t.id for t in getattr(node, "targets", []) if hasattr(t, "id")]
        )
        for name in names:
            tops[name] = set(WORD.findall(source(node, lines)))
    found = []
    if "pytestmark = pytest.mark.slow" in text:
        return []
    for node in body:
        name = getattr(node, "name", "")
        is_test = name.startswith("test_") if isinstance(node, ast.FunctionDef) else name.startswith("Test")
        slow = any("slow" in ast.unparse(each) for each in getattr(node, "decorator_list", []))
        if not is_test or slow or CLOCK.search(source(node, lines)):
            continue
        words, new = set(), set(tops[name])
        while new:  # and the words of what it names
            words |= new
            new = {word for top in new & tops.keys() for word in tops[top]} - words
        found.append(
            Test(f"{path.relative_to(tree).as_posix()}::{name}", frozenset(words | set(path.stem.split("_", 1)[1:])))
        )
    return found


def source(node: ast.AST, lines: list[str]) -> str:
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


def around(tree: ast.Module, line: int) -> list[str]:
    """The names of the functions and classes around a line."""
    names = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.lineno <= line <= node.end_lineno
    ]
    return [name for name in names if name not in ("init", "step", "fit")]  # every method has these


def imported(tree: ast.Module) -> set[str]:
    """Modules, by their full names; `from package import module` too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def module_of(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
