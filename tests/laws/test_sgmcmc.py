"""SGLD, SGHMC and SGNHT approach the posterior as their step shrinks, at the order that theory gives.

On a quadratic target a step of SGLD or SGHMC is affine in state and noise, so the mean and covariance that its chain
settles in are the solution of a linear system: the laws of order are exact, not simulated.
"""

import itertools
from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

import posteria as po
from posteria import tree
from posteria.curvature.stiffness import stiffness
from posteria.data.arrays import rows
from posteria.data.batches import take
from posteria.errors import DensityError
from posteria.methods.stochastic.anchor import Anchor, estimate_gradient
from posteria.methods.stochastic.sampler import EXCESS, drawing_kernel, preconditioning_scale, warmup_kernel
from posteria.methods.stochastic.schedules import begins_cycle, factor
from posteria.methods.stochastic.sghmc import underdamped_langevin
from posteria.methods.stochastic.sgld import langevin
from posteria.models.coordinates import coordinates
from posteria.models.target import Target
from posteria.testing import AsymptoticLaws, linear_regression
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value

CHEAP = {"num_chains": 2, "num_draws": 30, "num_warmup": 300, "thinning": 10, "batch_size": 10, "start": "prior"}
LONG = {"num_chains": 2, "num_draws": 500, "num_warmup": 2000, "thinning": 100, "batch_size": 10, "start": "prior"}


class TestSGLD(AsymptoticLaws):
    method = po.SGLD(**LONG)
    cheap = po.SGLD(**CHEAP)
    fine, coarse = 0.05, 1.5

    def with_step(self, step, narrowest):
        return replace(self.method, step_size=step * narrowest**2)


class TestSGHMC(AsymptoticLaws):
    method = po.SGHMC(**LONG)
    cheap = po.SGHMC(**CHEAP)
    fine, coarse = 0.06, 0.8

    def with_step(self, step, narrowest):
        return replace(self.method, step_size=step * narrowest)


@pytest.mark.slow
class TestSGNHT(AsymptoticLaws):
    method = po.SGNHT(**LONG)
    cheap = po.SGNHT(**CHEAP)
    fine, coarse = 0.06, 0.8

    def with_step(self, step, narrowest):
        return replace(self.method, step_size=step * narrowest)


# ---- the order, exactly


@lru_cache(maxsize=8)
def regression(temperature: float = 1.0, num_data: int = 6) -> tuple:
    """Three weights; with the posterior's moments in prior units."""
    known = linear_regression(num_data=num_data, num_features=2, temperature=temperature)
    target = Target(known.model, known.data)
    flat = coordinates(target.without_data())
    unit = np.asarray(flat.to_weights(jnp.ones(3)), float)
    return flat, target.data, known.mean / unit, known.covariance / np.outer(unit, unit)


def settled(transformation, step_size, batch_size=6, scale=1.0, temperature=1.0, num_data=6):
    """Mean and covariance of the positions that a chain with independent batches settles in.

    A step maps the state s to A_b s + c_b + B noise for batch b: the moments E[s] and E[s s'] solve linear equations,
    averaged over all batches.
    """
    flat, data, mean, _ = regression(temperature, num_data)
    size = len(mean)
    inner = transformation.init(jax.random.key(0), jnp.zeros(size))
    has_momentum = inner is not None

    def step(state, noise, batch):
        position, momentum = state[:size], state[size:] if has_momentum else None
        _, gradient = estimate_gradient(flat, position, batch, None)
        displacement, momentum = transformation.update(scale * gradient, momentum, noise, step_size)
        position = position + scale * displacement
        return jnp.concatenate([position, momentum]) if has_momentum else position

    linearise = jax.jit(lambda *args: (jax.jacobian(step, (0, 1))(*args), step(*args)))
    state, noise = jnp.zeros(size * (1 + has_momentum)), jnp.zeros(size)
    parts = []
    for numbers in itertools.combinations(range(num_data), batch_size):
        (a, b), c = linearise(state, noise, rows(data, np.array(numbers)))
        parts.append([np.asarray(part, float) for part in (a, b, c)])
    a, b, c = (np.stack(part) for part in zip(*parts))
    identity = np.eye(len(state))
    first = np.linalg.solve(identity - a.mean(0), c.mean(0))
    # E[s s'] = mean_b [A S A' + A m c' + c m' A' + c c'] + B B'
    cross = np.einsum("bij,j,bk->bik", a, first, c)
    constant = (cross + cross.transpose(0, 2, 1) + c[:, :, None] * c[:, None, :] + b @ b.transpose(0, 2, 1)).mean(0)
    kron = np.einsum("bij,bkl->ikjl", a, a).reshape(len(state) ** 2, -1) / len(a)
    second = np.linalg.solve(np.eye(len(state) ** 2) - kron, constant.reshape(-1)).reshape(identity.shape)
    covariance = second - np.outer(first, first)
    return first, covariance


