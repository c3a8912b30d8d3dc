"""Which tests are likely to notice a change, without running any.

Those of the file that mirrors the source, or that imports it, or that mirrors what imports it; and those that use the
rarest of the same names. A test is a function, or a class with all its laws. It has the names in its own code, and in
what it names at the top of its file. A change has names too: the function and class around it count most, then its
line, its file's, what else the function uses, and what the modules that import it define. A name counts by how few
tests have it.
"""

import ast
import math
import re
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mutations import Mutant

WEIGHTS = {"around": 3.0, "line": 1.0, "defined": 1.0, "said": 0.3, "users": 0.5}
MIRROR, IMPORTS, MIRRORS_USER = 4.0, 2.0, 1.0  # of a test's file
LIKELY = 5.0  # seconds, of a test that was not timed yet; dearer ones wait behind cheaper ones that are as near
CLOCK = re.compile(r"perf_counter|monotonic|max_seconds")  # such tests fail on a busy machine, whatever the source


class Test(NamedTuple):
    name: str  # as pytest has it: file::function or file::Class
    words: frozenset[str]
    modules: frozenset[str]  # that its file imports


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

    def nearest(self, mutant: Mutant, most: int) -> list[str]:
        """The tests that have most in common with it, the nearest first."""
        weights: dict[str, float] = {}
        for sort, words in self.words(mutant).items():
            for word in words:
                weights[word] = max(weights.get(word, 0.0), WEIGHTS[sort] * self.rarity.get(word, 0.0))
        module = module_of(mutant.path)
        users = {Path(user).stem for user in self.users[module]}
        near = {}
        for test in self.tests:  # a long text has many words: less for each
            shared = sum(weights[word] for word in weights.keys() & test.words) / math.sqrt(20 + len(test.words))
            mirrored = Path(test.name.partition("::")[0]).stem.removeprefix("test_")
            shared += MIRROR * (mirrored == Path(mutant.path).stem) + MIRRORS_USER * (mirrored in users)
            near[test.name] = shared + IMPORTS * (module in test.modules)
        worth = {test: near[test] / (LIKELY + self.seconds.get(test, LIKELY)) for test in near if near[test] > 0}
        best = sorted(worth, key=lambda test: (-worth[test], test))[:most]
        files = list(dict.fromkeys(test.partition("::")[0] for test in best))  # a file's compiled code is kept for it
        return sorted(best, key=lambda test: files.index(test.partition("::")[0]))

    def words(self, mutant: Mutant) -> dict[str, set[str]]:
        parsed = ast.parse((self.tree / mutant.path).read_text())
        users = set(self.users[module_of(mutant.path)])
        users |= {further for user in users for further in self.users[module_of(user)]}
        return {
            "around": set(around(parsed, mutant.line)),
            "line": names_in(parsed, mutant.line, mutant.line),
            "defined": self.defined[mutant.path],
            "said": names_in(parsed, *mutant.function),
            "users": {word for user in users for word in self.defined[user]},
        }


def tests_of(path: Path, tree: Path) -> list[Test]:
    """The fast ones of a file, none with a clock."""
    text = path.read_text()
    lines, parsed = text.splitlines(), ast.parse(text)
    body, modules = parsed.body, frozenset(imported(parsed))
    tops: dict[str, set[str]] = {}
    for node in body:
        names = (
            [node.name] if hasattr(node, "name") else [t.id for t in getattr(node, "targets", []) if hasattr(t, "id")]
        )
        for name in names:
            tops[name] = names_in(node)
    found = []
    needed = re.findall(r"^(?:\w+ = )?pytest\.importorskip\(\"(\w+)\"", text, re.MULTILINE)
    if "pytestmark = pytest.mark.slow" in text or any(find_spec(package) is None for package in needed):
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
        found.append(Test(f"{path.relative_to(tree).as_posix()}::{name}", frozenset(words), modules))
    return found


def names_in(tree: ast.AST, first: int = 0, last: int = 10**9) -> set[str]:
    """Of variables, attributes and arguments, between two lines."""
    found = set()
    for node in ast.walk(tree):
        if first <= getattr(node, "lineno", last + 1) <= last:
            found |= {
                getattr(node, part) for part in ("id", "attr", "arg") if isinstance(getattr(node, part, None), str)
            }
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
