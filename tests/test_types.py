"""Types are checked strictly, and most strictly where users look; what has no type of JAX's has a name."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import posteria as po

MYPY = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["tool"]["mypy"]
HOMES = sorted({home.partition(":")[0] for home in po._HOMES.values()})


def test_everything_is_checked_strictly():
    assert MYPY["strict"] is True
    assert not any(override.get("ignore_errors") for override in MYPY["overrides"])


@pytest.mark.parametrize("home", HOMES)
def test_the_public_surface_returns_what_it_says(home):
    surface = next(override["module"] for override in MYPY["overrides"] if override.get("warn_return_any"))
    assert any(fnmatch(home, pattern.removesuffix(".*") + "*") for pattern in surface), f"{home} is not in mypy's list"


def test_the_types_ship():
    assert (Path(po.__file__).parent / "py.typed").is_file()
