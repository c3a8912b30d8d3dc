"""`posteria about`: what is installed, how large it is, and what each requirement is for."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from posteria import __version__
from posteria.cli.app import Json, app
from posteria.cli.printing import print_json, print_table

# A test holds these names equal to the dependencies in pyproject.toml.
PURPOSES = {
    "blackjax": "the steps and the adaptation of HMC, NUTS and MCLMC; SMC, SVGD",
    "flatbuffers": "copied into exported folders: JAX needs it to read compiled code",
    "flax": "NNX and Linen networks",
    "jax": "arrays, gradients, compiled code",
    "jinja2": "the report's page",
    "matfree": "Lanczos, for the largest directions of a curvature",
    "matplotlib": "the report's pictures",
    "ml-dtypes": "bfloat16 in stored arrays",
    "narwhals": "frames of polars, pyarrow and others",
    "numpy": "arrays on the host",
    "optax": "optimisers",
    "pandas": "tables: CSV files, categories, missing values",
    "rich": "tables and progress in the terminal",
    "scikit-learn": "what estimators follow; bundled data; the baselines of a comparison",
    "scipy": "distributions and factorisations on the host",
    "tensorstore": "draws and checkpoints on disk",
    "threadpoolctl": "one core for a baseline, as for a method",
    "typer": "the command line",
}
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(\[(?P<extras>[^]]*)])?[^;]*(;.*extra\s*==\s*['\"](?P<of>[\w.-]+))?")


class Package(NamedTuple):
    name: str
    version: str
    bytes: int
    purpose: str


@app.command()
def about(as_json: Json = False) -> None:
    """Show what is installed for Posteria: the version, size and purpose of each package."""
    from importlib import metadata

    packages = [Package("posteria", __version__, _size(Path(__file__).parents[1].rglob("*")), "this")]
    for name, asking in sorted(required().items(), key=lambda item: (item[0] not in PURPOSES, item[0])):
        files = (Path(str(file.locate())) for file in metadata.files(name) or ())
        purpose = PURPOSES.get(name) or f"needed by {', '.join(sorted(asking))}"
        packages.append(Package(name, metadata.version(name), _size(files), purpose))
    total = sum(package.bytes for package in packages)
    if as_json:
        listed = [package._asdict() for package in packages]
        print_json({"version": __version__, "bytes": total, "packages": listed})
        return
    rows = [(each.name, each.version, f"{each.bytes / 1e6:.1f}", each.purpose) for each in packages]
    print_table(("package", "version", "MB", "for"), [*rows, ("together", "", f"{total / 1e6:.1f}", "without extras")])


def required() -> dict[str, set[str]]:
    """The installed packages that Posteria requires, directly or not, each with those that ask for it."""
    from importlib import metadata

    found = {name: {"posteria"} for name in PURPOSES}
    waiting = [(name, frozenset[str]()) for name in PURPOSES]
    seen = set(waiting)
    while waiting:
        asking, extras = waiting.pop()
        for line in metadata.requires(asking) or ():
            requirement = REQUIREMENT.match(line)
            assert requirement is not None, line
            name = re.sub(r"[-_.]+", "-", requirement["name"]).lower()
            if requirement["of"] not in {None, *extras} or not _is_installed(name):
                continue
            if name != asking:  # its own extra, which asks for others
                found.setdefault(name, set()).add(asking)
            wanted = (name, frozenset(re.findall(r"[\w.-]+", requirement["extras"] or "")))
            if wanted not in seen:
                seen.add(wanted)
                waiting.append(wanted)
    return found


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:  # for another system or another Python
        return False
    return True
