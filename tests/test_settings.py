"""Settings: what a field's type says is what it takes; a wrong value is told with what was wanted and the fix."""

import dataclasses
import enum
import pickle
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteria as po
from posteria.errors import SettingError
from posteria.methods import registry
from posteria.settings import (
    AnyMethod,
    Count,
    CountFromZero,
    Optimizer,
    Positive,
    ProperShare,
    Share,
    Start,
    Text,
    above,
    at_least,
    between,
    check_arguments,
    check_settings,
    up_to,
    words,
)


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Every:
    """One field of each kind."""

    count: Count = 4
    zero: CountFromZero = 0
    few: Annotated[int, up_to(1, 20)] = 10
    positive: Positive = 0.1
    share: Share = 0.0
    proper: ProperShare = 0.5
    real: float = -1.0
    least: Annotated[float, at_least(0)] = 0.0
    more: Annotated[float, above(1.1)] = 2.0
    optional: Positive | None = None
    choice: Literal["a", "b", "c"] = "a"
    maybe: Literal["a"] | None = None
    word: str = ""
    text: Text = "x"
    texts: Text | tuple[Text, ...] = "all"
    flag: bool = False
    enumerated: Positive | Colour = Colour.RED
    method: AnyMethod = field(default_factory=po.MAP)
    map: po.MAP | None = None
    optimizer: Optimizer | None = None
    start: Start = "map"
    anything: Any = None

    def __post_init__(self) -> None:
        check_settings(self)


NAN, INF = float("nan"), float("inf")
WRONG = {
    "count": [0, -1, 2.0, True, "4", None, NAN, 10**30, 2**31, [4], np.zeros(2), np.bool_(True), np.float32(4)],
    "zero": [-1, False, 0.0],
    "few": [0, 21],
    "positive": [0, -1.0, NAN, INF, True, "0.1", None, 1e308, 1e-320, 10**400, 1j, {}, object(), float, np.ones(1)],
    "share": [1, -0.1, NAN],
    "proper": [0, 1, 1.5],
    "real": [NAN, INF, -INF, "", None, Fraction(10**50)],
    "least": [-1e-9],
    "more": [1.1],
    "optional": [0, False, "None"],
    "choice": ["", "d", None, ["a"], ("a",), np.array(["a", "b"]), 0],
    "maybe": ["None", "A", False],
    "word": [None, 3, b"x"],
    "text": ["", "  ", None, b"x", 3],
    "texts": ["", (), [], ("a", 3), {"a"}, None, ("a", "")],
    "flag": [0, 1, "True", None],
    "enumerated": ["red", "infer", -1],
    "method": [None, po.MAP, "map", object(), 3],
    "map": [po.HMC(), "map", po.MAP],
    "optimizer": ["adam", optax.adam, 0.1, optax.GradientTransformation, object(), {"init": 1}],
    "start": [NAN, None, "nowhere", {}, [], {"w": np.array([1.0, NAN])}, object(), {"w": "x"}, ""],
}
RIGHT = {
    "count": [(1, 1), (np.int64(7), 7), (np.array(7), 7), (jnp.asarray(7), 7)],
    "positive": [(1, 1.0), (np.float32(0.5), 0.5), (jnp.asarray(0.5), 0.5), (Fraction(1, 4), 0.25), (3e38, 3e38)],
    "choice": [("b", "b"), (np.str_("c"), "c"), (np.array("c"), "c")],
    "texts": [(["a", "b"], ("a", "b")), ("last", "last")],
    "enumerated": [(Colour.RED, Colour.RED), (2, 2.0)],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_told_with_what_was_wanted_and_the_fix(name, value):
    with pytest.raises(SettingError) as told:
        Every(**{name: value})
    assert told.value.got.startswith(f"Every({name}=")
    assert told.value.wanted
    assert told.value.fix
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("name", "value", "kept"), [(name, *pair) for name, pairs in RIGHT.items() for pair in pairs])
def test_a_right_value_is_kept_as_python_s_own(name, value, kept):
    found = getattr(Every(**{name: value}), name)
    assert found == kept
    assert type(found) is type(kept)


def test_weights_and_posteriors_may_start_a_chain():
    weights = {"w": np.ones(3, np.float32), "b": [jnp.zeros(())]}
    assert Every(start=weights).start is weights
    assert Every(start="prior").start == "prior"


def test_what_has_no_kind_is_not_checked():
    assert Every(anything=NAN).anything is not None


def test_the_words_say_what_is_wanted():
    assert words(Count) == "a whole number of at least 1"
    assert words(Positive | None) == "a positive finite number or None"
    assert words(Literal["a", "b"] | None) == "'a', 'b' or None"
    assert words(Literal["a", "b"]) == "'a' or 'b'"
    assert words(Annotated[float, between(0, 1)]) == "a finite number between 0 and 1, without the ends"
    assert words(Positive | Colour) == f"a positive finite number or {Colour.RED!r}"


def test_a_long_value_is_cut_and_a_broken_repr_is_survived():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no repr")

    for value in ("x" * 10**5, Broken()):
        with pytest.raises(SettingError) as told:
            Every(count=value)
        assert len(str(told.value)) < 300


def test_the_optimiser_that_was_meant_is_told():
    with pytest.raises(SettingError, match=r"optax\.adam\(1e-3\)"):
        po.MAP(optimizer="adam")


def test_a_traced_value_is_refused_not_leaked():
    with pytest.raises(SettingError):
        jax.jit(lambda rate: po.MAP(learning_rate=rate).learning_rate)(0.1)


def test_arguments_of_functions_are_checked_by_their_types_too():
    def function(num: Count = 3, *, rate: Positive):
        return check_arguments(function, num=num, rate=rate)

    assert function(np.int64(2), rate=1) == (2, 1.0)
    with pytest.raises(SettingError, match=r"function\(num=0\).*default, 3"):
        function(0, rate=1)
    with pytest.raises(SettingError, match=r"function\(rate=nan\)"):
        function(rate=NAN)


# ---- as dataclasses, methods stay what they were


@pytest.mark.parametrize("name", registry.names())
def test_methods_are_plain_dataclasses_still(name):
    method = registry.get(name)()
    assert dataclasses.replace(method) == method
    assert pickle.loads(pickle.dumps(method)) == method
    assert registry.from_json(registry.to_json(method)) == method
    assert (
        eval(repr(method), vars(po) | {each.__name__: each for each in map(registry.get, registry.names())}) == method
    )
    with pytest.raises(TypeError, match="unexpected keyword"):
        type(method)(nonsense=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.nonsense = 1
