"""Files and folders that are written whole or not at all, and large arrays.

A file is written beside its place, under a fresh name that nobody can guess, and then takes the place of what was
there in one rename; a folder likewise. Whatever fails on the way, what was there stays, and the half is removed. An
array is written in chunks, each with its checksum, as draws come.
"""

import contextlib
import ctypes
import errno
import glob
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from posteria.errors import DiskError, PosteriaError, StoreError

HALF = ".part"  # how the name of what is not yet whole ends
RESTORE = "restore it, or fit again"
FULL = (errno.ENOSPC, errno.EDQUOT)
SWAP = 2  # of two names: Linux's RENAME_EXCHANGE and macOS's RENAME_SWAP
CURRENT_FOLDER = -100  # AT_FDCWD


@contextlib.contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn what the system refuses while `path` is written into a DiskError."""
    try:
        yield
    except PosteriaError:
        raise
    except OSError as error:
        number = error.errno or getattr(error.__cause__, "errno", None)  # matplotlib's own has none
        raise disk_error(path, number, error.strerror or str(error)) from error


@contextlib.contextmanager
def refuse_damage(path: Path) -> Iterator[None]:
    """Turn what goes wrong while the content of a file or folder is read into a StoreError."""
    try:
        yield
    except PosteriaError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise StoreError(
            f"{path} lacks or garbles a part ({type(error).__name__}: {error})",
            "what Posteria wrote there",
            RESTORE,
        ) from error


def disk_error(path: Path, number: int | None, reason: str) -> DiskError:
    if number in FULL:
        return DiskError(f"{path} cannot be written: the disk is full", "room on it", "free some, and try again")
    return DiskError(f"{path} cannot be written: {reason}", "a place that can be", "check the path, or choose another")


# ---- files


def write_bytes(path: Path, content: bytes) -> None:
    """A reader, a kill or a power cut sees the old file or the new one.

    For files in folders of ours, which may come from anybody: a link or a device in the file's place leads nowhere, it
    is replaced.
    """
    with refusing(path):
        if path.is_dir() and not path.is_symlink():
            raise DiskError(f"{path} is a folder", "a file to write", "add a name to it")
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(path, content)


def write_output(path: Path, content: bytes) -> None:
    """As `write_bytes`, where the user points: a link leads to its target, as for a shell's `>`; devices and pipes are
    written through."""
    with refusing(path):
        if _is_passage(path):
            with open(path, "ab") as file:
                file.write(content)
            return
    write_bytes(Path(os.path.realpath(path)), content)


def inside(folder: Path, name: str) -> Path:
    """The place in a folder that a file in it names; refused where that leads out of it."""
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise StoreError(f"{folder} names {name!r}, which is not in it", "files of its own", RESTORE)
    return folder / name


def refuse_links(folder: Path) -> None:
    """Refuse to go on writing in a folder from which a link leads elsewhere: it may come from anybody."""
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise StoreError(f"{path} is a link", "files and folders of its own", "copy there what it links to")


def _write_whole(target: Path, content: bytes) -> None:
    half = target.with_name(f".{secrets.token_hex(8)}{HALF}")
    handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        with open(handle, "wb") as file:
            if target.is_file() and not target.is_symlink():
                os.chmod(half, stat.S_IMODE(target.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, target)
    except BaseException:
        with contextlib.suppress(OSError):
            half.unlink()
        raise


def _is_passage(path: Path) -> bool:
    """A device, a pipe, or what this process has open already, as /dev/stdout: no other file can take its place."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return True
    places = [str(path), *([os.readlink(path)] if os.path.islink(path) else [])]
    return any(re.fullmatch(r"/proc/\d+/fd", os.path.realpath(os.path.dirname(place))) for place in places)


# ---- folders


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process: a second is refused. The system lets go of it at the end, also after a kill."""
    try:
        import fcntl
    except ImportError:  # Windows has none
        yield
        return
    with refusing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with open(handle, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{folder} is being written by another process", "one at a time", "wait for it, or take another folder"
            ) from None
        yield


@contextlib.contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A new folder to write into, which then takes the place of `folder`, and of all that was in it, in one rename."""
    folder = Path(os.path.realpath(folder))
    if folder.is_dir() and not _shown(folder):  # nothing can be lost; it may be a volume, or the current folder
        try:
            yield folder
        except BaseException:
            for path in _shown(folder):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            raise
        return
    if Path(os.path.realpath("")).is_relative_to(folder):
        raise DiskError(f"{folder} is the current folder", "another to replace", "run this from outside of it")
    half = _beside(folder)
    with refusing(folder):
        _sweep(folder)
        half.mkdir(parents=True)
    try:
        with locked(half):
            yield half
            with refusing(folder):
                (half / ".lock").unlink(missing_ok=True)
                _take_place(half, folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)  # the half that failed, or what was in the folder


def discard(folder: Path) -> None:
    """Remove it: its name is gone at once, so that a kill leaves no part of it under that name."""
    _sweep(folder)
    if folder.is_dir():
        away = _beside(folder)
        with refusing(folder):
            os.rename(folder, away)
        shutil.rmtree(away, ignore_errors=True)


def _beside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name[:64]}.{secrets.token_hex(8)}{HALF}")


def _shown(folder: Path) -> list[Path]:
    """What is in it, but for hidden files."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _take_place(half: Path, folder: Path) -> None:
    """Afterwards `half` is what `folder` was, if there was anything."""
    if not folder.exists():
        os.rename(half, folder)
    elif not _swapped(half, folder):
        aside = half.with_suffix(".old")  # on such a system a kill between these two renames leaves it there
        os.rename(folder, aside)
        os.rename(half, folder)
        os.rename(aside, half)


def _swapped(one: Path, other: Path) -> bool:
    """Exchange two names at once; False where the system or the disk cannot."""
    library: Any = ctypes.CDLL(None) if os.name == "posix" else None
    paths = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):  # Linux
        return library.renameat2(CURRENT_FOLDER, paths[0], CURRENT_FOLDER, paths[1], SWAP) == 0
    if hasattr(library, "renamex_np"):  # macOS
        return library.renamex_np(*paths, SWAP) == 0
    return False


def _sweep(folder: Path) -> None:
    """Remove what kills have left beside a folder; what another process still writes is locked, and stays."""
    for half in folder.parent.glob(f".{glob.escape(folder.name[:64])}.*{HALF}"):
        with contextlib.suppress(StoreError, OSError), locked(half):
            shutil.rmtree(half, ignore_errors=True)


# ---- one large array, in a folder of its own: zarr 3 in chunks, each with its checksum, by tensorstore


METADATA = "zarr.json"
CHUNK_BYTES = 4 * 2**20
SMALL = 2**28  # bytes: an array of no more is read though its chunks be not there, since all of them may be zeros


class ArrayFile:
    """An array in a folder of its own. It is written at once, or in stretches along its second axis (draws)."""

    def __init__(self, path: Path, shape: tuple[int, ...] | None = None, dtype: Any = None, axis: int | None = None):
        """Open what is there; with a `shape`, begin anew. `axis` is the one along which stretches are written."""
        self._path = path
        spec: dict[str, Any] = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
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


def _open(spec: dict[str, Any], **how: Any) -> Any:
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
