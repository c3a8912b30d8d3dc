"""The examples of CONTRIBUTING.md keep the laws, and its tables name every hook that the package looks for."""

import ast
import re
from pathlib import Path

import posteria

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

for block in re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S):
    exec(compile(block, "CONTRIBUTING.md", "exec"))  # its law classes are collected as this module's

# where contributors' things are asked what they have
ROOMS = (
    "models/",
    "curvature/",
    "posteriors/",
    "engine/",
    "methods/",
    "run_record.py",
    "runs.py",
    "evidence.py",
    "comparison/",
)
NO_HOOKS = {
    *(
        "fit",
        "draws",
        "epistemic",
        "mutual_information",
        "runs_on_host",
        "dtype",
        "ndim",
        "__dict__",
        "ps1",
        "read_rows",
        "kernel",  # of an IPython shell
        "_likelihood",  # of a prediction, by which a card knows classes
    ),
    # settings by which a fit knows that a method needs all rows at once
    *("tune", "structure", "variance_reduction"),
    # settings from which a comparison guesses a cost where a method does not say it
    *("num_warmup", "thinning", "num_replicas", "gradients_a_step", "num_epochs", "num_snapshots"),
    *("epochs_per_snapshot", "max_leapfrog", "max_doublings", "method"),
}


def names_asked_for(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 2
        if is_call and node.func.id in ("hasattr", "getattr") and isinstance(node.args[1], ast.Constant):
            found.add(node.args[1].value)
    return found


def test_every_hook_is_in_its_tables():
    source = Path(posteria.__file__).parent
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| "))
    listed = set(re.findall(r"`(\w+)", rows))
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if name.startswith(ROOMS) and "exported" not in name:
            missing = names_asked_for(path) - NO_HOOKS - listed
            assert not missing, f"{name} asks for {missing}, which no table of CONTRIBUTING.md names"


def test_every_optional_part_of_the_protocols_is_in_its_tables():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    for protocol in (posteria.likelihoods.Likelihood, posteria.priors.Prior):
        for name in re.findall(r"`(\w+)\(", protocol.__doc__):
            assert any(f"`{name}" in row for row in rows), name
