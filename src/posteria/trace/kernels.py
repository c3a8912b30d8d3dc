"""The Gaussian process that a network becomes as it grows wide, read off its jaxpr.

A walk over the network at two inputs carries the covariance between them. A layer with independent, centred, Normal
weights makes a Gaussian whose covariance is the sum of what it sees, times the weights' variance: of every contracted
hidden dimension that is the limit, of the inputs themselves it is exact. Functions of one element follow in closed form
or by an expansion (`expectations.py`). Neal 1996; Lee et al. 2018; Matthews et al. 2018; with convolutions Novak et al.
2019, Garriga-Alonso et al. 2019. As in the Tensor Programs of Yang 2019, sums of Gaussians stay Gaussian.

What cannot be followed raises `NotFollowed`: weights used twice, values of several kinds that meet in a nonlinearity
(a residual sum after an activation), maxima over positions, normalisation, attention.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.extend.core import primitives as prim

from posteria import tree
from posteria.networks import kept_whole
from posteria.trace import operations
from posteria.trace.covariances import FIELD, UNIT, Axes, Covariance, Factor, NeedsPositions, NotFollowed, added
from posteria.trace.elementwise import composed
from posteria.trace.expectations import IDENTITY, Scalar, second_moment, square
from posteria.trace.limit_layers import of_convolution, of_dense, of_inputs, sliced, window_sums
from posteria.trace.linear import bind
from posteria.trace.operations import Form, evaluated, linear_operation, shape_of

Parts = tuple[jax.Array, jax.Array, jax.Array]
Pair = Callable[[tree.Tree, tree.Tree], Parts]


def pair_kernel(closed: core.ClosedJaxpr, stds: Mapping[str, float], datum: tree.Tree) -> Pair:
    """`pair(x, x') -> (k(x, x), k(x, x'), k(x', x'))`, of one output; all outputs have it, and are independent.

    `closed` is the network of one datum (`trace_datum`), `stds` are the prior standard deviations of its parameters by
    path, in their order. Raises NotFollowed here, before anything is compiled.
    """

    def run(across: bool) -> Pair:
        return lambda x, other: _Walk(stds, across).run(closed, x, other)

    try:
        jax.eval_shape(run(across=False), datum, datum)
        return run(across=False)
    except NeedsPositions:
        jax.eval_shape(run(across=True), datum, datum)
        return run(across=True)


@dataclass(frozen=True)
class Known:
    """An array that depends on no weight, at either input."""

    left: jax.Array
    right: jax.Array


@dataclass(frozen=True)
class Term:
    """One of uncorrelated addends: `name` tells it from others, `layout` says how it has been moved since."""

    name: object
    covariance: Covariance  # or second moments, where it is not Gaussian
    depends_on: frozenset[object]  # Gaussian terms that it is a function of
    is_gaussian: bool
    is_centred: bool = True
    layout: tuple[str, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Hidden:
    """f(sum of terms), element by element."""

    terms: tuple[Term, ...]
    f: Scalar = IDENTITY

    @property
    def base(self) -> tuple[object, ...]:
        """Values of equal base are functions of one and the same Gaussian."""
        return tuple((term.name, term.layout, term.factor) for term in self.terms)

    @property
    def covariance(self) -> Covariance:
        def scaled(term: Term) -> Covariance:
            return term.covariance.on_parts(lambda part: term.factor**2 * part)

        return added([scaled(term) for term in self.terms])

    def moved(self, word: str, fn: Callable[[Covariance], Covariance]) -> "Hidden":
        return replace(
            self,
            terms=tuple(replace(t, covariance=fn(t.covariance), layout=(*t.layout, word)) for t in self.terms),
        )


Value = Known | Hidden | Form | np.ndarray  # an array of NumPy's is a constant of the network


class _Walk:
    def __init__(self, stds: Mapping[str, float], across: bool) -> None:
        self.stds, self.across = stds, across
        self.dtype = jnp.result_type(float)
        self.used: set[str] = set()
        self.moments: dict[int, tuple[Hidden, Term]] = {}  # of nonlinear values, by identity
        self.names = itertools.count()

    def run(self, closed: core.ClosedJaxpr, x: tree.Tree, other: tree.Tree) -> Parts:
        paths = list(self.stds)
        leaves = [
            Form.of(path, jnp.zeros(shape_of(var), var.aval.dtype)) for path, var in zip(paths, closed.jaxpr.invars)
        ]
        inputs = [Known(*pair) for pair in zip(jax.tree.leaves(x), jax.tree.leaves(other))]
        with kept_whole(True):
            outputs = self.evaluate(closed.jaxpr, [np.asarray(c) for c in closed.consts], [*leaves, *inputs])
        if len(outputs) != 1:
            raise NotFollowed(f"the network returns {len(outputs)} arrays")
        output = self._plain(self._hidden(outputs[0]))
        if not all(term.is_gaussian for term in output.terms):
            raise NotFollowed("the outputs do not end in a layer of weights, so that they are not Gaussian")
        covariance = output.covariance
        if any(factor.kind != UNIT for factor in covariance.factors):
            raise NotFollowed("the outputs share weights, or have variances of their own")
        left, middle, right = (part.reshape(()) for part in covariance.parts)
        return left, middle, right

    def evaluate(self, jaxpr: core.Jaxpr, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        return evaluated(jaxpr, consts, args, self._step, np.asarray)

    def _step(self, eqn: core.JaxprEqn, values: list[Value]) -> Sequence[Value]:
        if eqn.primitive in (prim.jit_p, prim.remat_p, prim.custom_jvp_call_p, prim.custom_vjp_call_p):
            inner: Any = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
            consts = [np.asarray(const) for const in getattr(inner, "consts", ())]
            return self.evaluate(getattr(inner, "jaxpr", inner), consts, values)
        if all(isinstance(value, np.ndarray) for value in values):
            with jax.ensure_compile_time_eval():
                return [np.asarray(out) for out in bind(eqn, [jnp.asarray(value) for value in values])]
        if all(isinstance(value, np.ndarray | Known) for value in values):
            sides = [bind(eqn, [_side(value, i) for value in values]) for i in range(2)]
            return [Known(*pair) for pair in zip(*sides)]
        forms = [value for value in values if isinstance(value, Form)]
        if len(forms) == len(values) == 1 and operations.keeps_elements(eqn):
            return [forms[0].through(eqn)]
        if forms and len(values) == 2 and (linear := linear_operation(eqn, values)):  # type: ignore[arg-type]
            return [self._operated(eqn, values, linear)]
        return [self._on_hidden(eqn, [self._hidden(v) if isinstance(v, Form) else v for v in values])]

    # ---- layers

    def _operated(self, eqn: core.JaxprEqn, values: list[Value], linear: operations.Linear) -> Hidden:
        weight, x = values[linear.weight], values[1 - linear.weight]
        assert isinstance(weight, Form)
        if isinstance(x, Form):
            raise NotFollowed(f"{weight.path} is multiplied by another parameter")
        if weight.path in self.used:
            raise NotFollowed(f"{weight.path} is used more than once")
        self.used.add(weight.path)
        variance = self.stds[weight.path] ** 2
        if isinstance(x, np.ndarray):
            x = Known(jnp.asarray(x), jnp.asarray(x))
        if isinstance(x, Known):
            left, right = (side.astype(self.dtype) for side in (x.left, x.right))
            covariance = of_inputs(eqn, left, right, linear, self.across)
        elif eqn.primitive is prim.dot_general_p:
            covariance = of_dense(eqn, self._plain(x).covariance, linear)
        else:
            covariance = of_convolution(eqn, self._plain(x).covariance)
        return self._gaussian(covariance.on_parts(lambda part: variance * part))

    # ---- everything else

    def _on_hidden(self, eqn: core.JaxprEqn, values: list[Value]) -> Hidden:
        hidden = [value for value in values if isinstance(value, Hidden)]
        if len(hidden) == len(values) == 1 and (moved := self._moved(eqn, hidden[0])) is not None:
            return moved
        shape = shape_of(eqn.outvars[0])
        values = [_spread(value, shape) if isinstance(value, Hidden) else value for value in values]
        hidden = [value for value in values if isinstance(value, Hidden)]
        if len({value.base for value in hidden}) == 1 and not any(isinstance(v, Known) for v in values):
            f = composed(eqn, [v.f if isinstance(v, Hidden) else v for v in values])
            if f is not None:
                return self._applied(eqn, hidden[0], f)
        if eqn.primitive in (prim.add_p, prim.sub_p) and len(values) == 2:
            sign = -1.0 if eqn.primitive is prim.sub_p else 1.0
            return self._sum(self._addend(values[0]), self._scaled(self._addend(values[1]), sign))
        if eqn.primitive in (prim.mul_p, prim.div_p) and isinstance(values[-1], Known | np.ndarray):
            return self._weighed(self._plain(hidden[0]), values[1], eqn.primitive is prim.div_p)
        if eqn.primitive is prim.mul_p and isinstance(values[0], Known | np.ndarray):
            return self._weighed(self._plain(hidden[0]), values[0], is_quotient=False)
        raise NotFollowed(f"the network uses {eqn.primitive.name} on what depends on weights")

    def _moved(self, eqn: core.JaxprEqn, x: Hidden) -> Hidden | None:
        """A change of layout, or a sum over axes; None where it is neither."""
        p, word = eqn.params, f"{eqn.primitive.name} {shape_of(eqn.outvars[0])}"
        if eqn.primitive in (prim.convert_element_type_p, prim.copy_p):
            return x if jnp.issubdtype(p.get("new_dtype", jnp.float32), jnp.floating) else None
        if eqn.primitive is prim.transpose_p:
            return x.moved(f"{word} {p['permutation']}", lambda c: c.transposed(p["permutation"]))
        if eqn.primitive in (prim.reshape_p, prim.squeeze_p):
            return x.moved(word, lambda c: c.reshaped(shape_of(eqn.outvars[0])))
        if eqn.primitive is prim.broadcast_in_dim_p:
            return x.moved(word, lambda c: c.broadcast(p["shape"], p["broadcast_dimensions"]))
        if eqn.primitive is prim.slice_p:
            return x.moved(f"{word} {p['start_indices']} {p['strides']}", lambda c: sliced(c, p))
        x_plain = self._plain(x) if eqn.primitive in (prim.reduce_sum_p, prim.reduce_window_sum_p) else x
        if eqn.primitive is prim.reduce_sum_p:
            return self._summed(x_plain, f"{word} {p['axes']}", lambda c, centred: c.summed(p["axes"], centred))
        if eqn.primitive is prim.reduce_window_sum_p:
            return self._summed(x_plain, f"{word} {sorted(p.items())}", lambda c, _: window_sums(c, p))
        return None

    def _summed(self, x: Hidden, word: str, fn: Callable[[Covariance, bool], Covariance]) -> Hidden:
        return replace(
            x,
            terms=tuple(
                replace(t, covariance=fn(t.covariance, t.is_centred), layout=(*t.layout, word)) for t in x.terms
            ),
        )

    def _applied(self, eqn: core.JaxprEqn, x: Hidden, f: Scalar) -> Hidden:
        if not _is_line(f) and not all(term.is_gaussian for term in x.terms):
            raise NotFollowed(f"the network applies {eqn.primitive.name} to a sum that is not Gaussian")
        return replace(x, f=f)

    def _scaled(self, x: Hidden, factor: float) -> Hidden:
        return replace(x, terms=tuple(replace(t, factor=t.factor * factor) for t in x.terms))

    def _weighed(self, x: Hidden, by: Value, is_quotient: bool) -> Hidden:
        """Times an array that depends on no weight: positions may be weighed, units may not."""
        left, right = (_side(by, i).astype(self.dtype) for i in range(2))
        shape = tuple(np.broadcast_shapes(left.shape, x.covariance.shape))
        left, right = (jnp.broadcast_to(1 / side if is_quotient else side, shape) for side in (left, right))

        def weighed(c: Covariance) -> Covariance:
            for number in range(len(c.factors)):
                c = c.as_field(number)
            if len(c.factors) != sum(size > 1 for size in shape):
                raise NotFollowed("the network weighs an axis of several kinds")
            stored = [factor.size for factor in c.factors]
            a, b = left.reshape(stored), right.reshape(stored)
            if self.across:
                outer = [(u.reshape(*stored, *[1] * len(stored)), v) for u, v in ((a, a), (a, b), (b, b))]
            else:
                outer = [(a, a), (a, b), (b, b)]
            parts = [part * u * v for part, (u, v) in zip(c.parts, outer)]
            return replace(c, parts=(parts[0], parts[1], parts[2]))

        return x.moved(f"weighed {next(self.names)}", weighed)

    def _addend(self, value: Value) -> Hidden:
        """A term of a sum; what is known has second moments, and no covariance with what is centred."""
        if isinstance(value, Hidden):
            return self._plain(value)
        left, right = (jnp.asarray(_side(value, i)).astype(self.dtype) for i in range(2))
        axes: Axes = tuple(() if size == 1 else (Factor(size, FIELD),) for size in left.shape)
        stored = [factor.size for axis in axes for factor in axis]

        def product(a: jax.Array, b: jax.Array) -> jax.Array:
            return (jnp.multiply.outer(a, b) if self.across else a * b).reshape(stored * (1 + self.across))

        parts = product(left, left), product(left, right), product(right, right)
        name = ("known", next(self.names))
        return Hidden((Term(name, Covariance(axes, parts, self.across), frozenset(), False, is_centred=False),))

    def _sum(self, x: Hidden, y: Hidden) -> Hidden:
        terms = {term.name: term for term in x.terms}
        for term in y.terms:
            same = terms.get(term.name)
            if same is not None and same.layout != term.layout:
                raise NotFollowed("the network adds a value to itself in another layout")
            terms[term.name] = term if same is None else replace(term, factor=term.factor + same.factor)
        gaussians = {term.name for term in terms.values() if term.is_gaussian}
        if any(not term.is_gaussian and term.depends_on & gaussians for term in terms.values()):
            raise NotFollowed("the network adds a value to a function of it")
        if sum(not term.is_centred for term in terms.values()) > 1:
            raise NotFollowed("the network adds functions of different values")
        return Hidden(tuple(terms.values()))

    def _plain(self, x: Hidden) -> Hidden:
        """Second moments of a nonlinear function, as a term."""
        if _is_line(x.f):
            assert x.f.form is not None
            return self._scaled(replace(x, f=IDENTITY), x.f.form.outer * x.f.form.scale)
        if id(x) not in self.moments:
            c = x.covariance
            left, right = c.variances(0), c.variances(2)
            count = len(c.factors)

            def moment(part: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
                return second_moment(x.f, part, a.reshape(*a.shape, *[1] * count) if self.across else a, b)

            own = [moment(c.parts[i], v, v) if self.across else square(x.f, v) for i, v in ((0, left), (2, right))]
            parts = own[0], moment(c.parts[1], left, right), own[1]
            name = ("function", next(self.names))
            depends_on = frozenset(term.name for term in x.terms)
            self.moments[id(x)] = x, Term(name, replace(c, parts=parts), depends_on, False, is_centred=False)
        return Hidden((self.moments[id(x)][1],))

    def _hidden(self, value: Value) -> Hidden:
        """A parameter as a Gaussian: a bias."""
        if isinstance(value, Hidden):
            return value
        if not isinstance(value, Form):
            raise NotFollowed("the outputs depend on no weight")
        variance = self.stds[value.path] ** 2
        axes: Axes = tuple(() if size == 1 else (Factor(size, UNIT),) for size in value.value.shape)
        covariance = Covariance.constant(axes, variance, self.across, self.dtype)
        return self._gaussian(covariance, ("leaf", value.path))

    def _gaussian(self, covariance: Covariance, name: object = None) -> Hidden:
        name = ("layer", next(self.names)) if name is None else name
        return Hidden((Term(name, covariance, frozenset(), True),))


def _is_line(f: Scalar) -> bool:
    """f(z) = c z, which leaves a Gaussian Gaussian."""
    form = f.form
    return form is not None and form.name == "line" and form.outer * form.shift + form.offset == 0.0


def _spread(x: Hidden, shape: tuple[int, ...]) -> Hidden:
    """Axes of size 1 as long as those of another operand."""
    if x.terms[0].covariance.shape == shape or len(x.terms[0].covariance.shape) != len(shape):
        return x
    return x.moved(f"broadcast {shape}", lambda c: c.broadcast(shape, range(len(shape))))


def _side(value: Value, i: int) -> jax.Array:
    if isinstance(value, Known):
        return value.left if i == 0 else value.right
    return jnp.asarray(value)
