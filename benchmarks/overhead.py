"""What comfort costs: progress and checkpoints in a fit, `posteria --help`, `import posteria` after `import jax`."""

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

from measure import at_most, interleaved, print_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=600, help="of each of four chains; 600 take about 20 s")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    time_commands()
    time_fits(arguments.draws, arguments.repeats)


def time_commands() -> None:
    program = str(Path(sys.executable).with_name("posteria"))
    every_name = "import jax, posteria; [getattr(posteria, name) for name in posteria.__all__]"
    seconds = interleaved(
        {
            "posteria --help": _process(program, "--help"),
            "import jax": _process(sys.executable, "-c", "import jax"),
            "import posteria": _process(sys.executable, "-c", "import jax, posteria"),
            "every name": _process(sys.executable, "-c", every_name),
        },
        repeats=7,
    )
    help_time, jax_time = seconds["posteria --help"], seconds["import jax"]
    added, all_added = seconds["import posteria"] - jax_time, seconds["every name"] - jax_time
    rows = [
        ["posteria --help", help_time, 0.5, at_most(help_time, 0.5)],
        ["import jax", jax_time, "", ""],
        ["import posteria, added", added, 0.3, at_most(added, 0.3)],
        ["and every public name used, added", all_added, "", ""],
    ]
    print_table("Start-up", ["", "seconds", "target <=", "verdict"], rows)


def time_fits(num_draws: int, repeats: int) -> None:
    import boston

    import posteria as po

    data = boston.data()
    model = po.Model(po.nn.mlp((boston.NUM_HIDDEN,), outputs=1))
    method = po.HMC(num_draws=num_draws, num_warmup=0, step_size=1e-3, num_leapfrog=200, jitter=0.0)

    def quiet() -> None:
        po.fit(model, data, method, key=0, progress=False)

    def comfortable() -> None:
        with tempfile.TemporaryDirectory() as folder, terminal():
            po.fit(model, data, method, key=0, out=Path(folder) / "run", progress=True)

    seconds = interleaved({"quiet": quiet, "comfortable": comfortable}, repeats)
    ratio = seconds["comfortable"] / seconds["quiet"]
    rows = [
        ["out=None, progress=False", seconds["quiet"], 1.0, "", ""],
        ["out=folder, progress=True", seconds["comfortable"], ratio, 1.03, at_most(ratio, 1.03)],
    ]
    title = f"Progress and checkpoints: HMC, four chains of {num_draws} draws, bars on a pseudo-terminal"
    print_table(title, ["", "seconds", "ratio", "target <=", "verdict"], rows)


def _process(*command: str):
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def terminal():
    """stderr as a terminal that nobody looks at, so that progress draws its bars."""
    master, slave = pty.openpty()
    drain = threading.Thread(target=_drain, args=(master,), daemon=True)
    drain.start()
    real, sys.stderr = sys.stderr, os.fdopen(slave, "w")
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = real
        drain.join()
        os.close(master)


def _drain(master: int) -> None:
    try:
        while os.read(master, 4096):
            pass
    except OSError:  # the other end is closed
        pass


if __name__ == "__main__":
    main()
