"""The loop: chunks, thinning, layouts and services, with a kernel whose every number is known."""

import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria.engine import chunks, layout
from posteria.engine.loop import Kernel, Run


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array


def count_and_draw() -> Kernel:
    """State: (steps so far, sum of the step's own random numbers)."""

    def step(key, state, data):
        number, total = state
        value = jax.random.normal(key)
        return (number + 1, total + value), Info(value, jnp.asarray(1))

    return Kernel(lambda key, start, data: (0, start), step)


KERNEL = count_and_draw()


def keep_all(state):
    return state


def run(**settings):
    return Run().loop(KERNEL, jax.random.key(0), jnp.zeros(3), None, **settings)


def test_rows_are_kept_after_every_thinning_steps_and_counts_are_summed():
    trace = run(num_steps=12, thinning=4, keep=keep_all)
    np.testing.assert_array_equal(trace.kept[0], [[4, 8, 12]] * 3)
    np.testing.assert_array_equal(trace.info.num_gradients, np.full((3, 3), 4))
    every = run(num_steps=12, keep=keep_all)
    np.testing.assert_allclose(trace.kept[1], every.kept[1][:, 3::4], rtol=1e-6)
    np.testing.assert_allclose(trace.info.log_density, every.info.log_density.reshape(3, 3, 4).mean(-1), rtol=1e-5)


@pytest.mark.parametrize("zero", [0, jnp.asarray(0, jnp.int32)], ids=["weak", "strong"])
@pytest.mark.parametrize("thinning", [1, 2])
def test_a_step_is_traced_once_also_when_its_state_begins_weakly_typed(monkeypatch, zero, thinning):
    traces = []

    def step(key, state, data):
        traces.append(1)
        return (jnp.asarray(state[0] + 1, jnp.int32), state[1] + 1), Info(jnp.zeros(()), jnp.asarray(1))

    monkeypatch.setattr(chunks, "MAX_CHUNK", 3)
    kernel = Kernel(lambda key, start, data: (zero, start), step)
    Run().loop(kernel, jax.random.key(0), jnp.zeros(2), None, num_steps=20, thinning=thinning)
    assert len(traces) == 1  # for its shapes, to see that it holds no convolution, and for its code


def test_a_chain_may_start_with_a_typed_key():
    def init(key, start, data):
        return jax.random.key_data(start["key"])

    kernel = Kernel(init, lambda key, state, data: (state, Info(jnp.zeros(()), jnp.asarray(0))))
    keys = jax.random.split(jax.random.key(3), 2)
    trace = Run().loop(kernel, jax.random.key(0), {"key": keys}, None, num_steps=2)
    np.testing.assert_array_equal(trace.state, jax.random.key_data(keys))


@pytest.mark.parametrize("seconds", [1e-9, 1e9])
def test_the_length_of_a_chunk_changes_nothing(monkeypatch, seconds):
    expected = run(num_steps=50, keep=keep_all)
    monkeypatch.setattr(chunks, "CHUNK_SECONDS", seconds)
    monkeypatch.setattr(chunks, "MAX_CHUNK", 7)
    np.testing.assert_array_equal(run(num_steps=50, keep=keep_all).kept[1], expected.kept[1])


def test_rows_that_are_kept_do_not_hold_on_to_the_buffer_they_came_in():
    buffer = np.zeros((2, 100, 3))
    assert chunks.first_rows(buffer, 4).shape == (2, 4, 3) and chunks.first_rows(buffer, 4).base is None
    assert chunks.first_rows(buffer, 100) is buffer


def test_chains_have_keys_of_their_own():
    trace = run(num_steps=20, keep=keep_all)
    correlations = np.corrcoef(trace.info.log_density)
    assert np.abs(correlations[np.triu_indices(3, 1)]).max() < 0.9
    assert len(np.unique(trace.info.log_density)) == 60


def test_a_non_finite_density_is_named():
    def step(key, state, data):
        return state + 1, Info(jnp.where(state < 5, 0.0, jnp.nan), jnp.asarray(1))

    kernel = Kernel(lambda key, start, data: start, step)
    with pytest.raises(po.errors.DensityError, match=r"draws / inner.*chain 1.*step 3"):
        Run().stage("draws").stage("inner").loop(kernel, jax.random.key(0), jnp.array([0, 2]), None, num_steps=9)


def test_a_finished_stage_is_not_run_again(tmp_path):
    calls = []

    def step(key, state, data):
        jax.debug.callback(lambda: calls.append(1))
        return state + 1, Info(0.0 * state, jnp.asarray(1))

    kernel = Kernel(lambda key, start, data: start, step)

    def go():
        return (
            Run(folder=tmp_path)
            .stage("a")
            .loop(kernel, jax.random.key(0), jnp.zeros(1), None, num_steps=5, keep=lambda s: s)
        )

    first = go()
    again = go()
    jax.effects_barrier()
    assert len(calls) == 5
    np.testing.assert_array_equal(first.kept, again.kept)
    np.testing.assert_array_equal(first.state, again.state)


LAYOUTS = """
import json
import pathlib
import sys

import jax

import posteria as po
from posteria.testing import linear_regression

if sys.argv[1] == "devices":
    jax.config.update("jax_num_cpu_devices", 2)
known = linear_regression()
method = po.HMC(num_draws=5, num_warmup=0, step_size=0.05, num_leapfrog=10)
po.fit(known.model, known.data, method, out=sys.argv[2], progress=False)
print(json.loads(pathlib.Path(sys.argv[2], "manifest.json").read_text())["run"]["layout"])
"""


def test_host_devices_and_threads_draw_the_same_up_to_rounding(tmp_path):
    folders = {}
    for name in ("threads", "devices"):
        folders[name] = tmp_path / name
        command = [sys.executable, "-c", LAYOUTS, name, str(folders[name])]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == {"threads": "threads", "devices": "devices:2"}[name]
    from posteria.testing import linear_regression

    network = linear_regression().model.network
    one, other = (po.load(folder, network=network).stored.flat for folder in folders.values())
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_vectorised_chains_draw_the_same_up_to_rounding():
    one = Run(recorded_layout="vmap").loop(KERNEL, jax.random.key(0), jnp.zeros(3), None, num_steps=9, keep=keep_all)
    np.testing.assert_allclose(one.kept[1], run(num_steps=9, keep=keep_all).kept[1], rtol=1e-5)


def test_a_run_that_goes_on_in_another_layout_says_so():
    began_elsewhere = Run(recorded_layout="devices:64")
    began_elsewhere.loop(KERNEL, jax.random.key(0), jnp.zeros(64), None, num_steps=2)
    assert any("not bit-identical" in note for note in began_elsewhere.notes)


def test_a_stage_whose_chains_divide_otherwise_is_no_interruption():
    both = Run(recorded_layout="devices:2")
    both.loop(KERNEL, jax.random.key(0), jnp.zeros(5), None, num_steps=2)
    assert both.notes == []
    assert [layout.continued("devices:4", num) for num in (8, 6, 5)] == ["devices:4", "devices:3", "threads"]
