"""Mean and variance of a network's outputs when its weights are independent Gaussians, in closed form.

A walk over the jaxpr of one datum carries a mean and a variance for every element: linear operations, sums and ReLU
have them in closed form. Hernandez-Lobato and Adams 2015, section 3.

What is exact: networks that are linear in their weights, and both moments of each output of a network with one hidden
layer (its pre-activations are exactly Gaussian, and independent). Beyond that every element of an array is treated
as an independent Gaussian: units of a deeper layer, positions at which a convolution uses its weights again, and
outputs are not, so their correlation is left out. Values that share weights by construction (a residual connection)
are refused rather than added as if they did not.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as prim
from jax.scipy.special import ndtr
from jax.scipy.stats import norm

from posteria import tree
from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.networks import Apply
from posteria.trace import operations
from posteria.trace.linear import bind, trace_datum

FOLLOWED = "linear operations, sums and ReLU, on values that do not share weights"
INSTEAD = "use a method that samples weights, or change the network"

Run = Callable[[tree.Params, tree.Params, Data], tuple[jax.Array, jax.Array]]


def moments(apply: Apply) -> Run:
    """`run(means, variances, x) -> (mean, variance)` of the outputs, each (batch, output).

    `means` and `variances` are trees of the network's parameters. An operation that cannot be followed raises a
    NetworkError that names it; so does `jax.eval_shape`, before anything is compiled.
    """

    def run(means: tree.Params, variances: tree.Params, x: Data) -> tuple[jax.Array, jax.Array]:
        def one(datum: tree.Tree) -> tuple[jax.Array, jax.Array]:
            output = _follow(apply, means, variances, datum, may_share=False)
            return jnp.atleast_1d(output.mean), jnp.atleast_1d(output.variance)

        return jax.vmap(one)(x)

    return run


def is_affine(apply: Apply, params: tree.Params, x: Data) -> bool:
    """Whether the outputs at x (a batch) are affine in the parameters, as far as the walk can tell."""
    found = []

    def one(means: tree.Params, x: Data) -> jax.Array:
        output = _follow(apply, means, means, tree.index(x, 0), may_share=True)
        found.append(output.is_affine)
        return output.mean

    try:
        jax.eval_shape(one, params, x)
    except NetworkError:
        return False
    return found[0]


class Uncertain(NamedTuple):
    """An array of independent elements. `leaves` are the parameters it depends on; `is_affine`: linearly."""

    mean: jax.Array
    variance: jax.Array
    leaves: frozenset[str]
    is_affine: bool


Value = Uncertain | jax.Array


def rectified(mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of max(z, 0), z ~ N(mean, variance)."""
    dtype, wide = mean.dtype, jnp.promote_types(mean.dtype, jnp.float32)  # JAX has ndtr in 32 bits at least
    mean, variance = mean.astype(wide), variance.astype(wide)
    is_random = variance > 0
    std = jnp.sqrt(jnp.where(is_random, variance, 1.0))
    t = mean / std
    above, below, density = ndtr(t), ndtr(-t), norm.pdf(t)
    # E[max(t+e, 0)^2] - E[max(t+e, 0)]^2, arranged so that large t do not cancel
    unit_variance = above + t**2 * above * below + t * density * (below - above) - density**2
    return (
        jnp.where(is_random, std * (t * above + density), jnp.maximum(mean, 0.0)).astype(dtype),
        jnp.where(is_random, std**2 * jnp.maximum(unit_variance, 0.0), 0.0).astype(dtype),
    )


# ---- the walk


def _follow(apply: Apply, means: tree.Params, variances: tree.Params, datum: tree.Tree, may_share: bool) -> Uncertain:
    closed, structure = trace_datum(apply, means, datum)
    if structure.num_leaves != 1:
        raise NetworkError(f"the network returns {structure.num_leaves} arrays", "one", "return the outputs alone")
    leaves = [
        Uncertain(mean, variance, frozenset([path]), is_affine=True)
        for path, mean, variance in zip(tree.paths(means), jax.tree.leaves(means), jax.tree.leaves(variances))
    ]
    (output,) = _Walk(may_share).evaluate(closed.jaxpr, closed.consts, [*leaves, *jax.tree.leaves(datum)])
    return _uncertain(output)


