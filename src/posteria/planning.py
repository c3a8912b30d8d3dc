"""Memory and time of a fit before it runs: on this machine by a rehearsal, on others by counting.

A rehearsal runs the method itself, and ends each of its loops after a short while: what compiles is compiled, as the
fit will want it, what is held is held, and stretches of steps are timed, so that what comes once is told apart from
what comes with every step. For other machines the multiplications of a gradient are counted by the compiler, and
divided by a stated share of a stated peak; between devices a gradient is summed once a step.
"""

import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.cards import preformatted
from posteria.data.arrays import Data, rows
from posteria.engine.loop import Run, Trace
from posteria.errors import SettingError
from posteria.machine import available_memory, readable
from posteria.methods import registry
from posteria.models.bare_density import COPIES
from posteria.models.model import Model
from posteria.models.target import Target
from posteria.random import as_key
from posteria.settings import Positive, Several, check_settings

LEAST_SECONDS = 0.5  # of steps that are timed, in each loop
MOST_THINNING = 20  # steps a row in a rehearsal: what a row is hardly matters to a step's time
KEPT_COPIES = 2  # of draws: while they are gathered, and once they are joined
COUNTED_ROWS = 32  # whose gradient is compiled to be counted


@dataclass(frozen=True)
class Machine:
    """Devices to plan for: peak `flops` a second, bytes of `memory`, and bytes a second to the others, of each.

    `efficiency` is the share of the peak that gradients of such networks reach.
    """

    name: str
    num_devices: Several = 1
    flops: Positive = 19.5e12
    memory: Positive = 80e9
    bandwidth: Positive = 300e9
    efficiency: Positive = 0.3

    def __post_init__(self) -> None:
        check_settings(self)


# peak rates as their makers state them: of a TPU v3 a core (half a chip) in bfloat16, of the others in float32
MACHINES = {
    "tpu-v3": Machine("tpu-v3", 1, 61.5e12, 16e9, 70e9),
    "a100": Machine("a100", 1, 19.5e12, 80e9, 300e9),
    "h100": Machine("h100", 1, 67e12, 80e9, 450e9),
}


@dataclass(frozen=True)
class Stage:
    """One loop of a fit, as it was rehearsed."""

    name: str
    num_steps: int
    num_chains: int
    seconds_a_step: float
    seconds_once: float  # compiling, and what comes before the first step
    gradients_a_step: float  # of one chain
    kept_bytes: int  # of all rows that it keeps

    @property
    def seconds(self) -> float:
        return self.seconds_once + self.num_steps * self.seconds_a_step


@dataclass(frozen=True)
class Forecast:
    """Of a fit on another machine."""

    machine: Machine
    seconds: float
    bytes_a_device: float
    shards: int  # devices that share the rows of one chain

    @property
    def fits(self) -> bool:
        return self.bytes_a_device <= self.machine.memory


