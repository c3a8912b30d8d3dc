"""What a person sees while a fit runs: a bar with rate, time left, acceptance and log density."""

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress

QUIET_SECONDS = 2.0  # nothing is shown for fits shorter than this
PLAIN_SECONDS = 30.0  # between lines where there is no terminal


class Progress:
    """One bar a stage on a terminal; a line now and then elsewhere. `enabled=False` shows nothing."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._started = time.monotonic()
        self._last_line = self._started
        self._bars: rich.progress.Progress | None = None
        self._tasks: dict[str, rich.progress.TaskID] = {}

    def update(self, stage: str, done: int, total: int, status: str) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._started < QUIET_SECONDS:
            return
        if sys.stderr.isatty():
            self._bar(stage, done, total, status)
        elif now - self._last_line > PLAIN_SECONDS:
            self._last_line = now
            print(f"{stage}: {done:,} of {total:,}  {status}", file=sys.stderr, flush=True)

    def _bar(self, stage: str, done: int, total: int, status: str) -> None:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
            self._bars = Bars(*columns, TextColumn("{task.fields[status]}"), console=Console(stderr=True))
            self._bars.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, status="")
        self._bars.update(self._tasks[stage], completed=done, status=status)

    def say(self, message: str) -> None:
        if self._enabled:
            print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
