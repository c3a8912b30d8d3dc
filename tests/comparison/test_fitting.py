"""Time that went into compiling is told apart, so that the first of two equals does not look dearer."""

import time

import jax
import jax.numpy as jnp

import posteria as po
from comparison import small
from posteria.comparison.run.fitting import clock, covered


def test_what_is_inside_something_else_counts_once():
    assert covered([]) == 0.0
    assert covered([(0.0, 4.0), (1.0, 2.0), (3.0, 5.0), (7.0, 8.0)]) == 6.0


def test_compiling_is_compiling_and_nothing_else():
    @jax.jit
    def slow_to_compile(x):
        for _ in range(60):
            x = jnp.sin(x) @ jnp.cos(x)
        return x

    x = jnp.eye(3)
    with clock() as first:
        jax.block_until_ready(slow_to_compile(x))
    with clock() as second:
        jax.block_until_ready(slow_to_compile(x))
        time.sleep(0.05)
    assert 0.5 * first.total < first.compiling <= first.total
    assert second.compiling == 0.0 and second.total >= 0.05


def test_the_first_of_two_equals_compiles_for_both():
    method = po.MAP(num_epochs=40)
    found = small.compare(None, methods={"a": method, "b": method}, reference=None, seeds=1).results
    seconds, compiling = (
        {row["name"]: row["scores"][key]["value"] for row in found["problems"][0]["rows"]}
        for key in ("seconds", "compile_seconds")
    )
    assert compiling["b"] < 0.3 * compiling["a"]
    assert all(value >= 0.0 for value in seconds.values())
