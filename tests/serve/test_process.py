"""A real server: its token, its limits, and its end under load."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from serve.tables import rows_of, save_fit  # noqa: E402

pytestmark = pytest.mark.slow
NUM_CLIENTS, LOAD_SECONDS = 50, 10
NUM_BEFORE = 8  # requests before the load: one to see that it is up, and those of the test


@pytest.fixture
def server(tmp_path):
    save_fit(tmp_path / "fit")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from posteria.cli import main; main()"]
    words = [*command, "serve", str(tmp_path / "fit"), "--port", str(port), "--rows", "64", "--megabytes", "0.05"]
    process = subprocess.Popen([*words, "--seconds", "20"], stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("ready"):
            break
    token = re.search(r"once: (\S+)", "".join(lines))[1]
    url = f"http://127.0.0.1:{port}"
    for _ in range(100):
        try:
            httpx.get(f"{url}/health")
            break
        except httpx.ConnectError:
            time.sleep(0.05)
    yield process, url, token
    if process.poll() is None:
        process.kill()
    process.wait()


def memory(process) -> int:
    """Resident, in kB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1])


def test_many_clients_a_stranger_and_the_end(server):
    process, url, token = server
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.post(f"{url}/predict", json={"rows": rows_of(1)}).status_code == 401
    assert httpx.get(f"{url}/schema", headers={"Authorization": "Bearer x"}).status_code == 401
    for body in (b"{", b"[" * 40_000, b"\xff" * 100):
        assert httpx.post(f"{url}/predict", content=body, headers=bearer).status_code == 422
    assert httpx.post(f"{url}/predict", content=b" " * 100_000, headers=bearer).status_code == 413
    assert "posteria_requests_total" in httpx.get(f"{url}/metrics", headers=bearer).text
    seconds, wrong, refused, answered, is_over = [], [], [], [], threading.Event()

    def client(number: int) -> None:
        a_connection_each = httpx.Limits(max_keepalive_connections=0)  # refused is then: before it was accepted
        with httpx.Client(limits=a_connection_each, headers=bearer, timeout=60) as own:
            while not is_over.is_set():
                began = time.perf_counter()
                try:
                    answer = own.post(f"{url}/predict", json={"rows": rows_of(1 + number)})
                except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError) as error:
                    refused.append(error)
                    return
                seconds.append(time.perf_counter() - began)
                (answered if answer.status_code == 200 else wrong).append(answer.status_code)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(LOAD_SECONDS / 2)
    middle = memory(process)
    time.sleep(LOAD_SECONDS / 2)
    assert not refused and not wrong
    end = memory(process)
    process.send_signal(signal.SIGTERM)
    said = process.stderr.read()
    process.wait(60)
    is_over.set()
    for thread in threads:
        thread.join(60)
    begun, done = map(int, re.search(r"ended: (\d+) requests begun, (\d+) answered", said).groups())
    print(f"{len(answered)} answers, median {sorted(seconds)[len(seconds) // 2]:.3f} s, ", end="")
    print(f"p99 {sorted(seconds)[int(0.99 * len(seconds))]:.3f} s, memory {middle} to {end} kB")
    assert not wrong
    assert begun == done == len(answered) + NUM_BEFORE  # every request that was begun reached its client
    assert end < 1.1 * middle
