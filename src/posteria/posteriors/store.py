"""Folders on disk: a JSON manifest and arrays. Writes are whole or not at all, reads are checked, nothing is unpickled.

runs/hmc/manifest.json      schema, status, model, method, key, layout, versions, fingerprints, checksums
runs/hmc/start.npz          weights that the user gave the run to start from
runs/hmc/arrays/<name>/     the posterior's arrays (zarr 3, a checksum a chunk)
runs/hmc/stages/<stage>/    while running: state.npz (the last checkpoint) and kept/ (draws so far)

**Checksums** (schema 2). A manifest has the SHA-256 of its own content, and under "files" that of every file it stands
for: the arrays, start.npz, and the stages of a run that was cut short. A running fit replaces its checkpoints too often
to write a manifest for each: a state.npz has its own SHA-256 (as the comment of the zip file that it is), and holds
which run and stage it belongs to, the SHA-256 of the draws kept so far, and those of the stages before it. So a file
that is missing, damaged, edited or of another fit is noticed when it is read; one who computes the sums again is not.
Schema 1 had sums of chunks alone: it loads, and the posterior's notes say that it is not verified.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteria import disk
from posteria.disk import RESTORE as RESTORE
from posteria.disk import ArrayFile, named_dtype
from posteria.disk import locked as locked
from posteria.disk import refuse_damage as refuse_damage
from posteria.disk import write_bytes as write_bytes
from posteria.errors import StoreError
from posteria.tree import Arrays, Json

SCHEMA = 2
READABLE_SCHEMAS = (1, 2)
STATUSES = ("running", "cut short", "complete")
MANIFEST = "manifest.json"
START = "start.npz"
OURS = (MANIFEST, START, "arrays", "stages")  # all that a folder of ours holds, but for hidden files
SUM = "sha256"  # of a JSON file, in it
SINCE_SUMS = ("files", "row")  # what only those JSON files hold that have sums
NPZ_SUM = b"sha256:"  # the comment of an npz file, followed by 64 digits
LARGEST_DATUM = 2**31  # numbers in one row of x: more is no input, but damage
LARGE_NPZ, MOST_PACKED = 2**28, 20  # bytes; of more than so many, not each can be packed so often into one
NOT_AN_NPZ = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
UNVERIFIED = "the store is of schema 1, which has no checksums: nothing says that it is as it was written"


# ---- small files


def write_json(path: Path, content: Json) -> None:
    """With the sum of its content in it."""
    write_bytes(path, json_bytes(content))


def json_bytes(content: Json) -> bytes:
    """What `write_json` writes."""
    content = json.loads(json.dumps(content, allow_nan=False))  # as it will be read: tuples are lists
    return json.dumps(content | {SUM: _sum_of(content)}, indent=1).encode()


def read_json(path: Path) -> Json:
    """Refused where its content is not what its sum says, or where the schema is one that has sums and there is none;
    what has neither, as older files, is taken as it is."""
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("no object")
        given = content.pop(SUM, None)
        has_sum = given is not None or content.get("schema", 1) != 1 or any(name in content for name in SINCE_SUMS)
        is_right = not has_sum or given == _sum_of(content)
        if has_sum:
            json.dumps(content, ensure_ascii=False, allow_nan=False).encode()  # finite numbers, and text that is text
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read ({error})", "a JSON file of ours", RESTORE) from error
    if not is_right:
        raise _damaged(path)
    return content


def _sum_of(content: Json) -> str:
    """Of what it says, so that the order of names and white space do not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_npz(path: Path, arrays: Arrays, is_compressed: bool = True) -> str:
    """Arrays as one npz file that ends in its own sum; returns the sum of the whole file."""
    buffer = io.BytesIO()
    (np.savez_compressed if is_compressed else np.savez)(buffer, **arrays)  # type: ignore[arg-type]
    comment_size = struct.pack("<H", len(NPZ_SUM) + 64)
    content = buffer.getvalue()[:-2] + comment_size + NPZ_SUM  # a zip file ends in the size of its comment, and that
    content += hashlib.sha256(content).hexdigest().encode()
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def read_npz(path: Path, is_signed: bool = True, wanted: str | None = None) -> Arrays:
    """Refused where its sum is not that of its content, or where there is none and `is_signed` says there should be;
    or where the file is not the one of which `write_npz` returned `wanted`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error})", "an npz file", RESTORE) from error
    body, digest = content[:-64], content[-64:]
    has_sum = body.endswith(NPZ_SUM)
    if is_signed and not has_sum:
        raise _damaged(path)
    if has_sum and hashlib.sha256(body).hexdigest().encode() != digest:
        raise _damaged(path)
    if wanted is not None and hashlib.sha256(content).hexdigest() != wanted:
        raise StoreError(f"{path} is not the file that was written here: its SHA-256 is another", "that file", RESTORE)
    try:
        _check_size(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except NOT_AN_NPZ as error:
        raise StoreError(f"{path} is damaged ({error})", "an npz file", RESTORE) from error


def _check_size(content: bytes) -> None:
    """Refuse a small file that unpacks to more than a machine may hold."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        size = sum(part.file_size for part in file.infolist())
    if size > max(LARGE_NPZ, MOST_PACKED * len(content)):
        raise ValueError(f"{len(content):,} bytes that unpack to {size:,}")


def write_arrays(path: Path, arrays: Arrays) -> str:
    """As `write_npz`, of any dtype: those that NumPy does not know travel as raw bytes with their name."""
    dtypes = {name: np.asarray(array).dtype.name for name, array in arrays.items()}
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    raw: dict[str, Any] = {
        name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in arrays.items()
    }
    header = np.frombuffer(json.dumps({"dtypes": dtypes, "shapes": shapes}).encode(), np.uint8)
    return write_npz(path, raw | {"__header__": header}, is_compressed=False)


