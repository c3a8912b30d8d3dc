"""Symmetric mini-batch sampling: of second order on batches at a given friction, where SGHMC is of first."""

import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

import posteria as po
from laws.test_sgmcmc import CHEAP, LONG, errors, narrowest, regression
from posteria.data.arrays import rows
from posteria.data.batches import batch_indices, there_and_back
from posteria.methods.stochastic import sms_ubu
from posteria.methods.stochastic.sampler import EXCESS, warmup_kernel
from posteria.methods.stochastic.sghmc import underdamped_langevin
from posteria.models.target import Target
from posteria.testing import AsymptoticLaws, linear_regression


class TestSMSUBU(AsymptoticLaws):
    method = po.SMSUBU(**LONG)
    cheap = po.SMSUBU(**CHEAP)
    fine, coarse = 0.1, 0.8

    def with_step(self, step, narrowest):
        return replace(self.method, step_size=step * narrowest)


# ---- the order, exactly


def partitions(numbers, batch_size):
    """All ways to draw an epoch's batches, in order."""
    if not numbers:
        yield ()
    for batch in itertools.combinations(numbers, batch_size):
        for rest in partitions(tuple(sorted(set(numbers) - set(batch))), batch_size):
            yield (batch, *rest)


def after_sweeps(transformation, step_size, batch_size=2, num_data=6, temperature=1.0, num_steps=None):
    """Mean and covariance of positions after `num_steps` of a sweep (all of it: None), where sweeps have settled.

    A sweep is an affine map of (position, momentum) for each partition of the rows: the moments solve linear equations.
    """
    flat, data, mean, _ = regression(temperature, num_data)
    size = len(mean)

    def step(state, noise, batch):
        shift, momentum = transformation.before(state[size:], noise[0], step_size)
        position = state[:size] + shift
        gradient = jax.grad(flat.log_density)(position, batch)
        shift, momentum = transformation.update(gradient, momentum, noise[1], step_size)
        return jnp.concatenate([position + shift, momentum])

    linearise = jax.jit(lambda *args: (jax.jacobian(step, (0, 1))(*args), step(*args)))
    zero, maps = (jnp.zeros(2 * size), jnp.zeros((2, 2, size))), {}
    for batch in itertools.combinations(range(num_data), batch_size):
        (a, b), c = linearise(*zero, rows(data, np.array(batch)))
        b = np.asarray(b, float).reshape(2 * size, -1)
        maps[batch] = np.asarray(a, float), np.asarray(c, float), b @ b.T

    def composed(batches):
        a, c, noise = np.eye(2 * size), np.zeros(2 * size), np.zeros((2 * size, 2 * size))
        for batch in batches:
            step_a, step_c, step_noise = maps[batch]
            a, c, noise = step_a @ a, step_a @ c + step_c, step_a @ noise @ step_a.T + step_noise
        return a, c, noise

    sweeps = [(*order, *reversed(order)) for order in partitions(tuple(range(num_data)), batch_size)]
    a, c, noise = (np.stack(part) for part in zip(*map(composed, sweeps)))
    first = np.linalg.solve(np.eye(2 * size) - a.mean(0), c.mean(0))
    constant = _constant(a, c, noise, first)
    kron = np.einsum("bij,bkl->ikjl", a, a).reshape(4 * size**2, -1) / len(a)
    second = np.linalg.solve(np.eye(4 * size**2) - kron, constant.reshape(-1)).reshape(2 * size, 2 * size)
    if num_steps is not None:
        a, c, noise = (np.stack(part) for part in zip(*(composed(sweep[:num_steps]) for sweep in sweeps)))
        second = np.einsum("bij,jk,blk->il", a, second, a) / len(a) + _constant(a, c, noise, first)
        first = a.mean(0) @ first + c.mean(0)
    return first[:size], (second - np.outer(first, first))[:size, :size]


def _constant(a, c, noise, first):
    """Of E[(A s + c)(A s + c)'] + noise, all but A E[s s'] A'."""
    cross = np.einsum("bij,j,bk->bik", a, first, c)
    return (cross + cross.transpose(0, 2, 1) + c[:, :, None] * c[:, None, :] + noise).mean(0)


def relative_error(covariance, truth):
    return np.linalg.norm(np.linalg.solve(truth, covariance) - np.eye(len(truth)))


