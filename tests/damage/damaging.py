"""Ways to damage or edit a file, none of which computes a SHA-256 again: flips, cuts, swaps, well-formed edits."""

import hashlib
import io
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Damage = Callable[[Path, Path, np.random.Generator], str]  # (folder, another of its kind, random) -> what was done


def files(folder: Path) -> list[Path]:
    """All that something is read from: pages and tables for people are not."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (".lock", "index.html", "results.csv", "results.tex")
    )


def pick(folder: Path, random: np.random.Generator, *endings: str) -> Path | None:
    found = [path for path in files(folder) if not endings or path.name.endswith(endings)]
    return found[random.integers(len(found))] if found else None


def flip(folder: Path, other: Path, random: np.random.Generator) -> str:
    path = pick(folder, random)
    content = bytearray(path.read_bytes() or b"\0")
    for _ in range(random.integers(1, 4)):
        content[random.integers(len(content))] ^= 1 << random.integers(8)
    path.write_bytes(content)
    return f"flip {path.relative_to(folder)}"


def scribble(folder: Path, other: Path, random: np.random.Generator) -> str:
    path = pick(folder, random)
    content = bytearray(path.read_bytes() or b"\0")
    first = random.integers(len(content))
    content[first : first + random.integers(1, 40)] = random.bytes(random.integers(1, 40))
    path.write_bytes(content)
    return f"scribble {path.relative_to(folder)}"


def cut(folder: Path, other: Path, random: np.random.Generator) -> str:
    path = pick(folder, random)
    content = path.read_bytes()
    path.write_bytes(content[: random.integers(len(content) + 1)])
    return f"cut {path.relative_to(folder)}"


def grow(folder: Path, other: Path, random: np.random.Generator) -> str:
    path = pick(folder, random)
    path.write_bytes(path.read_bytes() + random.bytes(random.integers(1, 100)))
    return f"grow {path.relative_to(folder)}"


def remove(folder: Path, other: Path, random: np.random.Generator) -> str:
    path = pick(folder, random)
    if random.random() < 0.3 and path.parent != folder:
        shutil.rmtree(path.parent)
        return f"remove {path.parent.relative_to(folder)}/"
    path.unlink()
    return f"remove {path.relative_to(folder)}"


def swap(folder: Path, other: Path, random: np.random.Generator) -> str:
    """The file of another fit in the same place, or a part of it; no whole store, which is then that other fit."""
    path = pick(folder, random)
    theirs = other / path.relative_to(folder)
    is_part = path.parent != folder and theirs.parent.is_dir() and not (path.parent / "manifest.json").exists()
    if random.random() < 0.3 and is_part:
        shutil.rmtree(path.parent)
        shutil.copytree(theirs.parent, path.parent)
        return f"take {path.parent.relative_to(folder)}/ from another"
    if theirs.is_file():
        path.write_bytes(theirs.read_bytes())
    return f"take {path.relative_to(folder)} from another"


def exchange(folder: Path, other: Path, random: np.random.Generator) -> str:
    """Two files of one kind in one folder."""
    path = pick(folder, random)
    alike = [each for each in files(folder) if each.suffix == path.suffix and each != path]
    if not alike:
        return "nothing"
    second = alike[random.integers(len(alike))]
    mine, theirs = path.read_bytes(), second.read_bytes()
    path.write_bytes(theirs)
    second.write_bytes(mine)
    return f"exchange {path.relative_to(folder)} and {second.relative_to(folder)}"


def edit_json(folder: Path, other: Path, random: np.random.Generator) -> str:
    """One value of a JSON file, which stays well-formed."""
    path = pick(folder, random, ".json")
    content = json.loads(path.read_text())
    told = edit(content, random)
    path.write_text(json.dumps(content, indent=int(random.integers(3)) or None))
    return f"{path.relative_to(folder)}: {told}"


def edit_again(folder: Path, other: Path, random: np.random.Generator) -> str:
    """As `edit_json`, by someone with a purpose: the file's own SHA-256 is computed again."""
    path = pick(folder, random, ".json")
    content = json.loads(path.read_text())
    content.pop("sha256", None)
    told = edit(content, random)
    said = json.dumps(content, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps(content | {"sha256": hashlib.sha256(said.encode()).hexdigest()}))
    return f"{path.relative_to(folder)}: {told}, with its sum"


