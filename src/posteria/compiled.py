"""The one owner of compiled code, and of what is made on the way to it.

`@kept` remembers what a function returned, by the contents of its arguments: kernels, compiled calls, what was read off
a network. It is stored on the user's object that it was made for (a network's `apply`, a density, or a closure made
for one of these), so that it goes when that object goes: a table elsewhere would keep the object alive, since compiled
code refers to it. What is made for no object is kept in one table of its own. All of it together is bounded: what was
used least recently goes first. What XLA compiled is kept on disk as well, for other processes.
"""

import contextlib
import ctypes
import dataclasses
import gc
import hashlib
import itertools
import os
import platform
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

MOST_BYTES = 2**30  # of compiled code
RECENT_BYTES = 48 * 2**20  # of it for ready networks that nobody holds any more
CALL_BYTES = 5 * 2**19  # of one compiled call on CPU, measured: XLA does not tell (1.8 MB for an addition, 6 for much)
ENTRY_BYTES = 2**16  # of what is made on the way
MANY_OWNERS = 3  # from so many on, those that were dropped are looked for when there is a new one
MANY_DROPPED = 12  # after so many, JAX's traces are cleared (some 3 MB each): what lives on is compiled again, once
SLOT = "_posteria_compiled"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def kept(fn: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Remember what `fn` returned, by the contents of its (hashable) arguments, while what it was made for lives."""

    @wraps(fn)
    def remembered(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        global _is_tidy
        key = (fn, args, tuple(sorted(kwargs.items())))
        with _lock:
            entries = _slot_of((*args, *kwargs.values())).entries
            if (entry := entries.get(key)) is not None:
                entry.used = next(_clock)
                value: Result = entry.value
                return value
        value = fn(*args, **kwargs)
        with _lock:
            entries[key] = _Entry(value, next(_clock))
            _make_room()
            _is_tidy = False
        return value

    return remembered


def clear() -> None:
    """Let go of all compiled code, Posteria's and JAX's own; what is used again is compiled again."""
    global _is_tidy
    import jax

    with _lock:
        for slot in list(_slots):
            slot.entries.clear()
        for shared in list(_shared):
            shared.clear()
    jax.clear_caches()
    gc.collect()
    _is_tidy = False
    give_back()


class Shared:
    """Objects that are equal by their settings: one of each for as long as anybody holds it, and the last few after."""

    def __init__(self) -> None:
        self._alive: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[Hashable, Any] = OrderedDict()
        _shared.add(self)

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        with _lock:
            value = self._alive.get(key)
            if value is None:
                value = self._alive[key] = make()
            self._recent[key] = value
            self._recent.move_to_end(key)
            while len(self._recent) > 1 and sum(map(_bytes, self._recent.values())) > RECENT_BYTES:
                self._recent.popitem(last=False)
        return value

    def clear(self) -> None:
        self._recent.clear()


def contents(part: Any) -> Hashable:
    """What `part` is now, to compare by: itself if it says when it equals another, else which it is and what it holds.

    An object that is hashed by identity would be taken for the same after its attributes have changed.
    """
    if _hash_of(part) is not object.__hash__:
        try:
            hash(part)
            return cast(Hashable, part)
        except TypeError:  # a frozen dataclass that holds an array
            pass
    return id(part), _frozen(part, ())


class Part:
    """A part of the user's model as an argument of what is `kept`: equal while it is the same and holds the same."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._contents = contents(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._contents)


def _hash_of(value: object) -> Any:
    return type(value).__hash__


def _frozen(value: Any, above: tuple[int, ...]) -> Hashable:
    if id(value) in above:
        return ("above", above.index(id(value)))
    above = (*above, id(value))
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return ("array", value.dtype.name, value.shape, value.tobytes())
    if isinstance(value, list | tuple):
        return (type(value), *(_frozen(part, above) for part in value))
    if isinstance(value, dict):
        return (dict, *((key, _frozen(part, above)) for key, part in value.items()))
    if not isinstance(value, type | FunctionType) and _hash_of(value) in (None, object.__hash__):
        attributes = vars(value) if hasattr(value, "__dict__") else {}
        own = {name: part for name, part in attributes.items() if name != SLOT}
        return (type(value), None if own else id(value), _frozen(own, above))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), _frozen({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, above))
    return cast(Hashable, value)


# ---- where things are kept


class _Entry:
    __slots__ = ("used", "value")

    def __init__(self, value: Any, used: int) -> None:
        self.value, self.used = value, used


