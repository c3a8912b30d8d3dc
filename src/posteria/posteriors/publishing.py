"""Released samples: a posterior as a folder that others can rely on, read from a path or a URL.

OUT/manifest.json         what it is a posterior of, its settings and facts, and the SHA-256 of every file
OUT/draws.safetensors     its arrays
OUT/README.md             a card for people: method, data, measured scores, how to load it

Everything is checked before it is used: a file by its sum, the manifest by the sum in it and by its bytes, which are
those that its content is written as. Nothing in it names code that would be imported.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from posteria import disk
from posteria.bridges import safetensors_file
from posteria.errors import SettingError, StoreError
from posteria.posteriors import store
from posteria.tree import Arrays, Json

DRAWS, CARD = "draws.safetensors", "README.md"
FILES = {DRAWS, CARD}
STATUS = "published"

Read = Callable[[str], bytes]  # of a file's name


def is_published(path: str | Path) -> bool:
    """A URL, or a folder that `publish` wrote, whole or damaged."""
    return is_url(path) or (Path(path) / DRAWS).is_file()


def is_url(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def read(path: str | Path) -> tuple[Json, Arrays]:
    """The manifest and the arrays of what was published there, checked from end to end."""
    file = _from_url(str(path)) if is_url(path) else _from_folder(Path(path))
    manifest = _manifest(file(store.MANIFEST), path)
    with store.refuse_damage(Path(str(path))):
        if set(manifest["files"]) != FILES:
            raise ValueError(f"files {sorted(manifest['files'])}")
        parts = {name: _verified(name, file(name), digest, path) for name, digest in manifest["files"].items()}
        arrays = safetensors_file.tensors(parts[DRAWS])
        if sorted(arrays) != sorted(manifest["posterior"]["arrays"]):
            raise ValueError(f"arrays {sorted(arrays)}")
        return manifest, arrays


# ---- reading


def _from_folder(folder: Path) -> Read:
    def read(name: str) -> bytes:
        try:
            return disk.inside(folder, name).read_bytes()
        except OSError as error:
            raise StoreError(
                f"{folder / name} cannot be read ({error})", "the published files", store.RESTORE
            ) from error

    return read


def _from_url(url: str) -> Read:
    try:
        import fsspec
    except ImportError as error:
        raise SettingError("fsspec is not installed", "it, to read a URL", "pip install posteria[remote]") from error

    def read(name: str) -> bytes:
        try:
            with fsspec.open(f"{url.rstrip('/')}/{name}", "rb") as file:
                content: bytes = file.read()
                return content
        except (OSError, ValueError, ImportError) as error:
            got = f"{url.rstrip('/')}/{name} cannot be read ({type(error).__name__}: {error})"
            raise StoreError(got, "a published posterior", "check the address, and what fsspec needs for it") from error

    return read


def _manifest(content: bytes, path: str | Path) -> Json:
    """Its content, where its bytes are those that `store.write_json` makes of it."""
    try:
        manifest = json.loads(content)
        digest = manifest.pop(store.SUM)
        is_whole = content == store.json_bytes(manifest) and manifest["status"] == STATUS
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(store.MANIFEST, path) from error
    if not is_whole or not isinstance(digest, str):
        raise _refused(store.MANIFEST, path)
    found: Json = manifest
    return found


def _verified(name: str, content: bytes, digest: str, path: str | Path) -> bytes:
    if hashlib.sha256(content).hexdigest() != digest:
        raise _refused(name, path)
    return content


def _refused(name: str, path: str | Path) -> StoreError:
    return StoreError(
        f"{name} of {path} is damaged or was edited: its SHA-256 is another",
        "the files as they were published",
        "fetch them again",
    )
