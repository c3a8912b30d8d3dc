"""Layers and a linear function that are fitted apart: members are their sum, and rows left out say how much of each."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import posteria as po
from posteria.engine.loop import Run
from posteria.methods.points import fold_parts
from posteria.models.target import Target
from posteria.posteriors.draws import forward

FOLDS = po.Folds(po.MAP(num_epochs=150, batch_size=64, learning_rate=0.02), num_folds=4, num_repeats=2)
FUNCTIONS = {"linear": lambda x: 3 * x[:, 0] - 2 * x[:, 1], "product": lambda x: 6 * x[:, 0] * x[:, 1]}


def model_of(likelihood, outputs):
    prior = po.priors.InputScales(po.priors.FanIn(scale=3.0), log_std=0.5)
    return po.Model(po.nn.mlp((20,), outputs=outputs, activation="swish", skip=3), likelihood, prior)


def labels(name, num_rows=240):
    random = np.random.default_rng(0)
    x = random.normal(size=(num_rows, 4)).astype(np.float32)
    return x, (random.uniform(size=num_rows) < 1 / (1 + np.exp(-FUNCTIONS[name](x)))).astype(np.int32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_left_out_tell_layers_from_a_linear_function(name):
    x, y = labels(name)
    posterior = po.fit(model_of(po.likelihoods.Categorical(), 2), (x, y), FOLDS, progress=False)
    share = posterior.facts["share_of_layers"]
    assert share < 1 if name == "linear" else share == 1
    new = np.random.default_rng(1).normal(size=(4000, 4)).astype(np.float32)
    truth = 1 / (1 + np.exp(-FUNCTIONS[name](new)))

    def lost(probs):
        """Nats a row, against the truth."""
        truths, probs = (np.clip(np.stack([1 - p, p]), 1e-9, 1) for p in (truth, probs.astype(np.float64)))
        return (truths * np.log(truths / probs)).sum(0).mean()

    logistic = lost(LogisticRegression().fit(x, y).predict_proba(new)[:, 1])
    ours = lost(np.asarray(posterior.predict(new).probs)[:, 1])
    # four weights and a temperature from 240 rows: each costs 1 / (2 * 240) nats, and twice that in one of 20 cases
    assert ours < logistic + 0.02 if name == "linear" else ours < 0.5 * logistic


def test_members_are_the_sum_of_both_parts_and_own_parameters_are_those_of_rows_left_out():
    """Its outputs are put together from the parts'; the members' are those of the joined weights."""
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 4)).astype(np.float32)
    y = (x[:, 0] - x[:, 2] + 0.5 * np.abs(x[:, 1]) + random.normal(size=120)).astype(np.float32)
    target = Target(model_of(po.likelihoods.Gaussian(), 1), (x, y))
    folds = FOLDS.divided(jax.random.key(1), 120)
    settings = {"num_steps": 300, "batch_size": 64, "learning_rate": 0.02}
    climbed, share = fold_parts.climb(jax.random.key(0), target, folds, Run(), num_repeats=2, **settings)
    assert 0 < share < 1  # else a part would not be seen
    outputs, own = forward(target.without_data())(climbed.flat, x)
    for i, fold in enumerate(folds):
        np.testing.assert_allclose(outputs[i, fold], climbed.outputs[i // 4, fold], atol=1e-4)
    errors = climbed.outputs[..., 0] - y
    noise = np.asarray(jax.vmap(target.model.likelihood.moments)(own, outputs)[1])[:, 0, 0]
    np.testing.assert_allclose(noise, np.mean(errors**2), rtol=1e-3)


def test_one_member_and_the_average_of_repeats_tell_what_all_would_do():
    """Log probabilities with a spread of 0.4: ten of them averaged, known from two."""
    random = np.random.default_rng(0)
    terms = -1.0 + 0.4 * random.normal(size=(10, 200_000))
    of_ten = np.log(np.exp(terms).mean(0)).mean()
    assert abs(fold_parts.of_all(terms[:2], 10) - of_ten) < 0.004
    assert of_ten - np.log(np.exp(terms[:2]).mean(0)).mean() > 0.02  # which two alone do not tell
    assert fold_parts.of_all(terms[:1], 10) == pytest.approx(terms[0].mean())
    assert fold_parts.of_all(terms[:2], 2) == pytest.approx(np.log(np.exp(terms[:2]).mean(0)).mean())
    doubled = np.concatenate([terms, terms[:, :1000]], axis=1)
    weight = np.ones(200_000) + (np.arange(200_000) < 1000)
    assert fold_parts.of_all(terms[:2], 10, weight) == pytest.approx(fold_parts.of_all(doubled[:2], 10))


def test_parts_that_a_prior_knows_by_name_are_climbed_together():
    prior = po.priors.ByPath({"skip": po.priors.Normal(0.1)}, default=po.priors.FanIn())
    model = po.Model(po.nn.mlp((5,), outputs=2, skip=4), po.likelihoods.Categorical(), prior)
    assert not fold_parts.are_apart(model)
    posterior = po.fit(model, labels("linear", 40), po.Folds(po.MAP(num_epochs=10), num_folds=2), progress=False)
    assert "share_of_layers" not in posterior.facts
