"""A network that is a graph of PyTorch's operations, without PyTorch: what it computes and holds, and its store."""

import base64
import copy
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import nn
from posteria.bridges import aten, graph
from posteria.errors import NetworkError, StoreError
from posteria.networks import _from_functions
from posteria.trace import linear

RNG = np.random.default_rng(0)
WEIGHTS = {
    "conv.weight": RNG.normal(size=(3, 1, 3, 3)).astype(np.float32),
    "conv.bias": RNG.normal(size=3).astype(np.float32),
    "head.weight": 0.3 * RNG.normal(size=(2, 12)).astype(np.float32),
    "head.bias": RNG.normal(size=2).astype(np.float32),
}
SCALE = np.array([0.5, 1.0, 2.0], np.float32)
X, Y = RNG.normal(size=(20, 1, 4, 4)).astype(np.float32), RNG.integers(0, 2, 20)


def value(name):
    return {"value": name}


def written_graph():
    """relu(conv(x) * scale) at every second place, flattened, and a linear layer: as torch.export writes it."""
    convolved = [value("x"), value("w"), value("b"), [2, 2], [1, 1], [1, 1], False, [0, 0], 1]
    hidden = [[1, 3, 2, 2], "float32"]
    return {
        "inputs": [["x", "", [1, 1, 4, 4], "float32"]],
        "parameters": [
            [short, name, list(WEIGHTS[name].shape), "float32"] for short, name in zip(("w", "b", "v", "c"), WEIGHTS)
        ],
        "constants": [["s", [3, 1, 1], "float32", base64.b64encode(SCALE.tobytes()).decode()]],
        "nodes": [
            ["y", "aten.convolution.default", convolved, {}, hidden],
            ["z", "aten.mul.Tensor", [value("y"), value("s")], {}, hidden],
            ["r", "aten.relu.default", [value("z")], {}, hidden],
            ["f", "aten.view.default", [value("r"), [1, 12]], {}, [[1, 12], "float32"]],
            ["t", "aten.permute.default", [value("v"), [1, 0]], {}, [[12, 2], "float32"]],
            ["o", "aten.addmm.default", [value("c"), value("f"), value("t")], {}, [[1, 2], "float32"]],
        ],
        "output": "o",
    }


