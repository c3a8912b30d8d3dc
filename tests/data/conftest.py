import os
from pathlib import Path

import pytest

NEIGHBOUR = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def real_data(monkeypatch):
    """The folder of real data files, where there is one."""
    folder = Path(os.environ.get("POSTERIA_DATA") or NEIGHBOUR)
    if not (folder / "uci").is_dir():
        pytest.skip("no folder of data files: set POSTERIA_DATA")
    monkeypatch.setenv("POSTERIA_DATA", str(folder))
    return folder


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """An empty data folder of the test's own."""
    monkeypatch.setenv("POSTERIA_DATA", str(tmp_path))
    return tmp_path
