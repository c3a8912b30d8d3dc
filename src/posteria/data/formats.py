"""Readers of the standard files: idx (MNIST's), CIFAR's binary records, npz and plain text matrices.

A file may be plain, gzipped (.gz) or xz-compressed (.xz). Whatever is wrong with it is a DataError naming it.
"""

import gzip
import lzma
import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from posteria.errors import DataError

IDX_UNSIGNED_BYTE = 0x08
CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)  # bytes: the label, then red, green and blue planes
CIFAR_CLASSES = 10
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_bytes(path: Path) -> bytes:
    """The unpacked contents."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            return file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise _broken(path, f"cannot be unpacked ({error})", "a complete file") from None


def read_idx(path: Path) -> np.ndarray:
    """An idx file of unsigned bytes: two zero bytes, the type, the number of axes, their sizes, the values."""
    contents = read_bytes(path)
    if len(contents) < 4 or contents[:3] != bytes([0, 0, IDX_UNSIGNED_BYTE]):
        raise _broken(
            path, f"starts with {contents[:4].hex() or 'nothing'}", "an idx file of unsigned bytes (000008..)"
        )
    start = 4 + 4 * contents[3]
    if len(contents) < start:
        raise _broken(path, "ends inside its header", "a complete idx file")
    shape = tuple(int(size) for size in np.frombuffer(contents, ">u4", contents[3], offset=4))
    if len(contents) - start != math.prod(shape):
        raise _broken(path, f"holds {len(contents) - start} values", f"{math.prod(shape)}, as its header {shape} says")
    return np.frombuffer(contents, np.uint8, offset=start).reshape(shape)


def read_cifar(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10's binary version: images (n, 32, 32, 3) uint8 and labels (n,)."""
    contents = read_bytes(path)
    if not contents or len(contents) % CIFAR_RECORD:
        raise _broken(path, f"holds {len(contents)} bytes", f"a multiple of {CIFAR_RECORD}, one record an image")
    records = np.frombuffer(contents, np.uint8).reshape(-1, CIFAR_RECORD)
    images, labels = records[:, 1:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1), records[:, 0]
    if labels.max() >= CIFAR_CLASSES:
        raise _broken(path, f"has label {labels.max()}", "labels 0 to 9, the first byte of every record")
    return images, labels


def read_npz(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """Named arrays; nothing is unpickled."""
    arrays = read_all_npz(path, names)
    if len(arrays) < len(names):
        with np.load(path, allow_pickle=False) as file:
            raise _broken(path, f"holds the arrays {file.files}", f"{list(names)}")
    return tuple(arrays[name] for name in names)


def read_all_npz(path: Path, names: tuple[str, ...] | None = None) -> dict[str, np.ndarray]:
    """Those of the named arrays that are there; all without `names`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if names is None or name in names}
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _broken(path, f"cannot be read as npz ({error})", "a complete npz file of numbers") from None


def read_matrix(path: Path) -> np.ndarray:
    """Numbers separated by white space, one row a line."""
    try:
        return np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise _broken(path, f"is not a matrix of numbers ({error})", "numbers, as many on every line") from None


def _broken(path: Path, got: str, wanted: str) -> DataError:
    return DataError(f"{path} {got}", wanted, "delete it, and load again or copy it again")
