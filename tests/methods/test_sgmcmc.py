"""Stochastic-gradient samplers, MCLMC, parallel tempering and SVGD: settings, suggested steps."""

import jax
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import posteria as po
from posteria import tree
from posteria.errors import SettingError
from posteria.methods.stochastic.sampler import COOLED, EXCESS
from posteria.methods.stochastic.schedules import factor
from posteria.methods.stochastic.sghmc import underdamped_langevin
from posteria.methods.virial import virials
from posteria.models.target import Target


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    return po.Model(po.nn.mlp(())), (x, x[:, 0] + 0.1 * rng.normal(size=40))


@pytest.mark.parametrize("method, power", [pytest.param(po.SGLD, 1.0, marks=pytest.mark.slow), (po.SGHMC, 0.5)])
def test_suggested_steps_follow_temperature_and_shrink_with_batches(linear, method, power):
    model, data = linear
    quick = {"num_chains": 1, "num_draws": 1, "num_warmup": 0, "thinning": 1}
    sizes = {}
    weights = model.network.init(jax.random.key(0), data[0][:1])
    for temperature, batch_size in ((1.0, 40), (0.25, 40), (1.0, 10)):
        tempered = po.Model(model.network, temperature=temperature)
        posterior = po.fit(tempered, data, method(**quick, batch_size=batch_size), start=weights, progress=False)
        sizes[temperature, batch_size] = posterior.info["step_size"][0, 0]
    assert sizes[0.25, 40] == pytest.approx(sizes[1.0, 40] * 0.25**power, rel=0.01)
    assert sizes[1.0, 10] < sizes[1.0, 40]


def test_to_a_suggested_step_weights_of_3_are_a_temperature_of_a_third(linear):
    """Of a prior that is as much wider the density is the same, and so is a batch's noise; units are the prior's."""
    x, y = linear[1]
    method = po.SGHMC(num_chains=1, num_draws=1, num_warmup=0, thinning=1, batch_size=10)

    def step(prior_std, temperature, *weight):
        likelihood, prior = po.likelihoods.Gaussian(noise=0.3), po.priors.Normal(prior_std)
        model = po.Model(po.nn.mlp(()), likelihood, prior, temperature)
        start = model.network.init(jax.random.key(0), x[:1])
        return po.fit(model, (x, y, *weight), method, start=start, progress=False).info["step_size"][0, 0]

    weighted, tempered = step(0.5, 1.0, np.full(40, 3.0, np.float32)), step(0.5 * 3**0.5, 1 / 3)
    assert weighted == pytest.approx(3**0.5 * tempered, rel=0.001)


def _excess_at_the_end_of_a_cycle(length, noise, momentum=0.9):
    """Of SGHMC's variance where a Gaussian is stiffest, followed step by step; a batch's noise is of the curvature."""
    first = float(underdamped_langevin(momentum).suggest(np.float32(1.0), COOLED * noise))
    one_cycle, added = np.eye(2), np.zeros((2, 2))
    for number in range(length):
        step = first * float(factor("cyclical", number, 0, length))
        drift = np.array([[1.0, 0.5 * step], [0.0, 1.0]])
        mixed = drift @ np.diag([1.0, momentum]) @ drift
        moved = mixed @ [[1.0, 0.0], [-step, 1.0]]
        by_noise, by_mixing = mixed @ [0.0, step * noise**0.5], drift @ [0.0, (1 - momentum**2) ** 0.5]
        added = moved @ added @ moved.T + np.outer(by_noise, by_noise) + np.outer(by_mixing, by_mixing)
        one_cycle = moved @ one_cycle
    return solve_discrete_lyapunov(one_cycle, added)[0, 0] - 1.0


def test_at_the_end_of_a_cycle_variances_are_too_large_by_at_most_half_and_in_the_worst_case_by_that():
    excess = [_excess_at_the_end_of_a_cycle(*each) for each in ((5, 5.0), (20, 2.0), (50, 5.0), (150, 100.0))]
    assert 0.95 * EXCESS < max(excess) <= EXCESS


def _stretched(key, batch):
    return (3 * batch[0], *batch[1:])


def test_to_a_suggested_step_augmented_rows_are_the_rows_and_twice_as_noisy_at_half_of_them(linear):
    """Rows of a batch are drawn without replacement, which gains nothing where they change each time."""
    model, (x, y) = linear
    start = model.network.init(jax.random.key(0), x[:1])
    method = po.SGHMC(num_chains=1, num_draws=1, num_warmup=0, thinning=1, batch_size=20)
    augmented = po.fit(model, (x, y), method, start=start, augment=_stretched, progress=False)
    plain = po.fit(model, (3 * x, y), method, start=start, progress=False)
    assert augmented.info["step_size"][0, 0] == pytest.approx(0.5**0.5 * plain.info["step_size"][0, 0], rel=0.001)


def test_the_heat_of_a_fit_with_augmentation_is_that_of_the_augmented_rows(linear):
    model, (x, y) = linear
    target = Target(model, (x, y)).augmented(_stretched)
    draws = np.random.default_rng(0).normal(size=(2, 8, tree.size(target.structs))).astype(np.float32)
    found, wanted = (virials(jax.random.key(1), each, draws, 40) for each in (target, Target(model, (3 * x, y))))
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "cosine"},
        {"preconditioner": "adam"},
        {"variance_reduction": "control variate"},
        {"batch_size": 0},
        {"step_size": -1.0},
        {"preconditioner": "rmsprop", "num_warmup": 0},
        {"momentum": 1.0},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(SettingError):
        po.SGHMC(**settings)


@pytest.mark.parametrize(
    "method, settings",
    [
        (po.MCLMC, {"energy_variance": 0.0}),
        (po.MCLMC, {"num_warmup": 0}),
        (po.AdjustedMCLMC, {"mean_steps": 1.0}),
        (po.ParallelTempering, {"num_replicas": 1}),
        (po.SVGD, {"size": 0}),
        (po.SVGD, {"learning_rate": 0.0}),
        (po.SGNHT, {"momentum": 0.0}),
    ],
)
def test_settings_of_the_others_too(method, settings):
    with pytest.raises(SettingError):
        method(**settings)


def test_thinning_and_batches_count_as_they_say(linear):
    model, data = linear
    method = po.SGLD(num_chains=1, num_draws=7, num_warmup=11, thinning=3, batch_size=10, start="prior")
    posterior = po.fit(model, data, method, progress=False)
    assert posterior.stored.flat.shape[:2] == (1, 7)
    assert posterior.facts["gradients"] == 11 + 7 * 3


def test_a_control_variate_is_not_anchored_at_a_draw_from_the_prior(linear):
    model, data = linear
    with pytest.raises(SettingError, match="anchor"):
        po.fit(model, data, po.SGLD(variance_reduction="control-variate", start="prior"), progress=False)
