"""What predictions and their uncertainty hang on, and what is unusual about rows, where it is known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from posteria.comparison.ask import Fold
from posteria.comparison.judge.drivers import drivers, remarkable, worth_a_look
from posteria.data.features import Features, guess

ROWS = 200


class Known:
    """mean = 3 a, std = exp(b): c is nothing to it."""

    def predict(self, x):
        a, b = x[:, 0], x[:, 1]
        return SimpleNamespace(mean=3 * a[:, None], std=np.exp(b)[:, None], probs=None)


class Classes:
    def predict(self, x):
        share = 1 / (1 + np.exp(-2 * x[:, :1]))
        probs = np.concatenate([share, 1 - share], axis=1)
        return SimpleNamespace(probs=probs, entropy=-(probs * np.log(probs)).sum(1))


@pytest.fixture(scope="module")
def fold():
    random = np.random.default_rng(0)
    names = {"a": random.normal(size=2 * ROWS), "b": random.normal(size=2 * ROWS), "c": random.normal(size=2 * ROWS)}
    frame = pd.DataFrame(names).assign(colour=random.choice(["red", "blue"], 2 * ROWS))
    frame.loc[ROWS, "a"] = 9.0  # the first test row
    frame.loc[ROWS + 1, "colour"] = "mauve"
    train, test = frame.iloc[:ROWS], frame.iloc[ROWS:]

    def inputs(rows):
        return rows[["a", "b", "c"]].to_numpy(np.float64)

    y = frame["a"].to_numpy()
    found = Fold(0, (inputs(train), y[:ROWS]), y[:ROWS], inputs(test), y[ROWS:])
    return replace(found, features=Features.of(train, test, inputs))


def test_each_column_is_found_to_move_what_it_moves_and_nothing_else(fold):
    found = drivers(Known(), fold, "regression")
    by_mean, by_spread = (dict(zip(found["driver_names"], found[key])) for key in ("driver_mean", "driver_spread"))
    assert set(by_mean) == {"a", "b", "c", "colour"}
    # a column shuffled is another independent draw of it: a change of sqrt(2) standard deviations
    assert by_mean["a"] == pytest.approx(np.sqrt(2), rel=0.15)
    assert by_mean["b"] == by_mean["c"] == by_mean["colour"] == 0
    assert by_spread["b"] > 0.5 and by_spread["a"] == by_spread["c"] == by_spread["colour"] == 0


def test_of_classes_probability_and_entropy_are_looked_at(fold):
    found = drivers(Classes(), fold, "classes")
    assert found["driver_mean"][0] > 0.2 and (found["driver_mean"][1:] == 0).all()
    assert found["driver_spread"][0] > 0.1 and (found["driver_spread"][1:] == 0).all()


def test_rows_worth_a_look_have_their_values_and_what_is_unusual(fold):
    random = np.random.default_rng(1)
    mean, std = random.normal(size=ROWS), np.exp(0.1 * random.normal(size=ROWS))
    y = mean.copy()
    std[0], y[1] = 50.0, mean[1] + 40.0
    picture = {"y": y, "mean": mean, "std": std} | drivers(Known(), fold, "regression")
    uncertain, wrong = remarkable("regression", picture)
    assert uncertain[0] == 0 and wrong[0] == 1
    found = worth_a_look(fold, "regression", picture)
    place = {int(row): number for number, row in enumerate(found["look"])}
    assert found["look_names"][:2].tolist() == ["a", "b"]  # what it hangs on most
    assert found["look_values"][place[0], 0] == "9"
    highest = fold.features.train["a"].max()
    assert f"a 9 is above all training rows ({highest:.4g})" in found["look_odd"][place[0]]
    assert "no training row is like it" in found["look_odd"][place[0]]
    assert "colour mauve was never seen in training" in found["look_odd"][place[1]]
    assert all(array.dtype.kind in "iU" for array in found.values())  # a file of arrays holds them


def test_images_and_trees_have_no_columns_to_be_named(fold):
    assert Features.of(np.zeros((5, 8, 8)), np.zeros((2, 8, 8)), lambda x: x) is None
    assert drivers(Known(), replace(fold, features=None), "regression") == {}


def test_missing_values_are_named_and_never_compared():
    frame = pd.DataFrame({"a": np.r_[np.nan, np.arange(99.0)]})
    features = Features.of(frame.iloc[1:], frame.iloc[:1], lambda x: x)
    assert features.shown(0, 0) == "missing"
    assert features.oddities(0)[0].text == "a is missing, as in 0.0% of training rows"


def test_dates_and_many_categories_are_not_unusual_for_being_new_or_a_small_share():
    days = pd.date_range("2024-01-01", periods=301).astype(str)
    towns = [f"town {number % 150}" for number in range(299)] + ["hamlet", "town 7"]
    frame = pd.DataFrame({"day": days, "town": towns})
    features = Features.of(frame.iloc[:300], frame.iloc[300:], lambda x: x)
    assert features.oddities(0) == []
    other = Features.of(frame.iloc[:300], frame.iloc[299:300], lambda x: x)
    assert [each.text for each in other.oddities(0) if "hamlet" in each.text] == [
        "town hamlet is rare (0.3% of training rows)"
    ]


def test_a_guess_is_what_always_answering_the_same_is_worth():
    y = np.array([1.0, 3.0]), np.array([2.0, 4.0])
    assert guess("regression", [y]) == pytest.approx(np.sqrt(2))
    assert guess("classes", [(np.array([0, 1, 1]), np.array([1, 0, 1, 1]))]) == 0.75
    assert guess("regression", [(y[0][:0], y[1])]) is None
