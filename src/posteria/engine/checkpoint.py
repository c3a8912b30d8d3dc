"""Where a stage of a run stands, on disk: the chains' state, and the rows kept so far.

Rows are written first and the state, with the number of rows that count, is then replaced atomically: a kill at any
moment leaves the last checkpoint whole, and rows past it are written again. The state holds what they are checked by
(see `posteriors.store`): the sum of the rows that count, which those past it do not change.
"""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteria import machine, tree
from posteria.disk import METADATA, ArrayFile
from posteria.errors import StoreError
from posteria.posteriors.store import digests, read_arrays, refuse_damage, write_arrays
from posteria.tree import Json, Tree

STATE = "state.npz"
CHECKPOINT_SECONDS = 2.0  # at least, between checkpoints
CHECKPOINT_SHARE = 0.01  # of the time may go into checkpoints


class Rows:
    """Stretches of rows (chain, row, ...) of one tree structure, gathered in memory."""

    def __init__(self) -> None:
        self._stretches: list[Tree] = []
        self.count = 0

    @classmethod
    def of(cls, stretch: Tree, count: int) -> "Rows":
        rows = cls()
        rows.append(stretch, count)
        return rows

    def append(self, stretch: Tree, count: int) -> None:
        self._stretches.append(stretch)
        self.count += count

    def joined(self) -> Tree:
        """All rows as one tree; None when there are none."""
        if not self._stretches:
            return None
        if len(self._stretches) > 1:
            self._stretches = [jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *self._stretches)]
        return self._stretches[0]

    def between(self, first: int, end: int) -> Tree:
        return jax.tree.map(lambda leaf: leaf[:, first:end], self.joined())


