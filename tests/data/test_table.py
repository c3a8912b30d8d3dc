import json

import numpy as np
import pandas as pd
import pytest

from posteria.data import Encoder, from_frame, read_csv, read_frame
from posteria.data.cells import with_points
from posteria.data.table_file import as_written
from posteria.errors import DataError, SettingError

CSV = "size,colour,price\n1,red,10.5\n2,blue,20.25\n,red,30\n4,,15\n"


def write(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_numbers_are_imputed_and_categories_one_hot(tmp_path):
    table = read_csv(write(tmp_path, CSV), "price")
    assert table.kind == "regression"
    assert table.columns == ("size", "colour")
    assert table.feature_names == ("size", "size is missing", "colour=(missing)", "colour=blue", "colour=red")
    np.testing.assert_array_equal(
        table.x, [[1, 0, 0, 0, 1], [2, 0, 0, 1, 0], [2, 1, 0, 0, 1], [4, 0, 1, 0, 0]]
    )  # the median of 1, 2, 4 is 2
    np.testing.assert_array_equal(table.y, [10.5, 20.25, 30.0, 15.0])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_every_delimiter_reads_the_same(tmp_path, delimiter):
    read = read_frame(write(tmp_path, CSV.replace(",", delimiter)))
    pd.testing.assert_frame_equal(read, read_frame(write(tmp_path, CSV)))


def test_headers_with_commas_and_spaces_a_byte_order_mark_and_row_numbers(tmp_path):
    frame = read_frame(write(tmp_path, '"a, b"; c ;"d;e"\n1;2;3\n4;?;6\n', "utf-8-sig"))
    assert list(frame.columns) == ["a, b", "c", "d;e"]
    assert np.isnan(frame["c"][1])
    assert list(read_frame(write(tmp_path, ",a,b\n0,5,1\n1,6,2\n")).columns) == ["a", "b"]
    assert list(read_frame(write(tmp_path, ",a,b\n7,5,1\n3,6,2\n")).columns) == ["Unnamed: 0", "a", "b"]


def test_decimal_commas_between_semicolons(tmp_path):
    frame = read_frame(write(tmp_path, "a;b\n1,5;2\n-2,25;3\n"))
    np.testing.assert_array_equal(frame["a"], [1.5, -2.25])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a,b\n", "no rows"),
        ("1,2\n3,4\n", "starts with numbers"),
        ("a,b\n1,2\n3,4,5\n", "not a table"),
        ("a,b\n1,2,3\n4,5,6\n", "not a table"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_frame(write(tmp_path, text))


def test_missing_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="no file"):
        read_csv(tmp_path / "absent.csv", "y")


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (["yes", "no", "yes", "no"], "classes"),
        ([True, False, True, True], "classes"),
        ([-1, 1, 1, -1], "classes"),
        ([0, 1, 2, 1], "classes"),
        ([1, 2, 3, 3], "classes"),
        ([3, 5, 6, 8], "regression"),
        ([0.5, 1.5, 2.0, 2.0], "regression"),
    ],
)
def test_the_kind_is_found_and_can_be_said(target, kind):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "y": target})
    table = from_frame(frame, "y")
    assert table.kind == kind
    if kind == "classes":
        assert [table.class_names[i] for i in table.y] == [str(each) for each in target]
        assert table.y.dtype == np.int32
    if frame["y"].dtype.kind in "if":
        assert from_frame(frame, "y", kind="regression").y.dtype == np.float64


@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        (["a", "a", "a"], None, "at least two classes"),
        ([2.5, 2.5, 2.5], None, "2.5 in every row"),
        ([1, 1, 1], None, "in every row"),
        (["a", "b", "c"], None, "different in every row"),
        (["1.5", "2.5", "oops"], None, "'oops'.*rows \\[2\\]"),
        (["a", "b", "a"], "regression", "finite numbers"),
        ([1.0, np.inf, 2.0], None, "inf"),
        ([np.nan, np.nan, np.nan], None, "missing in every row"),
    ],
)
def test_targets_that_cannot_be_predicted_are_refused(target, kind, message):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": target})
    with pytest.raises(DataError, match=message):
        from_frame(frame, "y", kind)


def test_a_missing_target_column_lists_near_names():
    frame = pd.DataFrame({"price": [1.0], "colour": [2.0]})
    with pytest.raises(DataError, match=r"one of \['price'\]"):
        from_frame(frame, "prize")
    with pytest.raises(SettingError, match="kind"):
        from_frame(frame, "price", kind="ranking")


