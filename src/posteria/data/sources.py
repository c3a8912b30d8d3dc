"""Rows larger than memory: read when they are asked for, by their numbers.

A source has a length, and gives any rows of it again and again: memory maps, HDF5, zarr and tensorstore arrays (by
slices and lists of rows), data sets of Hugging Face (by lists of rows), torch's and grain's (row by row, or by
`__getitems__`), or files by `po.data.source`. What can be walked through only once is none.
"""

import contextlib
import hashlib
import math
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.data.arrays import Data, check_x
from posteria.errors import DataError, TooLargeError
from posteria.machine import available_memory, readable
from posteria.tree import path_string

SAMPLED_ROWS = 64  # of a source, that its fingerprint is made of
MAPPED_BYTES = 2**28  # read through a memory map, after which its pages are given back
AROUND = 2**16  # bytes that the system maps with a page that is touched
ALIGNMENT = 64  # bytes
ASK_AGAIN = (
    "give it a length and rows by number: write it to .npy files and pass po.data.source('x.npy', 'y.npy'), or an "
    "object with __len__ and __getitem__ (np.memmap, an HDF5 or zarr array, a torch Dataset)"
)

Take = Callable[[np.ndarray], Data]  # row numbers -> (x, y), trees of NumPy's arrays


class Source:
    """`len(source)` rows, of which `read_rows(numbers)` reads some: (x, y), NumPy arrays with those rows."""

    def __init__(self, take: Take, length: int, name: str, check: Callable[[Data], Data] = lambda batch: batch) -> None:
        self._take, self._length, self.name, self._check = take, int(length), name, check
        self.class_names: tuple[str, ...] = ()  # of folders of images
        if self._length < 1:
            raise DataError(f"{name} has no rows", "at least one", "check the path or the object")
        self.first = self.read_rows(np.arange(min(2, self._length)))

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"source of {self._length:,} rows ({self.name}, {readable(self.num_bytes)})"

    def read_rows(self, numbers: "np.ndarray | slice | Sequence[int]") -> Data:
        if isinstance(numbers, slice):
            numbers = np.arange(*numbers.indices(self._length))
        return self._check(self._take(np.asarray(numbers)))

    @property
    def num_bytes(self) -> int:
        """Of all rows at once."""
        return self._length * tree.num_bytes(self.first) // tree.length(self.first)

    def checked(self, check: Callable[[Data], Data]) -> "Source":
        """The same, each of whose reads is checked and changed so."""
        return Source(lambda numbers: check(self.read_rows(numbers)), self._length, self.name)

    def subset(self, numbers: np.ndarray) -> "Source":
        return Source(lambda places: self.read_rows(numbers[places]), len(numbers), self.name)

    def inputs(self) -> "Source":
        """x alone."""
        return Source(lambda numbers: self.read_rows(numbers)[0], self._length, self.name)

    def in_memory(self, why: str) -> Data:
        """All rows; refused where they are more than the half of what this machine holds."""
        if self.num_bytes > available_memory() / 2:
            raise TooLargeError(
                f"{why} needs all {self._length:,} rows of {self.name} at once, which would take "
                f"{readable(self.num_bytes)}",
                f"at most {readable(available_memory() / 2)}, as this machine has for them",
                "take a method with batches and set batch_size, as po.MAP(batch_size=128) or po.SGHMC()",
            )
        return self.read_rows(slice(None))

    def fingerprint(self) -> str:
        """SHA-256 over the length, shapes, dtypes, and some rows spread evenly from the first to the last."""
        chosen = np.unique(np.linspace(0, self._length - 1, SAMPLED_ROWS).astype(np.int64))
        digest = hashlib.sha256(f"{self._length} rows".encode())
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.read_rows(chosen)):
            digest.update(f"{jax.tree_util.keystr(path)}{leaf.shape}{leaf.dtype.name}".encode())
            digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()


def as_source(data: Any) -> Source | None:
    """What a user gave as data, where it is a source: one already, a pair of lazy arrays, or a data set of pairs.

    None for arrays, lists, frames and trees of these, which are in memory; an error for what can be read only once.
    """
    if data is None or isinstance(data, Source):
        return data
    if isinstance(data, tuple | list):
        for part in data:
            refuse_iterator(part)
        return of_arrays(data[0], data[1]) if len(data) == 2 and any(map(_is_lazy, _leaves(data))) else None
    refuse_iterator(data)
    is_dataset = _has_rows(data) and not hasattr(data, "dtype") and not isinstance(data, dict | str | bytes)
    return of_dataset(data) if is_dataset and not hasattr(data, "iloc") else None


def refuse_iterator(data: Any) -> None:
    """Rows that cannot be asked for again are no data: a resumed fit could not see the same ones."""
    can_ask = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if hasattr(data, "__next__") or (hasattr(data, "__iter__") and not can_ask and not hasattr(data, "shape")):
        raise DataError(f"data is a {type(data).__name__}, which can be walked through only once", "rows", ASK_AGAIN)


