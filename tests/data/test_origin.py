"""A file or a data set by what the user typed."""

import numpy as np
import pandas as pd
import pytest

from posteria.data.origin import read_more, read_origin
from posteria.errors import DataError, SettingError


def test_a_csv_is_prepared_by_its_training_rows_alone(tmp_path):
    frame = pd.DataFrame({"a b, c": np.arange(10.0), "kind": list("uvuvuvuvwu"), "y": np.arange(10.0) * 3 + 0.5})
    frame.to_csv(tmp_path / "t.csv", index=False)
    source = read_origin(str(tmp_path / "t.csv"), target="y")
    assert (source.kind, source.num_rows) == ("regression", 10)
    preparation, (x, y) = source.prepare(np.arange(5))
    np.testing.assert_allclose(preparation.x.mean, [2.0, 0.6, 0.4])
    other_x, other_y = source.part(preparation, [5, 6])
    np.testing.assert_allclose(
        other_y, (frame["y"][5:7] - frame["y"][:5].mean()) / frame["y"][:5].std(ddof=0), rtol=1e-6
    )
    assert x.shape == (5, 3) and other_x.shape == (2, 3) and y.dtype == np.float32


def test_an_npz_of_labels_and_a_named_set(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.ones((4, 2)), y=np.array([3, 5, 3, 5]))
    source = read_origin(str(tmp_path / "t.npz"))
    assert (source.kind, source.class_names) == ("classes", ("3", "5"))
    np.testing.assert_array_equal(source.y, [0, 1, 0, 1])
    digits = read_origin("digits")
    assert digits.kind == "classes" and digits.prepare(np.arange(20))[1][1].shape == (20,)


def test_what_cannot_be_read_says_so(tmp_path):
    with pytest.raises(DataError, match="no file"):
        read_origin(str(tmp_path / "none.csv"), target="y")
    with pytest.raises(DataError, match="no file"):
        read_origin(str(tmp_path / "none.npz"))
    with pytest.raises(DataError, match="no data set"):
        read_origin("digitz")
    with pytest.raises(SettingError, match="only for a table"):
        read_origin("digits", target="y")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(SettingError, match=r"\['a', 'b'\]"):
        read_origin(str(tmp_path / "t.csv"))
    (tmp_path / "t.docx").write_text("")
    with pytest.raises(DataError, match=r"ends in '\.docx'"):
        read_origin(str(tmp_path / "t.docx"))


def test_further_rows_may_be_few_and_of_one_value(tmp_path):
    frame = pd.DataFrame({"a": np.arange(6.0), "id": np.arange(6) * 1.5, "kind": list("uvuvuv")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame[2:3].to_csv(tmp_path / "one.csv", index=False)
    source = read_origin(str(tmp_path / "t.csv"), "kind", ignore=["id"])
    assert list(source.frame.columns) == ["a", "kind"]
    assert read_more(str(tmp_path / "one.csv"), source).num_rows == 1
    with pytest.raises(DataError, match=r"lack the columns \['a'\]"):
        read_more(frame[["kind"]], source)
    with pytest.raises(SettingError, match="number"):
        read_origin(str(tmp_path / "t.csv"), "kind", ignore=["number"])
    np.savez(tmp_path / "t.npz", x=np.ones((4, 2)), y=np.array([3, 5, 3, 5]))
    np.savez(tmp_path / "one.npz", x=np.ones((1, 2)), y=np.array([5]))
    np.savez(tmp_path / "new.npz", x=np.ones((1, 2)), y=np.array([7]))
    source = read_origin(str(tmp_path / "t.npz"))
    np.testing.assert_array_equal(read_more(tmp_path / "one.npz", source).y, [1])  # not 0, the only one there
    with pytest.raises(DataError, match="'7'"):
        read_more(tmp_path / "new.npz", source)