FRAME = pd.DataFrame({"n": [1.0, np.nan, 3.0, 8.0], "c": ["u", "v", "u", "w"], "b": [True, False, True, True]})


def test_new_rows_are_matched_by_name_and_surprises_reported():
    encoder = Encoder.fit(FRAME)
    new = pd.DataFrame({"extra": [1, 1], "c": ["new", "w"], "b": [False, True], "n": [np.nan, 2.0]})
    encoded = encoder.encode(new)
    assert encoded.unseen == {"c": ("new",)}
    assert encoded.ignored == ("extra",)
    #                                            n, missing, u, v, w, b
    np.testing.assert_array_equal(encoded.x, [[3, 1, 0, 0, 0, 0], [2, 0, 0, 0, 1, 1]])
    assert encoder.encode(FRAME[["b", "c", "n"]]).x.tolist() == encoder.encode(FRAME).x.tolist()


def test_a_table_encodes_frames_with_and_without_its_target():
    table = from_frame(FRAME.assign(y=[1.5, 2.5, 3.5, 9.0]), "y")
    np.testing.assert_array_equal(table.encode(FRAME).x, table.x)
    assert table.encode(FRAME.assign(y=0.0)).ignored == ()


def test_new_rows_that_do_not_fit_are_refused():
    encoder = Encoder.fit(FRAME)
    with pytest.raises(DataError, match=r"columns \['n'\] are missing"):
        encoder.encode(FRAME.drop(columns="n"))
    with pytest.raises(DataError, match=r"column 'n' holds \['many'\]"):
        encoder.encode(FRAME.assign(n=["many", "1", "2", "3"]))
    with pytest.raises(DataError, match="finite"):
        encoder.encode(FRAME.assign(n=np.inf))


def test_json_round_trips_exactly():
    encoder = Encoder.fit(FRAME.assign(empty=np.nan))
    back = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert back == encoder
    np.testing.assert_array_equal(back.encode(FRAME).x, encoder.encode(FRAME).x)


def test_columns_that_say_nothing_are_dropped_with_the_reason():
    frame = pd.DataFrame({"id": [f"r{i}" for i in range(30)], "empty": np.nan, "a": np.arange(30.0)})
    encoder = Encoder.fit(frame)
    assert encoder.feature_names == ("a",)
    assert dict(encoder.dropped).keys() == {"id", "empty"}
    assert encoder.encode(frame).ignored == ()
    assert encoder.encode(frame[["a"]]).x.shape == (30, 1)  # they need not be there again
    with pytest.raises(DataError, match="no column"):
        Encoder.fit(frame[["id"]])


def test_only_the_most_frequent_levels_get_columns():
    values = [f"v{i:02d}" for i in range(25) for _ in range(25 - i)]
    encoder = Encoder.fit(pd.DataFrame({"c": values}))
    assert encoder.columns[0].levels == tuple(f"v{i:02d}" for i in range(20))


def test_whole_numbered_categories_survive_a_missing_value():
    encoder = Encoder.fit(pd.DataFrame({"c": pd.Categorical([1, 2, 1])}))
    encoded = encoder.encode(pd.DataFrame({"c": [1.0, np.nan]}))
    np.testing.assert_array_equal(encoded.x, [[1, 0], [0, 0]])
    assert encoded.unseen == {"c": ("(missing)",)}


def test_a_number_column_with_stray_text_is_refused_by_value_and_row():
    frame = pd.DataFrame({"width": [*map(str, np.arange(30) / 7), "wide", None], "price": np.arange(32.0)})
    with pytest.raises(
        DataError, match=r"'width' is mostly numbers but holds \['wide'\] \(1 values, first rows \[30\]"
    ):
        from_frame(frame, "price")
    numbers = from_frame(frame[frame["width"] != "wide"], "price")
    assert numbers.feature_names == ("width", "width is missing")


def codes(num_rows: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "region": random.choice(["007", "040", "112"], num_rows),
            "row": [f"{i:05d}" for i in range(num_rows)],
            "reading": [f"{i:05d}" for i in random.integers(0, 9999, num_rows)],
            "y": random.normal(size=num_rows),
        }
    )
    return frame


def test_codes_keep_their_zeros_and_are_categories_where_they_repeat(tmp_path):
    table = from_frame(read_frame(write(tmp_path, codes().to_csv(index=False))), "y")
    assert table.feature_names == ("region=007", "region=040", "region=112", "reading")
    in_python = from_frame(codes(), "y")
    assert in_python.feature_names == table.feature_names
    np.testing.assert_array_equal(in_python.x, table.x)


