"""Sums over rows in blocks: the same number and the same derivatives as over all rows at once, in less memory."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria.models import sums

NUM_ROWS = 403  # which no block's length divides
RNG = np.random.default_rng(0)
X = RNG.normal(size=(NUM_ROWS, 6)).astype(np.float32)
Y = RNG.integers(0, 3, NUM_ROWS)
MODEL = po.Model(po.nn.mlp((16,), outputs=3), po.likelihoods.Categorical())


@pytest.fixture
def in_blocks(monkeypatch):
    """Blocks of a few dozen rows, however little memory all rows would take."""
    monkeypatch.setattr(sums, "WHOLE_BYTES", 0)
    monkeypatch.setattr(sums, "BLOCK_BYTES", 10_000)


def target_and_params(model: po.Model = MODEL, data=(X, Y)) -> tuple:
    target = po.Target(model, data)
    return target, target.sample_prior(jax.random.key(1))


def whole(target: po.Target):
    """The density as its formula has it."""

    def density(params, batch):
        terms = target.log_likelihood(params, batch)
        return (target.log_prior(params) + target.num_data / len(terms) * terms.sum()) / target.temperature

    return density


def close(a, b) -> bool:
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.allclose(one, two, rtol=2e-5, atol=2e-5 * float(jnp.abs(two).max() + 1)) for one, two in leaves)


def num_blocks(target: po.Target, params, batch) -> int:
    return sums.plan_of(target.without_data(), params, batch).num_blocks


@pytest.mark.parametrize("count", [101, 102, 250, NUM_ROWS])
def test_value_and_gradient_are_those_of_the_whole(in_blocks, count):
    target, params = target_and_params()
    batch = jax.tree.map(lambda leaf: leaf[:count], target.data)
    assert num_blocks(target, params, batch) > 1
    assert close(*(jax.value_and_grad(f)(params, batch) for f in (target.log_density, whole(target))))
    assert close(target.log_density(params, batch), whole(target)(params, batch))  # without a gradient


def test_second_derivatives_and_forward_mode(in_blocks):
    target, params = target_and_params()
    batch, other = target.data, target.sample_prior(jax.random.key(2))

    def product(f):
        return jax.jvp(jax.grad(lambda p: f(p, batch)), (params,), (other,))[1]

    def along(f):
        return jax.hessian(lambda t: f(jax.tree.map(lambda a, b: a + t * b, params, other), batch))(0.3)

    def forward(f):
        return jax.jvp(lambda p: f(p, batch), (params,), (other,))

    def reverse_of_reverse(f):
        return jax.grad(lambda p: sum(jnp.sum(g**2) for g in jax.tree.leaves(jax.grad(f)(p, batch))))(params)

    for derivative in (product, along, forward, reverse_of_reverse):
        assert close(*(jax.jit(derivative, static_argnums=0)(f) for f in (target.log_density, whole(target))))


def test_many_at_once_and_inside_loops(in_blocks):
    target, params = target_and_params()
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), params)

    def climbed(f, params):
        def step(_, p):
            return jax.tree.map(lambda a, g: a + 1e-4 * g, p, jax.grad(f)(p, target.data))

        return jax.lax.fori_loop(0, 3, step, params)

    ends = [jax.vmap(lambda p, f=f: climbed(f, p))(several) for f in (target.log_density, whole(target))]
    assert close(*ends)


def test_what_is_held_has_no_gradient_and_data_may_have_one(in_blocks):
    x, y = X, RNG.normal(size=NUM_ROWS).astype(np.float32)
    target, params = target_and_params(po.Model(po.nn.mlp((16,))), (x, y))
    gradient = jax.grad(target.holding("likelihood").log_density)(params, target.data)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient["likelihood"]))
    assert close(gradient["network"], jax.grad(whole(target))(params, target.data)["network"])
    by_x = [
        jax.grad(lambda x, f=f: f(params, (x, target.data[1])))(target.data[0])
        for f in (target.log_density, whole(target))
    ]
    assert close(*by_x)


def test_sums_of_16_bit_weights_are_kept_in_32(in_blocks, monkeypatch):
    """Added up in bfloat16, gradients of 50 blocks would have lost two digits of the three that they have."""
    model = po.Model(
        po.Network(lambda key, x: {"w": jnp.zeros((6, 1), jnp.bfloat16)}, lambda p, x: x @ p["w"].astype(x.dtype)),
        po.likelihoods.Gaussian(1.0),
        po.priors.Normal(1.0),
    )
    target = po.Target(model, (np.abs(X), np.full(NUM_ROWS, 1.003, np.float32)))
    monkeypatch.setattr(sums, "BLOCK_BYTES", 200)
    params = target.init(jax.random.key(0))
    assert num_blocks(target, params, target.data) > 40
    found = jax.grad(target.log_density)(params, target.data)["network"]["w"].astype(np.float32)[:, 0]
    exact = np.abs(X).astype(np.float64).sum(0) * 1.003
    assert np.allclose(found, exact, rtol=2**-8)  # one rounding to bfloat16


def test_trees_of_inputs(in_blocks):
    def apply(params, x):
        return jnp.tanh(x["a"] @ params["w"]) * x["scale"][:, None]

    network = po.Network(lambda key, x: {"w": jax.random.normal(key, (6, 1))}, apply)
    data = {"a": X, "scale": np.abs(X[:, 0])}, X[:, 1]
    target, params = target_and_params(po.Model(network, po.likelihoods.Gaussian(0.5)), data)
    assert num_blocks(target, params, target.data) > 1
    assert close(*(jax.value_and_grad(f)(params, target.data) for f in (target.log_density, whole(target))))


def test_few_rows_and_small_networks_are_summed_as_one():
    target, params = target_and_params()
    assert num_blocks(target, params, target.data) == 1
    assert float(target.log_density(params)) == float(whole(target)(params, target.data))
    assert "scan" not in str(jax.make_jaxpr(target.log_density)(params, target.data))


def test_blocks_hold_a_fraction_of_the_memory(monkeypatch):
    target, params = target_and_params(po.Model(po.nn.mlp((200, 200), outputs=3), po.likelihoods.Categorical()))

    def temporary() -> int:
        gradient = jax.jit(jax.grad(lambda p, batch: target.log_density(p, batch)))
        return gradient.lower(params, target.data).compile().memory_analysis().temp_size_in_bytes

    at_once = temporary()
    monkeypatch.setattr(sums, "WHOLE_BYTES", 0)
    monkeypatch.setattr(sums, "BLOCK_BYTES", 100_000)
    weights = 4 * 200 * 210  # of which a gradient has its own
    assert temporary() - weights < 0.5 * (at_once - weights)


def test_convolutions_that_only_xla_has_are_left_as_they_are_while_they_fit(in_blocks, monkeypatch):
    """In a compiled loop they would be twenty times slower on a CPU."""
    target, params = target_and_params()
    monkeypatch.setattr(sums, "_holds_convolution", lambda *_: True)
    assert num_blocks(target, params, target.data) == 1
    monkeypatch.setattr(sums, "available_memory", lambda: 1000.0)
    assert num_blocks(target, params, target.data) > 1


@pytest.mark.slow
def test_a_draw_of_a_resnet_by_ten_thousand_images_stays_under_two_gibibytes(tmp_path):
    neighbour = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("POSTERIA_DATA") or neighbour)
    if not (folder / "cifar10").is_dir():
        pytest.skip("no CIFAR-10: set POSTERIA_DATA")

    def draw(num: int, how: str) -> tuple:
        out = tmp_path / f"{num}{how}.npz"
        command = [sys.executable, str(Path(__file__).parent / "full_batch.py"), str(num), str(out), how]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"POSTERIA_DATA": str(folder)})
        assert done.returncode == 0, done.stderr
        return int(done.stdout), np.load(out)

    (_, whole), (_, blocks) = draw(500, "whole"), draw(500, "blocks")
    for name in ("draw", "log_density", "acceptance"):
        np.testing.assert_allclose(blocks[name], whole[name], rtol=1e-5, atol=1e-6)
    peak, _ = draw(10_000, "blocks")
    assert peak < 2 * 2**30
