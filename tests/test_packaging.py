"""What the package says of itself is true: its version, its requirements and what they are for."""

import ast
import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import typer
from packaging.requirements import Requirement
from typer.testing import CliRunner

import posteria
from posteria.cli import app
from posteria.cli.about import PURPOSES

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {
    "jinja2": "jinja2",
    "sklearn": "scikit-learn",
    "ml_dtypes": "ml-dtypes",
    "arviz_base": "arviz-base",
    "tensorboardX": "tensorboardx",
    "PIL": "pillow",
    "mlflow": "mlflow-skinny",
}


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def names(requirements: list[str]) -> set[str]:
    return {canonical(Requirement(line).name) for line in requirements}


def extras(*wanted: str) -> list[str]:
    return [line for name in wanted for line in PROJECT["optional-dependencies"][name]]


def imported(source: str) -> set[str]:
    """Top-level names of what a module imports, also inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    return found


def test_what_is_imported_is_required_and_what_is_required_is_imported():
    modules = set().union(*(imported(path.read_text()) for path in Path(posteria.__file__).parent.rglob("*.py")))
    # `predict` is an exported folder's own; IPython is there where a notebook is
    modules -= {*sys.stdlib_module_names, "posteria", "predict", "IPython"}
    wanted = ("arviz", "baselines", "equinox", "images", "mlflow", "remote", "serve", "tensorboard", "testing", "torch")
    brought = extras(*wanted)
    required = names(PROJECT["dependencies"] + brought) | {"pyarrow"}  # of the extra "tables"
    assert {DISTRIBUTIONS.get(name, name) for name in modules} == required


def test_every_requirement_has_a_purpose():
    assert set(PURPOSES) == names(PROJECT["dependencies"])


def test_about_adds_up_what_is_on_disk():
    answer = CliRunner().invoke(app, ["about", "--json"])
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)
    packages = {package["name"]: package for package in said["packages"]}
    assert said["bytes"] == sum(package["bytes"] for package in packages.values())
    assert set(PURPOSES) < set(packages)
    sources = sum(file.stat().st_size for file in Path(typer.__file__).parent.rglob("*.py"))
    assert sources <= packages["typer"]["bytes"] < 20 * sources
    assert packages["jaxlib"]["version"] == metadata.version("jaxlib")
    assert all(package["bytes"] > 0 and package["purpose"] for package in packages.values())
    assert "pytest" not in packages  # an extra brings it


def test_about_is_a_table_for_people():
    lines = CliRunner().invoke(app, ["about"]).output.splitlines()
    assert lines[0].split() == ["package", "version", "MB", "for"]
    assert lines[1].split()[:2] == ["posteria", posteria.__version__]
    assert lines[-1].startswith("together")


def test_the_version_is_written_once():
    assert PROJECT["dynamic"] == ["version"]
    assert f"## {posteria.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_pin_every_requirement_within_its_range():
    lines = (ROOT / "constraints.txt").read_text().split()
    pins = {canonical(name): pin for name, _, pin in (line.partition("==") for line in lines)}
    for line in PROJECT["dependencies"] + extras("arviz", "equinox", "testing", "dev"):
        requirement = Requirement(line)
        if requirement.name != "posteria":  # its own extras
            assert requirement.specifier.contains(pins[canonical(requirement.name)]), line


def test_the_dear_tests_are_tests():
    """A name in `dear.txt` that is none any more would silently hold nothing back."""
    laws = "".join(path.read_text() for path in (ROOT / "src" / "posteria" / "testing").glob("*.py"))
    for line in (ROOT / "tests" / "dear.txt").read_text().splitlines()[1:]:
        file, *_, name = line.split("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text() + laws, line
