"""The linear operations of any network, found in its jaxpr and open to replacement.

`find` says where each parameter leaf multiplies an input; `interpret` runs the network with a rule in place of those
operations; `fast_on_cpu` runs it with its convolutions as slices and a matmul. Networks are followed datum by datum,
under `vmap`: only so can a datum be told from a position (a pixel, a token) at which a weight is used again.

A leaf is found if all its uses are a `dot_general` or the kernel of a `conv_general_dilated`, reached through nested
`jit`, `remat`, and changes of layout or type. What happens inside `scan`, `while`, `cond`, or a function with a
derivative rule of its own cannot be replaced: a leaf used there is not found.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as prim

from posteria import tree
from posteria.data.arrays import Data
from posteria.networks import Apply, kept_whole, prefers_slices
from posteria.trace.operations import (
    Form,
    Linear,
    Matrix,
    Value,
    array_in_place,
    convolve,
    evaluated,
    keeps_elements,
    linear_operation,
    plain,
)
from posteria.tree import Params, Structure, Tree

F = TypeVar("F", bound=Callable[..., Any])

LOOPS = (prim.scan_p, prim.while_p, prim.cond_p)


@dataclasses.dataclass(frozen=True)
class Use:
    """One linear operation with a leaf as its weight. `contracted` are the leaf's dims that are summed over, `fan_in`
    the number of inputs summed into an output, `positions` how often the weight is used for one datum."""

    primitive: str
    contracted: tuple[int, ...]
    fan_in: int
    positions: int


@dataclasses.dataclass(frozen=True)
class Leaf:
    """The linear uses of a parameter leaf; `reason` says what else it meets, and is None if all its uses were found.

    `added_to` is the leaf to whose operation's output this one is added, entry by entry, where it has no other use.
    """

    uses: tuple[Use, ...]
    reason: str | None
    added_to: str | None = None

    @property
    def found(self) -> bool:
        return self.reason is None

    @property
    def positions(self) -> int:
        """How often the weight meets one datum: 1 where local reparameterisation is exact."""
        return sum(use.positions for use in self.uses)


@dataclasses.dataclass(frozen=True)
class Operation:
    """What a rule is given: `op(x, weight)` is the original operation on one datum, linear in both arguments.

    `as_operand` takes any array of the leaf's shape (a standard deviation, a mask) to the form in which the leaf
    reaches the operation as `weight`. Axes of x: `contracted` is summed over (for a convolution, its channels),
    `positions` are where the same weights are used again; `out_unit_shape` is the output's shape with 1 for them.
    `matrix` is the operation as a product of matrices, where it is one.
    """

    path: str
    use: int  # 0 for the leaf's first use in the network
    primitive: str
    x: jax.Array
    weight: jax.Array
    op: Callable[[jax.Array, jax.Array], jax.Array]
    as_operand: Callable[[jax.Array], jax.Array]
    contracted: tuple[int, ...]
    positions: tuple[int, ...]
    out_unit_shape: tuple[int, ...]
    leaf: jax.ShapeDtypeStruct  # shape and dtype of the leaf itself
    matrix: Matrix | None

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """x's shape with 1 for positions: one entry for each input unit or channel, as a dropout mask has."""
        return tuple(1 if axis in self.positions else size for axis, size in enumerate(self.x.shape))

    def rows(self, mask: jax.Array) -> jax.Array:
        """The leaf-shaped factor that does to the weights what `mask` (unit_shape) does to x:
        op(x * mask, weight) = op(x, weight * as_operand(rows(mask)))."""

        def total(x: jax.Array) -> jax.Array:  # for each weight, the sum of the inputs that it multiplies
            y = jax.eval_shape(self.op, x, self.weight)
            return jax.linear_transpose(lambda leaf: self.op(x, self.as_operand(leaf)), self.leaf)(
                jnp.ones(y.shape, y.dtype)
            )[0]

        count = total(jnp.ones(self.x.shape, self.x.dtype))
        masked = total(jnp.broadcast_to(mask, self.x.shape).astype(self.x.dtype))
        return jnp.where(count == 0, 1, masked / jnp.where(count == 0, 1, count))  # 0: it only ever meets padding


