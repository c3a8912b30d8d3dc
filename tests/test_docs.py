"""The site: every public name is in the generated reference, and pages lead to pages that exist."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import posteria as po

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages as Sphinx sees them, the generated ones among them."""
    folder = tmp_path_factory.mktemp("site")
    for page in (path for kind in ("md", "txt", "png", "svg") for path in DOCS.rglob(f"*.{kind}")):
        part = page.relative_to(DOCS)
        if part.parts[0] not in ("reference", "_site", "jupyter_execute"):
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).write_bytes(page.read_bytes())
    of_docs("generate").write(folder)
    return folder


def of_docs(name: str):
    """A module of the folder docs."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DOCS))


def test_every_public_name_is_in_the_reference(site):
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.md"))
    modules = [name for name in po.__all__ if (site / "reference" / f"{name}.md").is_file()]
    missing = [name for name in po.__all__ if f"## {name}\n" not in pages and name not in (*modules, "methods")]
    assert not missing


def test_links_between_pages_lead_somewhere(site):
    for page in site.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            target = page.parent / link
            assert target.exists() or target.with_name(target.name + ".md").exists(), f"{page.name}: {link}"


def test_pages_in_the_table_of_contents_exist(site):
    for page in (site / "index.md", site / "reference" / "index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
            for name in (line for line in block.splitlines() if line and not line.startswith(":")):
                assert (page.parent / f"{name}.md").is_file(), name


def test_every_public_name_has_an_example():
    """A name without one: write a line or two into docs/examples.py."""
    names, examples = set(of_docs("generate").every_name()), set(of_docs("examples").EXAMPLES)
    assert names - examples == set(), "without an example in docs/examples.py"
    assert examples - names == set(), "examples of names that are not public"


def test_an_example_that_fails_is_named(monkeypatch):
    executed = of_docs("executed")
    monkeypatch.setitem(executed.EXAMPLES, "posteria.clear", "1 / 0")
    with pytest.raises(executed.Failed, match=r"posteria\.clear"):
        executed._said("posteria.clear", {})
    monkeypatch.setitem(executed.EXAMPLES, "posteria.clear", "print('a')\n2 + 2")
    assert executed._said("posteria.clear", {}) == "a\n4"


@pytest.mark.slow
def test_every_example_runs():
    """`make docs` runs them too, and shows what they say."""
    said = of_docs("executed").run_all()
    needed = of_docs("examples").NEEDS
    assert {name for name, words in said.items() if words is None} <= set(needed)


def test_the_tables_of_the_five_questions_are_those_that_the_studies_printed():
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    page = (DOCS / "five-questions.md").read_text(encoding="utf-8")
    assert len(tables.BLOCK.findall(page)) >= 10
    assert tables.filled(page, DOCS / "results") == page, "run python docs/tables.py"
    for question in range(1, 6):
        assert f"## {question}. " in page
