"""Recipes for tables are made of parts that can be named, and cost no more for more rows."""

import numpy as np
import pytest

from posteria.methods import registry
from posteria.models import likelihoods, priors
from posteria.recipes import FULL_ROWS, balanced, resolution_of


def test_a_recipe_is_made_of_parts_that_can_be_written_down():
    recipe = balanced(num_rows=300, num_targets=2, resolution=0.5)
    assert recipe.network.spec is not None
    assert likelihoods.from_json(likelihoods.to_json(recipe.likelihood)) == recipe.likelihood
    assert priors.from_json(priors.to_json(recipe.prior)) == recipe.prior
    assert registry.from_json(registry.to_json(recipe.method)) == recipe.method


@pytest.mark.parametrize("factor", [2, 4, 10])
def test_rows_times_steps_are_bounded(factor):
    def cost(num_rows):
        method = balanced(num_rows).method
        return num_rows * (method.num_warmup + method.num_draws * method.thinning)

    assert cost(factor * FULL_ROWS) <= 1.1 * cost(FULL_ROWS)


def test_the_resolution_is_that_of_targets_which_repeat():
    rng = np.random.default_rng(0)
    whole = rng.poisson(2.0, 200).astype(np.float32)
    assert resolution_of(whole) == 1.0
    assert resolution_of((whole - 3) / 4) == pytest.approx(0.25)
    assert resolution_of(np.stack([whole, whole / 2], axis=1)) == 0.5
    assert resolution_of(rng.normal(size=200)) == 0.0
    assert resolution_of(np.zeros(5)) == 0.0
