"""What chains start from and what is left out of them: the short climb, and chains that are stuck."""

import jax
import numpy as np
import pytest

import posteria as po
from posteria.engine.loop import Run
from posteria.methods.chains.mclmc import without_frozen
from posteria.methods.starts import BATCH, find_starts
from posteria.models.target import Target, log_densities
from posteria.posteriors.draws import Draws

KEY = jax.random.key(0)
NUM_STARTS = 2


def target_of(num_rows: int) -> Target:
    """Of two inputs the second says nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 2)).astype(np.float32)
    y = (np.sin(2 * x[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))).astype(np.float32)
    prior = po.priors.InputScales(po.priors.FanIn(scale=po.infer))
    network = po.nn.mlp((8,), outputs=2, activation="unit_swish")
    return Target(po.Model(network, po.likelihoods.VaryingNoise(), prior), (x, y))


@pytest.mark.parametrize("num_rows", [60, 2 * BATCH])  # all rows at once, and by batches
def test_an_ascent_is_a_climb_of_each_start_that_keeps_its_scales(num_rows):
    target = target_of(num_rows)
    inits = find_starts(KEY, target, "init", NUM_STARTS, Run())
    ends = find_starts(KEY, target, "ascent", NUM_STARTS, Run())
    gain = log_densities(target, ends) - log_densities(target, inits)
    assert (gain > 0.5 * num_rows).all()
    kernel = np.asarray(ends["network"]["layers"]["0"]["kernel"])
    assert np.abs(kernel[0] - kernel[1]).max() > 0.1, "starts that differ end in different places"
    scales = ends["prior"]["layers/0/kernel"]
    assert (scales["inputs"][:, 0] > scales["inputs"][:, 1]).all(), "the scales climb too"
    assert (np.abs(scales["scale"]) < 2).all(), "and weights do not draw them to 0"


def draws_of(log_density: list[float]) -> Draws:
    """Chains of three draws of eight parameters, each with a mean log density."""
    spread = np.asarray([-1.0, 0.0, 1.0])
    return Draws(
        np.zeros(8, np.float32), np.zeros((len(log_density), 3, 8)), {"log_density": np.add.outer(log_density, spread)}
    )


def test_chains_far_below_the_best_are_left_out_and_it_is_said():
    run = Run()
    kept = without_frozen(draws_of([-10.0, -10.0 - 5.1, -1e9, -10.0 - 4.9]), 50, run)  # 0.1 * 50 rows
    np.testing.assert_allclose(kept.info["log_density"].mean(axis=1), [-10.0, -14.9], rtol=1e-6)
    assert kept.flat.shape == (2, 3, 8)
    assert "2 of 4 chains are stuck" in run.notes[0]


def test_chains_that_differ_no_more_than_chains_do_are_all_kept():
    run, draws = Run(), draws_of([-10.0, -11.9])  # 0.25 * 8 parameters
    assert without_frozen(draws, 5, run) is draws
    assert run.notes == []
