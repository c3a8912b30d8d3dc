"""Build the wheel and the sdist, install each in a fresh environment of every Python, and use it there.

The wheel meets the newest versions that its requirements allow, the sdist those in `constraints.txt`, and the wheel
once more the oldest that they allow (on the oldest Python). In each environment the README's snippets run, one after
the other, and a few commands; then it is removed.

    python tools/try_installs.py [python3.11 python3.12 ...]

Without arguments: every `python3.x` of the classifiers that is found; with pyenv, `PYENV_VERSION=3.11.7:3.12.1:3.13.0`
makes these be found.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = [
    "posteria --version",
    "posteria --help",
    "posteria methods",
    "posteria data",
    "posteria about --json",
    "posteria fit houses.csv --target price --method hmc --set num_draws=20 --set num_warmup=20 --out run --quiet",
    "posteria predict run houses.csv -o predictions.csv --quiet",
]


def main(pythons: list[str]) -> int:
    pythons = pythons or [name for name in supported() if answers(name)]
    print(f"Pythons: {', '.join(pythons) or 'none was found'}", flush=True)
    if not pythons:
        return 1
    failures = []
    with tempfile.TemporaryDirectory(prefix="posteria-installs-") as folder:
        wheel, sdist = build(Path(folder))
        lowest = Path(folder, "lowest.txt")
        lowest.write_text("\n".join(re.sub(r">=([^,]+).*", r"==\1", line) for line in PROJECT["dependencies"]))
        trials = [(wheel, python, None) for python in pythons]
        trials += [(sdist, python, ROOT / "constraints.txt") for python in pythons]
        trials.append((wheel, pythons[0], lowest))
        print_row(*COLUMNS)
        for package, python, constraints in trials:
            what = "wheel" if package is wheel else "sdist"
            beside = "newest" if constraints is None else constraints.stem
            began = time.perf_counter()
            try:
                said = install_and_use(package, python, constraints, Path(folder, "environment"))
            except subprocess.CalledProcessError as error:
                failures.append(f"{python}, {what}, {beside}: {error.cmd}\n{error.stdout}{error.stderr}")
                said = ["FAILED"]
            finally:
                shutil.rmtree(Path(folder, "environment"), ignore_errors=True)
            said += [""] * (len(COLUMNS) - 4 - len(said))
            print_row(python.removeprefix("python"), what, beside, *said, f"{time.perf_counter() - began:.0f}")
    print(*failures, f"{len(trials) - len(failures)} of {len(trials)} pass", sep="\n\n")
    return len(failures)


SHOWN = ("jax", "flax", "numpy", "pandas", "scikit-learn")
COLUMNS = ("python", "package", "beside", "README", "commands", *SHOWN, "MB", "s")


def print_row(*cells: str) -> None:
    widths = (11 if name == "beside" else max(8, len(name)) for name in COLUMNS)
    print(*(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def supported() -> list[str]:
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    return [f"python{match[1]}" for match in found if match]


def answers(python: str) -> bool:
    return shutil.which(python) is not None and subprocess.run([python, "-V"], capture_output=True).returncode == 0


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of the files under version control: nothing left over from an earlier build."""
    source = folder / "source"
    for name in run("git", "ls-files", cwd=ROOT).split("\n")[:-1]:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--outdir", str(folder / "dist"), ".", cwd=source)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    print(*(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB" for path in (wheel, sdist)), sep="\n", flush=True)
    return wheel, sdist


def install_and_use(package: Path, python: str, constraints: Path | None, folder: Path) -> list[str]:
    """Cells of the table: what ran (anything that fails raises), versions, megabytes."""
    run(python, "-m", "venv", str(folder))
    here, bin = folder / "here", folder / "bin"
    here.mkdir()
    pinned = [] if constraints is None else ["-c", str(constraints)]
    run(str(bin / "python"), "-m", "pip", "install", "--quiet", *pinned, str(package), cwd=here)
    run(str(bin / "python"), "-m", "pip", "check", cwd=here)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    blocks = snippets()
    (here / "readme.py").write_text(STRICT + "\n".join(blocks))
    run(str(bin / "python"), "readme.py", cwd=here)
    (here / "houses.csv").write_text("\n".join(TABLE))
    for command in COMMANDS:
        run(*command.replace("posteria", str(bin / "posteria"), 1).split(), cwd=here)
    versions = f"from importlib.metadata import version; print(*map(version, {SHOWN}))"
    found = run(str(bin / "python"), "-c", versions, cwd=here).split()
    return [f"{len(blocks)} ran", f"{len(COMMANDS)} ran", *found, f"{size / 1e6:.0f}"]


# Our own code may use nothing that this Python or these versions are about to take away.
STRICT = "import warnings\nwarnings.filterwarnings('error', category=DeprecationWarning, module=r'posteria\\b')\n"
TABLE = ["size,kind,price", *(f"{30 + 7 * i},{'flat' if i % 3 else 'house'},{90 + 11 * i + i % 4}" for i in range(40))]


def snippets() -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    assert blocks
    return blocks


def run(*command: str, cwd: Path | None = None) -> str:
    """What a command prints, run without this process's own paths to Python."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
