"""Damages and edits of stores, comparisons and exports: none changes an answer silently, none crashes, none ends in a
traceback. What was done and how it ended is printed: `pytest -s -m slow tests/damage`."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from damage.damaging import DAMAGES, edit_again
from damage.subjects import REFUSED, SAME, Silent, Subject, make, make_kinds, read_exports

SHARES = {
    "numbers": 0.2,
    "classes": 0.1,
    "cut": 0.1,
    "running": 0.1,
    "comparison": 0.1,
    "published": 0.1,
    "export": 0.2,
}
OF_KINDS = 0.1  # of the damages, to posteriors of other kinds, where there are many
FEW = 120  # damages, in the fast tests
BATCH = 25  # exports that one process reads


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def subjects(home):
    return make(home)


Read = tuple[str, str, str, str]  # the subject, the kind of damage, the reader, and how it ended


@pytest.mark.parametrize("total", [FEW, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_damage_changes_an_answer_silently_crashes_or_ends_in_a_traceback(home, subjects, total):
    reads: Counter[Read] = Counter()
    faults: list[str] = []
    num_noticed = 0
    kinds = make_kinds(home) if total > FEW else {}
    shares = SHARES | dict.fromkeys(kinds, OF_KINDS / max(1, len(kinds)))
    for name, subject in (subjects | kinds).items():
        for number in range(round(shares[name] * total)):
            random = np.random.default_rng([number, len(name), total])
            damage = DAMAGES[number % len(DAMAGES)]
            damaged = Path(shutil.copytree(subject.folder, home / "work" / "damaged"))
            told = damage(damaged, subject.other, random)
            ends, found = judged(subject, damaged, home / "work" / "copy")
            reads.update((name, damage.__name__, reader, end) for reader, end in ends.items())
            num_noticed += REFUSED in ends.values()
            faults += [f"after {told}: {fault}" for fault in found]
            shutil.rmtree(damaged)
    faults += damaged_exports(home, round(SHARES["export"] * total), reads)
    num_noticed += sum(count for (name, *_, end), count in reads.items() if name == "export" and end != SAME)
    print(f"\n{total} damages, {num_noticed} noticed by a reader, {sum(reads.values())} reads, {len(faults)} faults")
    for title, column in (("subject", 0), ("kind", 1), ("reader", 2)):
        show(title, reads, column)
    assert not faults, "\n".join(faults)
    assert num_noticed > 0.6 * total


@pytest.mark.parametrize("total", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_an_edit_with_its_sum_computed_again_ends_in_an_answer_or_a_sentence(home, subjects, total):
    """It may change numbers, since sums are against damage; it crashes nothing, and ends in no traceback."""
    ends: Counter[str] = Counter()
    faults: list[str] = []
    for number in range(total):
        subject = subjects[list(subjects)[number % len(subjects)]]
        damaged = Path(shutil.copytree(subject.folder, home / "work" / "damaged"))
        told = edit_again(damaged, subject.other, np.random.default_rng([number, total]))
        answers, found = judged(subject, damaged, home / "work" / "copy")
        ends.update("answered" if end == "SILENT" else end for end in answers.values())
        faults += [f"after {told}: {fault}" for fault in found if not fault.startswith(Silent.__name__)]
        shutil.rmtree(damaged)
    print(f"\n{total} edits with their sums: {dict(ends)}, {len(faults)} faults")
    assert not faults, "\n".join(faults)


def judged(subject: Subject, damaged: Path, copy: Path) -> tuple[dict[str, str], list[str]]:
    """How each reader ended, and what went wrong: everything is asked that can be, each of a copy."""
    ends, faults = {}, []
    for ask in subject.asks:
        shutil.copytree(damaged, copy)
        try:
            ends[ask] = subject.ask(ask, copy)
        except Silent as error:
            ends[ask] = "SILENT"
            faults.append(f"Silent: {error}")
        except Exception as error:
            ends[ask] = "TRACEBACK"
            faults.append(f"{ask}: {type(error).__name__} {error}")
        shutil.rmtree(copy)
    return ends, faults


def damaged_exports(home: Path, total: int, reads: Counter[Read]) -> list[str]:
    """In processes of their own. A script whose code is damaged may be refused by Python itself, before it runs."""
    faults: list[str] = []
    (wanted,) = read_exports([home / "export-0"], home / "new.csv")
    assert wanted.startswith("answer ")
    for first in range(0, total, BATCH):
        copies, kinds, tolds = [], [], []
        for number in range(first, min(first + BATCH, total)):
            damage = DAMAGES[number % len(DAMAGES)]
            copies.append(Path(shutil.copytree(home / "export-0", home / "work" / f"export-{number}")))
            kinds.append(damage.__name__)
            tolds.append(damage(copies[-1], home / "export-1", np.random.default_rng(number)))
        for kind, told, line in zip(kinds, tolds, read_exports(copies, home / "new.csv")):
            if line == wanted:
                end = SAME
            elif line.startswith("ExportError "):
                end = REFUSED
            elif "predict.py" in told and not line.startswith(("answer", "crash")):
                end = "refused by Python itself"
            else:
                end = "SILENT" if line.startswith("answer") else "CRASH" if line.startswith("crash") else "TRACEBACK"
                faults.append(f"after {told}: {line[:300]}")
            reads["export", kind, "exported reader", end] += 1
        for copy in copies:
            shutil.rmtree(copy)
    return faults


def show(title: str, reads: Counter[Read], column: int) -> None:
    """A line for each subject, kind or reader: how often it was read, and with what end."""
    print(f"by {title}")
    for name in dict.fromkeys(read[column] for read in reads):
        ends: Counter[str] = Counter()
        for read, count in reads.items():
            ends[read[3]] += count * (read[column] == name)
        told = ", ".join(f"{end} {count}" for end, count in sorted(ends.items()) if count)
        print(f"  {name:16} {sum(ends.values()):5} reads: {told}")
