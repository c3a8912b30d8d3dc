"""What a row's predictions hang on: the columns that move them, and those that move their uncertainty, by shuffling one
at a time; and the test rows that are worth a look, with what is unusual about them. Of any method: it is asked for
predictions alone. Breiman 2001; Fisher, Rudin & Dominici 2019.

Columns that go together share what they carry: one that is shuffled is still there in the other.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from posteria.comparison.ask import Fold
from posteria.data.features import Features

MOST_COLUMNS = 40  # those that go most with the target, where there are more
FEWEST_ROWS, MOST_ROWS = 24, 200  # test rows that are asked for
WORK = 1_000_000  # draws x rows of all shuffled predictions, about
MOST_LOOKED_AT = 10  # rows of which it is least certain, and as many that it gets most wrong
SHOWN_COLUMNS = 8  # of a row that is worth a look
SEED = 0
FEWEST_NEIGHBOURS, MOST_NEIGHBOURS, SOME_NEIGHBOURS = 50, 20_000, 1000  # training rows
LONELY = 0.01  # of them, the furthest from their nearest


ONE_STD = (0.15865525393145707, 0.8413447460685429)  # the levels one std below and above a Gaussian's mean


def centre(predictive: Any) -> np.ndarray:
    """The mean, or the median where a mean does not exist: (n, targets)."""
    mean = np.asarray(predictive.mean, np.float64)
    return mean if np.isfinite(mean).all() else np.asarray(predictive.quantile_table([0.5]), np.float64)[0]


def spread(predictive: Any) -> np.ndarray:
    """The std, or half of the middle 68 % where it is infinite: (n, targets)."""
    std = np.asarray(predictive.std, np.float64)
    if np.isfinite(std).all():
        return std
    lower, upper = np.asarray(predictive.quantile_table(ONE_STD), np.float64)
    return (upper - lower) / 2


def drivers(predictor: Any, fold: Fold, kind: str) -> dict[str, np.ndarray]:
    """`driver_names` (k,) U, and (k,) shares: `driver_mean` and `driver_spread`, of the shift of predictions, and of
    their uncertainty, that shuffling a column makes.

    A shift of a number is the root mean square over the spread of predictions, of classes the mean total variation;
    one of uncertainty is the mean of |change| over the mean, of the predictive std or of the entropy.
    """
    features = fold.features
    if features is None or len(fold.y_test) < 2:
        return {}
    columns = _columns(features, fold.y_train)
    num_draws = int(getattr(predictor, "num_draws", 1) or 1)
    num_rows = int(np.clip(WORK // (num_draws * (len(columns) + 1)), FEWEST_ROWS, MOST_ROWS))
    random = np.random.default_rng(SEED)
    chosen = np.sort(random.permutation(len(fold.y_test))[:num_rows])
    order = random.permutation(len(chosen))
    plain = _told(fold.predict(predictor, features.shuffled(0, chosen, np.arange(len(chosen)))), kind)
    shifts = []
    for number in columns:
        moved = _told(fold.predict(predictor, features.shuffled(number, chosen, order)), kind)
        shifts.append((_shift(plain[0], moved[0], kind), _relative(plain[1], moved[1])))
    by_mean, by_spread = np.array(shifts, np.float64).T
    names = np.array([features.names[number] for number in columns], str)
    return {"driver_names": names, "driver_mean": by_mean, "driver_spread": by_spread}


def _columns(features: Features, y: np.ndarray) -> list[int]:
    every = range(len(features.names))
    if len(every) <= MOST_COLUMNS:
        return list(every)
    y = np.asarray(y, np.float64).reshape(len(y), -1)[:, 0]

    def tie(number: int) -> float:
        if not features.is_number(number):
            return 1.0  # words are few among so many
        values = np.nan_to_num(features.column(number, of_test=False))
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(np.nan_to_num(abs(np.corrcoef(values, y)[0, 1])))

    return sorted(sorted(every, key=lambda number: -tie(number))[:MOST_COLUMNS])


def _told(predictive: Any, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """What is predicted, and how uncertain it is."""
    if kind == "classes":
        return np.asarray(predictive.probs, np.float64), np.asarray(predictive.entropy, np.float64)
    return centre(predictive), spread(predictive)


def _shift(plain: np.ndarray, moved: np.ndarray, kind: str) -> float:
    if kind == "classes":
        return float(0.5 * np.abs(moved - plain).sum(1).mean())
    return float(np.sqrt(np.mean((moved - plain) ** 2)) / max(plain.std(), 1e-300))


def _relative(plain: np.ndarray, moved: np.ndarray) -> float:
    return float(np.abs(moved - plain).mean() / max(plain.mean(), 1e-300))


# ---- rows worth a look


def worth_a_look(fold: Fold, kind: str, picture: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`look` (m,): places among the test rows; `look_names` (k,) and `look_values` (m, k) U: of the columns that say
    most about them; `look_odd` (m,) U: what is unusual about each, "" where nothing is."""
    if fold.features is None:
        return {}
    uncertain, wrong = remarkable(kind, picture)
    places = np.unique(np.concatenate([uncertain, wrong]))
    names, values = _shown(fold.features, places, picture)
    lonely = _unlike_any(fold, places)
    odd = []
    for place, is_lonely in zip(places, lonely):
        texts = [each.text for each in fold.features.oddities(int(place))[:2]]
        texts += ["no training row is like it in all columns together"] if is_lonely else []
        odd.append("; ".join(texts))
    return {
        "look": places,
        "look_names": np.array(names, str),
        "look_values": np.array(values, str).reshape(len(places), len(names)),
        "look_odd": np.array(odd, str),
    }


def _unlike_any(fold: Fold, places: np.ndarray) -> np.ndarray:
    """Whether the nearest training row, as the network sees them, is further than nearly all have their nearest."""
    from scipy.spatial import cKDTree

    train, test = np.asarray(fold.train[0], np.float64), np.asarray(fold.x_test, np.float64)[places]
    if train.ndim != 2 or len(train) < FEWEST_NEIGHBOURS:
        return np.zeros(len(places), bool)
    tree = cKDTree(train[:MOST_NEIGHBOURS])
    some = np.random.default_rng(SEED).permutation(len(tree.data))[:SOME_NEIGHBOURS]
    usual = np.quantile(tree.query(tree.data[some], k=2)[0][:, 1], 1 - LONELY)
    far: np.ndarray = tree.query(test, k=1)[0] > max(usual, 1e-9)
    return far


def remarkable(kind: str, picture: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Places of the test rows that are least certain, and of those that are most wrong, the first ones first."""
    if kind == "classes":
        of_truth = picture["probs"][np.arange(len(picture["y"])), picture["y"]]
        uncertainty, error = picture["entropy"], -of_truth
    else:
        uncertainty, error = picture["std"], np.abs(picture["mean"] - picture["y"])
    first, second = (np.argsort(-each, kind="stable")[:MOST_LOOKED_AT] for each in (uncertainty, error))
    return first, second


def _shown(features: Features, places: np.ndarray, picture: dict[str, np.ndarray]) -> tuple[list[str], list[list[str]]]:
    """The columns that predictions and their uncertainty hang on most."""
    weights: dict[str, float] = {}
    if "driver_names" in picture:
        weights = dict(zip(picture["driver_names"].tolist(), picture["driver_mean"] + picture["driver_spread"]))
    order = sorted(range(len(features.names)), key=lambda number: -weights.get(features.names[number], -1.0))
    chosen = order[:SHOWN_COLUMNS]
    values = [[features.shown(number, int(place)) for number in chosen] for place in places]
    return [features.names[number] for number in chosen], values
