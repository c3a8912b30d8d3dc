"""Where a stage of a run stands, on disk: the chains' state, and the rows kept so far.

Rows are written first and the state, with the number of rows that count, is then replaced atomically: a kill at any
moment leaves the last checkpoint whole, and rows past it are written again.
"""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteria.errors import StoreError
from posteria.posteriors.store import ArrayFile, read_arrays, write_arrays

CHECKPOINT_SECONDS = 2.0  # at least, between checkpoints
CHECKPOINT_SHARE = 0.01  # of the time may go into checkpoints


class Rows:
    """Stretches of rows (chain, row, ...) of one tree structure, gathered in memory."""

    def __init__(self) -> None:
        self._stretches: list[Any] = []
        self.count = 0

    def append(self, stretch: Any, count: int) -> None:
        self._stretches.append(stretch)
        self.count += count

    def joined(self) -> Any:
        """All rows as one tree; None when there are none."""
        if not self._stretches:
            return None
        if len(self._stretches) > 1:
            self._stretches = [jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *self._stretches)]
        return self._stretches[0]

    def between(self, first: int, end: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[:, first:end], self.joined())


class Checkpoint:
    """One stage's folder; with `folder=None` nothing is written and nothing is found."""

    def __init__(self, folder: Path | None, stage: tuple[str, ...]) -> None:
        self._folder: Any = None if folder is None else folder.joinpath("stages", *stage)
        self._files: list[ArrayFile] = []
        self._saved_rows = 0
        self._began = self._written_at = time.monotonic()
        self._interval = CHECKPOINT_SECONDS
        self.seconds_before = 0.0  # spent on this stage by processes before this one

    def exists(self) -> bool:
        return self._folder is not None and (self._folder / "state.npz").is_file()

    def is_due(self) -> bool:
        return self._folder is not None and time.monotonic() - self._written_at > self._interval

    def write(self, state: Any, count: int, kept: Rows, infos: Rows, num_rows: int, is_finished: bool) -> None:
        """The state after `count` rows of `num_rows`, and those rows."""
        if self._folder is None or count == 0:
            return
        began = time.monotonic()
        rows = jax.tree.leaves(kept.between(self._saved_rows, count))
        if not self._files:
            self._files = [
                ArrayFile(self._folder / "kept" / str(i), (row.shape[0], num_rows, *row.shape[2:]), row.dtype)
                for i, row in enumerate(rows)
            ]
        for file, row in zip(self._files, rows):
            file.write(row, first=self._saved_rows)
        self._saved_rows = count
        arrays = {f"state{i}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}
        arrays |= {f"info{i}": leaf for i, leaf in enumerate(jax.tree.leaves(infos.between(0, count)))}
        seconds = self.seconds_before + time.monotonic() - self._began
        arrays |= {"count": np.array([count, is_finished]), "seconds": np.array(seconds)}
        write_arrays(self._folder / "state.npz", arrays)
        self._written_at = time.monotonic()
        self._interval = max(CHECKPOINT_SECONDS, (self._written_at - began) / CHECKPOINT_SHARE)

    def read(self, state_like: Any, kept_like: Any, info_like: Any) -> tuple[Any, Rows, Rows, bool]:
        """State, kept rows, infos, and whether the stage had finished; the arguments give the trees' structures."""
        arrays = read_arrays(self._folder / "state.npz")
        count, is_finished = arrays["count"]
        self.seconds_before = float(arrays.get("seconds", 0.0))
        state = self._tree("state", state_like, arrays)
        kept, infos = Rows(), Rows()
        infos.append(self._tree("info", info_like, arrays), int(count))
        treedef = jax.tree.structure(kept_like)
        self._files = [ArrayFile(self._folder / "kept" / str(i)) for i in range(treedef.num_leaves)]
        kept.append(treedef.unflatten(file.read(int(count)) for file in self._files), int(count))
        self._saved_rows = int(count)
        return state, kept, infos, bool(is_finished)

    def _tree(self, kind: str, like: Any, arrays: dict[str, np.ndarray]) -> Any:
        treedef = jax.tree.structure(like)
        names = [name for name in arrays if name.startswith(kind)]
        if len(names) != treedef.num_leaves:
            raise StoreError(
                f"{self._folder} holds {len(names)} {kind} arrays",
                f"{treedef.num_leaves}",
                "resume with the same method",
            )
        return treedef.unflatten(arrays[f"{kind}{i}"] for i in range(len(names)))