class _Walk:
    def __init__(self, may_share: bool) -> None:
        self.may_share = may_share

    def evaluate(self, jaxpr: core.Jaxpr, consts: Sequence[jax.Array], args: Sequence[Value]) -> list[Value]:
        return operations.evaluated(jaxpr, consts, args, self._step)

    def _step(self, eqn: core.JaxprEqn, values: list[Value]) -> Sequence[Value]:
        random = [value for value in values if isinstance(value, Uncertain)]
        if not random:
            return bind(eqn, [value for value in values if not isinstance(value, Uncertain)])
        inner: Any = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        if eqn.primitive in (prim.jit_p, prim.remat_p, prim.custom_jvp_call_p, prim.custom_vjp_call_p):
            return self.evaluate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values)
        self._check_independent(eqn, random)
        if eqn.primitive in ELEMENT_BY_ELEMENT:
            (mean,), (variance,) = (bind(eqn, [part]) for part in random[0][:2])
            return [random[0]._replace(mean=mean, variance=variance)]
        if eqn.primitive in RULES:
            return [RULES[eqn.primitive](eqn, values)]
        raise NetworkError(f"the network uses {eqn.primitive.name} on what depends on weights", FOLLOWED, INSTEAD)

    def _check_independent(self, eqn: core.JaxprEqn, random: list[Uncertain]) -> None:
        if self.may_share or len(random) < 2:
            return
        shared = frozenset.intersection(*(value.leaves for value in random))
        if shared:
            raise NetworkError(
                f"values that meet in {eqn.primitive.name} both depend on {sorted(shared)[0]}", FOLLOWED, INSTEAD
            )


def _uncertain(value: Value) -> Uncertain:
    if isinstance(value, Uncertain):
        return value
    value = jnp.asarray(value)
    return Uncertain(value, jnp.zeros_like(value), frozenset(), is_affine=True)


def _joined(parts: Sequence[Uncertain], mean: jax.Array, variance: jax.Array, is_affine: bool = True) -> Uncertain:
    leaves = frozenset().union(*(part.leaves for part in parts))
    return Uncertain(mean, variance, leaves, is_affine and all(part.is_affine for part in parts))


def _sum(eqn: core.JaxprEqn, values: list[Value]) -> Uncertain:
    """x + y and x - y: variances add."""
    x, y = map(_uncertain, values)
    return _joined([x, y], bind(eqn, [x.mean, y.mean])[0], x.variance + y.variance)


def _negative(eqn: core.JaxprEqn, values: list[Value]) -> Uncertain:
    x = _uncertain(values[0])
    return x._replace(mean=-x.mean)


def _product(eqn: core.JaxprEqn, values: list[Value]) -> Uncertain:
    """Any operation linear in both operands: products, dots and convolutions of independent factors."""
    x, y = map(_uncertain, values)

    def op(x: jax.Array, y: jax.Array) -> jax.Array:
        return bind(eqn, [x, y])[0]

    variance: Any = op(x.variance, y.variance) if x.leaves and y.leaves else 0.0
    variance += op(x.variance, y.mean**2) if x.leaves else 0.0
    variance += op(x.mean**2, y.variance) if y.leaves else 0.0
    return _joined([x, y], op(x.mean, y.mean), variance, is_affine=not (x.leaves and y.leaves))


def _quotient(eqn: core.JaxprEqn, values: list[Value]) -> Uncertain:
    x, y = _uncertain(values[0]), values[1]
    if isinstance(y, Uncertain):
        raise NetworkError("the network divides by what depends on weights", FOLLOWED, INSTEAD)
    return x._replace(mean=bind(eqn, [x.mean, y])[0], variance=x.variance / y**2)


def _larger(eqn: core.JaxprEqn, values: list[Value]) -> Uncertain:
    """max(x, c) = c + ReLU(x - c)."""
    x, c = map(_uncertain, values if isinstance(values[0], Uncertain) else values[::-1])
    if c.leaves:
        raise NetworkError("the network takes the larger of two values that depend on weights", FOLLOWED, INSTEAD)
    mean, variance = rectified(x.mean - c.mean, x.variance)
    return Uncertain(c.mean + mean, variance, x.leaves, is_affine=False)


def _concatenated(eqn: core.JaxprEqn, values: list[Value]) -> Uncertain:
    parts = [_uncertain(value) for value in values]
    mean, variance = (bind(eqn, list(each))[0] for each in zip(*(part[:2] for part in parts)))
    return _joined(parts, mean, variance)


ELEMENT_BY_ELEMENT = {*operations.LAYOUT, prim.slice_p, prim.rev_p, prim.reduce_sum_p}  # same for mean and variance
RULES = {
    prim.add_p: _sum,
    prim.sub_p: _sum,
    prim.neg_p: _negative,
    prim.mul_p: _product,
    prim.dot_general_p: _product,
    prim.conv_general_dilated_p: _product,
    prim.div_p: _quotient,
    prim.max_p: _larger,
    prim.concatenate_p: _concatenated,
}
