"""How far weights are from a mode, in nats: the Newton decrement g^T H^-1 g / 2.

g is the gradient of the log density and H its curvature, the Gauss-Newton matrix plus the prior's. It is what a Newton
step would gain, and half the squared distance from the mode in standard deviations of the posterior, both as far as
the density is Gaussian there. H^-1 g is found by conjugate gradients, whose coefficients bound what they have left out
(Golub & Meurant 2010).

At a mode where the network has kinks (ReLU) the gradient does not vanish: it jumps. So where it has turned within a
small part of the step, the least g over all means of gradients nearby is taken, which is 0 at such a mode (Lemarechal
1975; Burke, Lewis & Overton 2005).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.measure import blocks
from posteria.data.arrays import Data, rows
from posteria.models.likelihoods import factor_of
from posteria.models.target import Target

ENOUGH = 0.05  # nats; what is further from a mode is told to the user
CLOSE = 0.01  # nats at which nothing nearer is looked for
GAP = 0.1  # of the decrement that may be left unknown
LEAST_PRODUCTS, MOST_PRODUCTS = 20, 300  # with the curvature, in all
WORK = 2e10  # multiplications in them, where there are more than the least
MOST_WORK = 1e11  # in the least products: beyond, how far weights are from a mode is not measured
MOST_GRADIENTS, MOST_ELEMENTS = 20, 2**24  # that are held at once, and their numbers
NEARBY = 2.0**-8  # of the step
TURNED = 0.5  # of the slope along the step, below which a gradient nearby belongs to another side of a kink
CURVATURE_ROWS = 2048  # of the data, at most, that the curvature is read from
BLOCK_ELEMENTS, ASSUMED_WIDTH = 2**22, 16  # numbers in a block's activations, which are so many times a datum's
LEAST_DATUM = 64  # numbers that a datum counts as, at least


def is_dear(target: Target) -> bool:
    """Whether the least products take minutes, since the network holds many weights that are no parameters."""
    num_rows = min(CURVATURE_ROWS, target.num_data)
    return 12 * LEAST_PRODUCTS * num_rows * target.model.network.num_frozen > MOST_WORK


@dataclass(frozen=True)
class Decrement:
    nats: float
    is_estimate: bool  # some of the rows stood for all, or the conjugate gradients were not done


def decrement(target: Target, params: tree.Params, held: Sequence[str] = ()) -> Decrement:
    """Of `params` (one set), as far as they may move: the parts `held`, and scales of the prior, may not.

    The likelihood's own parameters are counted beside the weights, as if the two were independent.
    """
    measure = _Measure(target, np.asarray(tree.ravel(params)), (*held, "prior"))
    most = min(MOST_GRADIENTS, max(1, MOST_ELEMENTS // measure.flat.size))
    found: list[Solved] = []
    nats, step, slope = np.inf, np.zeros(measure.flat.size), 0.0
    while nats > CLOSE and len(found) < most and measure.num_left > 0:
        gradient = measure.gradient(NEARBY * step)
        if found and gradient @ step > TURNED * slope:
            break  # it goes on uphill
        found.append(measure.solve(gradient))
        gradients, steps = (np.stack(part) for part in list(zip(*found))[:2])
        gram = gradients @ steps.T
        shares = _least(gram)
        slope, step = float(shares @ gram @ shares), shares @ steps
        nats = (1 + float(shares @ [one.gap for one in found])) * slope / 2 / target.temperature
        if not np.isfinite(nats):  # a curvature that overflows, as 16 bits do
            return Decrement(np.inf, True)
    is_closed = all(one.gap <= GAP for one in found)
    return Decrement(float(nats), not (is_closed and target.num_data <= CURVATURE_ROWS))


def _least(gram: np.ndarray) -> np.ndarray:
    """Shares, of sum 1, by which the mean of vectors with these inner products is least."""
    size = len(gram)
    unit = np.trace(gram) / size
    if size == 1 or unit <= 0:
        return np.eye(size)[0]
    values, vectors = np.linalg.eigh((gram + gram.T) / 2 / unit)
    root = np.sqrt(values.clip(1e-9))[:, None] * vectors.T
    weight = 1e3  # by which the sum is held at 1
    system = np.concatenate([root, np.full((1, size), weight)])
    shares, _ = scipy.optimize.nnls(system, np.append(np.zeros(size), weight), maxiter=100 * size)
    return shares / shares.sum()


class Solved(NamedTuple):
    gradient: np.ndarray  # of the log density, not tempered
    step: np.ndarray  # H^-1 times it
    gap: float  # bounds what the conjugate gradients have left out, as a share of g^T H^-1 g


class _Measure:
    """The density around one place: gradients there and nearby, and what the curvature makes of them."""

    def __init__(self, target: Target, flat: np.ndarray, held: Sequence[str]) -> None:
        self.target, self.flat = target, flat
        self._compiled = _compiled(target.without_data())
        parts = part_names(target)
        self._is_weight = (parts == "network") & ("network" not in held)
        self._own = np.flatnonzero((parts == "likelihood") & ("likelihood" not in held))
        self._curvature_blocks = _curvature_blocks(target)
        num_rows = min(CURVATURE_ROWS, max(1, target.num_data))
        self.num_left = int(np.clip(WORK / (12 * num_rows * flat.size), LEAST_PRODUCTS, MOST_PRODUCTS))
        is_joint = hasattr(target.model.prior, "joint_log_prob")
        self._diagonal = None if is_joint else self._prior_diagonal()
        units = jax.tree.map(lambda unit, leaf: np.full(leaf.shape, unit), target.units, target.structs)
        scale = np.asarray(tree.ravel(units), np.float64) ** -2.0 if self._diagonal is None else self._diagonal
        self._unit = np.where(self._is_weight, np.sqrt(scale), 1.0)  # in which no curvature is below 1, or about 1

    def gradient(self, offset: np.ndarray) -> np.ndarray:
        """At a distance, of what may move."""
        flat = (self.flat + offset).astype(self.flat.dtype)
        total = np.asarray(self._compiled.prior(flat, np.zeros_like(flat))[0], np.float64)
        for batch, counts in _all_blocks(self.target):
            total = total + np.asarray(self._compiled.gradient(flat, batch, counts), np.float64)
        is_moving = self._is_weight.copy()
        is_moving[self._own] = True
        return np.where(is_moving, total, 0.0)

    def solve(self, gradient: np.ndarray) -> Solved:
        wanted = np.where(self._is_weight, gradient, 0.0) / self._unit
        solution, gap, number = _conjugate_gradients(self._product, wanted, self._diagonal is not None, self.num_left)
        self.num_left -= number
        step = solution / self._unit
        if len(self._own):
            hessian = -np.asarray(self._compiled.own_prior_hessian(self.flat), np.float64)
            for batch, counts in _all_blocks(self.target):
                hessian -= np.asarray(self._compiled.own_hessian(self.flat, batch, counts), np.float64)
            values, vectors = np.linalg.eigh(hessian)
            along = vectors.T @ gradient[self._own] / np.maximum(np.abs(values), 1e-6 * (1 + np.abs(values).max()))
            step[self._own] = vectors @ along
        return Solved(gradient, step, gap)

    def _product(self, vector: np.ndarray) -> np.ndarray:
        """The weights' curvature, in those units, times a vector."""
        tangent = np.where(self._is_weight, vector / self._unit, 0.0)
        narrow = tangent.astype(self.flat.dtype)
        if self._diagonal is None:
            curved = -np.asarray(self._compiled.prior(self.flat, narrow)[1], np.float64)
        else:
            curved = self._diagonal * tangent
        for batch, counts in self._curvature_blocks:
            curved += np.asarray(self._compiled.product(self.flat, narrow, batch, counts), np.float64)
        return np.where(self._is_weight, curved / self._unit, 0.0)

    def _prior_diagonal(self) -> np.ndarray:
        """Of its curvature; by its own unit where it is not concave."""
        ones = self._is_weight.astype(self.flat.dtype)
        diagonal = -np.asarray(self._compiled.prior(self.flat, ones)[1], np.float64)  # the Hessian is diagonal
        units = jax.tree.map(lambda unit, leaf: np.full(leaf.shape, unit), self.target.units, self.target.structs)
        of_units = np.asarray(tree.ravel(units), np.float64) ** -2.0
        return np.where(np.isfinite(diagonal) & (diagonal > 0), diagonal, of_units)


