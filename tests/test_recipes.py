"""Recipes for tables are made of parts that can be named, and cost no more for more rows."""

import numpy as np
import pytest

from posteria import nn
from posteria.methods import registry
from posteria.models import likelihoods, priors
from posteria.recipes import QUALITIES, recipe_for, resolution_of


@pytest.mark.parametrize("kind", ["regression", "counts", "classes"])
@pytest.mark.parametrize("quality", QUALITIES)
def test_a_recipe_is_made_of_parts_that_can_be_written_down(quality, kind):
    recipe = recipe_for(quality, kind, np.arange(300) % 2, num_outputs=2)
    assert recipe.network.spec is not None
    assert likelihoods.from_json(likelihoods.to_json(recipe.likelihood)) == recipe.likelihood
    assert priors.from_json(priors.to_json(recipe.prior)) == recipe.prior
    assert registry.from_json(registry.to_json(recipe.method)) == recipe.method


def test_a_linear_function_of_the_columns_stands_beside_the_layers_of_classes():
    y = np.arange(300) % 2
    assert nn.apart(recipe_for("fast", "classes", y, 2, num_columns=4).network)[1].spec["settings"]["inputs"] == 4
    assert nn.apart(recipe_for("fast", "regression", y, 1, num_columns=4).network) is None


@pytest.mark.parametrize("factor", [2, 4, 10])
@pytest.mark.parametrize("quality", QUALITIES)
def test_rows_times_steps_are_bounded(quality, factor):
    def rows_seen(num_rows):
        method = recipe_for(quality, "regression", np.linspace(0, 1, num_rows), 1).method
        if quality == "best":
            return num_rows * (method.num_warmup + method.num_draws * method.thinning)
        return method.method.batch_size * method.expected_gradients(num_rows)

    assert rows_seen(factor * 5000) <= 1.1 * rows_seen(5000)


def test_the_best_network_is_deeper_where_there_are_many_rows():
    few, many = (recipe_for("best", "regression", np.linspace(0, 1, n), 1).network.spec for n in (999, 1000))
    assert len(few["settings"]["hidden"]) < len(many["settings"]["hidden"])


def test_the_resolution_is_that_of_targets_which_repeat():
    rng = np.random.default_rng(0)
    whole = rng.poisson(2.0, 200).astype(np.float32)
    assert resolution_of(whole) == 1.0
    assert resolution_of((whole - 3) / 4) == pytest.approx(0.25)
    assert resolution_of(np.stack([whole, whole / 2], axis=1)) == 0.5
    assert resolution_of(rng.normal(size=200)) == 0.0
    assert resolution_of(np.zeros(5)) == 0.0
