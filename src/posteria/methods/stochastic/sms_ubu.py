"""Symmetric mini-batch splitting Langevin dynamics: the batches of an epoch forward, then in reverse, by UBU steps.

    flow    z, p <- the exact solution of dz = p dt, dp = -friction p dt + sqrt(2 friction) dW over h/2
    kick    p <- p + h gradient of a batch
    flow    over h/2 again

An epoch's batches sum to the full gradient, and a sweep forward and back is symmetric in time: what the batches' noise
does on the way there it undoes on the way back, up to second order in h at a given friction, where SGHMC, whose batches
do not come back, is heated in first order. Paulin, Whalley, Chada & Leimkuhler 2025, Sampling from Bayesian Neural
Network Posteriors with Symmetric Minibatch Splitting Langevin Dynamics; UBU: Sanz-Serna & Zygalakis 2021.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from posteria.compiled import kept
from posteria.methods.stochastic.sampler import StochasticGradientSampler, Transformation
from posteria.methods.stochastic.sghmc import LARGEST_STEP
from posteria.settings import ProperShare

AIM = 0.1  # of the excess that is stated, a fifth: the rest is for batches whose curvatures differ too
LEAST_MOMENTUM = 0.9  # of the default, as SGHMC's
TRIED = np.geomspace(1.0, 1e-4, 60)  # of the largest step
SLOWER = np.array(
    [1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05]
)  # of the stiffest direction's frequency: others, where a sweep may resonate


@dataclass(frozen=True)
class SMSUBU(StochasticGradientSampler):
    """The sampler of batches with the least bias: an epoch's batches there and back, so that their noise cancels.

    `momentum` is the share of the momentum that a step keeps; None: exp(-1 / batches an epoch), so that a sweep still
    knows of the noise that it has to undo, and at least 0.9. Draws have the least bias at the end of a sweep, where
    `thinning` is a multiple of twice the batches of an epoch; amid one they too are right to second order in the step.
    Rows that do not fill a last batch come with a few others twice, which do not cancel: a `batch_size` that divides
    the rows is best. The other settings are those of all stochastic-gradient samplers: see
    `StochasticGradientSampler`.
    """

    momentum: ProperShare | None = None

    paper: ClassVar[str] = "Paulin et al. 2025"
    goes_back: ClassVar[bool] = True

    def transformation(self, num_batches: int = 1) -> Transformation:
        momentum = self.momentum or max(LEAST_MOMENTUM, math.exp(-1.0 / num_batches))
        return symmetric_langevin(momentum, num_batches)


@kept
def symmetric_langevin(momentum: float, num_batches: int) -> Transformation:
    flow = _Flow(momentum)

    def move(before: jax.Array, noise: jax.Array, step_size: jax.Array) -> tuple[jax.Array, jax.Array]:
        return flow(before, noise, step_size)

    def update(
        gradient: jax.Array, before: jax.Array, noise: jax.Array, step_size: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return flow(before + step_size * gradient, noise, step_size)

    def suggest(curvature: jax.Array, noise: float) -> jax.Array:
        return largest_step(momentum, num_batches, noise) / jnp.sqrt(curvature)

    return Transformation(
        lambda key, position: jax.random.normal(key, position.shape, position.dtype),
        update,
        suggest,
        heat=lambda inner: jnp.mean(inner**2),
        before=move,
        num_noises=2,
    )


class _Flow:
    """Half a step of free motion with friction, in units of the step: its coefficients follow from the momentum alone.

    They are differences of nearly equal numbers where friction is small: computed here, in 64 bits.
    """

    def __init__(self, momentum: float) -> None:
        time = -0.5 * math.log(momentum)  # half a step, in units of 1 / friction
        self.keeps = math.exp(-time)
        self.travel = -math.expm1(-time) / (2 * time)
        variance = (2 * time - 3 + 4 * self.keeps - self.keeps**2) / (4 * time**2)  # of the position's noise
        if time < 1e-3:
            variance = (2 * time / 3 - time**2 / 2) / 4  # by its series, of which the rest is below a millionth
        self.momentum_noise = math.sqrt(-math.expm1(-2 * time))
        self.shared_noise = math.expm1(-time) ** 2 / (2 * time) / self.momentum_noise
        self.position_noise = math.sqrt(max(0.0, variance - self.shared_noise**2))

    def __call__(self, momentum: jax.Array, noise: jax.Array, step_size: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, second = noise
        jump = self.travel * momentum + self.shared_noise * first + self.position_noise * second
        return step_size * jump, self.keeps * momentum + self.momentum_noise * first

    def matrices(self, step: float) -> tuple[np.ndarray, np.ndarray]:
        """What it does to (position, momentum), and the covariance of what it adds."""
        linear = np.array([[1.0, step * self.travel], [0.0, self.keeps]])
        root = np.array([[step * self.shared_noise, step * self.position_noise], [self.momentum_noise, 0.0]])
        return linear, root @ root.T


@kept
def largest_step(momentum: float, num_batches: int, noise: float) -> float:
    """The largest, in units of 1 / sqrt(largest curvature), by which no direction's variance is more than `AIM` too
    large; `noise` is the variance of a batch's gradient as a multiple of the curvature."""
    for share in TRIED:
        step = LARGEST_STEP * float(share)
        if all(abs(excess_of(momentum, num_batches, noise, step * slower)) <= AIM for slower in SLOWER):
            break
    return step


def excess_of(momentum: float, num_batches: int, noise: float, step: float) -> float:
    """The position's variance less 1, at a sweep's end or amid it, whichever is further off: of a Gaussian of variance
    1, whose batches' gradients differ by constants of variance `noise` that sum to 0."""
    flow, flow_noise = _Flow(momentum).matrices(step)
    kick = np.array([[1.0, 0.0], [-step, 1.0]])
    whole = flow @ kick @ flow
    half = flow @ kick
    plain = _settled(whole, half @ flow_noise @ half.T + flow_noise)
    if num_batches == 1 or noise == 0.0:
        return float(plain[0, 0] - 1.0)
    responses = flow @ np.array([[0.0], [-step]])  # (2, 1): to a batch's constant, after 0, 1, ... further steps
    power = whole
    while responses.shape[1] < 2 * num_batches:
        responses = np.concatenate([responses, power @ responses], axis=1)
        power = power @ power
    back, there = responses[:, :num_batches], responses[:, num_batches : 2 * num_batches][:, ::-1]
    at_end = _settled(np.linalg.matrix_power(whole, 2 * num_batches), _spread(back + there, noise))
    to_middle = np.linalg.matrix_power(whole, num_batches)
    amid = to_middle @ at_end @ to_middle.T + _spread(back, noise)
    return float(plain[0, 0] - 1.0 + max(at_end[0, 0], amid[0, 0]))


def _spread(responses: np.ndarray, noise: float) -> np.ndarray:
    """The covariance of responses (2, batch) to constants that sum to 0."""
    spread: np.ndarray = noise * responses.shape[1] * np.cov(responses)
    return spread


def _settled(linear: np.ndarray, added: np.ndarray) -> np.ndarray:
    """The covariance C = linear C linear^T + added."""
    flat = np.linalg.solve(np.eye(4) - np.kron(linear, linear), added.reshape(-1))
    return flat.reshape(2, 2)
