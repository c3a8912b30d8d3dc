"""Ordinary mistakes on the command line: the arguments of commands, none of which is right."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from cli.bad_files import LONG, READABLE, arrays, folders, outputs, tables

QUICK = ["--method", "map", "--set", "num_epochs=1", "--network", "mlp:2", "-q"]
MANY_DIGITS = "9" * 5000

NUMBERS = ["nan", "inf", "-inf", "-1", "1e308", "-1e308", "1e-320", "one", "", "1,5", MANY_DIGITS]
WHOLES = ["-1", "1.5", "nan", "one", "", "0x10", "99999999999999999999", MANY_DIGITS]
OPTIONS = {
    "--temperature": [*NUMBERS, "0"],
    "--prior-std": [*NUMBERS, "0"],
    "--minutes": ["nan", "-inf", "-1", "-1e308", "one", "", "1,5", "0"],
    "--seed": [*WHOLES, "4294967296"],
    "--kind": ["", "foo", "Regression", "class"],
    "--if-exists": ["", "maybe", "Replace"],
    "--network": [
        *("", "mlp:0", "mlp:-1", "mlp:1.5", "mlp:a", "mlp:,", "mlp:2,,2", "mlp:50:50", "lenet5:3", "lenet5"),
        *("cnn-lstm", "mlp:99999999999", "mlp:999999999", f"mlp:{MANY_DIGITS}", "x" * 5000, "./x.py:build"),
        *("no.such:net", ":", "os:", "os:path", ":x", "posteria:nothing", "a b:c", "..:x", "json:dumps"),
    ],
    "--method": [
        *("", "hmcc", "HMC", "no.such:Method", "os:path", ":", "./x.py:Mine", "json:JSONEncoder", "x" * 5000),
        *("posteria.models.priors:Normal", "ensemble:5", "a\0b"),
    ],
    "--target": ["", "z", "Y", "\0", "y" * 5000],
    "--ignore": ["", "z", "y", "\0"],
    "--group": ["", "z", "y", "\0"],
}
WORDS = ["nan", "inf", "-1", "0", "1e308", "1e9", "9" * 40, MANY_DIGITS]
WORDS += ["none", "true", "", "abc", "[1,2]", "{}", "'1'", "1j"]
SETTINGS = {
    "map": ["num_epochs", "batch_size", "learning_rate", "optimizer", "validation", "patience", "tune", "tune_every"],
    "hmc": ["num_chains", "num_draws", "step_size", "trajectory", "num_leapfrog", "jitter", "target_acceptance"],
    "nuts": ["start", "num_warmup", "max_doublings"],
    "laplace": ["structure", "subset", "curvature", "map", "rank", "map.num_epochs"],
    "ensemble": ["size", "method", "method.num_epochs", "method.method"],
}
PAIRS = [
    *("", "=", "num_epochs", "num_epochs=", "=3", "a=1", "num_epochs.x=1", ".=1", "..=1", "num_epochs=1=2", "a.b.c=1"),
    *("optimizer=adam", "optimizer=optax.adam(1e-3)", "num epochs=1", "num_epochs=__import__('os')"),
    *("num_epochs=" + "[" * 5000, "num_epochs=" + "(" * 5000 + ")" * 5000, "num_epochs=1e", "num_epochs=\0", "fit=1"),
    *("__class__=1", "num_epochs=10**10", "fidelity=exact", "num_epochs='1'", "batch_size=0.5"),
]


def argument_mistakes(good: str) -> Iterator[list[str]]:
    """Of `posteria fit`, on a good table."""
    for option, values in OPTIONS.items():
        for value in values:
            usual = QUICK
            if option == "--method":
                usual = ["--network", "mlp:2", "-q"]
            elif option == "--network":
                usual = ["--method", "map", "--set", "num_epochs=1", "-q"]
            target = [] if option == "--target" else ["--target", "y"]
            yield ["fit", good, *target, *usual, option, value]
    for pair in PAIRS:
        yield ["fit", good, "--target", "y", "--method", "map", "--network", "mlp:2", "-q", "--set", pair]
    for method, names in SETTINGS.items():
        for name, word in itertools.product(names, WORDS):
            if not is_right(name, word):
                yield ["fit", good, "--target", "y", "--method", method, "-q", "--set", f"{name}={word}"]


def is_right(name: str, word: str) -> bool:
    """Words that happen to be right, or that would be a long fit."""
    optional = {"batch_size", "optimizer", "tune", "step_size", "trajectory", "num_leapfrog", "jitter", "map"}
    return (
        (word == "none" and name.partition(".")[2] not in ("num_epochs",) and name in optional)
        or (word == "0" and name in ("validation", "jitter", "num_warmup"))
        or (name == "subset" and word in ("abc", "none", "true"))
        or (name in ("learning_rate", "step_size", "trajectory") and word in ("1e9", "9" * 40))
    )


def file_mistakes(folder: Path, fitted: str) -> Iterator[list[str]]:
    """Of every command that reads a table."""
    bad_tables, bad_arrays = tables(folder), arrays(folder)
    for path in bad_tables.values():
        yield ["fit", path, "--target", "y", *QUICK]
        yield ["compare", path, "--target", "y", "--methods", "map", "--reference", "none", "-q"]
    for name, path in bad_tables.items():
        if name not in READABLE:
            yield ["predict", fitted, path, "-q"]
    for path in bad_arrays.values():
        yield ["fit", path, *QUICK]
        yield ["compare", path, "--methods", "map", "--reference", "none", "-q"]
    yield ["fit", str(folder / "good.csv"), *QUICK]  # no target


def folder_mistakes(folder: Path, good: str, fitted: str) -> Iterator[list[str]]:
    for path in folders(folder).values():
        yield ["predict", path, good, "-q"]
        yield ["resume", path, "-q"]
        yield ["export", path, str(folder / "exported"), "-q"]
        yield ["report", path]
    for name, path in outputs(folder).items():
        yield ["fit", good, "--target", "y", *QUICK, "-o", path]
        yield ["export", fitted, path, "-q"]
        if name not in ("a file", "a device", "a link to itself"):
            yield ["predict", fitted, good, "-q", "-o", path]
        yield ["compare", good, "--target", "y", "--methods", "map", "--reference", "none", "-q", "-o", path]


def other_mistakes(folder: Path, good: str, fitted: str) -> Iterator[list[str]]:
    for value in ("2", "0", "1", "-1", "nan", "inf", "ninety", ""):
        yield ["predict", fitted, good, "-q", "--interval", value]
    for value in ("0", "-1", "1.5", "many", MANY_DIGITS):
        yield ["predict", fitted, good, "-q", "--draws", value]
        yield ["export", fitted, str(folder / "thinned"), "-q", "--draws", value]
    for value in ("nan", "-1", "0", "inf", "soon"):
        yield ["resume", fitted, "-q", "--minutes", value]
    compare = ["compare", good, "--target", "y", "--reference", "none", "--methods", "map", "-q"]
    wrong = {
        "--seeds": ["0", "-1", "1.5", "99999999999999999999", "many"],
        "--splits": ["", "foo", "UCI"],
        "--group": ["", "z", "y"],
        "--time": ["", "z", "y"],
        "--test": ["", "missing.csv", good + "/x", str(folder)],
        "--budget": ["nan", "-1", "0", "inf", "1e308", "many"],
        "--methods": ["", ",", "hmcc", "map,,foo", "no.such:Mine", "\0"],
        "--reference": ["", "foo", "missing.npz", "none,none", str(folder)],
        "--minutes": ["nan", "-1", "0", "soon"],
        "--temperature": ["0", "nan", "-1"],
        "--kind": ["foo", ""],
        "--ignore": ["z"],
        "--network": ["foo", "mlp:x", "./x.py:build"],
        "--prior-std": ["0", "nan"],
    }
    for option, values in wrong.items():
        for value in values:
            yield [*compare, "-o", str(folder / "compared"), option, value]
    yield ["compare", good]
    yield ["data", "no such set"]
    yield ["data", ""]
    yield ["data", "../../etc/passwd"]
    yield ["data", "a\0b"]
    yield ["data", LONG]
    yield from (["fitt"], ["fit"], ["predict"], ["export", "x"], ["methods", "x"], ["--nonsense"])
    yield ["fit", good, "--nonsense"]


def later_command_mistakes(folder: Path, good: str, fitted: str) -> Iterator[list[str]]:
    """Of `plan`, `publish`, `calibrate` and `serve`. A server that started would not end: all of these are wrong."""
    more = folder / "more"
    more.mkdir()
    bad_tables = tables(more)
    plan = ["plan", good, "--target", "y", "--method", "map", "--network", "mlp:2", "--no-rehearse"]
    machines = ["", "a1000", "a100*", "a100*0", "a100*-1", "a100*1.5", "mine", "mine:", "mine:flops", "mine:flops=x"]
    machines += ["mine:flops=nan", "mine:flops=1e13,memory=-1", "mine:speed=1", "mine:flops=0", f"a100*{MANY_DIGITS}"]
    yield from ([*plan, "--on", value] for value in machines)
    yield from ([*plan, "--kind", value] for value in ("", "foo"))
    yield from ([*plan, "--network", value] for value in ("", "mlp:0", "no.such:net", "./x.py:build", "lenet5"))
    yield from ([*plan, "--method", value] for value in ("", "hmcc", "no.such:Mine", "\0"))
    yield from (
        [*plan, "--set", pair] for pair in ("", "=", "num_epochs=-1", "num_epochs=nan", "a=1", "optimizer=adam")
    )
    for name, path in bad_tables.items():
        yield ["plan", path, "--target", "y", "--method", "map", "--network", "mlp:2", "--no-rehearse"]
        if name not in READABLE:
            yield ["calibrate", fitted, path, "-q", "-o", str(more / "calibrated")]
            yield ["publish", fitted, str(more / "published"), "--test", path, "-q"]
    for path in folders(more).values():
        yield ["publish", path, str(more / "published"), "-q"]
        yield ["calibrate", path, good, "-q", "-o", str(more / "calibrated")]
        yield ["serve", path, "-q", "--no-token"]
    for path in outputs(more).values():
        yield ["publish", fitted, path, "-q"]
        yield ["calibrate", fitted, good, "-q", "-o", path]
    for value in ("", "maybe", "Replace"):
        yield ["publish", fitted, str(more / "taken"), "--if-exists", value, "-q"]
        yield ["calibrate", fitted, good, "-q", "-o", str(more / "taken"), "--if-exists", value]
    yield from (["calibrate", fitted, good, "-q", "--groups", value] for value in ("", "z", "\0", LONG))
    missing, file = str(more / "no.pem"), str(more / "plain")
    wrong = {
        "--port": ["-1", "65536", "1.5", "http", "", MANY_DIGITS],
        "--level": ["nan", "inf", "0", "1", "-1", "ninety", ""],
        "--rows": ["0", "-1", "1.5", "many", MANY_DIGITS],
        "--megabytes": ["0", "-1", "nan", "inf", "1e308", "many"],
        "--seconds": ["0", "-1", "nan", "inf", "1e308", "long"],
        "--waiting": ["0", "-1", "1.5", "many"],
        "--token": ["", " ", "ä", " spaces "],
        "--host": ["", "no.such.host.invalid", "999.1.1.1", "http://localhost", "\0"],
    }
    for option, values in wrong.items():
        yield from (["serve", fitted, "-q", "--rows", "1", option, value] for value in values)
    yield ["serve", fitted, "-q", "--token", "a", "--no-token"]
    yield from (["serve", fitted, "-q", option, file] for option in ("--certificate", "--key"))
    for certificate, key in ((missing, missing), (file, file), (missing, file), (str(more), str(more))):
        yield ["serve", fitted, "-q", "--no-token", "--rows", "1", "--certificate", certificate, "--key", key]


def all_mistakes(folder: Path, fitted: str) -> list[list[str]]:
    good = str(folder / "good.csv")
    found = [
        *file_mistakes(folder, fitted),
        *folder_mistakes(folder, good, fitted),
        *other_mistakes(folder, good, fitted),
        *later_command_mistakes(folder, good, fitted),
        *argument_mistakes(good),
    ]
    return found