@pytest.mark.parametrize("num_steps", [None, 3, 1], ids=["ends", "turns", "amid"])
def test_on_batches_the_error_falls_with_the_square_of_the_step(num_steps):
    friction, found = 1.0 / narrowest(), []
    truth = regression()[3]
    for step in narrowest() * np.array([0.1, 0.05, 0.025]):
        transformation = sms_ubu.symmetric_langevin(math.exp(-friction * step), 3)
        found.append(relative_error(after_sweeps(transformation, step, num_steps=num_steps)[1], truth))
    np.testing.assert_allclose(np.array(found[:-1]) / found[1:], 4.0, rtol=0.1)


def test_where_that_of_sghmc_falls_with_the_step_itself():
    friction = 1.0 / narrowest()
    steps = narrowest() * np.array([0.1, 0.05, 0.025])
    found = [errors(underdamped_langevin(math.exp(-friction * step)), [step], batch_size=2)[0] for step in steps]
    np.testing.assert_allclose(np.array(found[:-1]) / found[1:], 2.0, rtol=0.15)
    transformation = sms_ubu.symmetric_langevin(math.exp(-friction * steps[0]), 3)
    assert relative_error(after_sweeps(transformation, steps[0])[1], regression()[3]) < 0.1 * found[0]


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("batch_size", [6, 2])
def test_a_suggested_step_keeps_variances_within_the_stated_excess(batch_size, temperature):
    _, data, mean, truth = regression(temperature, 6)
    target = Target(linear_regression(num_data=6, num_features=2, temperature=temperature).model, data)
    method = po.SMSUBU(batch_size=batch_size)
    transformation = method.transformation(6 // batch_size)
    kernel = warmup_kernel(target.without_data(), transformation, method.kernel_settings(batch_size))
    step = float(kernel.init(jax.random.key(0), jnp.asarray(mean, jnp.float32), data).step_size)
    for num_steps in (None, 6 // batch_size):
        _, covariance = after_sweeps(transformation, step, batch_size, temperature=temperature, num_steps=num_steps)
        ratios = linalg.eigh(covariance, truth, eigvals_only=True)
        assert ratios.min() > 1 - sms_ubu.AIM and ratios.max() < 1 + EXCESS


# ---- the parts


def test_the_flow_is_the_exact_solution_at_any_friction():
    """Against many small Euler steps of the covariance's own equation."""
    for momentum in (0.3, 0.9, 0.999, 0.9999):
        flow = sms_ubu._Flow(momentum)
        linear, added = flow.matrices(1.0)
        friction, num = -math.log(momentum), 20_000
        drift = np.array([[0.0, 1.0], [0.0, -friction]])
        np.testing.assert_allclose(linear, linalg.expm(0.5 * drift), rtol=1e-9)
        times = (np.arange(num) + 0.5) * 0.5 / num
        kept = np.exp(-friction * times)
        moved = -np.expm1(-friction * times) / friction
        weights = 2 * friction * 0.5 / num
        wanted = weights * np.array([[(moved**2).sum(), (moved * kept).sum()], [(moved * kept).sum(), (kept**2).sum()]])
        np.testing.assert_allclose(added, wanted, rtol=1e-5, atol=1e-12)


def test_an_epochs_batches_come_forward_and_back_and_then_others_do():
    numbers = [int(there_and_back(jnp.asarray(step), 3)) for step in range(12)]
    assert numbers == [0, 1, 2, 2, 1, 0, 3, 4, 5, 5, 4, 3]
    key = jax.random.key(0)
    forward = [sorted(np.asarray(batch_indices(key, number, 6, 2))) for number in range(3)]
    assert sorted(np.concatenate(forward)) == list(range(6))


def test_sweeps_begin_with_the_first_draw_whatever_the_warm_up():
    """A draw at the end of each sweep then has the moments of `after_sweeps`, not those amid one."""
    known = linear_regression(num_data=6, num_features=2)
    method = po.SMSUBU(num_chains=1, num_warmup=7, batch_size=2, step_size=0.01)
    target = Target(known.model, known.data)
    kernel = warmup_kernel(target.without_data(), method.transformation(3), method.kernel_settings(2))
    state = kernel.init(jax.random.key(0), jnp.zeros(3), target.data)
    step, seen = jax.jit(kernel.step), []
    for number in range(7, 13):
        seen.append(
            step(jax.random.key(0), state._replace(step_number=jnp.asarray(number)), target.data)[1].log_density
        )
    np.testing.assert_allclose(seen[:3], seen[:2:-1], rtol=1e-6)
    assert len(np.unique(np.round(seen[:3], 3))) == 3


def test_its_name_on_the_command_line_has_a_hyphen():
    from posteria.methods import registry

    assert registry.get("sms-ubu") is po.SMSUBU
    assert registry.from_json(registry.to_json(po.SMSUBU(momentum=0.95))) == po.SMSUBU(momentum=0.95)
