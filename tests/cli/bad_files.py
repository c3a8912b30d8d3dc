"""Files that are no tables, folders that are no fits, and places that nothing can be written to."""

import json
import zipfile
from pathlib import Path

import numpy as np

COLUMNS = "a,b,c,y\n"
LONG = "n" * 5000

# tables without a target, or with a bad one, have rows that can be predicted
READABLE = {
    *("no target", "a target that is missing", "a constant target"),
    *("an infinite target", "a target with a stray word", "a huge target", "one row", "no inputs at all"),
    *("a long field", "a long number", "another ending"),
}


def table(num_rows: int = 20, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    return COLUMNS + "".join(",".join(f"{value:.4f}" for value in row) + "\n" for row in rng.normal(size=(num_rows, 4)))


def tables(folder: Path) -> dict[str, str]:
    """Paths of files that cannot be learnt from, by what is wrong with them."""
    good = table()
    lines = good.splitlines(keepends=True)
    contents: dict[str, str | bytes] = {
        "empty": "",
        "blank": "\n\n\n",
        "spaces": "   \n \t \n",
        "header alone": COLUMNS,
        "numbers for a header": "1,2,3,4\n1,2,3,4\n",
        "no target": good.replace(",y\n", ",z\n"),
        "a target that is missing": COLUMNS + "1,2,3,\n" * 5,
        "a constant target": COLUMNS + "1,2,3,4\n2,3,4,4\n3,4,5,4\n",
        "an infinite target": good + "1,2,3,inf\n",
        "a target with a stray word": good + "1,2,3,four\n",
        "a huge target": good + "1,2,3,1e308\n-1,2,3,-1e308\n",
        "a longer row": good + "1,2,3,4,5\n",
        "many longer rows": COLUMNS + "1,2,3,4,5,6,7\n" * 20,
        "an open quote": good + '"1,2,3,4\n5,6,7,8\n',
        "a quote in the header": '"a,b,c,y\n1,2,3,4\n',
        "one column": "y\n1\n2\n3\n",
        "one row": COLUMNS + "1,2,3,4\n",
        "no inputs at all": COLUMNS + ",,,4\n,,,5\n,,,6\n",
        "words alone": "".join(f"x{i},y{i},z{i},w{i}\n" for i in range(20)),
        "a huge input": good + "1e308,2,3,4\n-1e308,2,3,4\n",
        "NUL alone": "\0" * 1000,
        "invalid UTF-8": lines[0].encode() + b"\xff\xfe\x80,2,3,4\n" * 5,
        "late invalid UTF-8": good.encode() * 20 + b"\xff\xfe\x80,2,3,4\n",
        "binary": np.random.default_rng(1).bytes(5000),
        "JSON": json.dumps({"a": [1, 2, 3], "y": [1, 2, 3]}),
        "HTML": "<!doctype html><html><body>404</body></html>",
        "a zip": b"PK\x03\x04" + b"\0" * 200,
        "a long field": good + f'"{"x" * 200_000}",2,3,nan\n',
        "a long name": f"{'x' * 200_000},b,c,d\n" + "1,2,3,4\n" * 5,
        "a long number": good + f"1,2,3,{'9' * 400}\n",
    }
    found = {}
    for number, (name, content) in enumerate(contents.items()):
        path = folder / f"table{number}.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        found[name] = str(path)
    (folder / "directory.csv").mkdir()
    (folder / "dangling.csv").symlink_to(folder / "nowhere.csv")
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    (folder / "good.csv").write_text(good)
    (folder / "good.xlsx").write_text(good)
    return found | {
        "missing": str(folder / "missing.csv"),
        "a directory": str(folder / "directory.csv"),
        "a dangling link": str(folder / "dangling.csv"),
        "a link to itself": str(folder / "loop.csv"),
        "a path too long": str(folder / f"{LONG}.csv"),
        "a path below a file": str(folder / "good.csv" / "x.csv"),
        "NUL in a path": str(folder / "a\0b.csv"),
        "no path": "",
        "a blank": " ",
        "a device": "/dev/null",
        "another ending": str(folder / "good.xlsx"),
        "the folder": str(folder),
        "a name too long": LONG,
        "a name with a NUL": "dia\0betes",
        "a name that climbs": "../../etc/passwd",
    }


def arrays(folder: Path) -> dict[str, str]:
    """Likewise .npz files."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 3)), rng.normal(size=10)
    contents: dict[str, dict] = {
        "no arrays": {},
        "no y": {"x": x},
        "no x": {"y": y},
        "other lengths": {"x": x, "y": y[:5]},
        "no rows": {"x": x[:0], "y": y[:0]},
        "NaN in x": {"x": x * np.nan, "y": y},
        "NaN in y": {"x": x, "y": y * np.nan},
        "infinite x": {"x": x * np.inf, "y": y},
        "huge x": {"x": np.full((10, 3), 1e308), "y": y},
        "huge y": {"x": x, "y": y * 1e300},
        "complex x": {"x": x * 1j, "y": y},
        "complex y": {"x": x, "y": y * 1j},
        "words for x": {"x": x.astype(str), "y": y},
        "words for y": {"x": x, "y": np.array(["one"] * 10)},
        "a scalar x": {"x": np.array(1.0), "y": y},
        "a scalar y": {"x": x, "y": np.array(1.0)},
        "wide y": {"x": x, "y": rng.normal(size=(10, 2, 2))},
        "one class": {"x": x, "y": np.ones(10, int)},
        "dates": {"x": x, "y": np.array(["2020-01-01"] * 10, "datetime64[D]")},
        "structures": {"x": np.zeros(10, [("a", float), ("b", int)]), "y": y},
    }
    found = {}
    for number, (name, content) in enumerate(contents.items()):
        path = folder / f"arrays{number}.npz"
        np.savez(path, **content)
        found[name] = str(path)
    np.savez(folder / "objects.npz", x=np.array([{}] * 10, object), y=y)
    (folder / "text.npz").write_text(table())
    (folder / "empty.npz").write_bytes(b"")
    (folder / "cut.npz").write_bytes((folder / "arrays5.npz").read_bytes()[:300])
    (folder / "directory.npz").mkdir()
    np.save(folder / "alone.npy", x)
    (folder / "alone.npy").rename(folder / "alone.npz")
    with zipfile.ZipFile(folder / "other.npz", "w") as archive:
        archive.writestr("x.npy", b"no array")
        archive.writestr("y.txt", b"no array")
    for name in ("objects", "text", "empty", "cut", "directory", "alone", "other", "missing"):
        found[name] = str(folder / f"{name}.npz")
    return found


def folders(folder: Path) -> dict[str, str]:
    """Paths that are no fits and no comparisons."""
    (folder / "empty folder").mkdir()
    (folder / "file").write_text("x")
    (folder / "dangling").symlink_to(folder / "nowhere")
    manifests = {
        "an empty manifest": "",
        "a manifest that is no JSON": "{",
        "a manifest of another program": '{"format": "other"}',
        "a list for a manifest": "[1, 2]",
        "a number for a manifest": "3",
        "null": "null",
        "a manifest without a model": '{"format": "posteria", "schema": 1, "status": "complete"}',
        "a manifest of the future": '{"format": "posteria", "schema": 99, "status": "complete"}',
        "NaN": '{"format": "posteria", "schema": NaN}',
        "deep JSON": "[" * 100_000,
    }
    found = {}
    for number, (name, content) in enumerate(manifests.items()):
        path = folder / f"fit{number}"
        path.mkdir()
        for file in ("manifest.json", "results.json"):
            (path / file).write_text(content)
        found[name] = str(path)
    binary = folder / "binary manifest"
    binary.mkdir()
    (binary / "manifest.json").write_bytes(b"\xff\xfe\x80" * 10)
    (binary / "results.json").write_bytes(b"\xff\xfe\x80" * 10)
    below = folder / "manifest is a folder"
    (below / "manifest.json").mkdir(parents=True)
    (below / "results.json").mkdir()
    return found | {
        "missing": str(folder / "missing"),
        "empty": str(folder / "empty folder"),
        "a file": str(folder / "file"),
        "below a file": str(folder / "file" / "below"),
        "a dangling link": str(folder / "dangling"),
        "too long": str(folder / LONG),
        "NUL": "a\0b",
        "a device": "/dev/null",
        "a binary manifest": str(binary),
        "a manifest that is a folder": str(below),
        "no path": "",
    }


def outputs(folder: Path) -> dict[str, str]:
    """Paths that no folder can be written to, or none should."""
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.tex").write_text("precious")
    (folder / "plain").write_text("x")
    (folder / "hanging").symlink_to(folder / "nowhere" / "at all")
    (folder / "round").symlink_to(folder / "round")
    return {
        "a folder in use": str(folder / "taken"),
        "a file": str(folder / "plain"),
        "below a file": str(folder / "plain" / "below"),
        "far below a file": str(folder / "plain" / "below" / "and below"),
        "too long": str(folder / LONG),
        "a link to itself": str(folder / "round"),
        "a path of too many links": str(folder / "round" / "below"),
        "NUL": str(folder / "a\0b"),
        "a device": "/dev/null",
        "below a device": "/dev/null/below",
        "a system's folder": "/proc/posteria",
    }
