"""Would the tests notice? Small wrong changes are made to the source, one at a time, and the tests that reach each are
run until one fails.

    python tools/mutants cover                     which fast test runs which line: each test file once, by itself
    python tools/mutants run --num 240 --seed 0    a sample, a quarter from each package; goes on where it stopped
    python tools/mutants report                    the score, and those that survived
    python tools/mutants named                     those that once survived, and the tests that kill them

All of it lives in `.mutants/`: a copy of the repository to be changed, what was covered, and a line for each result.
(mutmut forks a process that has started JAX, which hangs; cosmic-ray runs one command, here the whole suite, for each.)
"""

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutations import Mutant, all_below
from named import NAMED

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".mutants"
EXPLAINED = Path(__file__).parent / "explained.txt"  # a survivor's name without its place | why it may survive
TREE, COVER, RESULTS = HOME / "tree", HOME / "cover", HOME / "results.jsonl"
PACKAGES = [f"src/posteria/{name}" for name in ("models", "methods", "posteriors", "metrics")]
BUDGET = 90.0  # seconds of tests, as they took unchanged, that a mutant is given
PATIENCE = 4.0  # times the tests' own seconds before a mutant counts as one that hangs
STARTUP = 120.0  # seconds


def cover(only: list[str]) -> None:
    """Run each test file by itself in the copy, but those whose text is as it was.

    Where the source has changed much since, remove `.mutants/cover`: the text of its lines is how tests are found.
    """
    refresh_tree()
    COVER.mkdir(parents=True, exist_ok=True)
    files = only or test_files()
    for number, file in enumerate(files, 1):
        if not only and cover_of(file).is_file():
            continue
        began = time.monotonic()
        extra = {
            "COVER_SOURCE": os.pathsep.join(str(TREE / package) for package in PACKAGES),
            "COVER_OUT": str(cover_of(file)),
            "PYTHONPATH": os.pathsep.join((str(TREE / "src"), str(Path(__file__).parent))),
        }
        done = pytest(["-p", "covering", file], extra, timeout=3600)
        print(f"{number}/{len(files)} {file}: {done}, {time.monotonic() - began:.0f} s", flush=True)


def test_files() -> list[str]:
    return sorted(path.relative_to(TREE).as_posix() for path in (TREE / "tests").rglob("test_*.py"))


def cover_of(file: str) -> Path:
    text = hashlib.sha256((TREE / file).read_bytes()).hexdigest()[:16]
    return COVER / f"{file.replace('/', '--')}-{text}.json"


def run(num: int, seed: int, only: str | None, again: bool) -> None:
    refresh_tree()
    covered = Covered.read()
    known = {} if again else {result["key"]: result for result in results()}
    chosen = sample(num, seed)
    if only is not None:
        chosen = [mutant for mutant in chosen if only in mutant.name]
    trusted: set[str] = set()  # tests that killed, and pass with the source as it is
    for number, mutant in enumerate(chosen, 1):
        source = (TREE / mutant.path).read_bytes()
        key = key_of(mutant, source)
        if key in known:
            continue
        began = time.monotonic()
        tests = covered.tests(mutant)
        outcome, by = ("survived", "no test reaches it") if not tests else trial(mutant, source, tests, covered)
        while outcome == "killed" and by.startswith("FAILED") and by not in trusted:
            test = by.removeprefix("FAILED ")
            if pytest([test], {}, timeout=600) == "passed":
                trusted.add(by)
            else:  # it fails by itself
                del covered.seconds[test]
                tests.remove(test)
                outcome, by = trial(mutant, source, tests, covered)
        seconds = round(time.monotonic() - began, 1)
        found = {"key": key, "name": mutant.name, "outcome": outcome, "by": by, "tests": len(tests)}
        with RESULTS.open("a") as file:
            file.write(json.dumps(found | {"seconds": seconds}) + "\n")
        words = f"{outcome:8} {mutant.name}  [{len(tests)} tests, {seconds:.0f} s] {by}"
        print(f"{number}/{len(chosen)} {words}", flush=True)