Record = Tree  # what a rule notes of an operation
Rule = Callable[[Operation, Any], tuple[jax.Array, Record]]  # (operation, the datum's extra) -> (output, record)


def find(apply: Apply, params: Params, x: Data) -> dict[str, Leaf]:
    """Every leaf's linear uses, by path. Only the shapes and dtypes of `params` and of the batch `x` matter."""
    datum = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), x)
    return _examine(trace_datum(apply, params, datum)[0], tree.paths(params))


def interpret(apply: Apply, rule: Rule) -> Callable[..., tuple[jax.Array, dict[str, tuple[Record, ...]]]]:
    """The network with `rule` in place of every operation on a found leaf.

    `run(params, x, extra)` returns the outputs and, for each found leaf, a tuple with the rule's records, use by use.
    `extra` is any pytree with the data's leading axis (keys, perturbations); a rule sees its own datum's part.
    What is the same for all data (standard deviations, a shared mask) a rule holds itself.
    """

    def run(params: Params, x: Data, extra: Tree = None) -> tuple[jax.Array, dict[str, tuple[Record, ...]]]:
        def one(datum: Tree, extra: Tree) -> tuple[jax.Array, dict[str, tuple[Record, ...]]]:
            closed, structure = trace_datum(apply, params, datum)
            paths = tree.paths(params)
            found = {path for path, leaf in _examine(closed, paths).items() if leaf.found}
            walk = _Walk(found, lambda operation: rule(operation, extra))
            outputs = walk.run(closed, paths, [*jax.tree.leaves(params), *jax.tree.leaves(datum)])
            return jax.tree.unflatten(structure, outputs), {path: tuple(r) for path, r in walk.records.items()}

        return jax.vmap(one)(x, extra)

    return run


def fast_on_cpu(apply: F) -> F:
    """`apply` with its convolutions as slices and a matmul where that is faster (on CPU); otherwise `apply` itself."""
    traced = jax.jit(apply)  # its cache of traces

    @jax.jit
    def sliced(*args: Tree) -> Tree:
        closed, structure = _trace(apply, *args)
        return jax.tree.unflatten(structure, _Walk().run(closed, [], jax.tree.leaves(args)))

    def run(*args: Tree) -> Tree:
        return sliced(*args) if prefers_slices() and holds_convolution(traced, *args) else apply(*args)

    return cast(F, run)


def holds_convolution(fn: Callable[..., Tree], *args: Tree) -> bool:
    """Whether XLA's convolution stands anywhere in fn(*args), inner loops and branches included."""
    return jaxpr_holds_convolution(jax.jit(fn).trace(*args).jaxpr.jaxpr)


# ---- the walk


