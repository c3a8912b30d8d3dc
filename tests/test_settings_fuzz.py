"""Every field of every method, likelihood and prior, with values that are wrong or odd: refused by name, or usable.

python tests/test_settings_fuzz.py [METHOD ...]     odd fits of these methods, or of all, and how they ended
"""

import dataclasses
import enum
import faulthandler
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteria as po
from posteria.errors import PosteriaError, SettingError
from posteria.methods import registry
from posteria.methods.chains.tempered_smc import TemperedSMC
from posteria.models import likelihoods, priors
from posteria.testing import linear_regression

CLASSES = [*map(registry.get, registry.names()), TemperedSMC]
CLASSES += [*likelihoods.MEMBERS.values(), *priors.MEMBERS.values()]


class Colour(enum.Enum):
    RED = "red"


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None


POOL = [
    *(None, True, False, 0, 1, -1, 2, 3, 10**9, 10**30, 10**400, 0.0, -0.0, 0.5, 1.0, -0.5, 2.5, 1e-3),
    *(float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e-320, 3e38, 1e-30, 1j, Fraction(1, 3)),
    *("", " ", "a", "map", "prior", "init", "auto", "nan", "infer", "1", "0.5", "full", "adam", "\0", "x" * 10**5),
    *([], [1], ["map"], (), (1, 2), ("a", "b"), {}, {"a": 1}, {1: 2, "b": 3}, set(), range(3), slice(None), ...),
    *(object(), Unprintable(), Colour.RED, po.infer, int, float, po.MAP, po.HMC, print, lambda x: x, Exception("no")),
    *(po.MAP(num_epochs=1), po.SWAG(), po.HMC(), po.priors.Normal(), optax.adam(1e-3), optax.adam, b"map"),
    *(np.int64(3), np.int8(1), np.float32(0.5), np.float64("nan"), np.bool_(True), np.str_("map"), np.ma.masked),
    *(np.zeros(3), np.array(2), np.array(0.5), np.array([1.0, np.nan]), np.array("map"), np.array([], float)),
    *(np.array([{}]), np.datetime64("2020-01-01"), Decimal("0.1"), jax.random.key(0), {"w": np.array([np.inf])}),
    *(jnp.asarray(3), jnp.asarray(0.5), jnp.zeros(2), {"w": np.ones(2)}),
]


ROWS_OR_WEIGHTS = ("start", "outside", "context")  # settings that are arrays


def odd_settings() -> Iterator[tuple[type, str, Any]]:
    for cls in CLASSES:
        for field in dataclasses.fields(cls):
            for value in POOL:
                yield cls, field.name, value


def made(cls: type, name: str, value: Any) -> tuple[Any, str]:
    """The object with this setting, or None; and what is wrong with how it was taken or refused, or ""."""
    what = f"{cls.__name__}({name}={type(value).__name__})"
    try:
        found = cls(**{name: value})
    except SettingError as error:
        is_told = error.got and error.wanted and error.fix and "\n" not in str(error) and len(str(error)) < 600
        return None, "" if is_told else f"{what}: told as {str(error)[:200]!r}"
    except Exception as error:
        return None, f"{what}: raised {error!r}"
    kept = getattr(found, name)
    if isinstance(kept, np.generic | np.ndarray | jax.Array) and name not in ROWS_OR_WEIGHTS:
        return found, f"{what}: kept {type(kept).__name__}"
    return found, ""


def test_a_setting_is_refused_by_name_or_kept_as_python_s_own():
    tried, accepted, found = 0, 0, []
    for cls, name, value in odd_settings():
        method, trouble = made(cls, name, value)
        tried, accepted = tried + 1, accepted + (method is not None)
        found += [trouble] if trouble else []
    print(f"{tried} settings: {tried - accepted} refused, {accepted} accepted, {len(found)} raw errors")
    assert not found, "\n".join(found[:20])
    assert tried >= 2500
    assert accepted > 0.05 * tried  # the pool has right values too


def test_what_is_accepted_travels_as_json():
    for cls, name, value in odd_settings():
        method, _ = made(cls, name, value)
        if method is None or not hasattr(cls, "fit"):
            continue
        stored = json.loads(json.dumps(registry.to_json(method), allow_nan=False))
        if registry.UNWRITABLE not in json.dumps(stored):
            assert registry.to_json(registry.from_json(stored)) == stored


# ---- what is accepted can be fitted, or is refused by name

KNOWN = linear_regression()
SHORT = po.MAP(num_epochs=2)
TINY = {
    "num_epochs": 2,
    "num_draws": 2,
    "num_warmup": 30,
    "thinning": 1,
    "num_chains": 2,
    "size": 2,
    "num_snapshots": 3,
    "epochs_per_snapshot": 1,
    "num_passes": 1,
    "num_replicas": 2,
    "max_leapfrog": 3,
    "max_doublings": 2,
    "map": SHORT,
    "method": SHORT,
    "swag": po.SWAG(map=None, num_snapshots=7, rank=2),
}
OWN = {"SWAG": {"rank": 2}, "Subspace": {"rank": 2}}
# counts of what happens inside one step, which no deadline interrupts: a billion of these is a long fit, not a mistake
INSIDE_A_STEP = {"thinning", "epochs_per_snapshot", "num_leapfrog", "max_leapfrog", "num_passes", "mean_steps"}
LARGE = 1000  # of a count that is fitted with, where a billion is not for a test
EXTREMES = [None, 0, 1, 10**9, 0.0, 3e38, 1e-30, np.float32(0.999999), "a", "auto", "init", "prior", "full", ("a", "b")]
EXTREMES += [[1], {"w": np.ones(2)}, np.zeros(3), optax.adam(1e-3), po.MAP(num_epochs=1)]


