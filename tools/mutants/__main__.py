"""Would the tests notice? Small wrong changes are made to the source, one at a time, and the fast tests that run the
changed line (`reaching.py`) are run until one fails or its CPU seconds are used up.

    python tools/mutants record                    which lines each fast test runs; goes on where it stopped
    python tools/mutants run --num 100 --seed 0    a sample, a quarter from each package; goes on where it stopped
    python tools/mutants run --budget 300          those again that survived 60 CPU seconds
    python tools/mutants report --seed 0           the score of that sample, and those that survived
    python tools/mutants named                     those that once survived, and the tests that kill them

Only tests that `make test` runs count. All of it lives in `.mutants/`: a copy of the repository, as it was recorded, to
be changed; the lines that tests run and what they take; and a line for each result, by sample. What becomes of a
survivor is written into `explained.txt`: `open`, `equivalent`, `further` or `since`, and why.
(mutmut forks a process that has started JAX, which hangs; cosmic-ray runs one command, here the whole suite, for each.)
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from forked import Outcome, warm
from forked import run as forked
from mutations import Mutant, all_below
from named import NAMED
from reaching import Reaching

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".mutants"
EXPLAINED = Path(__file__).parent / "explained.txt"  # a survivor's name without its place | why it may survive
TREE, SHARES = HOME / "tree", HOME / "shares.json"
LINES, UNSOUND = HOME / "lines", HOME / "unsound.json"  # of tests: what each runs and takes; those that fail unchanged
PACKAGES = [f"src/posteria/{name}" for name in ("models", "methods", "posteriors", "metrics")]
BUDGET = 60.0  # CPU seconds of tests that a mutant is given
MOST = 100  # tests, or classes of laws, for one mutant
DEAR_TOO = "not slow or dear"  # tests that `make test` leaves out because they are dear to compile (`tests/dear.txt`)
RECORDED = 3600.0  # CPU seconds, at most, of one file's tests


def record(only: str) -> None:
    """File by file, with the source as it is; the tree that is changed afterwards is the one that was recorded."""
    refresh_tree()
    LINES.mkdir(parents=True, exist_ok=True)
    warm()
    for path in sorted((TREE / "tests").rglob("test_*.py")):
        name = path.relative_to(TREE / "tests").as_posix().replace("/", "-").removesuffix(".py")
        if (LINES / f"{name}.json").is_file() or re.search(only, path.relative_to(TREE).as_posix()) is None:
            continue
        tests = [path.relative_to(TREE).as_posix()]
        lines = LINES / f"{name}.lines"
        done = forked(tests, TREE, HOME / "jax", RECORDED, HOME / "last.txt", stop_at_first=False, lines=lines)
        if not lines.is_file():
            print(f"{tests[0]}: no line recorded ({done.word} {done.by})", flush=True)
            continue
        UNSOUND.write_text(json.dumps(sorted({unit_of(test) for test in done.by if "::" in test} | unsound())))
        (LINES / f"{name}.json").write_text(json.dumps(done.seconds))
        print(f"{tests[0]}: {len(done.seconds)} tests, {sum(done.seconds.values()):.0f} s {done.by or ''}", flush=True)


def run(num: int, seed: int, only: str | None, again: bool, budget: float) -> None:
    reaching = Reaching(TREE, LINES)
    known = {} if again else {result["key"]: result for result in results(seed)}
    chosen = [mutant for mutant in sample(num, seed) if only is None or only in mutant.name]
    warm()
    for number, mutant in enumerate(chosen, 1):
        source = (TREE / mutant.path).read_bytes()
        key = key_of(mutant, source)
        if key in known and (known[key]["outcome"] != "survived" or known[key]["budget"] >= budget):
            continue
        tests = [test for test in reaching.of(mutant, MOST) if test not in unsound()]
        done = trial(mutant, source, tests, budget)
        if done.word == "absent":
            raise SystemExit(f"pytest itself failed: {(HOME / 'last.txt').read_text()[-500:]}")
        outcome = {"passed": "survived", "failed": "killed", "hung": "hung"}[done.word]
        found = {"key": key, "name": mutant.name, "outcome": outcome, "by": done.by, "tests": len(done.seconds)}
        spent = round(sum(done.seconds.values()), 1)
        with of_seed(seed).open("a") as file:
            file.write(json.dumps(found | {"seconds": spent, "budget": budget, "near": tests[:10]}) + "\n")
        print(
            f"{number}/{len(chosen)} {outcome:8} {mutant.name}  [{len(done.seconds)} tests, {spent:.0f} s] {done.by}",
            flush=True,
        )


def trial(mutant: Mutant, source: bytes, tests: list[str], budget: float) -> Outcome:
    """Run the tests with the mutant in place of the source, which comes back whatever happens."""
    path = TREE / mutant.path
    before = path.stat()
    try:
        path.write_bytes(mutant.applied(source))
        return forked(tests, TREE, HOME / "jax", budget, HOME / "last.txt")
    finally:
        path.write_bytes(source)
        os.utime(path, (before.st_atime, before.st_mtime))  # so that the compiled source is that of this text again


def check_the_killers(seed: int) -> bool:
    """Run each test that killed with the source as it is. Kills by one that fails are taken back."""
    killers = {result["by"] for result in results(seed) if result["outcome"] == "killed" and "::" in result["by"]}
    done = forked(sorted(killers), TREE, HOME / "jax", 3600.0, HOME / "sound.txt", stop_at_first=False)
    failed = set(done.by)
    UNSOUND.write_text(json.dumps(sorted({unit_of(test) for test in failed} | unsound())))
    sound = [result for result in results(seed) if result["by"] not in failed]
    of_seed(seed).write_text("".join(json.dumps(result) + "\n" for result in sound))
    print(f"{len(killers)} tests killed; {len(failed)} of them fail unchanged: {sorted(failed)}", flush=True)
    return not failed


def unsound() -> set[str]:
    return set(json.loads(UNSOUND.read_text())) if UNSOUND.is_file() else set()


def unit_of(test: str) -> str:
    """The function, or the class, that a test of pytest's belongs to."""
    return "::".join(test.split("::")[:2]).partition("[")[0]


