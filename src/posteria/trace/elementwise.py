"""Functions of one element, put together from the equations of a jaxpr."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.extend.core import primitives as prim

from posteria.trace.expectations import Form, Scalar

ELEMENTWISE = {
    prim.abs_p,
    prim.add_p,
    prim.and_p,
    prim.atan2_p,
    prim.atan_p,
    prim.clamp_p,
    prim.convert_element_type_p,
    prim.copy_p,
    prim.cos_p,
    prim.cosh_p,
    prim.div_p,
    prim.eq_p,
    prim.erf_p,
    prim.erfc_p,
    prim.exp2_p,
    prim.exp_p,
    prim.expm1_p,
    prim.ge_p,
    prim.gt_p,
    prim.integer_pow_p,
    prim.le_p,
    prim.log1p_p,
    prim.log_p,
    prim.logistic_p,
    prim.lt_p,
    prim.max_p,
    prim.min_p,
    prim.mul_p,
    prim.ne_p,
    prim.neg_p,
    prim.not_p,
    prim.or_p,
    prim.pow_p,
    prim.select_n_p,
    prim.sign_p,
    prim.sin_p,
    prim.sinh_p,
    prim.sqrt_p,
    prim.rsqrt_p,
    prim.square_p,
    prim.sub_p,
    prim.tan_p,
    prim.tanh_p,
}


def composed(eqn: core.JaxprEqn, parts: Sequence[Scalar | object]) -> Scalar | None:
    """The equation as a function of z, where its operands are functions of z or constants; None where it is not one.

    A constant is one number, or an array of which all entries are equal.
    """
    if eqn.primitive not in ELEMENTWISE:
        return None
    operands: list[Scalar | np.ndarray] = []
    for part in parts:
        if isinstance(part, Scalar):
            operands.append(part)
            continue
        array = np.asarray(part)
        if array.size == 0 or not (array == array.flat[0]).all():
            return None
        operands.append(array.flat[0])

    def call(z: jax.Array) -> jax.Array:
        if eqn.primitive is prim.convert_element_type_p:
            (inner,) = (part.call(z) for part in operands if isinstance(part, Scalar))
            is_float = jnp.issubdtype(eqn.params["new_dtype"], jnp.floating)
            return inner.astype(z.dtype if is_float else eqn.params["new_dtype"])
        values = [part.call(z) if isinstance(part, Scalar) else _like(part, z) for part in operands]
        out: jax.Array = eqn.primitive.bind(*values, **eqn.params)
        return out

    return Scalar(call, _form(eqn, operands))


def _like(constant: np.ndarray, z: jax.Array) -> jax.Array:
    dtype = z.dtype if jnp.issubdtype(constant.dtype, jnp.floating) else constant.dtype
    return jnp.broadcast_to(jnp.asarray(constant, dtype), z.shape)


def _form(eqn: core.JaxprEqn, operands: Sequence[Scalar | np.ndarray]) -> Form | None:
    """Of a line, an error function or a sine, and of these times and plus numbers."""
    forms = [part.form for part in operands if isinstance(part, Scalar)]
    if len(forms) != 1 or forms[0] is None:
        return None
    form, numbers = forms[0], [float(part) for part in operands if not isinstance(part, Scalar)]
    if eqn.primitive is prim.neg_p:
        return form.times(-1.0)
    if eqn.primitive in (prim.copy_p, prim.convert_element_type_p):
        return form if jnp.issubdtype(eqn.params.get("new_dtype", jnp.float32), jnp.floating) else None
    if eqn.primitive is prim.erf_p:
        return form.inside("erf")
    if eqn.primitive in (prim.sin_p, prim.cos_p):
        return form.inside("sin", 0.0 if eqn.primitive is prim.sin_p else np.pi / 2)
    if not numbers:
        return None
    is_first = isinstance(operands[0], Scalar)
    if eqn.primitive is prim.mul_p:
        return form.times(numbers[0])
    if eqn.primitive is prim.div_p and is_first:
        return form.times(1 / numbers[0])
    if eqn.primitive is prim.add_p:
        return form.plus(numbers[0])
    if eqn.primitive is prim.sub_p:
        return form.plus(-numbers[0]) if is_first else form.times(-1.0).plus(numbers[0])
    return None