@dataclass(frozen=True)
class Plan:
    """`seconds` and `peak_bytes` of the fit on this machine; `on(machine)` elsewhere; `print(plan)` says it."""

    method: Any
    num_data: int
    num_weights: int
    rows_a_gradient: int
    gradients: float  # of all chains
    num_chains: int
    flops_a_row: float  # of one gradient
    bytes_a_row: float  # of activations, and of the row
    kept_bytes: int
    stages: tuple[Stage, ...] = ()
    other_seconds: float = 0.0
    peak_bytes: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def seconds(self) -> float:
        return self.other_seconds + sum(stage.seconds for stage in self.stages)

    @property
    def flops(self) -> float:
        return self.gradients * self.rows_a_gradient * self.flops_a_row

    def on(self, machine: Machine) -> Forecast:
        """Chains on devices of their own as far as there are any, and the rows of a chain over the rest."""
        shards = max(1, machine.num_devices // self.num_chains)
        at_work = min(machine.num_devices, self.num_chains * shards)
        computing = self.flops / (at_work * machine.flops * machine.efficiency)
        weights = 4.0 * self.num_weights
        summing = self.gradients / self.num_chains * 2 * weights * (shards - 1) / shards / machine.bandwidth
        chains_here = -(-self.num_chains // max(1, machine.num_devices // shards))
        held = COPIES * weights * chains_here + self.kept_bytes * chains_here / self.num_chains
        return Forecast(machine, computing + summing, held + self.rows_a_gradient / shards * self.bytes_a_row, shards)

    def table(self, machines: Iterable[Machine]) -> str:
        """A line a machine."""
        lines = ["| machine | devices | hours | GB a device | it fits | rows of a chain over |", "| --- " * 6 + "|"]
        for machine in machines:
            found = self.on(machine)
            answer = "yes" if found.fits else "in blocks of rows"
            lines.append(
                f"| {machine.name} | {machine.num_devices:,} | {found.seconds / 3600:,.2f} | "
                f"{found.bytes_a_device / 1e9:,.2f} | {answer} | {found.shards} devices |"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __str__(self) -> str:
        name = type(self.method).__name__
        lines = [
            f"{name}: {self.num_data:,} rows, {self.num_weights:,} weights, {self.num_chains} chains; "
            f"{self.gradients:,.0f} gradients of {self.rows_a_gradient:,} rows, {self.flops:.2g} operations",
        ]
        for stage in self.stages:
            lines.append(
                f"  {stage.name}: {stage.num_steps:,} steps of {1000 * stage.seconds_a_step:.3g} ms, "
                f"{stage.seconds_once:.1f} s once: {readable_seconds(stage.seconds)}"
            )
        if self.stages:
            room = "fits" if self.peak_bytes <= available_memory() else "is more than this machine has"
            lines.append(
                f"here: {readable_seconds(self.seconds)}, at most {readable(self.peak_bytes)} of memory, which {room}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def plan(
    model: Model,
    data: Data,
    method: Any = "hmc",
    *,
    num_data: int | None = None,
    rehearse: bool = True,
    key: int | jax.Array = 0,
) -> Plan:
    """What `po.fit(model, data, method)` will take, before it runs.

    `rehearse=False` only counts, and needs but a few rows of the data: `num_data` says how many there will be.
    """
    method = registry.as_method(method)
    target = Target(model, data)
    if target.data is None:
        raise SettingError("a plan without data", "(x, y)", "a few rows will do, with num_data= and rehearse=False")
    if num_data is not None and rehearse and num_data != target.num_data:
        raise SettingError(f"num_data={num_data}", "rehearse=False beside it", "a rehearsal is of the rows there are")
    num_data = num_data or target.num_data
    counted = _counted(target)
    batch_size = registry.batch_size_of(method)
    known = Plan(
        method,
        num_data,
        tree.size(target.structs),
        min(batch_size or num_data, num_data),
        _expected_gradients(method, num_data),
        getattr(method, "num_chains", getattr(method, "size", 1)),
        *counted,
        _kept_bytes(method, target),
    )
    return _rehearsed(known, as_key(key), target) if rehearse else known


def _rehearsed(known: Plan, key: jax.Array, target: Target) -> Plan:
    run = Rehearsal()
    began = time.monotonic()
    known.method.fit(key, target, None, run)
    run.progress.close()
    took = time.monotonic() - began
    stages = tuple(run.stages)
    kept = sum(stage.kept_bytes for stage in stages)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    gradients = sum(stage.num_steps * stage.gradients_a_step * stage.num_chains for stage in stages)
    notes = [note for note in run.notes if "epochs" not in note]
    if run.ends_early:
        notes.append(f"{', '.join(run.ends_early)} may end before: their steps are the most that they take")
    return replace(
        known,
        stages=stages,
        gradients=gradients or known.gradients,
        kept_bytes=max(kept, known.kept_bytes),
        other_seconds=max(0.0, took - run.seconds_in_loops),
        peak_bytes=held + KEPT_COPIES * max(kept, known.kept_bytes),
        notes=tuple(notes),
    )


class Rehearsal(Run):
    """A run whose loops, compiled as the fit will have them, end after a few timed stretches."""

    def __init__(self) -> None:
        super().__init__(None, False)
        self.stages: list[Stage] = []
        self.ends_early: list[str] = []
        self._spent = [0.0]
        self._stretches: list[tuple[int, float]] = []  # rows and seconds, of the loop that runs

    @property
    def seconds_in_loops(self) -> float:
        return self._spent[0]

    def loop(self, kernel: Any, key: jax.Array, starts: Any, data: Data, **asked: Any) -> Trace:
        began = time.monotonic()
        num_steps, thinning = asked.pop("num_steps"), asked.pop("thinning", 1)
        asked.pop("epoch", None)
        if asked.pop("is_over", None) is not None:
            self.ends_early.append(self._name())
        num_rows, of_row = num_steps // thinning, min(thinning, MOST_THINNING)
        self._stretches.clear()
        trace = super().loop(
            kernel,
            key,
            starts,
            data,
            num_steps=num_rows * of_row,
            thinning=of_row,
            is_over=lambda _: sum(seconds for _, seconds in self._stretches[1:]) > LEAST_SECONDS,
            **asked,
        )
        self._root._is_whole = True
        counted = self._stretches[1:] or self._stretches  # the first may have compiled
        each = sum(seconds for _, seconds in counted) / max(1, of_row * sum(rows for rows, _ in counted))
        taken = trace.num_rows
        gradients = float(np.mean(np.asarray(trace.info.num_gradients, np.float64))) / of_row if taken else 0.0
        kept = tree.num_bytes((trace.kept, trace.info)) * num_rows // taken if taken else 0
        took = time.monotonic() - began
        once = max(0.0, took - taken * of_row * each)
        self.stages.append(Stage(self._name(), num_steps, tree.length(starts), each, once, gradients, kept))
        self._spent[0] += took
        return trace

    def _feed(self, *given: Any) -> Any:
        feed: Any = super()._feed(*given)
        advance = feed.advance

        def timed(*arguments: Any) -> Any:
            began = time.monotonic()
            found = advance(*arguments)
            self._stretches.append((found[-1], time.monotonic() - began))
            return found

        feed.advance = timed
        return feed


def _counted(target: Target) -> tuple[float, float]:
    """Of a gradient by one row: multiplications and additions, and bytes of what is held meanwhile."""
    count = min(COUNTED_ROWS, target.num_data)
    batch = tree.on_device(rows(target.data, np.arange(count)))
    bare = target.without_data()

    def energy(params: tree.Params, batch: Data) -> jax.Array:
        return -bare.log_density(params, batch)

    compiled = jax.jit(jax.value_and_grad(energy)).lower(target.structs, batch).compile()
    costs = compiled.cost_analysis() or {}
    costs = costs[0] if isinstance(costs, list) else costs
    memory = compiled.memory_analysis()
    temporary = getattr(memory, "temp_size_in_bytes", 0)
    return float(costs.get("flops", 0.0)) / count, (temporary + tree.num_bytes(batch)) / count


def _expected_gradients(method: Any, num_data: int) -> float:
    expected = getattr(method, "expected_gradients", None)
    return float(expected(num_data)) if expected is not None else 0.0


def _kept_bytes(method: Any, target: Target) -> int:
    num_draws = getattr(method, "num_chains", 1) * getattr(method, "num_draws", 0)
    return num_draws * tree.num_bytes(target.structs)


def readable_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:,.3g} h"