def _conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], wanted: np.ndarray, is_bounded: bool, most: int
) -> tuple[np.ndarray, float, int]:
    """x of A x = wanted, a bound of what x^T A x is short of as a share of it, and the number of products.

    Where no eigenvalue of A is below 1 (`is_bounded`), the bound is Gauss and Radau's (Meurant & Tichy 2013); else it
    is judged by the residual.
    """
    solution, residual, direction = np.zeros_like(wanted), wanted, wanted
    square = first = float(wanted @ wanted)
    total, radau, gap = 0.0, 1.0, np.inf
    for number in range(1, most + 1):
        if square <= 1e-12 * first or not square > 0:
            return solution, 0.0, number - 1
        image = product(direction)
        if not np.isfinite(image).all():
            return solution, np.inf, number
        length = square / float(direction @ image)
        solution, residual = solution + length * direction, residual - length * image
        total, before, square = total + length * square, square, float(residual @ residual)
        ratio = square / before
        ahead = max(radau - length, 0.0)
        radau = ahead / max(ahead + ratio, 1e-30)
        gap = radau * square / total if is_bounded else np.sqrt(square / first)
        if gap <= GAP:
            break
        direction = residual + ratio * direction
    return solution, float(gap), number


# ---- rows


def _all_blocks(target: Target) -> list[tuple[Data, np.ndarray]]:
    """All rows, and how often each counts."""
    if target.data is None:
        return []
    return list(blocks(target.data, target.num_data, _block_size(target, target.num_data)))


