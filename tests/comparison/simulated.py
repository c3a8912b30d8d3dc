"""Comparisons without a fit: row scores are given, and go through the records and the judge as those of methods do."""

from typing import Any

import numpy as np

import posteria as po
from posteria.comparison.ask import Fold, Problem, describe
from posteria.comparison.enter.entries import Entry
from posteria.comparison.run.fitting import Settings
from posteria.comparison.run.records import Record
from posteria.comparison.run.runner import Ledger
from posteria.comparison.tell import results
from posteria.data.splits import Splits, train_test

MODEL = po.Model(po.nn.mlp(()))
METHOD = po.MAP()


def random_splits(num_rows: int, seeds: int) -> Splits:
    return Splits("random", [train_test(num_rows, seed, 0.2) for seed in range(seeds)], "random")


def same_test(num_train: int, num_test: int, seeds: int, kind: str = "given") -> Splits:
    split = (np.arange(num_train), np.arange(num_train, num_train + num_test))
    return Splits(kind, [split] * seeds, kind)


def by_groups(groups: np.ndarray, seeds: int) -> Splits:
    found = []
    for seed in range(seeds):
        held_out = np.isin(groups, train_test(groups.max() + 1, seed, 0.2)[1])
        found.append((np.flatnonzero(~held_out), np.flatnonzero(held_out)))
    return Splits("group", found, "group", groups)


def problem_of(splits: Splits) -> Problem:
    folds = tuple(
        Fold(
            seed,
            (np.zeros((len(train), 1)), np.zeros(len(train))),
            np.zeros(len(train)),
            np.zeros((len(test), 1)),
            np.zeros(len(test)),
        )
        for seed, (train, test) in enumerate(splits.parts)
    )
    facts = describe("made", "regression", folds, num_rows_all=100, columns=1)
    return Problem("made", "made", MODEL, folds, splits, facts)


def record(log_scores: np.ndarray, held: np.ndarray | None = None, seconds: float = 1.0, **more: Any) -> Record:
    """Of one method on one split."""
    scores = {"nll": -float(np.mean(log_scores)), "rmse": 1.0, "seconds": seconds, "gradients": 100.0}
    arrays = {"row_scores": log_scores, "summary": np.zeros((100, len(log_scores), 1))}
    if held is not None:
        arrays["row_held"] = held
    arrays |= more.pop("arrays", {})
    return Record("done", scores=scores, arrays=arrays, **more)


def problem_json(
    splits: Splits, records: dict[str, list[Record | None]], reference: str | None = None, command: str = ""
) -> dict:
    """The problem of results.json; rows by name, a record a split."""
    problem = problem_of(splits)
    entries = [Entry(name, name, "reference" if name == reference else "method", METHOD) for name in records]
    ledger = Ledger([(problem, entries)], Settings(command=command, minutes=10.0))
    for name, found in records.items():
        for fold, each in zip(problem.folds, found, strict=True):
            if each is not None:
                ledger.records[problem.name, name, fold.seed] = each
    return results._problem(ledger, problem, entries)