def errors(transformation, step_sizes, **settings):
    """Of the positions' covariance, relative to the truth, for each step size."""
    _, _, mean, truth = regression(settings.get("temperature", 1.0))
    found = []
    for step_size in step_sizes:
        first, covariance = settled(transformation, step_size, **settings)
        size = len(mean)
        std = np.sqrt(np.diag(truth))
        np.testing.assert_allclose(first[:size] / std, mean / std, atol=2e-3)  # linear: the mean has no bias
        found.append(np.linalg.norm(np.linalg.solve(truth, covariance[:size, :size]) - np.eye(size)))
    return np.array(found)


def narrowest(temperature: float = 1.0) -> float:
    return float(np.sqrt(np.linalg.eigvalsh(regression(temperature)[3])[0]))


@pytest.mark.parametrize("batch_size", [6, 2])
def test_sgld_is_of_first_order(batch_size):
    steps = narrowest() ** 2 * np.array([0.08, 0.04, 0.02])
    found = errors(langevin(), steps, batch_size=batch_size)
    np.testing.assert_allclose(found[:-1] / found[1:], 2.0, rtol=0.1)


def test_sghmc_with_full_gradients_has_exact_positions_at_any_stable_step():
    found = errors(underdamped_langevin(0.9), narrowest() * np.array([1.0, 0.5]))
    assert (found < 1e-3).all()  # float32 Jacobians


def test_its_momenta_are_exact_after_mixing_and_of_second_order_after_half_a_kick():
    """So that heat, which is read after mixing, is of gradient noise alone."""
    found = []
    for step in narrowest() * np.array([0.8, 0.4, 0.2]):
        _, covariance = settled(underdamped_langevin(0.9), step)
        np.testing.assert_allclose(covariance[3:, 3:], np.eye(3), atol=1e-3)
        half_kick = np.eye(6)
        half_kick[3:, :3] = -0.5 * step * np.linalg.inv(regression()[3])
        found.append(np.linalg.norm((half_kick @ covariance @ half_kick.T)[3:, 3:] - np.eye(3)))
    np.testing.assert_allclose(np.array(found[:-1]) / found[1:], 4.0, rtol=0.1)


def test_sghmc_on_batches_is_of_second_order():
    found = errors(underdamped_langevin(0.9), narrowest() * np.array([0.08, 0.04, 0.02]), batch_size=2)
    np.testing.assert_allclose(found[:-1] / found[1:], 4.0, rtol=0.1)


@pytest.mark.parametrize("transformation, power", [(langevin(), 1.0), (underdamped_langevin(0.9), 0.5)])
def test_with_steps_that_follow_the_temperature_the_covariance_scales_with_it(transformation, power):
    step = 0.3 * narrowest() ** (2 * power)
    _, cold = settled(transformation, step * 0.25**power, temperature=0.25)
    _, warm = settled(transformation, step)
    np.testing.assert_allclose(cold[:3, :3], 0.25 * warm[:3, :3], rtol=2e-3, atol=1e-6)


def test_a_frozen_preconditioner_does_not_change_what_is_sampled():
    scale = jnp.asarray([0.5, 2.0, 1.0])
    found = errors(underdamped_langevin(0.9), [0.3 * narrowest()], scale=scale)
    assert found[0] < 1e-3


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("batch_size", [12, 3])
@pytest.mark.parametrize("method", [po.SGLD, po.SGHMC], ids=["sgld", "sghmc"])
def test_a_suggested_step_keeps_variances_within_the_stated_excess(method, batch_size, temperature):
    """In every direction, on full data and batches, and exactly: no chain is simulated."""
    _, data, mean, truth = regression(temperature, 12)
    target = Target(linear_regression(num_data=12, num_features=2, temperature=temperature).model, data)
    method = method(batch_size=batch_size)
    kernel = warmup_kernel(target.without_data(), method.transformation(), method.kernel_settings(batch_size))
    step = float(kernel.init(jax.random.key(0), jnp.asarray(mean, jnp.float32), data).step_size)
    _, covariance = settled(method.transformation(), step, batch_size, temperature=temperature, num_data=12)
    ratios = linalg.eigh(covariance[:3, :3], truth, eigvals_only=True)
    assert ratios.min() > 0.999 and ratios.max() < 1 + EXCESS + 1e-3  # float32