def tiny(cls: type) -> Any:
    known = {field.name for field in dataclasses.fields(cls)}
    settings = {name: value for name, value in (TINY | OWN.get(cls.__name__, {})).items() if name in known}
    return cls(**settings)


def odd_fits(name: str) -> list[tuple[Any, str]]:
    """A method with one odd setting that was accepted, a few of each field."""
    chosen, cls = [], registry.get(name)
    base = tiny(cls)
    for field in dataclasses.fields(cls):
        seen = {_nearly(getattr(base, field.name))}
        for value in EXTREMES:
            try:
                odd = dataclasses.replace(base, **{field.name: value})
            except PosteriaError:
                continue
            kept = getattr(odd, field.name)
            is_long = field.name in INSIDE_A_STEP and kept is not None and kept > LARGE
            if is_long or _nearly(kept) in seen:
                continue
            seen.add(_nearly(kept))
            chosen.append((odd, f"{cls.__name__}({field.name}={kept!r})"[:200]))
    return chosen


def _nearly(value: Any) -> str:
    """0.999999 is not another size than 1, where that is a size; where it is a share, 1 is refused."""
    return f"{value:.3g}" if isinstance(value, int | float) else repr(value)


# One that hangs inside compiled code can only be ended with its process: each method has its own, which says what it
# begins. Nearly all of its time is compiling, and so it compiles quickly.
MOST_SECONDS = 300  # on the clock, of one fit that is to end after two: much is allowed for a busy machine
MOST_GIGABYTES = 4
QUICK_TO_COMPILE = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def fit_all(name: str) -> None:
    """In a process of its own: say what is begun, what was raised, and at the end how many ended how."""
    ended: Counter[str] = Counter()
    chosen = odd_fits(name)
    for method, what in chosen:
        print(f"begun: {what!r}", flush=True)
        faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
        try:
            po.fit(KNOWN.model, KNOWN.data, method, progress=False, max_seconds=2.0)
            ended["ended well"] += 1
        except PosteriaError:
            ended["refused by name"] += 1
        except Exception as error:
            ended["raised raw errors"] += 1
            print(f"RAW: {what!r} raised {type(error).__name__}: {str(error)[:200]!r}", flush=True)
        faulthandler.cancel_dump_traceback_later()
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    outcomes = ", ".join(f"{ended[how]} {how}" for how in ("ended well", "refused by name", "raised raw errors"))
    print(f"{name}: {len(chosen)} odd fits: {outcomes}; {time.process_time():.0f} CPU seconds, {gigabytes:.1f} GB")


def fitted_apart(name: str) -> tuple[str, list[str]]:
    """What the process of this method said at its end, and what was wrong."""
    flags = f"{QUICK_TO_COMPILE} {os.environ.get('XLA_FLAGS', '')}"
    done = subprocess.run(
        [sys.executable, __file__, "--here", name],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines() or ["nothing was begun"]
    wrong = [line for line in lines if line.startswith("RAW: ")]
    if done.returncode:
        why = f"it took longer than {MOST_SECONDS} s, or its process died"
        wrong.append(f"{lines[-1]}: {why} (exit code {done.returncode})\n{done.stderr[-2000:]}")
    elif float(re.findall(r"([\d.]+) GB$", lines[-1])[0]) > MOST_GIGABYTES:
        wrong.append(f"more than {MOST_GIGABYTES} GB: {lines[-1]}")
    return lines[-1], wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_what_is_accepted_is_fitted_or_refused_by_name(name):
    said, wrong = fitted_apart(name)
    print(said)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_odd_likelihoods_and_priors_have_a_density_or_are_refused():
    x, y = KNOWN.data
    tried, found = 0, []
    for cls, name, value in odd_settings():
        part, _ = made(cls, name, value)
        if part is None or hasattr(cls, "fit") or cls is TemperedSMC:
            continue
        parts = {"prior": part} if cls in priors.MEMBERS.values() else {"likelihood": part}
        tried += 1
        try:
            target = po.Target(dataclasses.replace(KNOWN.model, **parts), (x, y))
            jax.eval_shape(target.log_density, target.init(jax.random.key(0)), target.data)
        except PosteriaError:
            continue
        except Exception as error:
            found.append(f"{cls.__name__}({name}={value!r}): raised {error!r}")
    print(f"{tried} odd likelihoods and priors: {len(found)} raised raw errors")
    assert not found, "\n".join(found)


def main(names: list[str]) -> int:
    """All of these apart, and the sum of what they say."""
    total: Counter[str] = Counter()
    num_wrong = 0
    for name in names or registry.names():
        said, wrong = fitted_apart(name)
        print("\n".join([said, *wrong]), flush=True)
        num_wrong += len(wrong)
        for number, words in re.findall(r"(\d+) (odd fits|ended well|refused by name|raised raw errors|CPU s)", said):
            total[words] += int(number)
    print(f"in all: {', '.join(f'{number} {words}' for words, number in total.items())}; {num_wrong} wrong")
    return num_wrong > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        fit_all(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