class _Walk:
    """Evaluates a jaxpr and follows parameter leaves through it: `uses` and `reasons` say what became of each, and
    operations on the leaves in `found` are handed to `rule`."""

    def __init__(
        self, found: Iterable[str] = (), rule: Callable[[Operation], tuple[jax.Array, Record]] | None = None
    ) -> None:
        self.found, self.rule = found, rule
        self.uses: dict[str, list[Use]] = defaultdict(list)
        self.reasons: dict[str, str] = {}
        self.records: dict[str, list[Record]] = defaultdict(list)
        self.products: dict[int, tuple[str, jax.Array]] = {}  # outputs of operations, by identity
        self.sums: dict[str, list[str | None]] = defaultdict(list)  # the product, if any, of each use that is none
        self.repeats = 1  # of the scans around what is being evaluated

    def run(self, closed: core.ClosedJaxpr, paths: list[str], args: list[jax.Array]) -> list[jax.Array]:
        """The outputs; the first arguments are the parameter leaves named by `paths`."""
        leaves = [Form.of(path, value) for path, value in zip(paths, args)]
        outputs = self.evaluate(closed.jaxpr, closed.consts, [*leaves, *args[len(paths) :]])
        self._not_found((v for v in outputs if isinstance(v, Form)), "returned as an output")
        return plain(outputs)

    def evaluate(self, jaxpr: core.Jaxpr, consts: Sequence[jax.Array], args: Sequence[Value]) -> list[Value]:
        return evaluated(jaxpr, consts, args, self._step)

    def _step(self, eqn: core.JaxprEqn, values: list[Value]) -> Sequence[Value]:
        forms = [v for v in values if isinstance(v, Form)]
        if not forms and not _holds_convolution_in(eqn):
            return bind(eqn, plain(values))
        if eqn.primitive is prim.jit_p:
            inner = eqn.params["jaxpr"]
            return self.evaluate(inner.jaxpr, inner.consts, values)
        if eqn.primitive is prim.remat_p:
            return self._rematerialised(eqn, values)
        if forms and keeps_elements(eqn):
            return [forms[0].through(eqn)]
        if forms and (linear := linear_operation(eqn, values)):
            return [self._operate(linear, values)]
        if forms:
            inside = next(core.jaxprs_in_params(eqn.params), None) is not None
            self._note_sum(eqn, values)
            self._not_found(forms, f"{'inside' if inside else 'used by'} {eqn.primitive.name}")
            if eqn.primitive is prim.scan_p and self.rule is None:
                self._look_inside_scan(eqn, values)
        return bind(eqn, plain(values))

    def _operate(self, linear: Linear, values: list[Value]) -> jax.Array:
        weight, x = values[linear.weight], values[1 - linear.weight]
        assert isinstance(weight, Form)
        contracted = frozenset().union(*(dims for axis, dims in enumerate(weight.origins) if axis in linear.summed))
        kept = frozenset().union(*(dims for axis, dims in enumerate(weight.origins) if axis not in linear.summed))
        if isinstance(x, Form):
            self._not_found([weight, x], "multiplied by another parameter")
        elif contracted & kept:
            self._not_found([weight], "reshaped across the dims that are summed over")
        else:
            fan_in = math.prod(weight.value.shape[axis] for axis in linear.summed)
            self.uses[weight.path].append(
                Use(linear.primitive, tuple(sorted(contracted)), fan_in, self.repeats * linear.num_positions)
            )
            if self.rule is not None and weight.path in self.found:
                if not jnp.issubdtype(x.dtype, jnp.inexact):  # whole numbers: what rules put in their place is not
                    x = x.astype(weight.value.dtype)
                operation = Operation(
                    path=weight.path,
                    use=len(self.uses[weight.path]) - 1,
                    primitive=linear.primitive,
                    x=x,
                    weight=weight.value,
                    op=linear.op,
                    as_operand=weight.as_operand,
                    contracted=linear.contracted,
                    positions=linear.positions,
                    out_unit_shape=linear.out_unit_shape,
                    leaf=weight.leaf,
                    matrix=linear.matrix,
                )
                y, record = self.rule(operation)
                self.records[weight.path].append(record)
                return y
        y = linear.op(*plain([x, weight]))
        self.products[id(y)] = weight.path, y
        return y

    def _note_sum(self, eqn: core.JaxprEqn, values: list[Value]) -> None:
        terms = [v for v in values if not isinstance(v, Form)]
        is_sum = eqn.primitive is prim.add_p and len(terms) == 1 and id(terms[0]) in self.products
        for form in (v for v in values if isinstance(v, Form)):
            fits = is_sum and len(form.leaf.shape) == 1 and form.value.shape == terms[0].shape
            self.sums[form.path].append(self.products[id(terms[0])][0] if fits else None)

    def _not_found(self, forms: Iterable[Form], reason: str) -> None:
        for form in forms:
            self.reasons.setdefault(form.path, reason)

    def _rematerialised(self, eqn: core.JaxprEqn, values: list[Value]) -> list[Value]:
        shells: list[
            Value
        ] = []  # what is known of the outputs that are leaves; arrays must leave through checkpoint itself

        def inner(arrays: list[jax.Array]) -> tuple[list[jax.Array], dict[str, list[Record]]]:
            outer, self.records = self.records, defaultdict(list)
            inside = [array_in_place(v, a) for v, a in zip(values, arrays)]
            shells[:] = self.evaluate(eqn.params["jaxpr"], [], inside)
            records, self.records = self.records, outer
            return plain(shells), dict(records)

        again = jax.checkpoint(inner, policy=eqn.params["policy"], prevent_cse=eqn.params["prevent_cse"])
        outputs, records = again(plain(values))
        for path, made in records.items():
            self.records[path].extend(made)
        return [array_in_place(shell, output) for shell, output in zip(shells, outputs)]

    def _look_inside_scan(self, eqn: core.JaxprEqn, values: list[Value]) -> None:
        """Note the uses of leaves in the body, for their fan-in: they cannot be replaced there."""
        body = eqn.params["jaxpr"]
        inside = [
            # a stack of layers, one a step, loses its first axis
            dataclasses.replace(v, origins=v.origins[v.value.ndim - atom.aval.ndim :]) if isinstance(v, Form) else v
            for v, atom in zip(values, body.jaxpr.invars)
        ]

        def look(arrays: list[jax.Array]) -> None:
            self.evaluate(body.jaxpr, body.consts, [array_in_place(v, a) for v, a in zip(inside, arrays)])

        self.repeats *= eqn.params["length"]
        jax.eval_shape(look, _shapes(body.jaxpr.invars))
        self.repeats //= eqn.params["length"]


