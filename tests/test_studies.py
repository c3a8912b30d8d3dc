"""Studies load, and what is in docs/results says which command printed it; the slow test runs each at small scale."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = sorted(file.stem for file in (ROOT / "studies").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_study_loads_and_its_result_names_the_command(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "studies")
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / "studies" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.main)
    source = Path(module.__file__).read_text()
    assert ("seed=False" in source) != (".seed" in source), "a seed that is asked for is used"
    assert f"make study NAME={name} SCALE=full" in " ".join(module.__doc__.split())
    result = (ROOT / "docs" / "results" / f"{name}.txt").read_text()
    assert result.startswith((f"$ python studies/{name}.py", f"$ make study NAME={name} "))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_study_runs_at_small_scale(name, tmp_path):
    if name == "bayesian-fine-tuning":
        pytest.importorskip("gguf", reason="a language model in an environment of its own")
    command = [sys.executable, ROOT / "studies" / f"{name}.py", "--out", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"$ python studies/{name}.py")