def by_hand(params, x):
    kernel, bias = params["conv"]["weight"], params["conv"]["bias"]
    y = jax.lax.conv_general_dilated(x, kernel, (2, 2), [(1, 1)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"))
    y = jax.nn.relu((y + bias[:, None, None]) * SCALE[:, None, None]).reshape(len(x), -1)
    return y @ params["head"]["weight"].T + params["head"]["bias"]


@pytest.fixture(scope="module")
def network():
    return _from_functions(graph.functions(written_graph(), WEIGHTS))


@pytest.fixture(scope="module")
def fitted(network):
    return po.fit(po.Model(network, po.likelihoods.Categorical()), (X, Y), po.Laplace("kron"), progress=False)


def test_a_graph_is_the_network_that_it_describes(network):
    params = network.init(jax.random.key(0), X[:1])
    assert set(params) == {"conv", "head"}
    np.testing.assert_array_equal(params["head"]["weight"], WEIGHTS["head.weight"])
    np.testing.assert_allclose(network.apply(params, X), by_hand(params, X), rtol=1e-5, atol=1e-5)


def test_its_linear_operations_are_found(network):
    found = linear.find(network.apply, network.init(jax.random.key(0), X[:1]), X[:1])
    assert found["conv/weight"].found and found["conv/weight"].positions == 4
    assert found["head/weight"].found and found["head/weight"].positions == 1
    assert found["head/bias"].added_to == "head/weight"
    assert found["conv/weight"].uses[0].fan_in == 9 and found["head/weight"].uses[0].fan_in == 12


def test_the_curvature_is_that_of_the_same_network_written_in_jax(network, fitted):
    own = po.Network(network.init, by_hand, trained=True)
    other = po.fit(po.Model(own, po.likelihoods.Categorical()), (X, Y), po.Laplace("kron"), progress=False)
    np.testing.assert_allclose(fitted.spread.covariance(), other.spread.covariance(), rtol=1e-3, atol=1e-5)


def test_a_posterior_is_loaded_without_the_network_and_without_pytorch(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    np.save(tmp_path / "x.npy", X)
    code = f"""
import sys, numpy as np, posteria as po
posterior = po.load({str(tmp_path / "saved")!r})
np.save({str(tmp_path / "p.npy")!r}, posterior.predict(np.load({str(tmp_path / "x.npy")!r})).probs)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), fitted.predict(X).probs, atol=1e-6)


def test_an_edited_graph_is_noticed(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    file = tmp_path / "saved" / "manifest.json"
    file.write_text(file.read_text().replace("aten.relu.default", "aten.tanh.default"))
    with pytest.raises(StoreError, match="SHA-256"):
        po.load(tmp_path / "saved")


def test_a_graph_of_another_function_is_noticed(fitted):
    """Also by one who computes the sums again."""
    from posteria.posteriors import saving

    packed = copy.deepcopy(saving.pack(fitted))
    packed["model"]["network"]["graph"]["nodes"][2][1] = "aten.tanh.default"
    with pytest.raises(StoreError, match="another function"):
        saving.unpack(packed)


def test_a_network_from_a_store_has_no_weights_to_start_from(network):
    again = nn.build(json.loads(json.dumps(network.spec)))
    assert jax.tree.map(jnp.shape, jax.eval_shape(again.init, jax.random.key(0))) == {
        "conv": {"bias": (3,), "weight": (3, 1, 3, 3)},
        "head": {"bias": (2,), "weight": (2, 12)},
    }
    with pytest.raises(NetworkError, match=r"pass network="):
        again.init(jax.random.key(0))


def test_a_registered_operation_is_wanted_again(monkeypatch):
    written = written_graph()
    written["nodes"][2][1] = "mine.bent.default"
    with pytest.raises(NetworkError, match=r"mine\.bent\.default.*po\.bridges\.register"):
        graph.functions(written, WEIGHTS)
    monkeypatch.setattr(aten, "_registered", {})
    po.bridges.register("mine.bent", jnp.tanh)
    made = _from_functions(graph.functions(written, WEIGHTS))
    assert np.isfinite(made.apply(made.init(jax.random.key(0)), X)).all()


def test_an_operation_of_another_shape_is_refused(monkeypatch, network):
    monkeypatch.setattr(aten, "_registered", {"aten.relu": lambda x: x[..., :1]})
    with pytest.raises(NetworkError, match=r"aten\.relu\.default gave the shape \(1, 3, 2, 1\)"):
        network.apply(network.init(jax.random.key(0)), X)


def test_a_result_that_is_not_computed_is_refused_by_name():
    written = written_graph()
    pooled = [[[1, 3, 2, 2], "float32"], [[1, 3, 2, 2], "int64"]]
    written["nodes"][2] = ["p", "aten.max_pool2d_with_indices.default", [value("z"), [1, 1]], {}, pooled]
    written["nodes"].insert(3, ["r", "getitem", [value("p"), 1], {}, [[1, 3, 2, 2], "int64"]])
    made = graph.functions(written, WEIGHTS)
    with pytest.raises(NetworkError, match="second result of aten"):
        made.apply(made.init(jax.random.key(0)), X)


def test_x_of_another_shape_is_refused(network):
    with pytest.raises(NetworkError, match=r"a datum of x \(1, 5, 5\); wanted x \(1, 4, 4\)"):
        network.apply(network.init(jax.random.key(0)), np.zeros((2, 1, 5, 5), np.float32))


def test_an_example_is_for_pytorch():
    with pytest.raises(NetworkError, match="example"):
        po.network((lambda key, x: {}, lambda params, x: x), example=X)
    with pytest.raises(NetworkError, match="example"):
        po.network(lambda key: None, example=X)
