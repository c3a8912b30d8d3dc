"""Starts and stops the processes of a job on this machine, over loopback."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
MOST_SECONDS = 600


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def python_path() -> str:
    return os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))


def start(num: int, command: list[str], logs: Path) -> list[subprocess.Popen]:
    """`num` processes of one command; what each says goes to logs/0.txt, ..."""
    logs.mkdir(parents=True, exist_ok=True)
    about = {"POSTERIA_COORDINATOR": f"127.0.0.1:{free_port()}", "POSTERIA_NUM_PROCESSES": str(num)}
    env = os.environ | about | {"PYTHONPATH": python_path(), "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    processes = []
    for i in range(num):
        with (logs / f"{i}.txt").open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, *command], env=env | {"POSTERIA_PROCESS_ID": str(i)}, stdout=log, stderr=log
                )
            )
    return processes


def ended(processes: list[subprocess.Popen]) -> list[int]:
    """Their exit codes, when all have ended; what has not by then is stopped."""
    deadline = time.monotonic() + MOST_SECONDS
    try:
        return [process.wait(max(0.1, deadline - time.monotonic())) for process in processes]
    finally:
        stop(processes)


def stop(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()


def watched(process: subprocess.Popen) -> int | None:
    """The id of the process that does the work, under its watcher."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else None
