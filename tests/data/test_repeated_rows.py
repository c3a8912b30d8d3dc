"""Rows that tell of each other are told of: what is left out to judge a fit is then easier than new rows."""

import numpy as np
import pandas as pd

from posteria.data import plan_table


def visits(num=30, each=8):
    random = np.random.default_rng(0)
    patient = random.permutation(np.repeat(np.arange(num), each))
    own = random.normal(size=(num, 2))[patient]
    frame = pd.DataFrame({"who": [f"P{i}" for i in patient], "age": own[:, 0], "bmi": own[:, 1]})
    frame["dose"] = random.normal(size=len(patient))
    return frame.assign(y=frame["dose"] + random.normal(size=len(patient)))


def notes(frame, *words):
    return [note for note in plan_table(frame, "y").notes if any(word in note for word in words)]


def test_groups_that_columns_tell_apart_are_told_with_the_column_that_names_them():
    frame = visits()
    (note,) = notes(frame, "--group")
    assert note.startswith("age, bmi only ever change together, in 30 groups of rows") and "(--group who)" in note
    assert "(--group COLUMN)" in notes(frame.drop(columns="who"), "--group")[0]
    assert notes(frame.assign(y=frame["y"] > 0), "--group")  # of classes too
    assert not plan_table(frame, "y").by_groups().notes
    assert not notes(frame.drop(columns="bmi"), "--group")  # one column may have few values of its own
    assert not notes(frame.assign(age=np.round(3 * frame["age"]), bmi=np.round(3 * frame["bmi"])), "--group")
    assert not notes(visits(num=240, each=1), "--group")


def test_copies_of_rows_are_told_where_they_are_no_chance():
    frame = visits()
    assert not notes(frame, "copies")
    (note,) = notes(pd.concat([frame, frame[:60]]), "copies")
    assert note.startswith("60 of 300 rows are copies of others")
    few = pd.DataFrame({"a": np.arange(400) % 2, "y": np.random.default_rng(0).integers(0, 30, 400)})
    assert not notes(few, "copies")  # of few values each, they are bound to repeat


def test_rows_in_the_order_of_a_date_are_told_unless_they_are_split_by_it():
    random = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60).strftime("%d.%m.%Y")
    frame = pd.DataFrame({"day": days, "a": random.normal(size=60), "y": random.normal(size=60)})
    (note,) = notes(frame, "order of day")
    assert "posteria compare --time day" in note
    assert notes(frame[::-1], "order of day")
    assert not notes(frame.sample(frac=1, random_state=0), "order of day")
    assert not plan_table(frame, "y").without("day").notes and plan_table(frame, "y").without("a").notes
