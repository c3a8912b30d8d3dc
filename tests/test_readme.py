"""What the README and the docs show runs as it stands."""

import re
import tomllib
from pathlib import Path

import pytest

from posteria.posteriors import store

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/concepts.md"]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(page)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / page).parent / link).exists(), link


def test_every_make_target_named_in_the_readme_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert set(re.findall(r"`?make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8"))) <= targets


def test_the_readme_names_the_store_schemas_that_load():
    assert store.READABLE_SCHEMAS == (1, 2), "say in the README which schema versions load"
    assert "(schema 2; schema 1 loads" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_licence_is_the_one_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
