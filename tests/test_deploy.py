"""What deploy/ says to SLURM and Kubernetes fits what Posteria reads, and each other."""

import json
import shlex
import subprocess
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