def test_a_code_that_lost_its_zeros_is_still_the_code(tmp_path):
    table = from_frame(codes(), "y")
    new = codes().assign(region=codes()["region"].astype(int))
    np.testing.assert_array_equal(table.encode(new).x, table.x)
    assert not table.encode(new).num_unseen.any()
    from_numbers = from_frame(new.assign(region=new["region"].astype("category")), "y")
    assert "region=7" in from_numbers.feature_names
    np.testing.assert_array_equal(from_numbers.encode(codes()).x, from_numbers.x)
    strange = table.encode(codes().assign(region="008"))
    assert strange.num_unseen.all()


def test_codes_of_classes_are_classes(tmp_path):
    table = from_frame(codes(), "region")
    assert table.kind == "classes" and table.class_names == ("007", "040", "112")


def test_cells_are_written_as_they_were_read(tmp_path):
    path = write(tmp_path, "when,zip,big,x\n05.01.2021,01067,9007199254740993,6\n,10115,,7.123456789\n")
    frame = read_frame(path)
    assert as_written(frame, path).to_csv(index=False) == path.read_text()
    assert frame["zip"].tolist() == ["01067", "10115"]
    path = write(tmp_path, "a;b\n1,5;2\n")
    assert as_written(read_frame(path), path)["a"].tolist() == [1.5]


@pytest.mark.parametrize(
    ("texts", "spelling", "first"),
    [
        (["{:,.2f} €", "€ {:,.2f}", "EUR {:,.2f}"], "1,234.5", 179_924.5),
        (["{:,} €", "CHF {:,}"], "1 234,5", 179_924.0),
    ],
)
def test_amounts_are_read_in_the_spellings_of_many_countries(texts, spelling, first):
    amounts = np.array([179_924, 95_000, 1_250, 640, *np.random.default_rng(0).integers(1_000, 2_000_000, 60)])
    for text in texts:
        made = [text.format(amount + (first % 1)) for amount in amounts]
        for group in ["\u00a0", "\u202f", " ", "'"] if spelling == "1 234,5" else [","]:
            frame = pd.DataFrame({"a": [each.replace(",", group) for each in made], "y": made})
            table = from_frame(frame, "y")
            assert table.kind == "regression" and table.y[0] == first
            found = table.plan.columns[0]
            assert found.taken == "number" and found.spelling.startswith(spelling) and table.x[0, 0] == first


def test_points_between_thousands_are_none_of_a_decimal_where_commas_are(tmp_path):
    """Without one value of a million, 179.924 was read as 179.924."""
    rows = "".join(f"{i},5;{1000 + 37 * i:,}\n".replace(",", ".", 2).replace(".", ",", 1) for i in range(1, 40))
    frame = read_frame(write(tmp_path, "size;price\n" + rows))
    assert frame["price"][0] == "1.037"
    as_target, as_feature = from_frame(frame, "price"), from_frame(frame, "size")
    np.testing.assert_array_equal(as_target.y, 1000 + 37 * np.arange(1, 40))
    np.testing.assert_array_equal(as_feature.x[:, 0], as_target.y)
    assert as_feature.plan.columns[0].spelling == "1.234,5"
    again = as_written(frame, tmp_path / "table.csv")
    assert list(again["price"][:2]) == ["1037", "1074"] and again["size"][0] == 1.5  # 1.037 would be another
    assert with_points(["1.037", "900", None]) == ["1037", "900", None]  # what an export reads of such a file
    assert with_points(["0,5", "12"]) == ["0.5", "12"] and with_points(["1,5", "2.5"]) == ["1.5", "2.5"]


@pytest.mark.parametrize("units", [("{}k", "{}M"), ("{} kg", "{} g"), ("${}", "€{}"), ("{}%", "{}")])
def test_a_target_in_two_units_is_refused(units):
    """179.9k and 1.2M were 179.9 and 1.2."""
    values = [units[i % 3 == 0].format(100 + i) for i in range(60)]
    frame = pd.DataFrame({"a": np.arange(60) / 7, "y": values})
    with pytest.raises(DataError, match=r"'y' holds .* such values"):
        from_frame(frame, "y")
    with pytest.raises(DataError, match="mostly numbers but holds"):  # it was left out as a name of its row
        from_frame(frame, "a")
    frame.attrs["decimal"] = ","
    with pytest.raises(DataError, match="mostly numbers but holds"):
        from_frame(frame, "a")
