"""Fewer draws that predict nearly as all of them do."""

from copy import copy
from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.data.arrays import Data, num_rows, rows
from posteria.errors import SettingError
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.calibrated import CalibratedPosterior
from posteria.posteriors.draws import Draws, DrawsPosterior, forward
from posteria.posteriors.mixture import FoldsPosterior
from posteria.random import as_key

CANDIDATES = 10  # for each draw kept, of posteriors that hold no fixed set of draws
CANDIDATES_KEY = 1
MAX_ROWS = 200  # of x that the choice looks at


def thin(posterior: Posterior, num_draws: int, x: Data = None) -> Posterior:
    """`num_draws` draws. With x they are chosen to keep the means and variances of the functions there; else evenly.

    The choice is greedy: each draw is the one that brings the moments of those chosen nearest to the moments of all.
    """
    num_draws = check_num_draws(num_draws)
    if isinstance(posterior, CalibratedPosterior):
        thinned = thin(posterior.inner, num_draws, x)
        calibrated = CalibratedPosterior(
            thinned, posterior.scores, posterior.temperature, posterior.coverage, posterior.groups
        )
        calibrated.facts, calibrated.attached = posterior.facts | thinned.facts, posterior.attached
        return calibrated
    if isinstance(posterior, FoldsPosterior):
        return _thinned_folds(posterior, num_draws, x)
    if hasattr(posterior, "function_moments"):  # in closed form: a prediction from fewer points of the same Gaussian
        fewer = copy(posterior)
        fewer.facts = posterior.facts | {"predict_draws": num_draws}
        return fewer
    flat = _candidates(posterior, num_draws)
    if len(flat) <= num_draws:
        chosen = np.arange(len(flat))
    elif x is None:
        chosen = np.linspace(0, len(flat) - 1, num_draws).round().astype(int)
    else:
        chosen = _herd(_features(posterior, flat, x), num_draws)
    kept = DrawsPosterior(posterior.target, Draws(posterior.target.structs, flat[chosen][None], {}))
    kept.facts = posterior.facts | {"notes": [*posterior.facts.get("notes", []), f"thinned from {len(flat)} draws"]}
    kept.attached = posterior.attached
    return kept


def _thinned_folds(posterior: FoldsPosterior, num_draws: int, x: Data) -> FoldsPosterior:
    """Each member by itself: the widths of the prediction are a member's."""
    num_members = len(posterior.members)
    if num_draws < num_members:
        raise SettingError(
            f"{num_draws} draws of {num_members} members", "at least one of each", f"ask for {num_members} or more"
        )
    members = [
        member if member.num_draws <= num_draws // num_members else thin(member, num_draws // num_members, x)
        for member in posterior.members
    ]
    kept = FoldsPosterior(posterior.target, members, posterior.widths, posterior.facts)
    kept.attached = posterior.attached
    return kept


def _candidates(posterior: Any, num_draws: int) -> np.ndarray:
    """Weights to choose from, flat: (candidate, size)."""
    if isinstance(posterior, DrawsPosterior):
        return posterior.stored.flat.reshape(-1, posterior.stored.flat.shape[-1])
    if not hasattr(posterior, "sample_params"):
        raise SettingError(
            f"a {posterior.kind} posterior has no draws of the weights",
            "one in weight space",
            "predict without thinning",
        )
    params = posterior.sample_params(as_key(CANDIDATES_KEY), CANDIDATES * num_draws)
    return np.asarray(tree.ravel_each(params))


def _features(posterior: Posterior, flat: np.ndarray, x: Data) -> np.ndarray:
    """Means of the prediction and their squares at x, by draw: (candidate, feature)."""
    x = posterior.check_x(x)
    x = rows(x, np.linspace(0, num_rows(x) - 1, min(MAX_ROWS, num_rows(x))).round().astype(int))  # it may be sorted
    outputs, own = forward(posterior.target)(flat, x)
    means = np.asarray(jax.vmap(posterior.model.likelihood.moments)(own, outputs)[0], np.float64)
    means = means.reshape(len(flat), -1)
    spread = means.std(0) + 1e-12
    centred = (means - means.mean(0)) / spread
    return np.concatenate([centred, centred**2 - 1.0], axis=1)  # all of them have mean zero


def _herd(features: np.ndarray, num: int) -> np.ndarray:
    total, chosen, is_free = np.zeros(features.shape[1]), [], np.ones(len(features), bool)
    sizes = (features**2).sum(1)
    for _ in range(num):
        distance = np.where(is_free, 2 * features @ total + sizes, np.inf)  # of the new total from zero, but a constant
        best = int(distance.argmin())
        chosen.append(best)
        is_free[best] = False
        total += features[best]
    return np.sort(chosen)