class _Slot:
    """What is kept for one object; a copy of the object begins with nothing."""

    def __init__(self) -> None:
        self.entries: dict[Hashable, _Entry] = {}
        _slots.add(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Slot":
        return _Slot()

    def __reduce__(self) -> tuple[type["_Slot"], tuple[()]]:
        return _Slot, ()


_lock = threading.RLock()
_clock = itertools.count()
_slots: "weakref.WeakSet[_Slot]" = weakref.WeakSet()
_shared: "weakref.WeakSet[Shared]" = weakref.WeakSet()
_users_slots: "weakref.WeakSet[_Slot]" = weakref.WeakSet()  # those of users' objects
_of_nothing = _Slot()
_is_tidy = True  # nothing was made since memory was given back
_num_dropped = 0  # users' objects, since JAX's own traces were cleared


def _slot_of(args: tuple[Any, ...]) -> _Slot:
    """Of the user's object that a call is made for; else of a closure or object that was made for one; else of none."""
    for look in (_users, _derived):
        for owner in _walk(args, look):
            if (slot := _attached(owner, is_users=look is _users)) is not None:
                return slot
    return _of_nothing


def _walk(value: Any, look: Callable[[Any], Any]) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _walk(part, look)
    elif (found := look(value)) is not None:
        yield found


def _users(value: Any) -> Any:
    """`compiled_for` is how a class says whose object it stands for."""
    return None if isinstance(value, type) else getattr(value, "compiled_for", None)


def _derived(value: Any) -> Any:
    if isinstance(value, FunctionType):
        return value if "<locals>" in value.__qualname__ else None  # a module's own function stands for nobody
    is_plain = isinstance(value, type) or _hash_of(value) is not object.__hash__
    return None if is_plain else value


def _attached(owner: Any, is_users: bool) -> _Slot | None:
    try:
        attributes = vars(owner)
    except TypeError:  # it has none: a bound method, a compiled class
        return None
    if SLOT not in attributes:
        attributes[SLOT] = _Slot()
        if is_users:
            if len(_users_slots) >= MANY_OWNERS or _num_dropped >= MANY_DROPPED:
                _forget_dropped()
            _users_slots.add(attributes[SLOT])
            weakref.finalize(attributes[SLOT], _count_dropped).atexit = False
    slot: _Slot = attributes[SLOT]
    return slot


def _count_dropped() -> None:
    global _num_dropped
    _num_dropped += 1


def _forget_dropped() -> None:
    """A dropped network is in a cycle with its code, and Python cannot tell how much that is; and JAX keeps a trace of
    every shape that it has seen."""
    global _is_tidy, _num_dropped
    import jax

    gc.collect()
    _is_tidy = False
    if _num_dropped >= MANY_DROPPED and not isinstance(jax.numpy.zeros(()), jax.core.Tracer):  # not while tracing
        _num_dropped = 0
        jax.clear_caches()
    give_back()


def _bytes(value: Any, seen: set[int] | None = None) -> int:
    """Of a value and of all that is kept for it, as estimated."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, tuple):
        return sum(_bytes(part, seen) for part in value)
    slot = getattr(getattr(value, "compiled_for", value), "__dict__", {}).get(SLOT)
    entries = list(slot.entries.values()) if slot is not None else []
    return _own_bytes(value) + sum(_bytes(entry.value, seen) for entry in entries)


def _make_room() -> None:
    held = [(entry.used, slot, key, _own_bytes(entry.value)) for slot in _slots for key, entry in slot.entries.items()]
    total = sum(each[-1] for each in held)
    if total <= MOST_BYTES:
        return
    for _, slot, key, size in sorted(held, key=lambda each: each[0]):
        slot.entries.pop(key, None)
        total -= size
        if total <= MOST_BYTES:
            break


def _own_bytes(value: Any) -> int:
    return CALL_BYTES * value._cache_size() if hasattr(value, "_cache_size") else ENTRY_BYTES


def give_back() -> None:
    """Freed memory to the system, where the C library would keep it: compiling leaves much behind."""
    global _is_tidy
    if not _is_tidy:
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
    _is_tidy = True


# ---- on disk: JAX's own cache, in the user's cache folder

DISK_BYTES = 512 * 2**20  # what was not used for longest goes first, down to a half
LEAST_SECONDS = 0.0  # of compiling: many small functions take as long as a large one

_is_on_disk = False


def keep_on_disk() -> None:
    """Set it up, once a process, before anything is compiled: a new process need not compile it again.

    `POSTERIA_COMPILED` is another folder for it, or "off". Where JAX was told of a folder (`JAX_COMPILATION_CACHE_DIR`,
    or `jax_compilation_cache_dir`), that one is taken, and nothing is changed.
    """
    global _is_on_disk
    if _is_on_disk:
        return
    _is_on_disk = True
    import jax

    place, config = _folder(), jax.config.values
    if place is None or config["jax_compilation_cache_dir"] or not config["jax_enable_compilation_cache"]:
        return
    with contextlib.suppress(OSError):  # no home, a full disk: then it is compiled each time
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and place.stat().st_uid != os.getuid():
            return  # code of somebody else
        _make_room_on_disk(place)
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


def _make_room_on_disk(place: Path) -> None:
    files = []
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                about = entry.stat(follow_symlinks=False)
                files.append((max(about.st_atime, about.st_mtime), about.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    if total <= DISK_BYTES:
        return
    for _, size, path in sorted(files):
        with contextlib.suppress(OSError):  # another process may have been faster
            os.unlink(path)
        total -= size
        if total <= DISK_BYTES // 2:
            return
