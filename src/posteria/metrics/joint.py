"""Scores of several targets together, which see what predictions at different inputs have to do with each other."""

import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError
from posteria.metrics import demands


def joint_log_loss(log_probs: ArrayLike, groups: ArrayLike) -> float:
    """Nats a target by which the targets of a group were unexpected, all together, on average over groups.

        -log mean_draw prod_{i in group} p(y_i | x_i, draw) / size of a group

    `log_probs` is (draw, n), of each target under each draw of the function; `groups` (group, size) are row numbers.
    Groups of one row give the negative log likelihood. A prediction that is right about each row alone loses here if it
    does not know what two rows have in common: an average over draws of whole functions does. Osband et al. 2022, The
    Neural Testbed: Evaluating Joint Predictions.
    """
    from scipy.special import logsumexp

    log_probs = demands.real("log_probs", log_probs)
    groups = np.asarray(groups)
    if log_probs.ndim != 2:
        raise DataError(f"log_probs is {log_probs.shape}", "(draw, n)", "keep the draws apart")
    if np.isnan(log_probs).any():
        raise DataError("log_probs has nan", "log densities, -inf where there is none", "see where they come from")
    if groups.ndim != 2 or not np.issubdtype(groups.dtype, np.integer) or not groups.size:
        raise DataError(f"groups are {groups.shape} of {groups.dtype}", "row numbers (group, size)", "see neighbours()")
    if groups.min() < 0 or groups.max() >= log_probs.shape[1]:
        raise DataError(f"groups name rows {groups.min()} to {groups.max()}", f"of 0 to {log_probs.shape[1] - 1}")
    together = log_probs[:, groups].sum(-1)  # (draw, group)
    return float(-(logsumexp(together, axis=0) - np.log(len(log_probs))).mean() / groups.shape[1])


def neighbours(x: ArrayLike, size: int = 10, num_groups: int = 100, seed: int = 0) -> np.ndarray:
    """Groups of rows that lie close together: random rows, each with those nearest to it, (group, size).

    Rows far apart have little in common, and are nearly the same together as alone.
    """
    x = np.asarray(x, np.float64).reshape(len(np.asarray(x)), -1)
    if not 1 <= size <= len(x):
        raise DataError(f"groups of {size}", f"1 to {len(x)} rows, of those that there are", "take smaller groups")
    centres = np.random.default_rng(seed).permutation(len(x))[:num_groups]
    groups = []
    for centre in centres:
        distances = ((x - x[centre]) ** 2).sum(-1)
        distances[centre] = -1.0  # itself first, also where rows are equal
        groups.append(np.argsort(distances, kind="stable")[:size])
    return np.stack(groups)