def edit(content: Any, random: np.random.Generator) -> str:
    """Changes one value somewhere in `content`; says which."""
    place, key, trail = content, None, []
    while isinstance(place, dict | list) and len(place):
        parent = place
        key = list(place)[random.integers(len(place))] if isinstance(place, dict) else int(random.integers(len(place)))
        place = place[key]
        trail.append(str(key))
        if random.random() < 0.1:
            break
    if key is None:
        return "nothing"
    where = ".".join(trail)
    if random.random() < 0.15:
        del parent[key]
        return f"{where} is gone"
    parent[key] = changed(place, random)
    return f"{where} is {str(parent[key])[:40]!r}"


def changed(value: Any, random: np.random.Generator) -> Any:
    odd = [None, [], {}, "", "evil:build", -1, 0, 1e308, 2**70, True, ["a"], {"a": 1}]
    odd += [float("nan"), float("-inf"), "../../a", "/dev/zero", "\ud800\0", "a" * 300, [[[]]] * 9]
    if random.random() < 0.25:
        return odd[random.integers(len(odd))]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(random.integers(-3, 4) or 1)
    if isinstance(value, float):
        return value - 1.0 if random.random() < 0.5 else value * 1.01 + 1e-6
    if isinstance(value, str):
        return value[:-1] + "x" if value else "x"
    if isinstance(value, list):
        return value[::-1] if len(value) > 1 and random.random() < 0.5 else value[1:]
    return value


def edit_chunk(folder: Path, other: Path, random: np.random.Generator) -> str:
    """A number of an array, with the chunk's own checksum computed again."""
    chunks = [path for path in files(folder) if "c" in path.relative_to(folder).parts[:-1] or path.name == "c"]
    if not chunks:
        return edit_npz(folder, other, random)
    path = chunks[random.integers(len(chunks))]
    content = bytearray(path.read_bytes()[:-4])
    place = 4 * random.integers(len(content) // 4) if len(content) >= 4 else 0
    content[place : place + 4] = struct.pack("<f", random.normal())
    path.write_bytes(bytes(content) + struct.pack("<I", crc32c(bytes(content))))
    return f"{path.relative_to(folder)}: another number"


def edit_npz(folder: Path, other: Path, random: np.random.Generator) -> str:
    """A number in an npz file, which stays a whole zip file; its comment is kept, or not."""
    path = pick(folder, random, ".npz")
    if path is None:
        return edit_json(folder, other, random)
    old = path.read_bytes()
    with np.load(io.BytesIO(old)) as file:
        arrays = {name: file[name] for name in file.files}
    name = list(arrays)[random.integers(len(arrays))]
    array = np.array(arrays[name]).reshape(-1)
    if array.size and array.dtype.kind in "fiu":
        array[random.integers(array.size)] += 1
    arrays[name] = array.reshape(np.shape(arrays[name]))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    new = buffer.getvalue()
    if old[-71:-64] == b"sha256:" and random.random() < 0.5:
        new = new[:-2] + struct.pack("<H", 71) + old[-71:]
    path.write_bytes(new)
    return f"{path.relative_to(folder)}: another number in {name}"


DAMAGES: tuple[Damage, ...] = (
    *(flip, scribble, cut, grow, remove, swap, exchange),
    *(edit_json, edit_json, edit_json, edit_chunk, edit_npz),
)


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(content: bytes) -> int:
    """Castagnoli's, as zarr has it."""
    total = 0xFFFFFFFF
    for byte in content:
        total = (total >> 8) ^ TABLE[(total ^ byte) & 0xFF]
    return total ^ 0xFFFFFFFF