def trial(mutant: Mutant, source: bytes, tests: list[str], covered: "Covered") -> tuple[str, str]:
    """Run the tests with the mutant in place of the source, which comes back whatever happens."""
    path = TREE / mutant.path
    before = path.stat()
    try:
        path.write_bytes(mutant.applied(source))
        limit = STARTUP + PATIENCE * sum(covered.seconds[test] for test in tests)
        outcome = pytest(["-x", *tests], {"PYTHONDONTWRITEBYTECODE": "1"}, timeout=limit)
    finally:
        path.write_bytes(source)
        os.utime(path, (before.st_atime, before.st_mtime))  # so that the compiled source is that of this text again
    if outcome == "passed":
        return "survived", ""
    return ("hung", "") if outcome == "timeout" else ("killed", outcome)


def pytest(arguments: list[str], extra: dict[str, str], timeout: float) -> str:
    """ "passed", "timeout", or the name of the first test that failed."""
    settings = {"PYTHONPATH": str(TREE / "src"), "JAX_COMPILATION_CACHE_DIR": str(HOME / "jax"), "COLUMNS": "400"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=TREE,
            env={**os.environ, **settings, **extra},
            timeout=timeout,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode == 0:
        return "passed"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    words = f"exit code {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}"
    return failed[0].split(" - ")[0] if failed else words


class Covered:
    """Which tests reach a line, and the seconds that each takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[str, set[str]]] = {}  # by the file, and the line's text

    @classmethod
    def read(cls) -> "Covered":
        whole, missing = cls(), 0
        for file in test_files():
            if not cover_of(file).is_file():  # a test that is no more would count as one that fails
                missing += 1
                continue
            found = json.loads(cover_of(file).read_text())
            timed = tests_with_a_clock(TREE / file)
            whole.seconds |= {test: s for test, s in found["seconds"].items() if name_of(test) not in timed}
            for path, lines in found["lines"].items():
                place = whole.lines.setdefault(Path(path).relative_to(TREE).as_posix(), {})
                for text, tests in lines.items():
                    place.setdefault(text, set()).update(tests)
        if missing:
            print(f"{missing} test files are new or changed, and are not run: python tools/mutants cover")
        return whole

    def tests(self, mutant: Mutant) -> list[str]:
        """The cheapest first, up to the budget: those that run the line, then those that run its function, then the
        rest of their files: what is compiled once is run by the first test that needs it, and needed by others."""
        lines = self.lines.get(mutant.path, {})
        texts = [text.strip() for text in (TREE / mutant.path).read_text().splitlines()]
        first, last = mutant.function
        reach = lines.get(texts[mutant.line - 1], set())
        around = set().union(*(lines.get(text, set()) for text in texts[first - 1 : last]))
        files = {test.split("::")[0] for test in reach | around}
        rest = {test for test in self.seconds if test.split("::")[0] in files} if reach | around else set()
        chosen, total = [], 0.0
        for tests in (reach, around - reach, rest - around - reach):
            for test in sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test)):
                if total + self.seconds[test] <= BUDGET or not chosen:
                    chosen.append(test)
                    total += self.seconds[test]
        order = list(dict.fromkeys(test.split("::")[0] for test in chosen))  # a file's compiled code is kept for it
        return sorted(chosen, key=lambda test: order.index(test.split("::")[0]))


def tests_with_a_clock(file: Path) -> set[str]:
    """Tests that fail on a busy machine, whatever the source."""
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    lines = file.read_text().splitlines()
    texts = {each.name: "\n".join(lines[each.lineno - 1 : each.end_lineno]) for each in functions}
    return {name for name, text in texts.items() if re.search(r"perf_counter|monotonic|max_seconds", text)}


def name_of(test: str) -> str:
    return test.split("::")[-1].partition("[")[0]


def sample(num: int, seed: int) -> list[Mutant]:
    """A fixed sample, the same number from each package, shuffled so that any beginning of it is a sample too."""
    chosen = []
    for package in PACKAGES:
        mutants = list(all_below([package], TREE))
        chosen += random.Random(seed).sample(mutants, min(len(mutants), num // len(PACKAGES)))
    random.Random(seed).shuffle(chosen)
    return chosen


def key_of(mutant: Mutant, source: bytes) -> str:
    """The same as long as the function around it has the same text."""
    lines = source.splitlines()[mutant.function[0] - 1 : mutant.function[1]]
    within = mutant.start - sum(len(line) + 1 for line in source.splitlines()[: mutant.function[0] - 1])
    text = b"\n".join([mutant.path.encode(), *lines, mutant.new.encode(), str(within).encode()])
    return hashlib.sha256(text).hexdigest()[:16]


def results() -> list[dict]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def report() -> None:
    """What was killed, by package; and each survivor, with why it may (`explained.txt`) or that it may not."""
    latest = list({result["key"]: result for result in results()}.values())
    reasons = dict(line.split(" | ") for line in EXPLAINED.read_text().splitlines() if " | " in line)
    survivors = [result for result in latest if result["outcome"] == "survived"]
    excused = [result for result in survivors if stable(result["name"]) in reasons]
    for package in (*(Path(each).name for each in PACKAGES), None):
        total, left, right = (
            sum(package in (package_of(result), None) for result in each) for each in (latest, survivors, excused)
        )
        noticed = (total - left) / max(1, total - right)
        print(f"{package or 'all':12} {total:4} mutants, {left:3} survived, {right:3} of them rightly: {noticed:.1%}")
    for result in sorted(survivors, key=lambda result: result["name"]):
        print(f"survived: {result['name']} {result['by']}\n    {reasons.get(stable(result['name']), 'UNEXPLAINED')}")


def named() -> None:
    """Each mutant of `named.py` with its one test, which has to pass without it and to fail with it."""
    refresh_tree()
    for test in dict.fromkeys(each.test for each in NAMED):
        print(f"unchanged: {pytest([test], {}, timeout=600)} {test}", flush=True)
    for each in NAMED:
        path = TREE / each.path
        source, before = path.read_text(), path.stat()
        if source.count(each.old) != 1:
            raise SystemExit(
                f"{each.path} has {each.old!r} {source.count(each.old)} times: mend tools/mutants/named.py"
            )
        try:
            path.write_text(source.replace(each.old, each.new))
            outcome = pytest([each.test], {"PYTHONDONTWRITEBYTECODE": "1"}, timeout=600)
        finally:
            path.write_text(source)
            os.utime(path, (before.st_atime, before.st_mtime))
        print(f"{'SURVIVED' if outcome == 'passed' else 'killed'}: {each.what}, by {outcome}", flush=True)


def stable(name: str) -> str:
    """A mutant's name without its place in the file."""
    return re.sub(r":\d+ ", " ", name.rpartition(" (byte")[0])


def package_of(result: dict) -> str:
    return result["name"].split("/")[2]


def refresh_tree() -> None:
    """Copy what git would: files that are tracked, or new and not ignored; unchanged ones keep their times."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    wanted = {name for name in listed if name and (ROOT / name).is_file()}
    for name in wanted:
        source, copy = ROOT / name, TREE / name
        if not copy.is_file() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    for path in [*TREE.glob("src/**/*.py"), *TREE.glob("tests/**/*.py")]:
        if path.relative_to(TREE).as_posix() not in wanted:
            path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cover").add_argument("files", nargs="*", help="test files to run again")
    runner = commands.add_parser("run")
    runner.add_argument("--num", type=int, default=240)
    runner.add_argument("--seed", type=int, default=0)
    runner.add_argument("--only", help="mutants whose name has this in it")
    runner.add_argument("--again", action="store_true", help="also those whose result is known")
    commands.add_parser("report")
    commands.add_parser("named")
    asked = parser.parse_args()
    if asked.command == "cover":
        cover(asked.files)
    elif asked.command == "run":
        run(asked.num, asked.seed, asked.only, asked.again)
    elif asked.command == "named":
        named()
    else:
        report()


if __name__ == "__main__":
    main()