class Checkpoint:
    """One stage's folder; with `folder=None` nothing is written and nothing is found.

    `identity` is that of the run (None: it may be unverified), `before` the sums of the stages that ended before this.
    """

    def __init__(
        self, folder: Path | None, stage: tuple[str, ...], identity: str | None, before: dict[str, str]
    ) -> None:
        self._folder: Any = None if folder is None else folder.joinpath("stages", *stage)
        self._files: list[ArrayFile] = []
        self._about: Json = {"run": identity, "stage": list(stage), "before": dict(before)}
        self._is_signed = identity is not None
        self._saved: tuple[int, list[Any]] = (0, [])  # rows, and the sums of them in each file; replaced as one
        self._began = self._written_at = time.monotonic()
        self._interval = CHECKPOINT_SECONDS
        self.seconds_before = 0.0  # spent on this stage by processes before this one
        self.sum = ""  # of all that the next stages may build on

    def exists(self) -> bool:
        return self._folder is not None and (self._folder / STATE).is_file()

    def is_due(self) -> bool:
        return self._folder is not None and time.monotonic() - self._written_at > self._interval

    def write(self, state: Tree, count: int, kept: Rows, infos: Rows, num_rows: int, is_finished: bool) -> None:
        """The state after `count` rows of `num_rows`, and those rows."""
        if self._folder is None or count == 0:
            return
        began = time.monotonic()
        first, sums = self._saved
        rows = jax.tree.leaves(kept.between(first, count))
        if not self._files:
            self._files = [
                ArrayFile(self._path(i), (row.shape[0], num_rows, *row.shape[2:]), row.dtype, axis=1)
                for i, row in enumerate(rows)
            ]
            sums = [hashlib.sha256() for _ in rows]
            self._about["metadata"] = self._metadata(len(rows))
        for file, row in zip(self._files, rows):
            file.write(row, first)
        self._saved = count, [_add(total.copy(), row) for total, row in zip(sums, rows)]
        arrays = {f"state{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        self.sum = self._sum_of(arrays)
        arrays |= {f"info{i}": leaf for i, leaf in enumerate(jax.tree.leaves(infos.between(0, count)))}
        seconds = self.seconds_before + time.monotonic() - self._began
        arrays |= {"count": np.array([count, is_finished]), "seconds": np.array(seconds)}
        about = self._about | {"kept": self._kept_sums()}
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        write_arrays(self._folder / STATE, arrays)
        self._written_at = time.monotonic()
        self._interval = max(CHECKPOINT_SECONDS, (self._written_at - began) / CHECKPOINT_SHARE)

    def read(
        self, state_like: Tree, kept_like: Tree, info_like: Tree, num_chains: int
    ) -> tuple[Tree, Rows, Rows, bool]:
        """State, kept rows, infos, and whether the stage had finished; the arguments give the trees' structures.

        Of several processes the first reads, and tells the others.
        """
        found: Any = None
        if machine.is_first():
            with refuse_damage(self._folder):
                found = self._read(state_like, kept_like, info_like)
        if not machine.are_several():
            return found
        count, is_finished = map(int, machine.agreed(*((found[2].count, found[3]) if found else (0, 0))))
        trees = (found[0], found[1].joined(), found[2].joined()) if found else None
        state, kept, infos = machine.told_tree(
            trees,
            (
                tree.with_lead(state_like, (num_chains,)),
                *(tree.with_lead(like, (num_chains, count)) for like in (kept_like, info_like)),
            ),
        )
        return state, Rows.of(kept, count), Rows.of(infos, count), bool(is_finished)

    def _read(self, state_like: Tree, kept_like: Tree, info_like: Tree) -> tuple[Tree, Rows, Rows, bool]:
        arrays = read_arrays(self._folder / STATE, self._is_signed)
        about = json.loads(arrays["about"].tobytes()) if "about" in arrays else {}
        if self._is_signed:
            self._check_place(about)
        count, is_finished = map(int, arrays["count"])
        self.seconds_before = float(arrays.get("seconds", 0.0))
        state = self._tree("state", state_like, arrays)
        kept, infos = Rows(), Rows()
        infos.append(self._tree("info", info_like, arrays), count)
        treedef = jax.tree.structure(kept_like)
        self._about["metadata"] = self._metadata(treedef.num_leaves)
        if self._is_signed and self._about["metadata"] != about["metadata"]:
            raise self._mismatch("its kept draws are described otherwise than when they were written")
        self._files = [ArrayFile(self._path(i)) for i in range(treedef.num_leaves)]
        rows = [file.read(count) for file in self._files]
        self._saved = count, [_add(hashlib.sha256(), row) for row in rows]
        if self._is_signed and self._kept_sums() != about["kept"]:
            raise self._mismatch("its kept draws are not those that were written")
        kept.append(treedef.unflatten(rows), count)
        self.sum = self._sum_of({name: arrays[name] for name in arrays if name.startswith("state")})
        return state, kept, infos, bool(is_finished)

    def _check_place(self, about: Json) -> None:
        """Refuse a checkpoint of another run or stage, or one that followed from other stages than those here."""
        for name in ("run", "stage"):
            if about[name] != self._about[name]:
                raise self._mismatch(f"it is of another {name}")
        here = self._about["before"]
        if not about["before"].items() <= here.items():
            raise self._mismatch("the stages before it are not those that it followed from")

    def _mismatch(self, what: str) -> StoreError:
        return StoreError(
            f"the checkpoint in {self._folder} cannot be gone on from: {what}",
            "the files as they were written",
            "restore them, or fit again",
        )

    def _path(self, leaf: int) -> Path:
        return self._folder / "kept" / str(leaf)

    def _metadata(self, num_leaves: int) -> dict[str, str]:
        """The sums of the files that say what the kept arrays are; they stay as they are once they are written."""
        return digests(self._folder, *(f"kept/{i}/{METADATA}" for i in range(num_leaves)))

    def _kept_sums(self) -> list[str]:
        return [total.hexdigest() for total in self._saved[1]]

    def _sum_of(self, state: dict[str, np.ndarray]) -> str:
        """Of the state and the kept rows; seconds, which differ from one time to the next, are left out."""
        total = hashlib.sha256(json.dumps([self._saved[0], self._kept_sums()]).encode())
        for name, leaf in state.items():
            total.update(f"{name}{leaf.shape}{leaf.dtype.name}".encode() + leaf.tobytes())
        return total.hexdigest()

    def _tree(self, kind: str, like: Tree, arrays: dict[str, np.ndarray]) -> Tree:
        treedef = jax.tree.structure(like)
        names = [name for name in arrays if name.startswith(kind)]
        if len(names) != treedef.num_leaves:
            raise StoreError(
                f"{self._folder} holds {len(names)} {kind} arrays",
                f"{treedef.num_leaves}",
                "resume with the same method",
            )
        return treedef.unflatten(arrays[f"{kind}{i}"] for i in range(len(names)))


def _add(total: Any, rows: np.ndarray) -> Any:
    """Row after row of all chains, so that the sum does not depend on the stretches that they came in."""
    total.update(np.moveaxis(rows, 1, 0).tobytes())
    return total
