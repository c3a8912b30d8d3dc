"""Damages and edits of stores, comparisons and exports: none changes an answer silently, none crashes, none ends in a
traceback. What was done and how it ended is printed: `pytest -s -m slow tests/damage`."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from damage.damaging import DAMAGES
from damage.subjects import REFUSED, SAME, Silent, Subject, make, read_exports

SHARES = {"numbers": 0.25, "classes": 0.1, "cut": 0.15, "running": 0.15, "comparison": 0.15, "export": 0.2}
BATCH = 25  # exports that one process reads


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def subjects(home):
    return make(home)


@pytest.mark.parametrize("total", [120, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_damage_changes_an_answer_silently_crashes_or_ends_in_a_traceback(home, subjects, total):
    ends: Counter = Counter()
    faults: list[str] = []
    for name, subject in subjects.items():
        for number in range(round(SHARES[name] * total)):
            random = np.random.default_rng([number, len(name), total])
            damage = DAMAGES[number % len(DAMAGES)]
            damaged = Path(shutil.copytree(subject.folder, home / "work" / "damaged"))
            told = damage(damaged, subject.other, random)
            end, found = judged(subject, damaged, home / "work" / "copy")
            ends[name, end] += 1
            faults += [f"{end} after {told}: {fault}" for fault in found]
            shutil.rmtree(damaged)
    faults += damaged_exports(home, round(SHARES["export"] * total), ends)
    report(ends, total)
    assert not faults, "\n".join(faults)
    assert sum(count for (_, end), count in ends.items() if end == REFUSED) > 0.6 * total


def judged(subject: Subject, damaged: Path, copy: Path) -> tuple[str, list[str]]:
    """How it ended, and what went wrong: everything is asked that can be, each of a copy."""
    ends, faults = set(), []
    for ask in subject.asks:
        shutil.copytree(damaged, copy)
        try:
            ends.add(subject.ask(ask, copy))
        except Silent as error:
            ends.add("SILENT")
            faults.append(str(error))
        except Exception as error:
            ends.add("TRACEBACK")
            faults.append(f"{ask}: {type(error).__name__} {error}")
        shutil.rmtree(copy)
    return next(end for end in ("SILENT", "TRACEBACK", REFUSED, SAME) if end in ends), faults


def damaged_exports(home: Path, total: int, ends: Counter) -> list[str]:
    """In processes of their own. A script whose code is damaged may be refused by Python itself, before it runs."""
    faults: list[str] = []
    (wanted,) = read_exports([home / "export-0"], home / "new.csv")
    assert wanted.startswith("answer ")
    for first in range(0, total, BATCH):
        copies, tolds = [], []
        for number in range(first, min(first + BATCH, total)):
            copies.append(Path(shutil.copytree(home / "export-0", home / "work" / f"export-{number}")))
            tolds.append(DAMAGES[number % len(DAMAGES)](copies[-1], home / "export-1", np.random.default_rng(number)))
        for told, line in zip(tolds, read_exports(copies, home / "new.csv")):
            if line == wanted:
                ends["export", SAME] += 1
            elif line.startswith("ExportError "):
                ends["export", REFUSED] += 1
            elif "predict.py" in told and not line.startswith(("answer", "crash")):
                ends["export", "refused by Python itself"] += 1
            else:
                ends["export", line.split()[0]] += 1
                faults.append(f"after {told}: {line[:300]}")
        for copy in copies:
            shutil.rmtree(copy)
    return faults


def report(ends: Counter, total: int) -> None:
    kinds = sorted({end for _, end in ends})
    print(f"\n{sum(ends.values())} damages")
    for name in SHARES:
        print(f"  {name:12}", ", ".join(f"{kind} {ends[name, kind]}" for kind in kinds if ends[name, kind]))
    print("  in all      ", ", ".join(f"{k} {sum(c for (_, e), c in ends.items() if e == k)}" for k in kinds))
