"""Estimators read tables by the same plan as the command line: frames of any library, dates, counts, what is asked."""

import warnings

import numpy as np
import pandas as pd
import pytest

import posteria as po

QUICK = {"method": po.MAP(num_epochs=5), "network": "mlp:4"}


def visits(num_rows=300):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2021-01-01", periods=num_rows).strftime("%d.%m.%Y"),
            "shop": random.choice([f"shop {i}" for i in range(40)], num_rows),
            "a": random.normal(size=num_rows),
            "id": np.arange(num_rows),
        }
    )
    return frame, random.poisson(np.exp(0.5 + 0.5 * frame["a"]))


@pytest.fixture(scope="module")
def fitted():
    frame, y = visits()
    with pytest.warns(UserWarning, match="'id' is left out"):
        return po.Regressor(**QUICK).fit(frame, y)


def test_the_plan_is_that_of_the_command_line(fitted, tmp_path):
    frame, y = visits()
    taken = {column.name: column.taken for column in fitted.plan_.columns}
    assert taken == {"when": "date", "shop": "category", "a": "number", "id": "id"}
    assert fitted.plan_.columns == po.data.plan_table(frame.assign(y=y), "y").columns
    fitted.save(tmp_path / "saved")
    again = po.Regressor.load(tmp_path / "saved")
    assert again.plan_ == fitted.plan_
    np.testing.assert_array_equal(again.predict(frame), fitted.predict(frame))


def test_counts_have_their_likelihood_unless_another_is_named(fitted):
    frame, y = visits()
    assert isinstance(fitted.posterior_.model.likelihood, po.likelihoods.NegativeBinomial)
    assert (fitted.sample(frame, 3) % 1 == 0).all() and (fitted.predict(frame) > 0).all()
    with pytest.warns(UserWarning, match="'id'"):
        told = po.Regressor(**QUICK, likelihood=po.likelihoods.Gaussian()).fit(frame, y)
    assert told.plan_.target.taken == "number" and told.preparation_.y.std != 1


def test_columns_are_taken_as_asked(fitted):
    frame, y = visits()
    asked = po.Regressor(**QUICK, as_={"when": "ignore", "shop": "text", "id": "number"}).fit(frame, y / 7.0)
    taken = {column.name: column.taken for column in asked.plan_.columns}
    assert taken == {"when": "ignored", "shop": "text", "a": "number", "id": "number"}
    assert asked.get_params()["as_"]["shop"] == "text"
    with pytest.raises(po.errors.SettingError, match="one of the columns"):
        po.Regressor(**QUICK, as_={"shops": "text"}).fit(frame, y)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries_predict_the_same(fitted, library):
    module = pytest.importorskip(library)
    frame, y = visits()
    columns = {name: frame[name].tolist() for name in frame.columns}
    other = (module.DataFrame if library == "polars" else module.table)(columns)
    np.testing.assert_array_equal(fitted.predict(other), fitted.predict(frame))
    with pytest.warns(UserWarning, match="'id'"):
        again = po.Regressor(**QUICK).fit(other, module.Series(y) if library == "polars" else module.array(y))
    assert list(again.feature_names_in_) == list(frame.columns)
    np.testing.assert_allclose(again.predict(frame), fitted.predict(frame), rtol=1e-6)
    labels = np.where(y > 1, "many", "few")
    with pytest.warns(UserWarning, match="'id'"):
        classes = po.Classifier(**QUICK).fit(other, labels)
    assert classes.predict(other).tolist() == classes.predict(frame).tolist()


def test_what_the_fit_had_not_is_told_once_with_its_column_and_count():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=60), "town": rng.choice(["a", "b", "c"], 60)})
    model = po.Regressor(method=po.MAP(num_epochs=20), network="mlp:4")
    model.fit(frame, frame["size"] + (frame["town"] == "a"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(frame)
    new = frame.head(10).assign(town=["nowhere"] * 4 + ["a"] * 6)
    with pytest.warns(UserWarning, match="town: 'nowhere' not seen in the fit.*in 4 of 10 rows"):
        model.predict(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it has been told
        model.predict(new)
        model.interval(new, 0.9)
    model.fit(frame, frame["size"])
    with pytest.warns(UserWarning, match="nowhere"):
        model.predict(new)


def test_numbers_far_from_all_rows_are_told_as_intervals_there_are_not():
    """Ten ranges away the standard deviation is that of the middle, and nothing said so in Python."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (80, 2))
    model = po.Regressor(method=po.MAP(num_epochs=20), network="mlp:4").fit(x, x[:, 0] + 0.1 * rng.normal(size=80))
    near, far = x[:5] * 1.2, np.concatenate([x[:5], [[20.0, 0.0], [-3.0, 0.0]]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(near)
    with pytest.warns(UserWarning, match=r"x0: 2 values far outside of -0.9\d* to 0.9\d*, the range of the fit"):
        model.interval(far, 0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it has been told
        model.predict(far)


def test_words_in_an_array_are_named():
    rows = np.array([[1.0, "red"], [2.0, "blue"]] * 10, object)
    with pytest.raises(ValueError, match="holds 'red'; wanted numbers: a frame has columns of any kind"):
        po.Regressor(**QUICK).fit(rows, np.arange(20.0))


def test_a_target_that_never_varies_is_told():
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.warns(UserWarning, match="y is the same in every row: no row tells how wide intervals should be"):
        po.Regressor(**QUICK).fit(x, np.ones(20))


def test_a_name_that_is_there_twice_is_refused():
    frame = pd.DataFrame(np.ones((20, 3)), columns=["a", "b", "a"])
    with pytest.raises(ValueError, match=r"columns \['a'\] twice; wanted a name for each column"):
        po.Regressor(**QUICK).fit(frame, np.arange(20.0))