@pytest.mark.parametrize("temperature", [0.25, pytest.param(1.0, marks=pytest.mark.slow), 4.0])
def test_so_does_the_thermostats(temperature):
    known = linear_regression(temperature=temperature)
    posterior = po.fit(known.model, known.data, po.SGNHT(**LONG | {"start": "map"}), progress=False)
    assert posterior.facts["excess"] == EXCESS
    chains = posterior.stored.flat - known.mean
    ratios = (chains**2).mean((0, 1)) / np.diag(known.covariance)
    errors = po.diagnostics.mcse_mean(chains**2) / np.diag(known.covariance)
    assert (ratios < 1 + EXCESS + 4 * errors).all() and (ratios > 1 - 4 * errors).all()


# ---- the parts


def test_a_control_variate_cuts_gradient_variance_tenfold_near_the_mode():
    known = linear_regression(num_data=400, num_features=3)
    target = Target(known.model, known.data)
    flat = coordinates(target.without_data())
    unit = flat.to_weights(jnp.ones(4))
    mode = jnp.asarray(known.mean, jnp.float32) / unit
    anchor = Anchor(mode, jax.grad(flat.log_density)(mode, target.data))
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(known.mean, known.covariance, size=20).astype(np.float32) / np.asarray(unit)
    batches = [rng.choice(400, 20, replace=False) for _ in range(200)]

    @jax.jit
    def both(z, numbers):
        batch = take(target.data, numbers)
        return estimate_gradient(flat, z, batch, None)[1], estimate_gradient(flat, z, batch, anchor)[1]

    plain, controlled = (
        np.array(part) for part in zip(*[both(draws[i % 20], numbers) for i, numbers in enumerate(batches)])
    )
    full = np.array([jax.grad(flat.log_density)(draws[i % 20], target.data) for i in range(200)])
    assert ((plain - full) ** 2).mean() > 10 * ((controlled - full) ** 2).mean()
    bias = (controlled - full).mean(0)
    assert (np.abs(bias) < 4 * (controlled - full).std(0) / np.sqrt(200)).all()


