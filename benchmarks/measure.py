"""What the benchmarks share: interleaved timing, a plain table, and where the data are."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def interleaved(cases: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least seconds of each case. The first round compiles and is not counted; then cases take turns.

    Turns, so that all cases see the same disturbances; the least, because disturbances only ever add.
    """
    for run in cases.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, run in cases.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    return {name: min(values) for name, values in seconds.items()}


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns aligned: the first to the left, the others to the right."""
    cells = [list(columns), *([_text(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    print(title)
    for row in cells:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        print("  " + "  ".join([row[0].ljust(widths[0]), *rest]), flush=True)
    print(flush=True)


def at_most(value: float, limit: float) -> str:
    return "met" if value <= limit else "MISSED"


def at_least(value: float, limit: float) -> str:
    return "met" if value >= limit else "MISSED"


def with_convergence(verdict: str, shares: Iterable[float]) -> str:
    """A verdict that rests on chains, with the least share of functions that have converged where it is too little."""
    from posteria.posteriors.diagnosis import SHARE_WANTED

    least = min(shares)
    return verdict if least >= SHARE_WANTED else f"{verdict}, NOT CONVERGED ({least:.0%})"


def use_shared_data() -> None:
    """Data beside the repository, unless POSTERIA_DATA says where they are."""
    os.environ.setdefault("POSTERIA_DATA", str(ROOT.parent / "shared" / "data"))


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
