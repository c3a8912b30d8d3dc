"""Means of the target by level, for categories of many values. Micci-Barreca 2001."""

import numpy as np

FOLDS = 5
SEED = 0  # of the folds, which depend on the number of rows alone: a resumed fit sees the same rows
LEAST_ROWS, MOST_ROWS = 1.0, 1000.0  # that the mean of all rows counts as, in that of a level


def means_by_level(
    levels: np.ndarray, y: np.ndarray
) -> tuple[list[str], tuple[tuple[float, ...], ...], tuple[float, ...]]:
    """The levels, for each the means of the targets, and those of all rows."""
    names, codes = np.unique(levels.astype(str), return_inverse=True)
    targets = y.reshape(len(y), -1).astype(np.float64)
    means, overall = _shrunk(codes, targets, len(names))
    return names.tolist(), tuple(map(tuple, means.tolist())), tuple(overall.tolist())


def means_without_own_fold(levels: np.ndarray, y: np.ndarray) -> np.ndarray:
    """For each row the means of its level among the rows of other folds: its own target has no part in them."""
    names, codes = np.unique(levels.astype(str), return_inverse=True)
    targets = y.reshape(len(y), -1).astype(np.float64)
    fold = np.random.default_rng(SEED).permutation(len(codes)) % FOLDS
    found = np.zeros_like(targets)
    for number in range(FOLDS):
        is_own = fold == number
        if is_own.any() and not is_own.all():
            found[is_own] = _shrunk(codes[~is_own], targets[~is_own], len(names))[0][codes[is_own]]
    return found


def _shrunk(codes: np.ndarray, targets: np.ndarray, num_levels: int) -> tuple[np.ndarray, np.ndarray]:
    """(level, target) means, each shrunk towards that of all by the variance within levels over that between them.

    So many rows does the mean of all count as; a level without rows has it alone.
    """
    counts = np.bincount(codes, minlength=num_levels).astype(np.float64)[:, None]
    sums = np.stack([np.bincount(codes, each, num_levels) for each in targets.T], axis=1)
    overall = targets.mean(axis=0)
    raw = sums / np.maximum(counts, 1.0)
    num_repeated = max(len(codes) - (counts > 0).sum(), 1)
    within = ((targets - raw[codes]) ** 2).sum(axis=0) / num_repeated
    between = ((raw[codes] - overall) ** 2).mean(axis=0) - within * (counts > 0).sum() / len(codes)
    rows = np.clip(within / np.maximum(between, 1e-12 * np.maximum(within, 1e-300)), LEAST_ROWS, MOST_ROWS)
    return (sums + rows * overall) / (counts + rows), overall
