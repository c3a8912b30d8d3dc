"""A server under load: `python benchmarks/serve.py load | cases` (the second needs schemathesis and pyarrow).

load   50 clients, each sending its next request when the last is answered, from a process of their own: errors,
       latencies, the server's memory; then SIGTERM in the midst of it, and requests begun beside requests answered.
       Before: predictions beside the posterior's own, and what has no token or another.
cases  requests that schemathesis makes from /openapi.json: those that the schema allows, then those it forbids.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from measure import at_least, at_most

import posteria as po

NUM_CLIENTS = 50
START = "from posteria.cli import main; main()"
COLUMNS = ["size", "colour"]


def houses(num_rows: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    size, colour = random.normal(size=num_rows), random.choice(["red", "blue", "green"], num_rows)
    price = 100 + 20 * size + 10 * (colour == "red") + random.normal(size=num_rows)
    return pd.DataFrame({"size": size, "colour": colour, "price": price})


class Server:
    """`posteria serve` of a small fit, in a process of its own."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [sys.executable, "-c", START, "serve", folder]
        self.process = subprocess.Popen([*words, "--port", str(self.port)], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if line.startswith("ready"):
                break
        self.token = re.search(r"once: (\S+)", said)[1]  # type: ignore[index]
        self.lines: list[str] = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()  # type: ignore[arg-type]
        for _ in range(200):
            with contextlib.suppress(OSError):
                if self.ask("/health")[0] == 200:
                    break
            time.sleep(0.05)

    def ask(self, path: str, body: object = None, token: str | None = None) -> tuple[int, bytes]:
        headers = {
            "Authorization": f"Bearer {self.token if token is None else token}",
            "Content-Type": "application/json",
        }
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", content, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def memory(self) -> float:
        """Resident, in MB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1000  # type: ignore[index]

    def statuses(self) -> Counter[tuple[str, int]]:
        text = self.ask("/metrics")[1].decode()
        found = re.findall(r'posteria_requests_total\{path="([^"]*)",status="(\d+)"\} ([\d.]+)', text)
        return Counter({(path, int(status)): int(float(count)) for path, status, count in found})


@contextlib.contextmanager
def serving() -> Iterator[tuple[po.Regressor, Server]]:
    with tempfile.TemporaryDirectory() as folder:
        table = houses(80)
        estimator = po.Regressor(po.MAP(num_epochs=200), "mlp:4").fit(table[COLUMNS], table["price"])
        estimator.posterior_.save(f"{folder}/fit")
        server = Server(f"{folder}/fit")
        try:
            yield estimator, server
        finally:
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()


# ---- load


def start_clients(server: Server, seconds: float) -> "subprocess.Popen[str]":
    bodies = [json.dumps({"rows": houses(1 + i, i)[COLUMNS].to_dict("records")}) for i in range(NUM_CLIENTS)]
    words = [sys.executable, str(Path(__file__).with_name("serve_clients.py"))]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    asked = {"port": server.port, "token": server.token, "seconds": seconds, "bodies": bodies}
    assert started.stdin is not None and started.stdout is not None
    started.stdin.write(json.dumps(asked) + "\n")
    started.stdin.flush()
    assert started.stdout.readline() == "begun\n"
    return started


def load(seconds: float) -> None:
    with serving() as (estimator, server):
        frame = houses(40, 1)[COLUMNS]
        told = json.loads(server.ask("/predict", {"rows": frame.to_dict("records")})[1])
        mean, std = estimator.predict(frame, return_std=True)
        apart = max(np.max(np.abs(told["mean"] / mean - 1)), np.max(np.abs(told["std"] / std - 1)))
        print(
            f"predictions differ from the posterior's own by {apart:.1e} of themselves: {at_most(apart, 1e-6)} (1e-6)"
        )
        asked = [("/predict", {"rows": []}), ("/outcomes", {}), ("/schema", None), ("/watch", None), ("/metrics", None)]
        asked += [("/openapi.json", None), ("/docs", None), ("/nothing", None)]
        statuses = {server.ask(*one, token=token)[0] for one in asked for token in ("", "x", server.token + "x")}
        print(f"without the token, or with another: {sorted(statuses)}: {'met' if statuses == {401} else 'MISSED'}")

        before = server.statuses()
        started = start_clients(server, seconds)
        memories, ended = [], time.monotonic() + seconds
        while time.monotonic() < ended:
            time.sleep(1)
            memories.append(server.memory())
        seen = json.loads(started.communicate()[0])
        first = min(began for began, _, _ in seen)
        times = sorted(taken for began, taken, _ in seen if began > first + 2)  # the first two seconds warm up
        errors = Counter(status for _, _, status in seen if status != 200)
        median, p99 = statistics.median(times), times[int(0.99 * len(times))]
        print(f"{NUM_CLIENTS} clients of 1 to {NUM_CLIENTS} rows for {seconds:g} s, {len(seen):,} answers ", end="")
        print(f"({len(seen) / seconds:.0f} a second); errors {dict(errors)}: {'MISSED' if errors else 'met'} (none)")
        p90 = times[int(0.9 * len(times))]
        print(f"median {1000 * median:.0f} ms, p90 {1000 * p90:.0f} ms, p99 {1000 * p99:.0f} ms, ", end="")
        print(f"most {1000 * times[-1]:.0f} ms; p99 / median {p99 / median:.2f}: {at_most(p99 / median, 5)} (5)")
        third = len(memories) // 3
        early, late = max(memories[third : 2 * third]), max(memories[2 * third :])
        print(f"memory {early:.0f} MB in the second third, {late:.0f} in the last: {at_most(late / early, 1.02)} (2 %)")
        counted = sum(count for (path, status), count in (server.statuses() - before).items() if path == "/predict")
        assert counted == len(seen), (counted, len(seen))

        started = start_clients(server, 20)
        time.sleep(4)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        seen = json.loads(started.communicate()[0])
        time.sleep(0.2)
        begun, answered = map(int, re.search(r"ended: (\d+) requests begun, (\d+)", "".join(server.lines)).groups())  # type: ignore[union-attr]
        whole = sum(status == 200 for _, _, status in seen)
        print(f"SIGTERM under load: {begun:,} requests begun, {answered:,} answered; ", end="")
        print(f"{whole:,} whole answers in that load: {'met' if begun == answered else 'MISSED'} (none dropped)")


# ---- cases


def cases(number: int, seed: int) -> None:
    """By schemathesis, in a process of its own; every answer is counted by the server."""
    with serving() as (_, server), tempfile.TemporaryDirectory() as folder:
        hooks = Path(folder) / "bodies.py"
        hooks.write_text(BODIES)
        for mode, wanted in (("positive", number), ("negative", number // 2)):
            before, rounds, ended = server.statuses(), 0, 0
            while (sum((server.statuses() - before).values())) < wanted and rounds < 12:
                words = [
                    sys.executable,
                    "-m",
                    "schemathesis.cli",
                    "run",
                    f"http://127.0.0.1:{server.port}/openapi.json",
                ]
                words += [
                    "-H",
                    f"Authorization: Bearer {server.token}",
                    "--mode",
                    mode,
                    "--max-examples",
                    str(wanted // 2),
                ]
                words += [
                    "--phases",
                    "examples,fuzzing",
                    "--seed",
                    str(seed + rounds),
                    "--checks",
                    CHECKS,
                    "--no-color",
                ]
                environment = os.environ | {"SCHEMATHESIS_HOOKS": str(hooks)}
                done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=folder)
                ended |= done.returncode
                rounds += 1
                if done.returncode:
                    print(done.stdout[-3000:], done.stderr[-500:])
            found = server.statuses() - before
            by_status = Counter[int]()
            for (path, status), count in found.items():
                by_status[status] += count if path != "/metrics" else 0
            total = sum(by_status.values())
            ok = sum(count for status, count in by_status.items() if 200 <= status < 300)
            failed = sum(count for status, count in by_status.items() if status >= 500)
            print(f"{mode}: {total:,} cases in {rounds} rounds, by status {dict(sorted(by_status.items()))}")
            print(f"  5xx: {failed}: {at_most(failed, 0)} (none); answers that are not documented: ", end="")
            print("none: met" if not ended else "MISSED, above")
            if mode == "positive":
                print(f"  2xx: {ok / total:.0%}: {at_least(ok / total, 0.5)} (half)")
                print(f"  at least {wanted:,} cases: {at_least(total, wanted)}")


CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
BODIES = """
import io
import pyarrow as pa
import schemathesis
from hypothesis import strategies as st

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 4))
rows = st.lists(st.tuples(numbers, st.sampled_from(["red", "blue", "green", "mauve"])), min_size=1, max_size=20)
csv = rows.map(lambda rows: ("size,colour\\n" + "".join(f"{a},{b}\\n" for a, b in rows)).encode())


def stream(rows):
    sink = io.BytesIO()
    table = pa.table({"size": [a for a, _ in rows], "colour": [b for _, b in rows]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@st.composite
def broken(draw, whole):
    content = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)


arrow = rows.map(stream)
schemathesis.openapi.media_type("text/csv", st.one_of(csv, csv, csv, broken(csv)))
schemathesis.openapi.media_type("application/vnd.apache.arrow.stream", st.one_of(arrow, arrow, arrow, broken(arrow)))
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("load", "cases"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="of the cases")
    known = parser.parse_args()
    load(known.seconds) if known.what == "load" else cases(known.cases, known.seed)
