"""One thing done over and over, for the test that kills it: `python killed.py ACTION HOME`.

HOME holds two posteriors, `a` and `b`, and a comparison; what is written goes to HOME/out-ACTION. A line is printed
once it is under way.
"""

import itertools
import secrets
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import posteria as po
from posteria import report
from posteria.comparison.tell import results
from posteria.engine import checkpoint, chunks
from posteria.posteriors import export

checkpoint.CHECKPOINT_SECONDS, checkpoint.CHECKPOINT_SHARE, chunks.CHUNK_SECONDS = 0.0, 1.0, 0.005
HMC = po.HMC(num_chains=2, num_draws=60, num_warmup=20, num_leapfrog=3, start="prior")


def problem() -> tuple:
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 2)).astype(np.float32)
    return po.Model(po.nn.mlp((3,))), (x, x[:, 0] + 0.1 * random.normal(size=40))


def compare(folder: Path, **settings: Any) -> Any:
    model, data = problem()
    methods = {"map": po.MAP(num_epochs=20)}
    return po.compare(model, data, methods, reference=None, seeds=1, baselines=False, out=folder, **settings)


def actions(home: Path, action: str) -> dict[str, Callable[[int], object]]:
    """By name, with the number of the time."""
    model, data = problem()
    both = [po.load(home / name) for name in ("a", "b")]
    compiled = [export._exported(export._prediction(each, 5), each.target.blank_input) for each in both]
    out = home / f"out-{action}"

    def exported(number: int) -> object:
        export._exported = lambda *_: compiled[number % 2]  # else most of the time would go into compiling
        return both[number % 2].export(out, num_draws=5, if_exists="replace")

    def reported(number: int) -> object:
        found = results.read(home / "comparison")
        found["command"] = "ab"[number % 2] * 1000
        results.write_all(out, found)
        return report.write(out)

    def saved(number: int) -> object:
        for path in [path for path in out.iterdir() if not path.name.startswith(".")][:-5]:
            path.rename(out / f".{path.name}")  # a kill while it is removed is none of ours
            shutil.rmtree(out / f".{path.name}")
        return both[0].save(out / secrets.token_hex(4))

    return {
        "save": saved,
        "replace": lambda number: both[number % 2].save(out, if_exists="replace"),
        "fit": lambda number: po.fit(model, data, HMC, key=number % 2, out=out, if_exists="replace", progress=False),
        "export": exported,
        "report": reported,
        "compare": lambda number: compare(out, if_exists="replace"),
    }


if __name__ == "__main__":
    act = actions(Path(sys.argv[2]), sys.argv[1])[sys.argv[1]]
    for number in itertools.count():
        act(number)
        if number == 1:
            print("under way", flush=True)
