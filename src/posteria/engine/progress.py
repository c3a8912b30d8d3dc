"""What a person sees while a fit runs: a bar with rate, time left, acceptance and log density."""

import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from posteria.cards import Card

if TYPE_CHECKING:
    import rich.progress

QUIET_SECONDS = 2.0  # nothing is shown for fits shorter than this
PLAIN_SECONDS = 30.0  # between lines where there is no terminal
NOTEBOOK_SECONDS = 0.5  # between pictures of one bar in a notebook


class Progress:
    """One bar a stage on a terminal and in a notebook; a line now and then elsewhere. `enabled=False` shows nothing."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._started = time.monotonic()
        self._last_line = self._started
        self._bars: rich.progress.Progress | None = None
        self._tasks: dict[str, rich.progress.TaskID] = {}
        self._notebook: NotebookBars | None = None

    def update(self, stage: str, done: int, total: int, status: str) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._started < QUIET_SECONDS:
            return
        if sys.stderr.isatty():
            self._bar(stage, done, total, status)
        elif self._notebook is not None or in_notebook():
            self._notebook = self._notebook or NotebookBars()
            self._notebook.update(stage, done, total, status)
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
        if self._notebook is not None:
            self._notebook.show()


def in_notebook() -> bool:
    """Whether an IPython kernel runs this: a notebook, in whatever shows it. IPython's own terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


class _Bar(NamedTuple):
    began: float
    at_first: int
    done: int
    total: int
    status: str

    def words(self, now: float) -> str:
        steps, seconds = self.done - self.at_first, now - self.began
        is_known = steps > 0 and self.done < self.total and seconds > 0
        left = f", {(self.total - self.done) * seconds / steps:,.0f} s left" if is_known else ""
        filled = round(20 * self.done / max(self.total, 1))
        return f"{'█' * filled}{'░' * (20 - filled)} {self.done:,} of {self.total:,}{left}  {self.status}"


class NotebookBars:
    """All stages in one output of the cell, which is replaced as they go on: no lines pile up, no widgets needed."""

    def __init__(self) -> None:
        self._bars: dict[str, _Bar] = {}
        self._handle: Any = None
        self._last = 0.0

    def update(self, stage: str, done: int, total: int, status: str) -> None:
        now = time.monotonic()
        before = self._bars.get(stage)
        began, at_first = (now, done) if before is None else (before.began, before.at_first)
        self._bars[stage] = _Bar(began, at_first, done, total, status)
        if before is None or now - self._last >= NOTEBOOK_SECONDS:
            self.show()

    def show(self) -> None:
        from IPython.display import display

        self._last = time.monotonic()
        card = Card("", [(stage, bar.words(self._last)) for stage, bar in self._bars.items()])
        shown = {"text/html": card.html(), "text/plain": card.text().strip()}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
