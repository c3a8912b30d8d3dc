"""What deploy/ says to SLURM and Kubernetes fits what Posteria reads, and each other."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from posteria.engine import distributed

DEPLOY = Path(__file__).parents[1] / "deploy"


def test_the_jobset_names_its_processes_as_posteria_reads_them():
    yaml = pytest.importorskip("yaml")
    said = yaml.safe_load((DEPLOY / "jobset.yaml").read_text())
    assert (said["apiVersion"], said["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (job,) = said["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    env = {part["name"]: part["value"] for part in container["env"]}
    assert spec["completionMode"] == "Indexed" and "JOB_COMPLETION_INDEX" in distributed.NUMBERED_BY
    assert spec["parallelism"] == spec["completions"] == int(env[distributed.NUM_PROCESSES])
    name = said["metadata"]["name"]
    host, _, port = env[distributed.COORDINATOR].partition(":")
    assert host == f"{name}-{job['name']}-0-0.{name}" and said["spec"]["network"]["enableDNSHostnames"]
    assert [port] == [str(each["containerPort"]) for each in container["ports"]]
    assert spec["backoffLimit"] == 0 and said["spec"]["failurePolicy"]["maxRestarts"] > 0
    mounted = {part["name"] for part in container["volumeMounts"]}
    assert mounted == {part["name"] for part in spec["template"]["spec"]["volumes"]}
    assert all(isinstance(part, str) for part in container["command"])
    check_command(container["command"])


def test_the_slurm_script_is_a_script_that_posteria_understands():
    script = DEPLOY / "posteria.slurm"
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    text = script.read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if line.startswith("srun")]
    words = shlex.split(line.partition("||")[0])
    check_command(words[words.index("posteria") :])


def check_command(words: list[str]) -> None:
    """Its options are options of `posteria fit`."""
    import typer

    from posteria.cli import app

    options = {option for parameter in typer.main.get_command(app).commands["fit"].params for option in parameter.opts}
    assert words[:2] == ["posteria", "fit"] and "--distributed" in words
    assert {word for word in words if word.startswith("--")} <= options


def test_the_image_copies_what_exists_and_runs_a_command_that_posteria_understands():
    import typer

    from posteria.cli import app

    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in shlex.split(line)[1:-1]]
    assert len(copied) > 5 and all((DEPLOY.parent / name).exists() for name in copied if not name.startswith("$"))
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert command[:2] == ["posteria", "serve"]
    context = typer.main.get_command(app).commands["serve"].make_context("serve", command[2:])
    assert (context.params["host"], context.params["port"], str(context.params["folder"])) == (
        "0.0.0.0",
        8000,
        "/model",
    )


@pytest.mark.slow
def test_the_steps_of_the_image_in_a_fresh_environment(tmp_path):
    """What the Dockerfile copies, installs and runs, without Docker: then one prediction over HTTP, and the size."""
    import numpy as np

    import posteria as po

    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    x = np.random.default_rng(0).normal(size=(40, 2))
    estimator = po.Regressor(po.MAP(num_epochs=50), "mlp:4").fit(x, x[:, 0])
    estimator.posterior_.export(tmp_path / "model")
    app, python = tmp_path / "app", tmp_path / "fresh" / "bin" / "python"
    app.mkdir()
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    for line in (shlex.split(line) for line in lines if line.startswith("COPY") and "$" not in line):
        for name in line[1:-1]:
            source, aim = DEPLOY.parent / name, app / name
            if source.is_dir():
                shutil.copytree(source, aim, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, aim)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    (install,) = [line for line in lines if line.startswith("RUN pip install")]
    words = shlex.split(install.removeprefix("RUN ").partition("&&")[0])
    subprocess.run([str(python), "-m", *words], cwd=app, check=True)
    shutil.rmtree(app / "src")
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    command = [str(python.parent / command[0]), *command[1:]]
    command = [str(tmp_path / "model") if word == "/model" else word for word in command]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"POSTERIA_TOKEN": "a-token", "MPLCONFIGDIR": str(tmp_path)}
    with subprocess.Popen([*command, "--port", str(port)], env=environment, cwd=tmp_path) as server:
        try:
            told = _asked(port, {"rows": [{"x0": a, "x1": b} for a, b in x[:3].tolist()]})
        finally:
            server.terminate()
    np.testing.assert_allclose(told["mean"], estimator.predict(x[:3]), rtol=1e-5)
    size, model = _size(tmp_path / "fresh"), _size(tmp_path / "model")
    print(f"what the image adds to python:3.12-slim: {size / 1e6:.0f} MB, and the model {model / 1e6:.2f} MB")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _asked(port: int, body: dict) -> dict:
    """One answer, as soon as the server is up."""
    headers = {"Authorization": "Bearer a-token", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", json.dumps(body).encode(), headers)
    for _ in range(600):
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:  # it is up, and refuses
            raise
        except urllib.error.URLError:
            time.sleep(0.2)
    raise AssertionError("the server did not come up")
