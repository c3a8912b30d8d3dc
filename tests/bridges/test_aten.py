"""The table of PyTorch's operations gives PyTorch's answers, recorded in operations.json."""

import base64
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bridges import operations
from posteria.bridges import aten
from posteria.errors import SettingError

RECORDS = json.loads(operations.FILE.read_text())


def decoded(part):
    if isinstance(part, list):
        return [decoded(each) for each in part]
    if not isinstance(part, dict):
        return part
    [(kind, content)] = part.items()
    if kind == "array":
        shape, dtype, text = content
        return jnp.asarray(np.frombuffer(base64.b64decode(text), dtype).reshape(shape))
    return np.dtype(content) if kind == "dtype" else float(content)


@pytest.mark.parametrize("base", sorted({name.split(".")[0] for name, *_ in RECORDS}))
def test_an_operation_gives_what_pytorch_gives(base):
    for name, arguments, keywords, results in RECORDS:
        if name.split(".")[0] != base:
            continue
        with jax.disable_jit():  # nothing is compiled for such small arrays
            found = aten.find(f"aten.{name}")(
                *decoded(arguments), **{key: decoded(part) for key, part in keywords.items()}
            )
        wanted = decoded(results)
        pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
        for ours, theirs in pairs:
            if ours is not None:
                ours = np.asarray(ours).astype(theirs.dtype)  # which is cast where a graph is evaluated
                np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6, err_msg=name)
                assert ours.shape == theirs.shape


def test_every_operation_of_the_table_is_recorded():
    recorded = {f"aten.{name}" for name, *_ in RECORDS}
    wholes = {name.rpartition(".")[0] for name in recorded}
    left = set(aten._table()) - recorded - wholes
    assert left == {"aten.empty"}  # which has no answer


def same(one, other):
    """Equal, but for the last bits of arrays: processors differ in those of an arctangent."""
    if isinstance(one, dict) and set(one) == set(other) == {"array"}:
        left, right = np.asarray(decoded(one)), np.asarray(decoded(other))
        near = np.allclose(left, right, rtol=1e-6, equal_nan=True) if left.dtype.kind == "f" else (left == right).all()
        return one["array"][:2] == other["array"][:2] and bool(near)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_what_is_recorded_is_what_is_called():
    """Were the calls changed, the record would be of others."""
    called = [[name, operations.encoded(arguments), keywords] for name, arguments, keywords in operations.calls()]
    strange = [one[0] for one, other in zip(RECORDS, called) if not same(one[:3], other)]
    assert len(RECORDS) == len(called) and not strange


def test_a_registered_operation_comes_first(monkeypatch):
    monkeypatch.setattr(aten, "_registered", {})
    assert aten.find("aten.no_such.default") is None
    aten.register("aten.no_such", lambda x: x + 1)
    aten.register("aten.add.Tensor", lambda x, y: x)
    assert aten.find("aten.no_such.out")(2) == 3
    assert aten.find("aten.add.Tensor")(5, 6) == 5 and aten.find("aten.add.Scalar")(5, 6) == 11
    assert aten.is_registered("aten.add.Tensor") and not aten.is_registered("aten.add.Scalar")


@pytest.mark.parametrize("name, function", [("erfinv", abs), ("aten..x", abs), (None, abs), ("aten.erfinv", 3)])
def test_what_cannot_be_registered_is_refused(name, function):
    with pytest.raises(SettingError):
        aten.register(name, function)
