"""Folders on disk: a JSON manifest and arrays. Writes are atomic, reads are checked, nothing is ever unpickled.

runs/hmc/manifest.json      schema, status, model, method, key, layout, versions, fingerprints
runs/hmc/arrays/<name>/     the posterior's arrays (zarr 3, a checksum a chunk)
runs/hmc/stages/<stage>/    while running: state.npz (the last checkpoint) and kept/ (draws so far)
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np

from posteria.errors import StoreError

SCHEMA = 1
READABLE_SCHEMAS = (1,)
MANIFEST = "manifest.json"
START = "start.npz"  # weights that the user gave a run to start from
CHUNK_BYTES = 4 * 2**20  # of one zarr chunk


# ---- small files


def write_bytes(path: Path, content: bytes) -> None:
    """Atomically: a reader, or a power cut, sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, content: dict) -> None:
    write_bytes(path, json.dumps(content, indent=1, allow_nan=False).encode())


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read ({error})", "a JSON manifest", "restore it, or fit again") from error


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Small arrays as one npz file; dtypes that NumPy does not know travel as raw bytes with their name."""
    dtypes = {name: np.asarray(array).dtype.name for name, array in arrays.items()}
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    raw: dict[str, Any] = {
        name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in arrays.items()
    }
    header = np.frombuffer(json.dumps({"dtypes": dtypes, "shapes": shapes}).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **raw, __header__=header)
    write_bytes(path, buffer.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["__header__"].tobytes())
            return {
                name: file[name].view(_dtype(dtype)).reshape(header["shapes"][name])
                for name, dtype in header["dtypes"].items()
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} is damaged ({error})", "a checkpoint", "restore it, or fit again") from error


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


# ---- large arrays


class ArrayFile:
    """One array on disk whose second axis (draws) is written in stretches."""

    def __init__(self, path: Path, shape: tuple[int, ...] | None = None, dtype: Any = None) -> None:
        import tensorstore as ts

        self._path = path
        spec: dict = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
        if shape is not None:
            dtype = np.dtype(dtype)
            row = max(1, int(np.prod(shape[2:])) * dtype.itemsize)
            chunk = [1, max(1, min(shape[1], CHUNK_BYTES // row)), *shape[2:]] if len(shape) > 1 else list(shape)
            spec["metadata"] = {
                "shape": list(shape),
                "data_type": dtype.name,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(1, c) for c in chunk]}},
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            }
            if (lost := _lost_value(dtype)) is not None:  # what a chunk that is not there reads as
                spec["metadata"]["fill_value"] = "NaN" if np.isnan(lost) else int(lost)
        try:
            self._array = ts.open(spec, create=shape is not None, open=True).result()
        except ValueError as error:
            raise StoreError(f"{path} cannot be opened ({_first_line(error)})", "a zarr array", "fit again") from error

    def write(self, values: np.ndarray, first: int = 0) -> None:
        if values.ndim < 2:
            self._array.write(values).result()
        else:
            self._array[:, first : first + values.shape[1]].write(values).result()

    def read(self, count: int | None = None) -> np.ndarray:
        try:
            array = self._array if count is None else self._array[:, :count]
            values = np.asarray(array.read().result())
        except ValueError as error:
            raise StoreError(f"{self._path} is damaged ({_first_line(error)})", "whole chunks", "fit again") from error
        lost = _lost_value(values.dtype)
        if lost is not None and (np.isnan(values) if np.isnan(lost) else values == lost).any():
            raise StoreError(f"{self._path} has missing chunks", "every draw that was written", "fit again")
        return values


def _lost_value(dtype: np.dtype) -> float | int | None:
    """A value that is never written, to tell a missing chunk by: NaN, or the least signed integer."""
    if dtype.kind == "i":
        return np.iinfo(dtype).min
    return None if dtype.kind in "ub" else float("nan")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


# ---- manifests


@contextlib.contextmanager
def refuse_damage(folder: Path) -> Iterator[None]:
    """Turn what goes wrong while a manifest's content is read into a StoreError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"the manifest in {folder} lacks or garbles a part ({type(error).__name__}: {error})",
            "a whole manifest",
            "restore it, or fit again",
        ) from error


def read_manifest(folder: Path) -> dict:
    """The manifest of a folder that Posteria wrote, in a schema this version reads."""
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} holds no {MANIFEST}", "a folder that Posteria wrote", "check the path")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != "posteria":
        raise StoreError(
            f"{folder / MANIFEST} is not Posteria's", 'a manifest with "format": "posteria"', "check the path"
        )
    if manifest.get("schema") not in READABLE_SCHEMAS:
        raise StoreError(
            f"{folder} has schema {manifest.get('schema')}",
            f"one of {list(READABLE_SCHEMAS)}",
            "load it with the version of Posteria that wrote it, or a newer one",
        )
    return manifest


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process: a second is refused. The system lets go of it at the end, also after a kill."""
    try:
        import fcntl
    except ImportError:  # Windows has none
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{folder} is being written by another process", "one at a time", "wait for it, or take another folder"
            ) from None
        yield


def claim(folder: Path, if_exists: str) -> None:
    """Make `folder` ready for a new run, or refuse."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file", "a folder", "choose another path")
    if folder.exists() and not _is_as_good_as_empty(folder):
        if if_exists != "replace":
            raise StoreError(
                f"{folder} is not empty",
                "an empty or new folder",
                'if_exists="resume" continues the run in it, if_exists="replace" removes it',
            )
        read_manifest(folder)  # never remove what is not ours
        with locked(folder):
            shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _is_as_good_as_empty(folder: Path) -> bool:
    """Nothing but what a kill before the first manifest leaves behind."""
    return all(path.name.startswith(".") or path.name == START for path in folder.iterdir())


def save_arrays(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        array = np.asarray(array)
        ArrayFile(folder / "arrays" / name, array.shape, array.dtype).write(array)


def load_arrays(folder: Path, names: list[str]) -> dict[str, np.ndarray]:
    return {name: ArrayFile(folder / "arrays" / name).read() for name in names}


# ---- fingerprints and shapes


def fingerprint(data: Any) -> str:
    """SHA-256 over shapes, dtypes and bytes of every array in a tree."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)}{array.shape}{array.dtype.name}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def input_to_json(spec: Any) -> Any:
    """Shapes and dtypes of one datum, as JSON; dicts, lists and tuples of arrays, or None."""
    if spec is None:
        return None
    if isinstance(spec, dict):
        return {"dict": {name: input_to_json(value) for name, value in spec.items()}}
    if isinstance(spec, list | tuple):
        return {type(spec).__name__: [input_to_json(value) for value in spec]}
    return {"shape": list(spec.shape), "dtype": np.dtype(spec.dtype).name}


def input_from_json(stored: Any) -> Any:
    if stored is None:
        return None
    if "dict" in stored:
        return {name: input_from_json(value) for name, value in stored["dict"].items()}
    for kind in (list, tuple):
        if kind.__name__ in stored:
            return kind(input_from_json(value) for value in stored[kind.__name__])
    return np.zeros(stored["shape"], _dtype(stored["dtype"]))
