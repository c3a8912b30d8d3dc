"""Weights from state dicts and safetensors files into networks of every framework."""

import json

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

import posteria as po
from posteria.bridges import safetensors_file
from posteria.errors import NetworkError, SettingError, StoreError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 6, 6, 2)).astype(np.float32)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


STATE = {  # as a PyTorch module has it
    "conv.weight": normal(3, 2, 3, 3),
    "conv.bias": normal(3),
    "norm.weight": normal(3),
    "norm.bias": normal(3),
    "norm.running_mean": normal(3),
    "norm.running_var": np.abs(normal(3)) + 0.5,
    "norm.num_batches_tracked": np.array(7),
    "head.weight": normal(3, 3),  # square: only its name tells that it is transposed
    "head.bias": normal(3),
}


def by_hand(x):
    y = jax.lax.conv_general_dilated(
        x, STATE["conv.weight"].transpose(2, 3, 1, 0), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = (y + STATE["conv.bias"] - STATE["norm.running_mean"]) / np.sqrt(STATE["norm.running_var"] + 1e-5)
    y = jax.nn.relu(y * STATE["norm.weight"] + STATE["norm.bias"]).mean((1, 2))
    return y @ STATE["head.weight"].T + STATE["head.bias"]


class NNX(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 3, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.head = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(jax.nn.relu(self.norm(self.conv(x))).mean((1, 2)))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Conv(3, (3, 3), name="conv")(x)
        x = linen.BatchNorm(use_running_average=True, name="norm")(x)
        return linen.Dense(3, name="head")(jax.nn.relu(x).mean((1, 2)))


def outputs(network, x=X):
    return np.asarray(network.apply(network.init(jax.random.key(0), x[:1]), x))


def write_safetensors(path, arrays, names=None):
    """By hand, as the format says."""
    names = names or {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64", np.dtype(ml_dtypes.bfloat16): "BF16"}
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        content = np.asarray(array).tobytes()
        place = [len(body), len(body) + len(content)]
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": place}
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def test_nnx_takes_a_state_dict_with_its_statistics():
    module = NNX(nnx.Rngs(0))
    loaded = po.bridges.load(module, STATE)
    np.testing.assert_allclose(outputs(loaded), by_hand(X), rtol=1e-4, atol=1e-5)
    assert loaded.trained and loaded.note == "8 of 8 weights from the state dict"
    assert not np.allclose(module.head.kernel[...], STATE["head.weight"].T)  # the user's own is as it was


def test_linen_takes_a_safetensors_file(tmp_path):
    path = write_safetensors(tmp_path / "model.safetensors", STATE)
    loaded = po.bridges.load(Linen(), path, example=X)
    np.testing.assert_allclose(outputs(loaded), by_hand(X), rtol=1e-4, atol=1e-5)
    assert loaded.note == "8 of 8 weights from model.safetensors"
    bound = Linen().bind(Linen().init(jax.random.key(3), X[:1]))
    np.testing.assert_allclose(outputs(po.bridges.load(bound, str(path))), by_hand(X), rtol=1e-4, atol=1e-5)


def test_equinox_has_pytorchs_layout():
    module = eqx.nn.MLP(4, 4, 4, 1, key=jax.random.key(0))
    state = {
        f"layers.{i}.{part}": normal(*shape) for i in (0, 1) for part, shape in (("weight", (4, 4)), ("bias", (4,)))
    }
    loaded = po.bridges.load(module, state)
    x = normal(3, 4)
    hidden = np.maximum(x @ state["layers.0.weight"].T + state["layers.0.bias"], 0)
    np.testing.assert_allclose(
        outputs(loaded, x), hidden @ state["layers.1.weight"].T + state["layers.1.bias"], rtol=1e-5, atol=1e-5
    )


def test_a_ready_network_needs_an_example_and_names():
    state = {"fc1.weight": normal(5, 4), "fc1.bias": normal(5), "fc2.weight": normal(2, 5), "fc2.bias": normal(2)}
    network, x = po.nn.mlp((5,), outputs=2), normal(3, 4)
    with pytest.raises(NetworkError, match="example"):
        po.bridges.load(network, state)
    loaded = po.bridges.load(network, state, example=x)  # shapes alone tell them apart
    assert "matched by shape alone: layers/0/bias from fc1.bias" in loaded.note
    hidden = np.maximum(x @ state["fc1.weight"].T + state["fc1.bias"], 0)
    np.testing.assert_allclose(outputs(loaded, x), hidden @ state["fc2.weight"].T + state["fc2.bias"], rtol=1e-5)


def test_several_candidates_are_an_error_that_names_settle():
    state = {f"fc{i}.{part}": normal(*shape) for i in (1, 2) for part, shape in (("weight", (4, 4)), ("bias", (4,)))}
    network, x = po.nn.mlp((4,), outputs=4), normal(3, 4)
    with pytest.raises(NetworkError, match=r"layers/0/bias may be fc1\.bias or fc2\.bias.*names="):
        po.bridges.load(network, state, example=x)
    names = {
        f"layers/{i}/{ours}": f"fc{i + 1}.{theirs}"
        for i in (0, 1)
        for ours, theirs in (("kernel", "weight"), ("bias", "bias"))
    }
    loaded = po.bridges.load(network, state, names, example=x)
    hidden = np.maximum(x @ state["fc1.weight"].T + state["fc1.bias"], 0)
    np.testing.assert_allclose(outputs(loaded, x), hidden @ state["fc2.weight"].T + state["fc2.bias"], rtol=1e-5)


def test_a_new_head_is_left_as_it_was_and_said():
    state = {f"backbone.{name}": value for name, value in STATE.items() if not name.startswith("head")}
    state["fc.weight"] = normal(1000, 3)
    module = NNX(nnx.Rngs(0))
    loaded = po.bridges.load(module, state)
    assert "6 of 8 weights" in loaded.note
    assert "left as they were: head/bias, head/kernel" in loaded.note
    assert "not used: fc.weight" in loaded.note
    np.testing.assert_array_equal(loaded.init(jax.random.key(0))["head"]["kernel"], module.head.kernel[...])


def test_names_leave_a_weight_as_it_is():
    loaded = po.bridges.load(NNX(nnx.Rngs(0)), STATE, {"head/kernel": None})
    assert "left as they were: head/kernel" in loaded.note


@pytest.mark.parametrize(
    "names, error",
    [
        ({"head/nothing": "head.weight"}, SettingError),
        ({"head/kernel": "nothing"}, SettingError),
        ({"head/kernel": "conv.weight"}, NetworkError),
    ],
)
def test_wrong_names_are_refused(names, error):
    with pytest.raises(error):
        po.bridges.load(NNX(nnx.Rngs(0)), STATE, names)


def test_nothing_that_matches_is_refused():
    with pytest.raises(NetworkError, match="no weight of the network"):
        po.bridges.load(NNX(nnx.Rngs(0)), {"other.weight": normal(9, 9)})
    for source in ({}, None, 3):
        with pytest.raises(SettingError):
            po.bridges.load(NNX(nnx.Rngs(0)), source)


def test_weights_that_are_not_finite_are_refused():
    with pytest.raises(NetworkError, match=r"head\.bias has NaN"):
        po.bridges.load(NNX(nnx.Rngs(0)), STATE | {"head.bias": np.full(3, np.nan, np.float32)})


def test_sixteen_bits_are_widened(tmp_path):
    half = {name: value.astype(ml_dtypes.bfloat16) for name, value in STATE.items() if "num" not in name}
    loaded = po.bridges.load(NNX(nnx.Rngs(0)), write_safetensors(tmp_path / "half.safetensors", half))
    assert loaded.init(jax.random.key(0))["head"]["bias"].dtype == jnp.float32
    np.testing.assert_array_equal(loaded.init(jax.random.key(0))["head"]["bias"], half["head.bias"].astype(np.float32))


def test_a_pickle_is_not_read(tmp_path):
    for name in ("model.pt", "model.pth", "pytorch_model.bin"):
        with pytest.raises(StoreError, match="weights_only=True"):
            po.bridges.load(NNX(nnx.Rngs(0)), tmp_path / name)


def test_every_damage_to_a_safetensors_file_is_refused_or_harmless(tmp_path):
    """Cut anywhere, or with any byte of the header changed: a StoreError, or arrays of the sizes that it states."""
    path = write_safetensors(tmp_path / "model.safetensors", {"a": normal(2, 3), "b": np.arange(4)})
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little") + 8
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError):
            safetensors_file.read(path)
    for place in range(header):
        for byte in (0x00, 0x22, 0x2D, 0x39, 0x5D, 0xFF):
            path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            try:
                arrays = safetensors_file.read(path)
            except StoreError:
                continue
            assert sum(array.nbytes for array in arrays.values()) <= len(whole)
    with pytest.raises(StoreError, match="cannot be read"):
        safetensors_file.read(tmp_path / "absent.safetensors")
