"""From a new process to its first prediction: `python benchmarks/first_prediction.py`, on a quiet machine.

A simulated table, `po.Regressor(quality=...).fit(x, y)` and a prediction of ten rows, in a process of its own: once
with an empty folder of compiled code, as on a machine that never ran Posteria, then three times with what that left.
Seconds are by the clock, from before Python starts to after the prediction. Python's own bytecode is there each time,
as an installer leaves it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from measure import at_most, print_table

CASES = (  # rows, columns, preset, seconds wanted the first time and afterwards
    (750, 10, "fast", 6.0, 3.0),
    (10_000, 20, "fast", 15.0, None),
    (10_000, 20, "balanced", 60.0, None),
)
AGAIN = 3


def one_process(started: float, num_rows: int, num_columns: int, quality: str) -> None:
    began = time.time()
    import numpy as np

    import posteria as po

    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, num_columns))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=num_rows)
    model = po.Regressor(quality=quality)
    imported = time.time()
    model.fit(x, y)
    fitted = time.time()
    model.predict(x[:10], return_std=True)
    predicted = time.time()
    parts = {"all": predicted - started, "Python": began - started, "importing": imported - began}
    print(json.dumps(parts | {"fitting": fitted - imported, "predicting": predicted - fitted}))


def timed(cache: str, case: tuple) -> dict[str, float]:
    command = [sys.executable, __file__, str(time.time()), *map(str, case)]
    environment = own_bytecode() | {"XDG_CACHE_HOME": cache}
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


def own_bytecode() -> dict[str, str]:
    """The environment, without a wish to compile all of Python's code anew in each process."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        timed(cache, (40, 3, "fast"))  # writes bytecode
    for *case, first, afterwards in CASES:
        with tempfile.TemporaryDirectory() as cache:
            runs = [timed(cache, tuple(case)) for _ in range(1 + (AGAIN if afterwards else 0))]
        name = f"{case[0]:,} x {case[1]}, {case[2]}"
        rows.append(_row(f"{name}, first", runs[:1], first))
        if afterwards:
            rows.append(_row(f"{name}, afterwards", runs[1:], afterwards))
    columns = ["", "s", "Python", "importing", "fitting", "predicting", "wanted", "verdict"]
    print_table("From a new process to its first prediction", columns, rows)


def _row(name: str, runs: list[dict[str, float]], wanted: float) -> list[object]:
    middle = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
    return [name, *(round(value, 2) for value in middle.values()), wanted, at_most(middle["all"], wanted)]


if __name__ == "__main__":
    one_process(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]) if sys.argv[1:] else main()
