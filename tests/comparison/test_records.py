"""A row's record stands for one run: the one that was graded."""

import shutil

import pytest

import posteria as po
from comparison import small
from posteria.errors import StoreError


@pytest.fixture
def folder(tmp_path):
    compare(tmp_path / "out")
    return tmp_path / "out"


def compare(folder):
    return small.compare(folder, methods={"map": po.MAP(num_epochs=20)}, reference=None, baselines=False)


def test_another_whole_run_in_the_place_of_the_graded_one_is_refused(folder):
    runs = folder / "runs" / "data"
    compare(folder)  # the folder as it was written is taken
    shutil.rmtree(runs / "map-0")
    compare(folder)  # what is removed is missed by no score
    shutil.copytree(runs / "map-1", runs / "map-0")
    po.load(runs / "map-0")  # by itself there is nothing wrong with it
    with pytest.raises(StoreError, match="map-0 holds another run than the one that was graded"):
        compare(folder)


def test_a_run_of_other_rows_is_not_graded_where_there_is_no_record(folder):
    runs = folder / "runs" / "data"
    shutil.rmtree(runs / "map-0")
    shutil.copytree(runs / "map-1", runs / "map-0")
    (folder / "rows" / "data" / "map-0.json").unlink()
    with pytest.raises(StoreError, match="the data are not those of the run"):
        compare(folder)