def sample(num: int, seed: int) -> list[Mutant]:
    """A fixed sample, the same number from each package, shuffled so that any beginning of it is a sample too."""
    chosen, shares = [], {}
    for package in PACKAGES:
        mutants = list(all_below([package], TREE))
        shares[Path(package).name] = len(mutants)
        chosen += random.Random(seed).sample(mutants, min(len(mutants), num // len(PACKAGES)))
    SHARES.write_text(json.dumps(shares))
    random.Random(seed).shuffle(chosen)
    return chosen


def key_of(mutant: Mutant, source: bytes) -> str:
    """The same as long as the function around it has the same text."""
    lines = source.splitlines()[mutant.function[0] - 1 : mutant.function[1]]
    within = mutant.start - sum(len(line) + 1 for line in source.splitlines()[: mutant.function[0] - 1])
    text = b"\n".join([mutant.path.encode(), *lines, mutant.new.encode(), str(within).encode()])
    return hashlib.sha256(text).hexdigest()[:16]


def of_seed(seed: int) -> Path:
    return HOME / f"results-{seed}.jsonl"


def results(seed: int) -> list[dict]:
    path = of_seed(seed)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def report(seed: int) -> None:
    """What was killed, by package and in all, each package by its number of mutants; and each survivor with its reason,
    whose first word says what became of it (`explained.txt`)."""
    latest = list({result["key"]: result for result in results(seed)}.values())
    reasons = dict(line.split(" | ") for line in EXPLAINED.read_text().splitlines() if " | " in line)
    shares = json.loads(SHARES.read_text())  # how many mutants each package has
    scores: dict[str, list[tuple[float, float]]] = {}
    for package, share in shares.items():
        found = Counter(fate(result, reasons) for result in latest if package_of(result) == package)
        total = found.total() - found["equivalent"]
        killed = [found["killed"], found["killed"] + found["further"], total - found["open"]]
        scores[package] = [(each / max(1, total), share) for each in killed]
        words = ", ".join(f"{num} {word}" for word, num in found.items())
        print(f"{package:10} {share:5} mutants, {found.total():3} tried: {words}")
    totals = {p: sum(package_of(r) == p and fate(r, reasons) != "equivalent" for r in latest) for p in shares}
    titles = ("by the tests that run the line", "by any fast test, as they were", "with the tests written since")
    for place, title in enumerate(titles):
        score = sum(share * p for p, share in (each[place] for each in scores.values())) / sum(shares.values())
        errors = [
            (share / sum(shares.values())) ** 2 * each * (1 - each) / max(1, totals[package])
            for package, (each, share) in ((name, rows[place]) for name, rows in scores.items())
        ]
        parts = ", ".join(f"{name} {rows[place][0]:.0%} of {totals[name]}" for name, rows in scores.items())
        print(f"killed {title}: {score:.1%} +- {sum(errors) ** 0.5:.1%} ({parts})")
    for result in sorted(latest, key=lambda result: result["name"]):
        if result["outcome"] == "survived":
            print(f"{result['name']}\n    {reasons.get(stable(result['name']), 'open: not explained')}")


def fate(result: dict, reasons: dict[str, str]) -> str:
    """killed (or hung); of what survived: equivalent, further (a test that was not tried kills it), since (one that was
    written since does), open."""
    if result["outcome"] != "survived":
        return "killed"
    return reasons.get(stable(result["name"]), "open").partition(":")[0]


def named(only: str | None) -> None:
    """Each mutant of `named.py` with its one test, which has to pass without it and to fail with it."""
    refresh_tree()
    warm()
    chosen = [each for each in NAMED if only is None or only in each.what]
    for test in dict.fromkeys(each.test for each in chosen):
        print(
            f"unchanged: {forked([test], TREE, HOME / 'jax', 300.0, HOME / 'last.txt', marks=DEAR_TOO).word} {test}",
            flush=True,
        )
    for each in chosen:
        path = TREE / each.path
        source, before = path.read_text(), path.stat()
        if source.count(each.old) != 1:
            raise SystemExit(
                f"{each.path} has {each.old!r} {source.count(each.old)} times: mend tools/mutants/named.py"
            )
        try:
            path.write_text(source.replace(each.old, each.new))
            done = forked([each.test], TREE, HOME / "jax", 300.0, HOME / "last.txt", marks=DEAR_TOO)
        finally:
            path.write_text(source)
            os.utime(path, (before.st_atime, before.st_mtime))
        print(f"{'SURVIVED' if done.word == 'passed' else 'killed'}: {each.what} {done.by}", flush=True)


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
    runner = commands.add_parser("run")
    runner.add_argument("--num", type=int, default=100)
    runner.add_argument("--seed", type=int, default=0)
    runner.add_argument("--only", help="mutants whose name has this in it")
    runner.add_argument("--again", action="store_true", help="also those whose result is known")
    runner.add_argument("--budget", type=float, default=BUDGET, help="CPU seconds of tests for each")
    commands.add_parser("record").add_argument("--only", default="", help="files of tests whose path matches this")
    commands.add_parser("report").add_argument("--seed", type=int, default=0)
    commands.add_parser("named").add_argument("--only", help="those whose words have this in them")
    asked = parser.parse_args()
    if asked.command == "record":
        record(asked.only)
    elif asked.command == "run":
        run(asked.num, asked.seed, asked.only, asked.again, asked.budget)
        if not check_the_killers(asked.seed):
            run(asked.num, asked.seed, asked.only, False, asked.budget)
    elif asked.command == "named":
        named(asked.only)
    else:
        report(asked.seed)


if __name__ == "__main__":
    main()
