"""The site: every public name is in the generated reference, and pages lead to pages that exist."""

import importlib.util
import re
from pathlib import Path

import pytest

import posteria as po

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages as Sphinx sees them, the generated ones among them."""
    folder = tmp_path_factory.mktemp("site")
    for page in [*DOCS.rglob("*.md"), *DOCS.rglob("*.txt"), *DOCS.glob("*.png")]:
        part = page.relative_to(DOCS)
        if part.parts[0] not in ("reference", "_site", "jupyter_execute"):
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).write_bytes(page.read_bytes())
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    generate.write(folder)
    return folder


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