def test_the_anchor_of_svrg_is_where_the_epoch_began_and_that_of_a_control_variate_stays():
    known = linear_regression()  # of 30 rows: 3 steps an epoch
    target = po.Target(known.model, known.data)
    flat, start = coordinates(target.without_data()), jnp.zeros(tree.size(target.structs))
    for variance_reduction in ("svrg", "control-variate"):
        method = po.SGLD(batch_size=10, step_size=0.001, variance_reduction=variance_reduction)
        kernel = warmup_kernel(target.without_data(), method.transformation(), method.kernel_settings(10))
        state = kernel.init(jax.random.key(0), start, target.data)
        step, positions = jax.jit(kernel.step), []
        for number in range(8):
            positions.append(state.position)
            state, _ = step(jax.random.key(number), state, target.data)
            wanted = positions[number // 3 * 3 if variance_reduction == "svrg" else 0]
            np.testing.assert_array_equal(state.anchor.position, wanted)
            gradient = jax.grad(flat.log_density)(wanted, target.data)
            np.testing.assert_allclose(state.anchor.gradient, gradient, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("variance_reduction", [pytest.param("control-variate", marks=pytest.mark.slow), "svrg"])
def test_with_variance_reduced_batches_the_moments_are_right(variance_reduction):
    known = linear_regression()
    method = po.SGHMC(**LONG | {"start": "map"}, step_size=0.01, variance_reduction=variance_reduction)
    posterior = po.fit(known.model, known.data, method, progress=False)
    assert moments_p_value(posterior.stored.flat, known.mean, known.covariance) > LEAST_P_VALUE


@pytest.mark.parametrize("method", [po.SGHMC, pytest.param(po.SGLD, marks=pytest.mark.slow)])
def test_preconditioned_cyclical_draws_have_the_right_moments(method):
    known = linear_regression()
    fast = method(**LONG | {"batch_size": None}, schedule="cyclical")
    posterior = po.fit(known.model, known.data, replace(fast, preconditioner="rmsprop"), progress=False)
    assert moments_p_value(posterior.stored.flat, known.mean, known.covariance) > LEAST_P_VALUE


def test_the_largest_curvature_is_the_hessians_largest_eigenvalue():
    flat, data, mean, covariance = regression()
    found = stiffness(flat, jnp.asarray(mean, jnp.float32), jnp.ones(()), data)
    np.testing.assert_allclose(found, 1 / np.linalg.eigvalsh(covariance)[0], rtol=0.01)


def test_the_preconditioner_evens_out_gradients_and_keeps_the_overall_scale():
    squares = jnp.asarray([1e-4, 1.0, 1e4])
    scale = preconditioning_scale(squares * (1 - 0.999**50))
    np.testing.assert_allclose(scale, [10.0, 1.0, 0.1], rtol=1e-3)


def test_the_published_decay():
    np.testing.assert_allclose(factor("polynomial", jnp.arange(4), 1, 1), np.arange(1, 5) ** -0.55, rtol=1e-6)


def test_decaying_steps_sum_to_infinity_and_their_squares_do_not():
    steps = np.arange(100_000)
    sizes = np.asarray(factor("polynomial", jnp.asarray(steps), 10, 1))
    growth = sizes[10_000:].sum() / sizes[1_000:10_000].sum()
    growth_of_squares = (sizes[10_000:] ** 2).sum() / (sizes[1_000:10_000] ** 2).sum()
    assert growth > 1 > growth_of_squares  # a decade adds more than the last did, or less


def test_a_cycle_falls_from_the_full_step_and_ends_with_a_draw():
    sizes = np.asarray(factor("cyclical", jnp.arange(5, 25), 5, 10))
    assert sizes[0] == sizes[10] == 1.0 and sizes[9] == sizes[19] < 0.03
    assert (np.diff(sizes[:10]) < 0).all()
    assert (np.asarray(factor("cyclical", jnp.arange(5), 5, 10)) == 1.0).all()


def test_a_cycle_begins_where_its_factor_is_one_again():
    steps = jnp.arange(40)
    begins = np.asarray(begins_cycle(steps, 7, 10))
    np.testing.assert_array_equal(np.flatnonzero(begins), [7, 17, 27, 37])
    assert (np.asarray(factor("cyclical", steps, 7, 10))[begins] == 1.0).all()


def test_hot_chains_are_reported():
    known = linear_regression(num_data=200)
    method = po.SGHMC(num_draws=100, num_warmup=100, thinning=10, batch_size=5, step_size=0.02)
    posterior = po.fit(known.model, known.data, method, progress=False)
    assert any("heats the chains" in note for note in posterior.facts["notes"])


def test_after_a_warm_up_cut_short_cycles_still_end_with_a_draw():
    known = linear_regression()
    method = po.SGHMC(num_chains=1, num_warmup=50, thinning=4, schedule="cyclical", step_size=0.01)
    target = po.Target(known.model, known.data)
    parts = (target.without_data(), method.transformation(), method.kernel_settings(target.num_data))
    key = jax.random.key(0)
    state = warmup_kernel(*parts).init(key, jnp.zeros(tree.size(target.structs)), target.data)
    drawing = drawing_kernel(*parts)
    state = drawing.init(key, state._replace(step_number=jnp.asarray(3)), target.data)
    sizes = []
    for _ in range(4):
        state, info = drawing.step(key, state, target.data)
        sizes.append(float(info.step_size))
    np.testing.assert_allclose(sizes, 0.005 * (1 + np.cos(np.pi * np.arange(4) / 4)), rtol=1e-5)


def test_weights_that_overflow_in_the_last_step_are_refused():
    known = linear_regression()
    method = po.SGLD(num_chains=1, num_draws=1, num_warmup=0, thinning=1, step_size=1e38)
    with pytest.raises(DensityError, match="smaller step"):
        po.fit(known.model, known.data, method, start="prior", progress=False)
