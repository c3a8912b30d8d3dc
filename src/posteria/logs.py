"""Where a fit's curves may go while it runs: `po.fit(..., on_log=po.logs.CSV("curves.csv"))`.

Each is a function of an entry, a dictionary with "stage", "epoch" (of a sampler: "draw"), "seconds", and numbers.
"""

import csv
import time
from pathlib import Path
from typing import Any

from posteria.errors import SettingError

PLACES = ("stage", "epoch", "draw", "seconds")  # of an entry; all else are numbers by name
HEADER = ("stage", "step", "seconds", "name", "value")


class CSV:
    """A line for each number: stage, step (epoch or draw), seconds, name, value. A file that exists is gone on with."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __call__(self, entry: dict[str, Any]) -> None:
        is_new = not self._path.exists() or self._path.stat().st_size == 0
        with open(self._path, "a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(HEADER)
            for name, value in numbers_of(entry).items():
                writer.writerow([entry["stage"], step_of(entry), f"{entry['seconds']:.3f}", name, repr(value)])


class TensorBoard:
    """Event files that TensorBoard reads; needs `pip install posteria[tensorboard]`, not TensorFlow."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboardX.event_file_writer import EventsWriter
        except ImportError as error:
            raise SettingError(
                "tensorboardX is not installed", "it, to write event files", "pip install posteria[tensorboard]"
            ) from error
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(Path(folder) / "events"))  # not its SummaryWriter, whose thread lags behind

    def __call__(self, entry: dict[str, Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        for name, value in numbers_of(entry).items():
            summary = scalar(f"{entry['stage']}/{name}", value)
            self._writer.write_event(Event(step=step_of(entry), wall_time=time.time(), summary=summary))
        self._writer.flush()


def numbers_of(entry: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in entry.items() if name not in PLACES}


def step_of(entry: dict[str, Any]) -> int:
    return int(entry.get("epoch", entry.get("draw", 0)))