def _curvature_blocks(target: Target) -> list[tuple[Data, np.ndarray]]:
    """Rows that stand for all, evenly spread."""
    if target.data is None or target.num_data <= CURVATURE_ROWS:
        return _all_blocks(target)
    chosen = np.linspace(0, target.num_data - 1, CURVATURE_ROWS).round().astype(int)
    parts = blocks(rows(target.data, chosen), CURVATURE_ROWS, _block_size(target, CURVATURE_ROWS))
    return [(batch, counts * (target.num_data / CURVATURE_ROWS)) for batch, counts in parts]


def _block_size(target: Target, num_rows: int) -> int:
    x, *_ = target.data or ((),)
    datum = max(LEAST_DATUM, sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(x)))
    return int(np.clip(BLOCK_ELEMENTS // (ASSUMED_WIDTH * datum), 1, num_rows))


# ---- compiled


class Compiled(NamedTuple):
    prior: Callable[..., tuple[jax.Array, jax.Array]]  # (flat, tangent) -> the log prior's gradient, and its change
    gradient: Callable[..., jax.Array]  # (flat, batch, counts) -> of the log likelihood
    product: Callable[..., jax.Array]  # (flat, tangent, batch, counts) -> Gauss-Newton matrix times the tangent
    own_prior_hessian: Callable[..., jax.Array]  # (flat) -> of the log prior of the likelihood's own parameters
    own_hessian: Callable[..., jax.Array]  # (flat, batch, counts) -> of the log likelihood, likewise


@kept
def _compiled(target: Target) -> Compiled:
    unravel = tree.unraveller(target.structs)
    unravel_own = tree.unraveller(target.structs["likelihood"])
    likelihood: Any = target.model.likelihood

    def prior(flat: jax.Array, tangent: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(jax.grad(lambda flat: target.log_prior(unravel(flat))), (flat,), (tangent,))

    def log_likelihood(flat: jax.Array, batch: Data, counts: jax.Array) -> jax.Array:
        return (counts * target.log_likelihood(unravel(flat), batch)).sum()

    def product(flat: jax.Array, tangent: jax.Array, batch: Data, counts: jax.Array) -> jax.Array:
        x, y = batch
        own = unravel(flat)["likelihood"]

        def outputs_of(flat: jax.Array) -> jax.Array:
            return target.model.outputs(unravel(flat)["network"], x)

        outputs, back = jax.vjp(outputs_of, flat)
        along = jax.vjp(lambda row: back(row)[0], outputs)[1](tangent)[0]  # as jvp, which some networks do not have
        curved = jnp.einsum("nij,nj->ni", _output_hessians(likelihood, own, outputs, y), along) * counts[:, None]
        return back(curved.astype(outputs.dtype))[0]

    def own_hessian(flat: jax.Array, batch: Data, counts: jax.Array) -> jax.Array:
        x, y = batch
        params = unravel(flat)
        outputs = target.model.outputs(params["network"], x)
        value = lambda own: (counts * factor_of(likelihood, unravel_own(own), outputs, y)).sum()  # noqa: E731
        return jax.hessian(value)(tree.ravel(params["likelihood"]))

    def own_prior_hessian(flat: jax.Array) -> jax.Array:
        own = tree.ravel(unravel(flat)["likelihood"])
        return jax.hessian(lambda own: likelihood.log_prior(unravel_own(own)))(own)

    return Compiled(
        prior=jax.jit(prior),
        gradient=jax.jit(jax.grad(log_likelihood)),
        product=jax.jit(product),
        own_prior_hessian=jax.jit(own_prior_hessian),
        own_hessian=jax.jit(own_hessian),
    )


def _output_hessians(likelihood: Any, own: tree.Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
    """As the likelihood has them; else the second derivative, without its negative part."""
    if hasattr(likelihood, "output_hessian"):
        return likelihood.output_hessian(own, outputs, y)
    one = jax.hessian(lambda row, y: -factor_of(likelihood, own, row[None], y[None])[0])
    values, vectors = jnp.linalg.eigh(jax.vmap(one)(outputs, y))
    return jnp.einsum("nij,nj,nkj->nik", vectors, values.clip(0.0), vectors)


def part_names(target: Target) -> np.ndarray:
    """Of every parameter, flat: "likelihood", "network" or "prior"."""
    sizes = {name: tree.size(part) for name, part in sorted(target.structs.items())}
    return np.repeat(list(sizes), list(sizes.values()))