def _examine(closed: core.ClosedJaxpr, paths: list[str]) -> dict[str, Leaf]:
    walk = _Walk()
    with kept_whole(True):
        jax.eval_shape(lambda args: walk.run(closed, paths, args), _shapes(closed.jaxpr.invars))
    reasons = {path: walk.reasons.get(path, None if walk.uses[path] else "not used") for path in paths}
    added_to = {path: sums[0] for path, sums in walk.sums.items() if len(sums) == 1}
    return {path: Leaf(tuple(walk.uses[path]), reason, added_to.get(path)) for path, reason in reasons.items()}


def _trace(fn: Callable[..., Tree], *args: Tree) -> tuple[core.ClosedJaxpr, Structure]:
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    return closed, jax.tree.structure(shapes)


def trace_datum(apply: Apply, params: Params, datum: Tree) -> tuple[core.ClosedJaxpr, Structure]:
    def one(params: Params, datum: Tree) -> Tree:
        outputs = apply(params, jax.tree.map(lambda a: a[None], datum))
        return jax.tree.map(lambda a: jnp.squeeze(a, 0), outputs)

    with kept_whole(True):
        return _trace(one, params, datum)


def _shapes(variables: list[core.Var]) -> list[jax.ShapeDtypeStruct]:
    avals: list[Any] = [v.aval for v in variables]
    return [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False)) for a in avals]


def bind(eqn: core.JaxprEqn, values: Sequence[jax.Array]) -> list[jax.Array]:
    if eqn.primitive is prim.conv_general_dilated_p:
        return [convolve(eqn, *values)]
    params = eqn.params
    if eqn.primitive in LOOPS and _holds_convolution_in(eqn) and prefers_slices():
        params = {name: _by_slices_inside(param) for name, param in params.items()}
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
    return out if eqn.primitive.multiple_results else [out]


def _by_slices_inside(param: Any) -> Any:
    """A loop's parameter, with the convolutions replaced in it if it is a body or branches."""
    if isinstance(param, tuple):
        return tuple(map(_by_slices_inside, param))
    if not isinstance(param, core.ClosedJaxpr):
        return param
    return jax.make_jaxpr(lambda *args: _Walk().evaluate(param.jaxpr, param.consts, args))(*_shapes(param.jaxpr.invars))


def jaxpr_holds_convolution(jaxpr: core.Jaxpr) -> bool:
    return any(map(_holds_convolution_in, jaxpr.eqns))


def _holds_convolution_in(eqn: core.JaxprEqn) -> bool:
    if eqn.primitive is prim.conv_general_dilated_p:
        return True
    return any(map(jaxpr_holds_convolution, core.jaxprs_in_params(eqn.params)))
