"""One large array on disk: zarr 3 in chunks, each with its checksum, by tensorstore."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from posteria.disk import disk_error, refusing
from posteria.errors import StoreError
from posteria.tree import Json

METADATA = "zarr.json"
CHUNK_BYTES = 4 * 2**20
SMALL = 2**28  # bytes: an array of no more is read though its chunks be not there, since all of them may be zeros


class ArrayFile:
    """An array in a folder of its own. It is written at once, or in stretches along its second axis (draws)."""

    def __init__(self, path: Path, shape: tuple[int, ...] | None = None, dtype: Any = None, axis: int | None = None):
        """Open what is there; with a `shape`, begin anew. `axis` is the one along which stretches are written."""
        self._path = path
        spec: Json = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
        spec["store_data_equal_to_fill_value"] = True  # every chunk is there, so that one that is not is missed
        if shape is None:
            self._array = self._do(lambda: _open(spec, open=True), "cannot be opened")
            return
        dtype = np.dtype(dtype)
        spec["metadata"] = {
            "shape": list(shape),
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": _chunk(shape, dtype.itemsize, axis)}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        }
        if (lost := _lost_value(dtype)) is not None:  # what a chunk that is not there reads as
            spec["metadata"]["fill_value"] = "NaN" if np.isnan(lost) else int(lost)
        with refusing(path):
            path.mkdir(parents=True, exist_ok=True)
        self._array = self._do(lambda: _open(spec, create=True, delete_existing=True), "cannot be opened")

    def write(self, values: np.ndarray, first: int | None = None) -> None:
        """All of it, or the stretch from row `first` of the second axis."""
        place = self._array if first is None else self._array[:, first : first + values.shape[1]]
        self._do(lambda: place.write(values).result(), "cannot be written")

    def read(self, count: int | None = None) -> np.ndarray:
        """All of it, or `count` rows of the second axis."""
        place = self._array if count is None else self._array[:, :count]
        dtype = place.dtype.numpy_dtype
        lost = _lost_value(dtype)
        size, held = int(np.prod(place.shape, dtype=object)) * dtype.itemsize, self._num_bytes()
        if size > held and (lost is not None or size > SMALL):
            raise StoreError(f"{self._path} holds {held:,} bytes", f"the {size:,} that it says it has", "fit again")
        values = self._do(lambda: np.asarray(place.read().result()), "is damaged")
        if lost is not None and (np.isnan(values) if np.isnan(lost) else values == lost).any():
            raise StoreError(f"{self._path} has missing chunks", "every draw that was written", "fit again")
        return values

    def _num_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._path.rglob("*") if file.is_file())

    def _do(self, act: Callable[[], Any], what: str) -> Any:
        try:
            return act()
        except (ValueError, RuntimeError) as error:  # the second of a name that is no text
            if found := re.search(r"os_error_code='(\d+)'", str(error)):
                raise disk_error(self._path, int(found[1]), _first_line(error)) from error
            raise StoreError(f"{self._path} {what} ({_first_line(error)})", "a zarr array", "fit again") from error


def _open(spec: Json, **how: Any) -> Any:
    import tensorstore as ts

    return ts.open(spec, **how).result()


def _chunk(shape: tuple[int, ...], itemsize: int, axis: int | None) -> list[int]:
    """As much as one file should hold, of the last axes first; of an array in stretches, each chain has its own."""
    chunk: list[int] = []
    left = max(1, CHUNK_BYTES // itemsize)
    for place, size in reversed(list(enumerate(shape))):
        length = 1 if axis is not None and place < axis else max(1, min(size, left))
        chunk.insert(0, length)
        left //= length
    return chunk


def _lost_value(dtype: np.dtype) -> float | int | None:
    """A value that is never written, to tell a missing chunk by: NaN, or the least signed integer."""
    if dtype.kind == "i":
        return np.iinfo(dtype).min
    return None if dtype.kind in "ub" else float("nan")


def named_dtype(name: str) -> np.dtype:
    """Also those that NumPy does not know by itself."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