def of_arrays(x: Any, y: Any, name: str = "") -> Source:
    """Lazy arrays, or trees of them, with one length."""
    leaves = _leaves((x, y))
    lengths = {path: _length(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path((x, y), is_leaf=_is_array)}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{path_string(path)}: {length}" for path, length in lengths.items())
        raise DataError(f"parts of a source have different lengths ({said})", "the same number of rows", "check them")
    readers = [reader(leaf) for leaf in leaves]
    treedef = jax.tree.structure((x, y), is_leaf=_is_array)
    named = name or type(next(leaf for leaf in leaves if _is_lazy(leaf) or len(leaves) == 1)).__name__
    return Source(lambda numbers: treedef.unflatten(read(numbers) for read in readers), _length(leaves[0]), named)


def of_dataset(dataset: Any, x: str | None = None, y: str | None = None) -> Source:
    """A data set of pairs (x, y), or of rows with names, of which `x` and `y` are two."""
    if hasattr(dataset, "column_names") and (x is None or y is None):
        raise DataError(
            f"the data set has the columns {list(dataset.column_names)}",
            "which are inputs and which targets",
            'po.data.source(dataset, x="image", y="label")',
        )

    def pair(row: Any) -> tuple[Any, Any]:
        if isinstance(row, dict):
            if x not in row or y not in row:
                raise DataError(
                    f"rows have {list(row)}", "the names of x and y", 'po.data.source(data, x="..", y="..")'
                )
            return row[x], row[y]
        if not isinstance(row, tuple | list) or len(row) != 2:
            raise DataError(f"a row is {type(row).__name__}", "a pair (x, y)", "or a dictionary, and name x and y")
        return row[0], row[1]

    def take(numbers: np.ndarray) -> Data:
        wanted = [int(number) for number in numbers]
        if hasattr(dataset, "column_names"):  # Hugging Face: columns of the rows of a list
            return jax.tree.map(np.asarray, pair(dataset[wanted]), is_leaf=lambda node: isinstance(node, list))
        rows = dataset.__getitems__(wanted) if hasattr(dataset, "__getitems__") else [dataset[i] for i in wanted]
        pairs = [jax.tree.map(np.asarray, pair(row)) for row in rows]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *pairs)

    return Source(take, len(dataset), type(dataset).__name__)


# ---- one lazy array


def reader(array: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Row numbers -> those rows; in order where an array wants them so, as a slice where they are one."""
    if isinstance(array, np.memmap):
        return _MappedReader(array)
    if isinstance(array, np.ndarray | jax.Array):
        held = np.asarray(array)
        return lambda numbers: held[numbers]

    def read(numbers: np.ndarray) -> np.ndarray:
        if len(numbers) and _is_run(numbers):
            return np.asarray(array[int(numbers[0]) : int(numbers[-1]) + 1])
        different, places = np.unique(numbers, return_inverse=True)  # HDF5 wants them increasing, each once
        rows = array.oindex[different] if hasattr(array, "oindex") else array[different]
        return np.asarray(rows)[places]

    return read


class _MappedReader:
    """Rows of a memory map. Pages that were read stay in this process until they are given back, all of them in the
    end: so they are, now and then (of a map that is not private, whose changes they would take along)."""

    def __init__(self, array: np.memmap) -> None:
        self._array, self._num_read = array, 0

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        rows = aligned_empty((len(numbers), *self._array.shape[1:]), self._array.dtype)
        if len(numbers) and _is_run(numbers):
            rows[...] = self._array[int(numbers[0]) : int(numbers[-1]) + 1]
            self._num_read += rows.nbytes
        else:
            if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self._array)):
                raise IndexError(f"rows {numbers.min()} to {numbers.max()} of {len(self._array)}")
            if self._array.flags.c_contiguous and self._array.flags.aligned:
                np.take(self._array, numbers, axis=0, out=rows, mode="clip")  # other modes go through a copy
            else:  # of which `take` would copy the whole
                rows[...] = self._array[numbers]
            self._num_read += rows.nbytes + AROUND * len(numbers)
        if min(self._num_read, self._array.nbytes) > MAPPED_BYTES and self._array.mode in ("r", "r+"):
            self._num_read = 0
            with contextlib.suppress(AttributeError, ValueError, OSError):  # a view of a view, or another system
                self._array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return rows


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Where JAX uses the memory as it is, on a CPU, rather than copy it."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    return raw[begin : begin + size].view(dtype).reshape(shape)


def _is_run(numbers: np.ndarray) -> bool:
    return bool(numbers[-1] - numbers[0] == len(numbers) - 1 and (np.diff(numbers) == 1).all())


def _leaves(data: Any) -> list[Any]:
    return jax.tree.leaves(data, is_leaf=_is_array)


def _is_array(node: Any) -> bool:
    return isinstance(node, list) or not isinstance(node, dict | tuple)


def _is_lazy(leaf: Any) -> bool:
    """A memory map, or what has rows and is no array in memory, list or frame."""
    if isinstance(leaf, np.memmap):
        return True
    is_plain = isinstance(leaf, np.ndarray | jax.Array | list | range | str | bytes | np.generic) or any(
        hasattr(leaf, name) for name in ("iloc", "to_numpy", "numpy")
    )
    return not is_plain and _has_rows(leaf)


def _has_rows(leaf: Any) -> bool:
    return hasattr(leaf, "__getitem__") and (hasattr(leaf, "__len__") or hasattr(leaf, "shape"))


def _length(leaf: Any) -> int:
    return int(leaf.shape[0]) if hasattr(leaf, "shape") else len(leaf)


def as_array(y: Any) -> Any:
    """Targets, which are small, read where they are lazy; anything else as it is."""
    return reader(y)(np.arange(_length(y))) if _is_lazy(y) else y


def checked_inputs(x: Any) -> Any:
    """What a user gave to predict at: a source of inputs, or arrays that were checked."""
    if isinstance(x, Source):
        both = isinstance(x.first, tuple) and len(x.first) == 2
        return (x.inputs() if both else x).checked(check_x)
    refuse_iterator(x)
    lazy = [leaf for leaf in _leaves(x) if _is_lazy(leaf)]
    if not lazy:
        return check_x(x)
    reads = [reader(leaf) for leaf in _leaves(x)]
    treedef = jax.tree.structure(x, is_leaf=_is_array)
    source = Source(lambda numbers: treedef.unflatten(read(numbers) for read in reads), _length(lazy[0]), "inputs")
    return source.checked(check_x)
