"""Whether default uncertainty holds on tables, and what it is worth beside peers.

Every regression table at hand, at 200, 750, 2,000 and 10,000 training rows, up to 1,000 test rows, three seeds (each
another split and another fit). Wanted, with no setting changed: 90 % intervals that cover 87 to 93 % on average over
tables at every size, and on no table less than 84 % (two binomial standard errors allowed); with quality="balanced" the
first mean rank by CRPS and by log-likelihood among itself and the peers; with no preset more than 0.3 nats a row behind
the best of them on any table.

All methods alike are scored by their mean, their quantiles and the log of their density at the test targets. CRPS is
twice the mean quantile score over 100 levels; the interval is from quantile 5 % to 95 %; all scores are in units of the
training targets' standard deviation. Seconds are of the fit and these predictions, with what compiling they took.

    python benchmarks/honesty.py --half choose --sizes 200 750 --seeds 0 --records choose.jsonl

Every fit is written to `--records` as it ends, and what is there is not run again: an interrupted run goes on, and
other code needs another file. Peers are run where `--python` names the Python of an environment that has them
(`make honesty` makes one from `honesty_peers.txt`).
"""

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import honesty_tables
import numpy as np
from honesty_tables import HALVES, NAMES, SIZES, Split
from honesty_verdicts import tell
from measure import ROOT

import posteria as po
from posteria import metrics
from posteria.recipes import QUALITIES

PEERS = ("catboost", "ngboost", "boosting", "bde")
LEVELS = (np.arange(100) + 0.5) / 100
ENDS = (0.05, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, default="all")
    parser.add_argument("--tables", nargs="+", choices=NAMES, help="these alone, of either half")
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, default=list(SIZES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--presets", nargs="*", choices=("default", *QUALITIES), default=list(QUALITIES))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--python", metavar="PYTHON", help="of the peers' environment; without it they are not run")
    parser.add_argument("--records", type=Path, default=ROOT / "honesty.jsonl")
    parser.add_argument("--only-tell", action="store_true", help="run nothing, judge what is recorded")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    names = arguments.tables or list(HALVES[arguments.half])
    if not arguments.only_tell:
        run(names, arguments)
    records = [
        record
        for record in read(arguments.records)
        if record["table"] in names and record["size"] in arguments.sizes and record["seed"] in arguments.seeds
    ]
    tell(records, arguments.presets, arguments.peers)


def run(names: list[str], arguments: argparse.Namespace) -> None:
    """Small fits first, so that all tables have been seen when time is short."""
    done = {(record["table"], record["size"], record["seed"], record["method"]) for record in read(arguments.records)}
    methods: dict[str, Callable[[Split, int], dict]] = {name: _preset(name) for name in arguments.presets}
    if arguments.python:
        methods |= {name: _peer(name, arguments.python) for name in arguments.peers}
    for size in sorted(arguments.sizes):
        for seed in arguments.seeds:
            for name in names:
                missing = [method for method in methods if (name, size, seed, method) not in done]
                if not missing:
                    continue
                frame, y = honesty_tables.load(name)
                num_train = honesty_tables.sizes_of(len(y)).get(size)
                if num_train is None:
                    continue
                split = honesty_tables.split(frame, y, num_train, seed)
                for method in missing:
                    record = {"table": name, "size": size, "seed": seed, "method": method, "rows": num_train}
                    try:
                        record |= scores(methods[method](split, seed), split)
                    except Exception as error:  # a fit that fails is a result, and the others go on
                        record["error"] = f"{type(error).__name__}: {error}"[:300]
                    append(arguments.records, record)


def scores(answer: dict[str, Any], split: Split) -> dict[str, float]:
    """Of a mean (n,), quantiles (level, n), the ends of the interval (2, n), and log densities (n,)."""
    y, y_std = split.test[1], split.train[1].std()
    return {
        "tested": len(y),
        "covered": metrics.coverage(*answer["ends"], y),
        "crps": metrics.crps_from_quantiles(answer["quantiles"], y) / y_std,
        "log_likelihood": float(np.mean(answer["log_prob"]) + np.log(y_std)),
        "rmse": metrics.rmse(answer["mean"], y) / y_std,
        "seconds": float(answer["seconds"]),
    }


def _preset(name: str) -> Callable[[Split, int], dict]:
    settings = {} if name == "default" else {"quality": name}

    def fit(split: Split, seed: int) -> dict:
        began = time.perf_counter()
        model = po.Regressor(random_state=seed, **settings).fit(*split.train)
        x, y = split.test
        predictive = model._predict(x)
        quantiles = predictive.quantile(np.concatenate([LEVELS, ENDS]))[..., 0]
        answer = {
            "mean": predictive.mean[:, 0],
            "quantiles": quantiles[: len(LEVELS)],
            "ends": quantiles[len(LEVELS) :],
            "log_prob": predictive.log_prob(y),
        }
        return answer | {"seconds": time.perf_counter() - began}

    return fit


def _peer(name: str, python: str) -> Callable[[Split, int], dict]:
    def fit(split: Split, seed: int) -> dict:
        x, x_new = honesty_tables.as_numbers(split)
        with tempfile.TemporaryDirectory() as folder:
            given, answer = Path(folder) / "split.npz", Path(folder) / "answer.npz"
            levels = np.concatenate([LEVELS, ENDS])
            np.savez(given, x=x, y=split.train[1], x_new=x_new, y_new=split.test[1], levels=levels)
            script = str(Path(__file__).parent / "honesty_peers.py")
            command = [python, script, str(given), str(answer), name, str(seed)]
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode:
                raise RuntimeError(ended.stderr.strip().splitlines()[-1])
            found = dict(np.load(answer))
        quantiles = found["quantiles"]
        return found | {"quantiles": quantiles[: len(LEVELS)], "ends": quantiles[len(LEVELS) :]}

    return fit


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append(file: Path, record: dict) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(record) + "\n")
    told = record.get("error") or f"covers {record['covered']:.1%}, CRPS {record['crps']:.4f}, " + (
        f"log-likelihood {record['log_likelihood']:.3f}, {record['seconds']:.1f} s"
    )
    print(f"{record['table']}, {record['size']} rows, seed {record['seed']}, {record['method']}: {told}", flush=True)


if __name__ == "__main__":
    main()
