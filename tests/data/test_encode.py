"""Laws of how columns become numbers: dates, many values, text, order; frames of any library; nothing leaks."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from posteria.data import Encoder, cells, from_frame, plan_table
from posteria.data.encode import means_by_level, means_without_own_fold
from posteria.data.frames import as_frame, as_values
from posteria.data.preparation import Preparation
from posteria.data.recognise import periods_of
from posteria.errors import DataError

DAYS = pd.date_range("2019-03-05", "2022-08-01", freq="7h")
SPELLINGS = {
    "year-month-day": "%Y-%m-%dT%H:%M:%S",
    "day-month-year": "%d.%m.%Y %H:%M",
    "month-day-year": "%m/%d/%Y %I:%M %p",
    "day-name-year": "%d %b %Y, %H:%M",
    "name-day-year": "%B %d, %Y %H:%M",
    "yearmonthday": "%Y%m%d",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_reads_as_pandas_has_it(spelling):
    days = DAYS.normalize() if spelling == "yearmonthday" else DAYS
    texts = days.strftime(SPELLINGS[spelling]).to_numpy(object)
    found, is_bad = cells.moments(texts, spelling, is_strict=True)
    assert not is_bad.any()
    np.testing.assert_array_equal(found, days.to_numpy("datetime64[s]").astype(np.int64))


def test_dates_are_the_same_by_type_by_text_and_by_zone():
    zoned = pd.Series(DAYS.tz_localize("Europe/Paris", ambiguous="NaT", nonexistent="NaT"))
    typed = Encoder.fit(pd.DataFrame({"d": zoned}))
    text = pd.DataFrame({"d": zoned.astype(str).where(zoned.notna(), None)})
    np.testing.assert_allclose(typed.encode(text).x, typed.encode(pd.DataFrame({"d": zoned})).x, atol=1e-9)
    fitted = Encoder.fit(text)
    np.testing.assert_allclose(fitted.encode(pd.DataFrame({"d": zoned})).x, typed.encode(text).x, atol=1e-9)


def test_days_pass_and_periods_return():
    days = pd.Series(pd.date_range("2018-01-01", "2021-12-31 23:00", freq="h"))
    encoder = Encoder.fit(pd.DataFrame({"d": days}))
    (column,) = encoder.columns
    assert column.periods == ("year", "month", "week", "day")
    assert len(encoder.feature_names) == len(set(encoder.feature_names)) == 1 + 4 + 2 + 7 + 4
    x = dict(zip(encoder.feature_names, encoder.encode(pd.DataFrame({"d": days})).x.T))
    np.testing.assert_allclose(x["d days"], np.arange(len(days)) / 24)
    weekday = np.stack([x[f"d week {i}"] for i in range(7)]).argmax(0)
    np.testing.assert_array_equal(weekday, days.dt.day_of_week)
    for name in ("year 0", "month 0", "day 3"):
        assert abs(x[f"d {name}"].mean()) < 0.01 and abs(x[f"d {name}"]).max() <= 1
    np.testing.assert_allclose(x["d day 0"], np.sin(2 * np.pi * days.dt.hour / 24), atol=1e-9)
    first_of_years = days[(days.dt.day_of_year == 1) & (days.dt.hour == 0)].index
    np.testing.assert_allclose(x["d year 2"][first_of_years], 1.0)  # the cosine


@pytest.mark.parametrize(
    ("first", "last", "step", "periods"),
    [
        ("2020-01-01", "2020-03-20", "D", ("month", "week")),
        ("2020-01-01", "2020-01-10", "D", ()),
        ("2020-01-01", "2021-12-31", "D", ("year", "month", "week")),
        ("2015-01-01", "2020-12-01", "MS", ("year", "week")),
        ("2015-01-05", "2016-01-05", "7D", ("month",)),
        ("2020-01-01 00:00", "2020-01-04 00:00", "h", ("day",)),
        ("1970-01-01 00:00", "1970-01-01 23:00", "h", ("day",)),  # hours alone
    ],
)
def test_only_periods_that_the_range_carries(first, last, step, periods):
    days = pd.date_range(first, last, freq=step)
    assert periods_of(days.to_numpy("datetime64[s]").astype(np.int64) * 1.0) == periods


def test_dates_beyond_the_fit_unread_and_missing_are_said():
    frame = pd.DataFrame({"d": DAYS[:400].strftime("%d.%m.%Y")})
    encoder = Encoder.fit(frame)
    encoded = encoder.encode(pd.DataFrame({"d": ["31.12.2030", "12.3.2019", None, "soon", "2019-04-01", "4.4.2019"]}))
    assert encoded.far == {"d": (1, "2019-03-05", "2019-06-29")}
    assert encoded.unseen == {"d": ("soon",)} and encoded.filled == {"d": 1}
    assert np.isfinite(encoded.x).all()
    np.testing.assert_array_equal(encoded.x[[4, 5], 0], [27, 30])  # also in another spelling that is clear
    with pytest.raises(DataError, match="wanted dates"):
        encoder.encode(pd.DataFrame({"d": ["soon", "later", "now"]}))


def test_no_training_row_sees_its_own_target():
    rng = np.random.default_rng(0)
    levels, y = np.array([f"k{i}" for i in rng.integers(0, 40, 300)], object), rng.normal(size=300)
    before = means_without_own_fold(levels, y)
    for row in (0, 17, 299):
        changed = y.copy()
        changed[row] += 1000.0
        after = means_without_own_fold(levels, changed)
        np.testing.assert_array_equal(before[row], after[row])
        assert (before != after).any()


def test_levels_of_noise_say_nothing_and_levels_of_signal_do():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 500, 4000)
    levels, effect, noise = np.array([f"k{i}" for i in codes], object), rng.normal(size=500), rng.normal(size=4000)
    noisy = means_without_own_fold(levels, noise)[:, 0]
    assert abs(np.corrcoef(noisy, noise)[0, 1]) < 4 / np.sqrt(4000)
    told = means_without_own_fold(levels, effect[codes] + noise)[:, 0]
    assert np.corrcoef(told, effect[codes])[0, 1] > 0.85
    names, means, overall = means_by_level(levels, effect[codes] + noise)
    new = {name: mean[0] for name, mean in zip(names, means)}
    assert np.corrcoef([new[f"k{i}"] for i in codes], effect[codes])[0, 1] > 0.9
    _, shrunk, _ = means_by_level(levels, noise)
    assert np.std(shrunk) < 0.3 * np.std([noise[codes == i].mean() for i in range(500)])
    assert overall[0] == pytest.approx((effect[codes] + noise).mean())


def test_classes_have_a_mean_each_and_unseen_levels_that_of_all():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"k": [f"k{i}" for i in rng.integers(0, 50, 400)], "y": rng.choice(list("abc"), 400)})
    table = from_frame(frame, "y")
    assert table.x.shape == (400, 3)
    assert ((table.x > 0) & (table.x < 1)).all()
    encoded = table.encode(pd.DataFrame({"k": ["new", None]}))
    np.testing.assert_allclose(encoded.x, np.tile([(frame["y"] == c).mean() for c in "abc"], (2, 1)))
    assert encoded.num_unseen.tolist() == [1, 1] and "new" in encoded.unseen["k"]


def test_words_are_the_same_in_any_order_and_of_other_rows():
    frame = pd.DataFrame({"t": [f"the quick fox and dog {i}" for i in range(60)]})
    encoder = Encoder.fit(frame, plan_table(frame, as_={"t": "text"}))
    x = encoder.encode(pd.DataFrame({"t": ["quick the fox", "FOX quick, the!", "slow", None]})).x
    np.testing.assert_array_equal(x[0], x[1])
    assert (x[0] != x[2]).any() and (x[3] == 0).all()


def test_what_is_ordered_is_its_place():
    frame = pd.DataFrame({"s": pd.Categorical(["L", "S", None], categories=["S", "M", "L"], ordered=True)})
    encoder = Encoder.fit(frame)
    encoded = encoder.encode(pd.DataFrame({"s": ["S", "M", "L", "XL"]}))
    np.testing.assert_array_equal(encoded.x, [[0, 0], [1, 0], [2, 0], [1, 1]])
    assert encoded.unseen == {"s": ("XL",)}


def everything():
    rng = np.random.default_rng(3)
    n = 200
    return pd.DataFrame(
        {
            "when": pd.date_range("2020-01-01", periods=n, freq="5D").strftime("%d/%m/%Y"),
            "street": [f"street {i}" for i in rng.integers(0, 60, n)],
            "about": [f"a {w} house, number {i}" for i, w in enumerate(rng.choice(["red", "old", "big"], n))],
            "size": rng.choice(["S", "M", "L"], n),
            "price": [f"${v:,.2f}" for v in rng.uniform(10, 9000, n)],
            "a": rng.normal(size=n),
            "y": rng.normal(size=n),
        }
    )


def test_a_preparation_of_everything_survives_json_and_repeats_its_training_rows():
    frame = everything()
    preparation = Preparation.from_table(frame, "y", as_={"size": "ordered:S<M<L"})
    assert [column.taken for column in preparation.plan.columns] == [
        "date",
        "category",
        "text",
        "ordered",
        "number",
        "number",
    ]
    again = Preparation.from_json(json.loads(json.dumps(preparation.to_json())))
    y = frame["y"].to_numpy()
    np.testing.assert_array_equal(again.inputs(frame), preparation.inputs(frame))
    np.testing.assert_array_equal(again.training_inputs(frame, y), preparation.training_inputs(frame, y))
    assert (preparation.training_inputs(frame, y) != preparation.inputs(frame)).any(axis=0).sum() == 1  # the means
    assert np.isfinite(preparation.inputs(frame)).all()


def test_a_preparation_of_before_plans_still_reads():
    frame = pd.DataFrame({"n": [1.0, np.nan, 3.0, 8.0], "c": ["u", "v", "u", "w"], "y": [1.5, 2.5, 3.5, 9.0]})
    preparation = Preparation.from_table(frame, "y")
    stored = json.loads(json.dumps(preparation.to_json()))
    del stored["table"]
    for column in stored["encoder"]["columns"]:
        column.pop("spelling", None), column.pop("is_lenient", None)
    np.testing.assert_array_equal(Preparation.from_json(stored).inputs(frame), preparation.inputs(frame))
    stored["encoder"]["columns"][0]["type"] = "tensor"
    with pytest.raises(DataError, match="'tensor'"):
        Preparation.from_json(stored)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries_keep_names_text_and_dates(library):
    module = pytest.importorskip(library)
    frame = everything().assign(day=pd.date_range("2020-01-01", periods=200), flag=[True, False] * 100)
    frame.loc[3, ["a", "street"]] = [np.nan, None]
    columns = {name: [None if pd.isna(v) else v for v in frame[name].tolist()] for name in frame.columns}
    other = (module.DataFrame if library == "polars" else module.table)(columns)
    back = as_frame(other)
    assert list(back.columns) == list(frame.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, theirs = (from_frame(each, "y") for each in (frame, other))
    assert ours.plan == theirs.plan
    np.testing.assert_array_equal(ours.x, theirs.x)
    np.testing.assert_array_equal(as_values(other["y"]), frame["y"])
    assert as_frame(np.zeros(3)).shape == (3,)
