"""PyTorch modules as they are: outputs, weights, refusals. Skipped where PyTorch is not installed."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.bridges import aten
from posteria.errors import NetworkError, SettingError
from posteria.networks import as_batch_of_one
from posteria.trace import linear

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install posteria[torch]")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from bridges import torch_networks  # noqa: E402

FAST = {"gcn", "layer_norm", "tabular_resnet", "weight_norm"}
NAMES = [
    pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in torch_networks.examples(rows=1)
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def as_arrays(x):
    return jax.tree.map(lambda leaf: leaf.numpy(), x)


def flat(params):
    return {path.replace("/", "."): leaf for path, leaf in zip(tree.paths(params), jax.tree.leaves(params))}


def outputs(module, x):
    with torch.no_grad():
        return module.eval()(*as_tuple(x)).numpy()


# ---- the twenty


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_pytorchs_at_other_rows_and_other_weights(name):
    make, x = torch_networks.examples()[name]
    module = torch_networks.settled(make, as_tuple(x))
    network = po.network(module, example=x)
    params = network.init(jax.random.key(0), as_batch_of_one(as_arrays(x)))
    rng = np.random.default_rng(1)
    moved = jax.tree.map(lambda leaf: leaf * (1 + 0.1 * rng.normal(size=leaf.shape).astype(np.float32)), params)
    _, other = torch_networks.examples(rows=7)[name]
    with torch.no_grad():
        for key, value in flat(moved).items():
            module.get_parameter(key).copy_(torch.tensor(np.asarray(value)))
    theirs, ours = outputs(module, other), np.asarray(jax.jit(network.apply)(moved, as_arrays(other)))
    assert theirs.std(0).max() > 1e-3 * np.abs(theirs).max()  # it depends on x, so that this can fail
    assert np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max()
    assert np.abs(theirs - outputs(module, x)[:1]).max() > 0


def test_the_networks_are_twenty():
    assert len(NAMES) == 20


# ---- what becomes of the module


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(12, 2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x.flatten(1)))


X = np.random.default_rng(0).normal(size=(30, 1, 4, 4)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 2, 30)


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    module = torch_networks.settled(Small, (torch.tensor(X),))
    return module, po.network(module, example=X[:4])


def test_the_module_is_left_as_it_was():
    module = torch_networks.settled(Small, (torch.tensor(X),))
    module.train()
    module.drop.eval()  # as its user wanted
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = po.network(module, example=X[:4])
    assert module.training and module.norm.training and not module.drop.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    params = network.init(jax.random.key(0))
    with torch.no_grad():
        module.head.weight.zero_()
    np.testing.assert_array_equal(params["head"]["weight"], before["head.weight"].numpy())  # a copy


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


def test_what_it_writes_to_its_buffers_is_undone():
    module = Counting()
    po.network(module, example=np.ones((2, 3)))
    assert module.calls == 0


def test_the_walk_finds_its_linear_operations(small):
    _, network = small
    found = linear.find(network.apply, network.init(jax.random.key(0)), X[:1])
    assert found["conv/weight"].found and found["head/weight"].found
    assert found["head/bias"].added_to == "head/weight"


def test_the_note_says_how_well_outputs_agree(small):
    _, network = small
    assert "Small, from PyTorch: 8 operations of 8 kinds; outputs within" in str(network)


def test_draws_go_back_into_the_module(small):
    module, network = small
    posterior = po.fit(po.Model(network, po.likelihoods.Categorical()), (X, Y), po.Laplace("kron"), progress=False)
    states = po.bridges.to_torch(posterior, module, 3, key=1)
    draws = posterior.sample(jax.random.key(1), 3)
    wanted = np.asarray(jax.vmap(lambda params: network.apply(params, X))(draws))
    again = Small()
    for state, outputs_wanted in zip(states, wanted, strict=True):
        again.load_state_dict(state)
        np.testing.assert_allclose(outputs(again, torch.tensor(X)), outputs_wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(NetworkError, match="module"):
        po.bridges.to_torch(posterior, nn.Linear(2, 2), 1)
    with pytest.raises(SettingError):
        po.bridges.to_torch(posterior, "module", 1)


def test_a_weight_with_two_names_is_one_parameter_and_is_drawn_once():
    module = torch_networks.TiedLanguageModel()
    tokens = np.random.default_rng(0).integers(0, 40, (12, 10))
    network = po.network(module, example=tokens[:3])
    params = network.init(jax.random.key(0))
    assert "decoder" not in params and params["embed"]["weight"].shape == (40, 16)
    posterior = po.fit(
        po.Model(network, po.likelihoods.Categorical()), (tokens, Y[:12]), po.MAP(num_epochs=1), progress=False
    )
    [state] = po.bridges.to_torch(posterior, module, 1)
    assert torch.equal(state["decoder.weight"], state["embed.weight"])
    assert not torch.equal(state["embed.weight"], module.embed.weight)
    module.load_state_dict(state)


def test_frozen_parameters_stay_as_they_are():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    network = po.network(module, example=np.zeros((2, 3)))
    assert list(network.init(jax.random.key(0))) == ["2"]
    assert "2 parameters with requires_grad=False stay as they are" in network.note
    with pytest.raises(NetworkError, match=r"requires_grad_\(True\)"):
        po.network(module.requires_grad_(False), example=np.zeros((2, 3)))


def test_arguments_by_position_and_by_name():
    module = torch_networks.FTTransformer()
    numbers, categories = np.ones((3, 5), np.float32), np.array([[0, 1], [2, 3], [1, 0]])
    by_place = po.network(module, example=(numbers, categories))
    by_name = po.network(module, example={"numbers": numbers, "categories": categories})
    params = by_place.init(jax.random.key(0))
    np.testing.assert_allclose(
        by_place.apply(params, (numbers, categories)),
        by_name.apply(params, {"categories": categories, "numbers": numbers}),
        atol=1e-6,
    )


def test_sixty_four_bits_where_they_are_asked_for():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = np.random.default_rng(0).normal(size=(5, 3))
    assert po.network(module, example=x).init(jax.random.key(0))["0"]["weight"].dtype == jnp.float32
    with jax.enable_x64(True):
        network = po.network(module, example=x)
        ours = network.apply(network.init(jax.random.key(0)), x)
    np.testing.assert_allclose(ours, outputs(module, torch.tensor(x)), rtol=1e-12)


# ---- what is refused


class Through(nn.Module):
    """A linear layer, and then what is to be refused."""

    def __init__(self, then):
        super().__init__()
        self.first, self.then = nn.Linear(3, 4), then

    def forward(self, x):
        return self.then(self.first(x))


def steep(x):
    return torch.special.erfcx(x)


def by_values(x):
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    "then, words",
    [
        (
            steep,
            r"aten\.special_erfcx\.default \(in .*test_torch\.py:\d+: return self\.then.*register",
        ),
        (by_values, r"torch\.export could not follow Through.*same way for every x"),
        (lambda x: F.dropout(x, 0.5, training=True), r"random numbers: po\.MCDropout"),
        (lambda x: (x, x), "returns 2 values"),
        (lambda x: x[0], r"returns \(4,\) for a batch of one"),
        (nn.BatchNorm1d(4, track_running_stats=False), "then is BatchNorm1d without running statistics"),
        (lambda x: (x - x.mean(0)) / (1 + x.std(0, unbiased=False)), "changes with the rest of its batch"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(then, words):
    with pytest.raises(NetworkError, match=words):
        po.network(Through(then), example=np.random.default_rng(0).normal(size=(4, 3)))


def test_batch_statistics_are_refused_from_one_row_too():
    with pytest.raises(NetworkError, match="rest of its batch"):
        po.network(Through(lambda x: x - x.mean(0)), example=np.ones((1, 3)))


def test_what_pytorch_cannot_run_is_said_in_its_words():
    with pytest.raises(NetworkError, match=r"PyTorch cannot run Linear on x of \(2, 4\) .*example's shape"):
        po.network(nn.Linear(3, 2), example=np.ones((2, 4)))
    with pytest.raises(NetworkError, match="PyTorch cannot run Linear"):
        po.network(nn.Linear(3, 2), example=np.ones((2, 3), int))


def test_a_number_a_datum_is_one_output():
    network = po.network(Through(lambda x: x.sum(1)), example=np.ones((2, 3)))
    assert network.apply(network.init(jax.random.key(0)), np.ones((5, 3), np.float32)).shape == (5, 1)


def test_an_example_is_asked_for():
    with pytest.raises(NetworkError, match=r"example=x\[:4\]"):
        po.network(nn.Linear(2, 2))
    with pytest.raises(NetworkError, match="example"):
        po.Model(nn.Linear(2, 2))


def test_a_registered_operation_is_used(monkeypatch):
    monkeypatch.setattr(aten, "_registered", {})
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    po.bridges.register("aten.special_erfcx", lambda x: jnp.exp(x**2) * jax.scipy.special.erfc(x))
    network = po.network(Through(steep), example=x)
    assert network.trained


def test_a_registered_operation_that_pytorch_would_take_apart_is_kept(monkeypatch):
    monkeypatch.setattr(aten, "_registered", {})
    seen = []
    po.bridges.register("aten.silu", lambda x: seen.append(x.shape) or jax.nn.silu(x))
    po.network(Through(nn.SiLU()), example=np.ones((2, 3)))
    assert seen and set(seen) == {(1, 4)}


def test_a_wrong_operation_is_noticed(monkeypatch):
    monkeypatch.setattr(aten, "_registered", {"aten.tanh": lambda x: jnp.tanh(1.01 * x)})
    with pytest.raises(NetworkError, match="outputs differ from PyTorch's"):
        po.network(Through(nn.Tanh()), example=np.ones((2, 3)))
