"""The loop that drives every kernel: chunks compiled once, progress and checkpoints between them, chains spread over
the machine.

A method describes one step; it knows nothing of disks, devices, clocks or terminals. `Run.loop` is memoised by stage:
a resumed fit runs the method again from its key, and every stage that had finished returns what it had, one that was
cut off goes on from its last checkpoint. Keys are folded with the step's number, so the length of a chunk changes
nothing.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from posteria import machine, tree
from posteria.data.arrays import Data, is_source
from posteria.engine import layout as layouts
from posteria.engine.checkpoint import Checkpoint, Rows
from posteria.engine.chunks import Keep as Keep
from posteria.engine.chunks import Kernel as Kernel
from posteria.engine.chunks import Resident, is_float
from posteria.engine.progress import Curve, OnLog, Progress, joined_tables
from posteria.engine.streaming import Carried, Stream
from posteria.errors import DensityError, SettingError
from posteria.machine import check_room
from posteria.settings import LARGEST_INT
from posteria.tree import Arrays, Tree


class Trace(NamedTuple):
    """What a loop leaves behind: NumPy arrays with a leading chain axis."""

    state: Tree  # at the end
    kept: Tree  # (chain, row, ...)
    info: Tree  # (chain, row, ...)
    num_rows: int


class Run:
    """The loop's services, handed to a method's `fit`."""

    def __init__(
        self,
        folder: Path | None = None,
        progress: bool = False,
        max_seconds: float | None = None,
        identity: str | None = None,
        recorded_layout: str | None = None,
        on_layout: Callable[[str], None] = lambda layout: None,
        on_log: OnLog | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        self.progress = Progress(progress)
        self.notes: list[str] = []
        self.cut: list[str] = []  # stages that others build on, and that time cut short
        self.num_gradients = 0
        self.seconds_before = 0.0  # spent on this run by processes before this one
        self._is_whole = True
        self._root = self
        self._path: tuple[str, ...] = ()
        self._folder = folder
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self._identity = identity  # by which checkpoints are known to be of this run
        self._finished: dict[str, str] = {}  # sums of the stages that ended, by name
        self._recorded_layout = recorded_layout
        self._on_layout = on_layout
        self._on_log = on_log
        self._began = time.monotonic()
        self._curves: list[Curve] = []
        self._mesh = mesh

    def stage(self, name: str, share: float = 1.0) -> "Run":
        """A named part of this run, which may use `share` of the time that is left."""
        part: Run = object.__new__(type(self))
        part.__dict__.update(self.__dict__, _path=(*self._path, name))
        if self._deadline is not None:
            now = time.monotonic()
            part._deadline = now + share * (self._deadline - now)
        return part

    @property
    def is_whole(self) -> bool:
        """False: time ran out before all was done."""
        return self._root._is_whole

    @property
    def spent(self) -> int:
        """Gradients so far, of the whole run."""
        return self._root.num_gradients

    @property
    def history(self) -> Arrays:
        """What was measured each epoch, as columns: `posterior.history`."""
        return joined_tables([curve.table() for curve in self._curves])

    def skips(self) -> bool:
        """Whether time is over, so that a part that can be left out is; a resumed run makes up for it."""
        (is_late,) = machine.agreed(self._is_late())
        self._root._is_whole &= not is_late
        return bool(is_late)

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def note(self, text: str) -> None:
        """Something that the user should know of this fit; kept with the posterior."""
        if text and text not in self.notes:
            self.notes.append(text)

    def loop(
        self,
        kernel: Kernel,
        key: jax.Array,
        starts: Tree,
        data: Data,
        *,
        num_steps: int,
        thinning: int = 1,
        keep: Keep = lambda state: None,
        is_over: Callable[[Tree], bool] = lambda last_info: False,
        final_when_late: bool = False,
        epoch: int | None = None,
    ) -> Trace:
        """Run `num_steps` of `kernel` in every chain, keeping `keep(state)` after each `thinning` steps.

        `starts` has a leading chain axis. `is_over` may end the loop early: once true of a row of info it must stay
        true. `final_when_late`: what follows builds on this stage, so that a resumed run must not carry it on once
        time cut it short. `epoch`: steps of one, where there are such; what info tells is then kept by epoch, as
        `posterior.history` (a multiple of `thinning`).
        """
        if num_steps > LARGEST_INT:
            raise SettingError(f"{num_steps:,} steps of {self._name()}", "fewer than 2^31", "draw less, or thin less")
        num_rows = num_steps // thinning
        num_chains = tree.length(starts)
        layout: Any = layouts.choose(num_chains, self._root._recorded_layout, self._mesh)
        self._record(layout.name, num_chains)
        keys = jax.random.key_data(jax.random.split(key, num_chains))
        feed = self._feed(kernel, keep, thinning, layout, data)
        chains = feed.start(keys, starts)
        one_chain = tree.index(layout.join(chains), 0)
        kept_like, info_like = feed.shapes(one_chain)
        if self._deadline is None:  # else it ends before
            row_bytes = num_chains * tree.num_bytes((kept_like, info_like))
            check_room(num_rows * row_bytes, f"{num_rows:,} rows of {self._name()}")

        kept, infos, is_finished = Rows(), Rows(), num_rows == 0
        curve = Curve(self._name(), None if epoch is None else epoch // thinning, self._on_log, self._began)
        self._curves.append(curve)
        checkpoint = Checkpoint(self._folder, self._path, self._identity, self._finished)
        if any(machine.agreed(checkpoint.exists())):
            state, kept, infos, is_finished = checkpoint.read(one_chain[1], kept_like, info_like, num_chains)
            chains = layout.split((keys, state))
            self._count_gradients(infos.joined())
            curve.add(infos.joined(), is_new=False)
            self._root.seconds_before += checkpoint.seconds_before
        if is_finished:
            self._finished["/".join(self._path)] = checkpoint.sum
            self._note_if_cut(final_when_late, infos, num_rows, is_over)
            return Trace(_own_state(layout, chains), kept.joined(), infos.joined(), infos.count)

        self.progress.update(self._name(), infos.count, num_rows, "compiling")
        feed.compile(chains, one_chain, num_rows)
        began, count_before = time.monotonic(), infos.count
        is_done, is_late = False, 0
        here = chains, infos.count  # replaced as one: an interrupt never sees a state without its rows
        try:
            while not (is_done or is_late):
                chains, first = here
                chains, rows, info, count = feed.advance(chains, first, num_rows)
                if count:  # of a source, a row may be longer than a block
                    self._check_finite(info, rows, first, thinning)
                    kept.append(rows, count)
                    infos.append(info, count)
                    self._count_gradients(info)
                    curve.add(info)
                    self._show(info, infos.count, num_rows, (infos.count - count_before) / (time.monotonic() - began))
                    is_done = infos.count == num_rows or is_over(_last_row(info))
                here = chains, infos.count
                is_late = self._is_late() and infos.count > 0  # of a source, the first row may take long
                feed.pace, is_late, is_due = map(int, machine.agreed(feed.pace, is_late, checkpoint.is_due()))
                if is_due and not is_done:
                    checkpoint.write(_state(layout, here[0]), here[1], kept, infos, num_rows, is_finished=False)
        except KeyboardInterrupt:
            if not machine.are_several():  # the others may be elsewhere
                checkpoint.write(_state(layout, here[0]), here[1], kept, infos, num_rows, is_finished=False)
            raise
        finally:
            feed.close()
        state = _state(layout, chains)
        is_finished = is_done or final_when_late
        checkpoint.write(state, infos.count, kept, infos, num_rows, is_finished)
        if is_finished:
            self._finished["/".join(self._path)] = checkpoint.sum
        self._root._is_whole &= is_done
        self._note_if_cut(final_when_late, infos, num_rows, is_over)
        return Trace(_own_state(layout, chains), kept.joined(), infos.joined(), infos.count)

    def _feed(self, kernel: Kernel, keep: Keep, thinning: int, layout: Any, data: Data) -> Resident | Stream:
        """What takes chains further: by rows in memory, or of a source."""
        if all(not is_source(leaf) for leaf in jax.tree.leaves(data)):
            return Resident(kernel, keep, thinning, layout, data)
        if self._mesh is not None or machine.are_several():
            raise SettingError(
                "a source over a mesh or several hosts", "rows in memory there", "leave mesh= out, or pass arrays"
            )
        return Stream(kernel, keep, thinning, layout, data, self._name())

    def _record(self, layout: str, num_chains: int) -> None:
        before = self._root._recorded_layout
        was_meshed = before is not None and before.startswith("mesh:")
        if layout == before or (num_chains == 1 and layout == layouts.Threads.name and not was_meshed):
            return
        if before is not None and layout != layouts.continued(before, num_chains):
            self.note(
                f"the run began with chains as {before} and went on as {layout}: "
                "its draws are valid, but not bit-identical to an uninterrupted run's"
            )
        self._root._recorded_layout = layout
        self._on_layout(layout)

    def _note_if_cut(self, final_when_late: bool, infos: Rows, num_rows: int, is_over: Callable[[Any], bool]) -> None:
        if not final_when_late or infos.count == num_rows or is_over(_last_row(infos.joined())):
            return
        self.cut.append(self._path[-1] if self._path else "fit")
        self.note(f"max_seconds cut {self._name()} short, after {infos.count} of {num_rows} steps")

    def _check_finite(self, info: Tree, rows: Tree, first: int, thinning: int) -> None:
        wanted = "a finite density at every step"
        fix = "take a smaller step or learning rate, standardise x and y, or use a wider likelihood"
        log_density = np.asarray(info.log_density)
        if not np.isfinite(log_density).all():
            row, chain = np.argwhere(~np.isfinite(log_density.T))[0]  # the earliest
            where = f"in {self._name()}, chain {chain}, about step {(first + row) * thinning}"
            raise DensityError(f"the log density became {log_density[chain, row]} {where}", wanted, fix)
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rows) if is_float(leaf)):
            # the density was still finite where the last step began
            raise DensityError(f"weights became infinite in {self._name()}, after step {first * thinning}", wanted, fix)

    def _count_gradients(self, info: Tree) -> None:
        if info is not None:
            self._root.num_gradients += int(np.sum(info.num_gradients))

    def _show(self, info: Tree, done: int, total: int, rate: float) -> None:
        status = f"{rate:,.1f}/s  log density {np.mean(info.log_density[:, -1]):,.1f}"
        if hasattr(info, "acceptance"):
            status += f"  acceptance {np.mean(info.acceptance):.2f}"
        self.progress.update(self._name(), done, total, status)

    def _name(self) -> str:
        return " / ".join(self._path) or "fit"


def _last_row(rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[:, -1], rows)


def _state(layout: Any, chains: Tree) -> Tree:
    return layout.join(chains)[1]


def _own_state(layout: Any, chains: Tree) -> Tree:
    """The kernel's, without what a stream carries beside it."""
    state = _state(layout, chains)
    return state.state if isinstance(state, Carried) else state
