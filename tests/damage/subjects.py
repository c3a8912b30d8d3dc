"""What is damaged, and what is then done with it: stores, comparisons, exports and what was published, two of each."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.cli import app
from posteria.engine import loop
from posteria.errors import PosteriaError

QUICK = ("--method", "metropolis-hastings", "--set", "num_draws=20", "--set", "num_warmup=5", "--network", "mlp:3")
HMC = po.HMC(num_chains=2, num_draws=12, num_warmup=6, num_leapfrog=3, start="prior")
READER = Path(__file__).with_name("read_exports.py")
SAME, REFUSED = "same", "refused"
JAX_NEEDS = ("jax", "jaxlib", "numpy", "numpy.libs", "ml_dtypes", "scipy", "scipy.libs", "opt_einsum")
NUM_ROWS = 30
FLOW = po.MeanField(family="flow", num_epochs=3)
EPINET = po.Epinet(po.MAP(num_epochs=3), num_indices=3, num_hidden=4, num_epochs=3)
CLASSES = {"likelihood": po.likelihoods.Categorical()}
KINDS = {  # of posteriors: a method that makes it, and whether its targets are classes
    "dirichlet": (po.PriorNetwork(num_epochs=3), True),
    "indexed": (EPINET, False),
    "flow": (FLOW, False),
    "process": (po.InfiniteWidth(), False),
    "latent-process": (po.InfiniteWidth(sampler=po.EllipticalSlice(num_draws=5, thinning=1)), True),
    "deep-process": (po.DeepKernel(num_epochs=3), False),
    "anchored": (po.AnchoredEnsemble(size=2), False),
    "folds": (po.Folds(), False),
}
RUNS = ("map-0", "twice-0", "hmc-reference-0")  # of the comparison


class Silent(AssertionError):
    """A damage that changed an answer, and was not told."""


class Raw(AssertionError):
    """A damage that ended in something else than a sentence."""


def table(seed: int, path: Path) -> Path:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": random.normal(size=NUM_ROWS), "b": random.choice(["u", "v", "w"], NUM_ROWS)})
    frame.loc[::7, "a"] = np.nan
    frame["y"] = frame["a"].fillna(0) + (frame["b"] == "u") + 0.1 * random.normal(size=NUM_ROWS)
    frame.to_csv(path, index=False)
    return path


def posteria(*arguments: Any) -> Any:
    """What the command line says on standard output, or None where it refuses; anything else is raised."""
    answer = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if answer.exit_code == 0:
        return answer.stdout
    said = answer.stderr
    is_told = said.startswith("posteria: ") and len(said.splitlines()) <= 2 and "not foreseen" not in said
    if not is_told or not (answer.exception is None or isinstance(answer.exception, SystemExit)):
        raise Raw(f"{arguments[0]}: exit {answer.exit_code}, {answer.exception!r}: {said[-500:]}")
    return None


def python(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except PosteriaError:
        return None


@dataclass
class Subject:
    """A folder, another of its kind, and what may be asked of it: each answer is text, None where it refuses."""

    folder: Path
    other: Path
    asks: dict[str, Callable[[Path], str | None]]
    answers: dict[str, set[str]]  # that are right

    @classmethod
    def of(cls, folder: Path, other: Path, asks: dict, work: Path, also: dict[str, str] | None = None) -> "Subject":
        subject = cls(folder, other, asks, {})
        for name, ask in asks.items():
            copy = Path(shutil.copytree(folder, work / "fresh"))
            answer = ask(copy)
            assert answer is not None, f"{folder}: {name} refuses what is whole"
            subject.answers[name] = {answer} | ({also[name]} if also and name in also else set())
            shutil.rmtree(copy)
        return subject

    def ask(self, name: str, copy: Path) -> str:
        answer = self.asks[name](copy)
        if answer is None:
            return REFUSED
        if answer not in self.answers[name]:
            raise Silent(f"{name} of {self.folder.name} answers {answer[:200]!r}")
        return SAME


def make(home: Path) -> dict[str, Subject]:
    """All subjects, in `home`; `home/work` is where copies of them are damaged."""
    work = home / "work"
    work.mkdir(parents=True)
    data = table(0, home / "table.csv")
    new = home / "new.csv"
    pd.read_csv(data)[["y", "b", "a"]][:5].to_csv(new, index=False)
    for seed in (0, 1):
        for target, name in (("y", "numbers"), ("b", "classes")):
            out = home / f"{name}-{seed}"
            assert posteria("fit", data, "--target", target, *QUICK, "--seed", seed, "-o", out, "-q") is not None
        short = ("--target", "y", *QUICK, "--seed", seed, "-o", home / f"cut-{seed}", "-q", "--minutes", "1e-9")
        assert posteria("fit", data, *short) is not None
        running(home, data, seed)
        comparison(home / f"comparison-{seed}", seed)
        numbers = po.load(home / f"numbers-{seed}")
        numbers.export(home / f"export-{seed}")
        po.publish(numbers, home / f"published-{seed}")
    shutil.copytree(home / "running-0", work / "whole")
    whole = resumed(work / "whole", home)
    shutil.rmtree(work / "whole")

    def of(name: str, asks: dict, also: dict[str, str] | None = None) -> Subject:
        return Subject.of(home / f"{name}-0", home / f"{name}-1", asks, work, also)

    stored = {"po.load": loaded, "predict": lambda folder: posteria("predict", folder, new, "-q")}
    unfinished = {"po.resume": lambda folder: resumed(folder, home), "resume": shown}
    compared = {
        "report": reported,
        "po.compare": lambda folder: compared_again(folder, 0),
        "po.load": loaded_runs,
    }
    return {
        "numbers": of("numbers", stored | {"resume": shown}),
        "classes": of("classes", {name: ask for name, ask in stored.items() if name != "po.load"}),
        "cut": of("cut", stored | unfinished),
        "running": of("running", unfinished, {"po.resume": whole}),
        "comparison": of("comparison", compared),
        "published": of("published", {"po.load": loaded}),
    }


def make_kinds(home: Path) -> dict[str, Subject]:
    """A posterior of each kind that methods other than samplers make."""
    for name, (method, is_classes) in KINDS.items():
        model = po.Model(po.nn.mlp((3,), outputs=3 if is_classes else 1), **CLASSES if is_classes else {})
        for seed in (0, 1):
            random = np.random.default_rng(seed)
            x = random.normal(size=(NUM_ROWS, 2)).astype(np.float32)
            y = (x[:, 0] > 0) + (x[:, 1] > 0) if is_classes else x[:, 0] + 0.1 * random.normal(size=NUM_ROWS)
            po.fit(model, (x, y), method, key=seed, progress=False).save(home / f"{name}-{seed}")
    stored = {"po.load": loaded}
    return {name: Subject.of(home / f"{name}-0", home / f"{name}-1", stored, home / "work") for name in KINDS}


def loaded(folder: Path) -> str | None:
    """All that a posterior is, as it is loaded."""

    def act() -> str:
        posterior = po.load(folder)
        settings, arrays = posterior.state()
        total = hashlib.sha256()
        for name, array in sorted(arrays.items()):
            total.update(name.encode() + np.ascontiguousarray(array).tobytes())
        about = [
            settings,
            posterior.facts,
            posterior.attached,
            repr(posterior.model.prior),
            posterior.model.temperature,
        ]
        return total.hexdigest() + json.dumps(about, sort_keys=True)

    return python(act)


def loaded_runs(folder: Path) -> str | None:
    found = [loaded(folder / "runs" / "data" / name) for name in RUNS]
    return None if None in found else " ".join(map(str, found))


def running(home: Path, data: Path, seed: int) -> Path:
    """A fit that was stopped among its draws, as `posteria fit` writes it."""
    folder = home / f"running-{seed}"
    check = loop.Run._check_finite

    def stop(self: Any, info: Any, rows: Any, first: int, thinning: int) -> None:
        check(self, info, rows, first, thinning)
        if self._path[-1:] == ("draws",) and first >= 1:
            raise KeyboardInterrupt

    preparation, rows = prepared(data)
    attach = {
        "preparation": preparation.to_json(),
        "source": {"data": str(data), "target": "y", "kind": None, "ignore": [], "network": "mlp:3"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Run, "_check_finite", stop)
        with pytest.raises(KeyboardInterrupt):
            model = po.Model(po.nn.mlp((3,)))
            po.fit(model, rows, HMC, key=seed, out=folder, progress=False, attach=attach)
    return folder


def prepared(data: Path) -> tuple[Any, tuple]:
    frame = pd.read_csv(data)
    preparation = po.data.Preparation.from_table(frame, "y")
    return preparation, (preparation.inputs(frame), preparation.targets(frame["y"]))


def resumed(folder: Path, home: Path) -> str | None:
    rows = prepared(home / "table.csv")[1]

    def act() -> str:
        posterior = po.resume(folder, rows, progress=False)
        return hashlib.sha256(np.ascontiguousarray(posterior.stored.flat).tobytes()).hexdigest()

    return python(act)


def shown(folder: Path) -> str | None:
    """What `posteria resume` prints, but for the time it took and its place."""
    said = posteria("resume", folder, "-q", "--json")
    if said is None:
        return None
    return json.dumps({name: part for name, part in json.loads(said).items() if name not in ("seconds", "folder")})


def comparison(folder: Path, seed: int) -> Any:
    random = np.random.default_rng(3)
    x = random.normal(size=(40, 2)).astype(np.float32)
    y = x[:, 0] + 0.2 * random.normal(size=40)
    climb = po.MAP(num_epochs=20 + seed)
    methods = {"map": climb, "twice": po.Ensemble(climb, 2)}
    settings = {"reference": HMC, "seeds": 1, "baselines": False, "out": folder}
    return po.compare(po.Model(po.nn.mlp(())), (x, y), methods, **settings)


def compared_again(folder: Path, seed: int) -> str | None:
    """The scores of a comparison that is continued, but for times."""

    def act() -> str:
        rows = comparison(folder, seed).results["problems"][0]["rows"]
        scores = {row["name"]: {key: score["value"] for key, score in row["scores"].items()} for row in rows}
        for row in scores.values():
            for key in ("seconds", "compile_seconds", "ms_row"):
                row.pop(key, None)
        return json.dumps([scores, [row["status"] for row in rows]], sort_keys=True)

    return python(act)


def reported(folder: Path) -> str | None:
    return (folder / "index.html").read_text() if posteria("report", folder) is not None else None


def read_exports(folders: list[Path], new: Path) -> list[str]:
    """One line a folder from one process: a digest of what is predicted, or the exception; "crash" where it died."""
    command = [sys.executable, "-S", str(READER), str(new), *map(str, folders)]
    answer = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(jax_alone(new))}
    )
    lines = answer.stdout.splitlines()
    if len(lines) < len(folders):
        lines.append(f"crash {answer.returncode} {answer.stderr[-300:]}")
        lines += read_exports(folders[len(lines) :], new) if len(lines) < len(folders) else []
    return lines


def jax_alone(beside: Path) -> Path:
    """A folder with what JAX needs, and without flatbuffers."""
    folder = beside.with_name("jax_alone")
    if not folder.exists():
        folder.mkdir()
        site = Path(np.__file__).parent.parent
        for name in JAX_NEEDS:
            if (site / name).exists():
                (folder / name).symlink_to(site / name)
    return folder