def read_arrays(path: Path, is_signed: bool = True, wanted: str | None = None) -> Arrays:
    arrays = read_npz(path, is_signed, wanted)
    with refuse_damage(path):
        header = json.loads(arrays["__header__"].tobytes())
        return {
            name: arrays[name].view(named_dtype(dtype)).reshape(header["shapes"][name])
            for name, dtype in header["dtypes"].items()
        }


def _damaged(path: Path) -> StoreError:
    return StoreError(
        f"{path} is damaged or was edited: its SHA-256 is another",
        "the file as it was written",
        "restore it, or fit again",
    )


# ---- manifests


def write_manifest(folder: Path, manifest: Json) -> None:
    write_json(folder / MANIFEST, manifest)


def read_manifest(folder: Path) -> Json:
    """The manifest of a folder that Posteria wrote, in a schema this version reads."""
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} holds no {MANIFEST}", "a folder that Posteria wrote", "check the path")
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != "posteria":
        raise StoreError(
            f"{folder / MANIFEST} is not Posteria's", 'a manifest with "format": "posteria"', "check the path"
        )
    schema = manifest.get("schema")
    if not isinstance(schema, int) or schema not in READABLE_SCHEMAS:
        raise StoreError(
            f"{folder} has schema {schema}",
            f"one of {list(READABLE_SCHEMAS)}",
            "load it with the version of Posteria that wrote it, or a newer one",
        )
    if manifest.get("status") not in STATUSES:
        raise StoreError(f"{folder} has status {manifest.get('status')!r}", f"one of {list(STATUSES)}", RESTORE)
    return manifest


def is_verified(manifest: Json) -> bool:
    return manifest["schema"] > 1


def identity(manifest: Json) -> str | None:
    """Of a run: of what its draws follow from. None where its checkpoints are not bound to it (schema 1)."""
    if not is_verified(manifest):
        return None
    run = {name: part for name, part in manifest["run"].items() if name != "layout"}
    return _sum_of({"model": manifest["model"], "run": run, START: manifest["files"].get(START)})


def digests(folder: Path, *parts: str) -> dict[str, str]:
    """The SHA-256 of every file in these parts of a folder, by its path in it."""
    return {path.relative_to(folder).as_posix(): _digest(path) for part in parts for path in _files(folder / part)}


def check_files(folder: Path, manifest: Json, *parts: str) -> None:
    """Refuse a folder whose files, in these parts, are not those that its manifest was written for."""
    if not is_verified(manifest):
        return
    wanted = {name: digest for name, digest in manifest["files"].items() if name.partition("/")[0] in parts}
    for name, digest in wanted.items():
        if not os.path.isfile(disk.inside(folder, name)):  # also of a name that is too long for any
            raise StoreError(f"{folder / name} is missing", "every file that was written", RESTORE)
        if _digest(folder / name) != digest:
            raise _damaged(folder / name)
    for path in (path for part in parts for path in _files(folder / part)):
        if path.relative_to(folder).as_posix() not in wanted:
            raise StoreError(f"{path} is not of this store", "the files that were written", "remove it")


def _files(path: Path) -> list[Path]:
    """Those below a folder, or the file itself; hidden ones, and what a kill left half written, are no part of it."""
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [file for file in found if file.is_file() and not (file.name.startswith(".") or "__lock" in file.name)]


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- folders


@contextlib.contextmanager
def new_folder(folder: Path, if_exists: str) -> Iterator[Path]:
    """Where to write what `folder` will then hold: it takes the place of what is there once it is whole."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file", "a folder", "choose another path")
    is_free = not folder.exists() or _is_as_good_as_empty(folder)
    if not is_free and if_exists != "replace":
        raise StoreError(
            f"{folder} is not empty",
            "an empty or new folder",
            'if_exists="resume" (--if-exists resume) continues the run in it, "replace" removes it',
        )
    if not is_free and not _is_ours(folder):
        raise StoreError(
            f"{folder} was not written by Posteria", "to replace what is ours alone", "choose another path"
        )
    with contextlib.nullcontext() if is_free else locked(folder), disk.written_whole(folder) as fresh:
        yield fresh


def _is_as_good_as_empty(folder: Path) -> bool:
    """Nothing but what a kill before the first manifest leaves behind."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    return names <= {START, "arrays"} and all((each / "zarr.json").is_file() for each in folder.glob("arrays/*"))


def _is_ours(folder: Path) -> bool:
    """Damaged or not."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        return names <= set(OURS) and bool(names & {"arrays", "stages"})
    return isinstance(manifest, dict) and manifest.get("format") == "posteria"


def save_arrays(folder: Path, arrays: Arrays) -> None:
    """All of them anew."""
    shutil.rmtree(folder / "arrays", ignore_errors=True)
    for name, array in arrays.items():
        array = np.asarray(array)
        ArrayFile(folder / "arrays" / name, array.shape, array.dtype).write(array)


def load_arrays(folder: Path, names: list[str]) -> Arrays:
    return {name: ArrayFile(disk.inside(folder / "arrays", name)).read() for name in names}


# ---- fingerprints and shapes


def fingerprint(data: Any) -> str:
    """SHA-256 over shapes, dtypes and bytes of every array in a tree."""
    if hasattr(data, "read_rows"):  # a source: of some rows alone
        own: str = data.fingerprint()
        return own
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
    if np.prod(stored["shape"], dtype=object) > LARGEST_DATUM:
        raise StoreError(f"one datum has shape {stored['shape']}", "an input of the network", "restore the manifest")
    return np.zeros(stored["shape"], named_dtype(stored["dtype"]))
