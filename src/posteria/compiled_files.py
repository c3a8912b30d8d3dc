"""Compiled code on disk, so that a new process need not compile it again: JAX's own cache, in the user's cache folder.

`POSTERIA_COMPILED` is another folder for it, or "off". Where JAX was told of a folder (`JAX_COMPILATION_CACHE_DIR`, or
`jax_compilation_cache_dir`), that one is taken, and nothing is changed.
"""

import contextlib
import hashlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

MOST_BYTES = 512 * 2**20  # what was not used for longest goes first, down to a half
LEAST_SECONDS = 0.0  # of compiling: many small functions take as long as a large one

_is_set = False


def keep() -> None:
    """Set it up, once a process, before anything is compiled."""
    global _is_set
    if _is_set:
        return
    _is_set = True
    import jax

    place, config = _folder(), jax.config.values
    if place is None or config["jax_compilation_cache_dir"] or not config["jax_enable_compilation_cache"]:
        return
    with contextlib.suppress(OSError):  # no home, a full disk: then it is compiled each time
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and place.stat().st_uid != os.getuid():
            return  # code of somebody else
        _make_room(place)
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _folder() -> Path | None:
    wanted = os.environ.get("POSTERIA_COMPILED", "")
    if wanted.lower() == "off":
        return None
    if wanted:
        return Path(wanted).expanduser() / _machine()
    if os.environ.get("XDG_CACHE_HOME"):
        home = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        home = Path(os.environ["LOCALAPPDATA"])
    else:
        with contextlib.suppress(RuntimeError):  # who has no home keeps nothing
            home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
            return home / "posteria" / "compiled" / _machine()
        return None
    return home / "posteria" / "compiled" / _machine()


def _machine() -> str:
    """Code is for one kind of processor: a home may be shared by machines."""
    kind = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        kind += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{version('jaxlib')}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"


def _make_room(place: Path) -> None:
    files = []
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                about = entry.stat(follow_symlinks=False)
                files.append((max(about.st_atime, about.st_mtime), about.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    if total <= MOST_BYTES:
        return
    for _, size, path in sorted(files):
        with contextlib.suppress(OSError):  # another process may have been faster
            os.unlink(path)
        total -= size
        if total <= MOST_BYTES // 2:
            return
