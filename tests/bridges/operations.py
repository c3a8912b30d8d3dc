"""Calls of every operation in the table. `python tests/bridges/operations.py`, where PyTorch is, records its answers in
operations.json, against which the table is tested where PyTorch is not."""

import base64
import itertools
import json
import math
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
NUMBERS = np.random.default_rng(0).normal(size=4096).astype(np.float32)
_place = itertools.count()


def floats(*shape):
    """Fresh ones for each call, the same in every process."""
    start = 37 * next(_place) % 1024
    return NUMBERS[start : start + math.prod(shape)].reshape(shape)


def between(low, high, *shape):
    return (low + (high - low) * (0.5 + np.arctan(floats(*shape)) / np.pi)).astype(np.float32)


def whole(high, *shape, dtype=np.int64):
    return (np.abs(floats(*shape)) * 1000).astype(dtype) % high


def elementwise():
    anywhere = (
        "abs asinh atan ceil cos cosh erf erfc exp exp2 expm1 floor neg relu round sigmoid sign sin sinh tan tanh trunc"
    )
    domains = {name: (-2, 2) for name in anywhere.split()} | {"acos": (-0.9, 0.9), "asin": (-0.9, 0.9)}
    domains |= {name: (0.1, 3) for name in ["lgamma", "log", "log10", "log2", "reciprocal", "rsqrt", "sqrt"]}
    domains |= {"acosh": (1.1, 3), "atanh": (-0.9, 0.9), "log1p": (-0.9, 2)}
    for name, (low, high) in domains.items():
        yield f"{name}.default", [between(low, high, 2, 3)], {}
    for name in ["add", "sub", "mul", "div", "eq", "ge", "gt", "le", "lt", "ne", "remainder", "fmod"]:
        yield f"{name}.Tensor", [floats(2, 3), floats(1, 3)], {}
        yield f"{name}.Scalar", [floats(2, 3), 0.3], {}
    for name in ["add", "sub"]:
        yield f"{name}.Tensor", [floats(2, 3), floats(3)], {"alpha": 0.5}
    for mode in (None, "floor", "trunc"):
        yield "div.Tensor_mode", [floats(2, 3), floats(2, 3)], {"rounding_mode": mode}
    for name in ["atan2", "hypot", "maximum", "minimum", "logical_and", "logical_or", "logical_xor"]:
        yield f"{name}.default", [np.round(floats(2, 3)), floats(2, 3)], {}
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
        yield f"{name}.Tensor", [whole(9, 2, 3), whole(9, 2, 3)], {}
    yield "bitwise_not.default", [np.array([True, False])], {}
    yield "logical_not.default", [np.array([0.0, 2.0], np.float32)], {}
    for name in ["isinf", "isnan"]:
        yield f"{name}.default", [np.array([0, np.inf, -np.inf, np.nan], np.float32)], {}
    for exponent in (2, 3.0, 0.5, 1.7, -1):
        yield "pow.Tensor_Scalar", [between(0.1, 2, 2, 3), exponent], {}
    yield "pow.Scalar", [2.0, floats(3)], {}
    yield "pow.Tensor_Tensor", [between(0.1, 2, 3), floats(3)], {}
    yield "clamp.default", [floats(5), -0.2, 0.3], {}
    yield "clamp.default", [floats(5), None, 0.3], {}
    yield "clamp.Tensor", [floats(5), floats(5)], {}
    yield "hardtanh.default", [floats(5), -0.5, 0.7], {}
    yield "leaky_relu.default", [floats(5), 0.2], {}
    for settings in ([], [0.7], [1.6, 1.1, 0.9]):
        yield "elu.default", [floats(5), *settings], {}
    for way in ("none", "tanh"):
        yield "gelu.default", [floats(5)], {"approximate": way}
    yield "where.self", [floats(4) > 0, floats(4), floats(1)], {}


def shapes():
    x = floats(2, 3, 4)
    for name in ["alias", "clone", "lift_fresh_copy"]:
        yield f"{name}.default", [x], {}
    yield "_to_copy.default", [x], {"dtype": {"dtype": "int32"}}
    yield "arange.start_step", [1, 9, 3], {"dtype": {"dtype": "int64"}}
    yield "arange.default", [4], {"dtype": {"dtype": "float32"}}
    yield "as_strided.default", [x, [2, 3], [1, 4], 2], {}
    yield "cat.default", [[floats(2, 1), floats(2, 3)], -1], {}
    yield "constant_pad_nd.default", [x, [1, -1, 2, 0], 3.0], {}
    yield "copy.default", [x, floats(3, 1)], {}
    yield "diagonal.default", [x, 1, 1, 2], {}
    yield "embedding.default", [floats(5, 2), whole(5, 2, 3), 0], {}
    yield "expand.default", [floats(3, 1), [2, -1, 4]], {}
    yield "flip.default", [x, [0, 2]], {}
    yield "full.default", [[2, 2], 3.5], {}
    yield "full_like.default", [x, True], {"dtype": {"dtype": "bool"}}
    yield "scalar_tensor.default", [2.5], {"dtype": {"dtype": "float32"}}
    yield "gather.default", [x, 1, whole(3, 2, 2, 3)], {}
    yield "index.Tensor", [x, [None, whole(3, 5), whole(4, 5)]], {}
    yield "index.Tensor", [x, [whole(2, 5), None, whole(4, 5)]], {}
    for accumulate in (False, True):
        yield "index_put.default", [x, [np.array([0, 1, 1]), np.array([2, 0, 0])], floats(1, 4), accumulate], {}
    yield "index_select.default", [x, 2, whole(4, 3)], {}
    yield "permute.default", [x, [2, 0, 1]], {}
    yield "repeat.default", [floats(2, 3), [2, 1, 3]], {}
    places = np.array([[[0, 0, 2, 1]], [[1, 2, 2, 0]]])
    yield "scatter.src", [x, 1, places, floats(2, 2, 4)], {}
    yield "scatter.value", [x, 1, places, 7.0], {}
    yield "scatter_add.default", [x, 1, np.array([[[0, 0], [0, 2]]]), floats(2, 2, 4)], {}
    for reduce, is_in in itertools.product(("sum", "mean", "prod", "amax", "amin"), (True, False)):
        yield "scatter_reduce.two", [floats(5), 0, np.array([0, 0, 3]), floats(3), reduce], {"include_self": is_in}
    yield "select.int", [x, -1, 2], {}
    yield "slice.Tensor", [x, 2, 1, 9223372036854775807, 2], {}
    yield "slice_scatter.default", [x, floats(2, 3, 2), 2, 0, 4, 2], {}
    yield "split_with_sizes.default", [x, [1, 2, 1], 2], {}
    yield "squeeze.dims", [floats(1, 3, 1), [0, 1]], {}
    yield "squeeze.dim", [floats(1, 3, 1), -1], {}
    yield "squeeze.default", [floats(1, 3, 1)], {}
    yield "unfold.default", [floats(2, 7, 2), 1, 3, 2], {}
    yield "unsqueeze.default", [x, -2], {}
    yield "view.default", [x, [4, -1]], {}


def reductions():
    x = floats(2, 3, 4)
    for name in ["amax", "amin"]:
        yield f"{name}.default", [x, [0, -1], True], {}
    yield "sum.dim_IntList", [x, [1], False], {}
    yield "sum.default", [whole(2, 6).astype(bool)], {}
    yield "mean.dim", [x, [-1, 0], True], {}
    yield "mean.default", [x], {}
    yield "any.dim", [x > 1, 1, True], {}
    yield "any.default", [x > 1], {}
    yield "prod.dim_int", [x, 1], {}
    for name in ["argmax", "argmin"]:
        yield f"{name}.default", [x, 1, True], {}
    for name in ["max", "min"]:
        yield f"{name}.dim", [x, 1, True], {}
        yield f"{name}.default", [x], {}
    for name in ["cumsum", "cumprod"]:
        yield f"{name}.default", [x, 1], {}
    for order in (2, 1, 3, 0, math.inf, -math.inf):
        yield "linalg_vector_norm.default", [x, order, [1, 2]], {}
    yield "_cdist_forward.default", [floats(3, 4), floats(2, 4), 2.0, None], {}
    for name in ["_softmax", "_log_softmax"]:
        yield f"{name}.default", [x, 1, False], {}
    for descending in (False, True):
        yield "sort.default", [x, 1, descending], {}
    yield "topk.default", [x, 2, 1, False], {}
    for correction in (0, 1):
        yield "var.correction", [x, [0, 2]], {"correction": correction, "keepdim": True}
    yield "var_mean.correction", [x, [1]], {"correction": 0}


def layers():
    for settings in ({}, {"beta": 0.5, "alpha": 2.0}):
        yield "addmm.default", [floats(5), floats(3, 4), floats(4, 5)], settings
    yield "mm.default", [floats(3, 4), floats(4, 5)], {}
    for lead in (1, 2):
        yield "bmm.default", [floats(lead, 3, 4), floats(lead, 4, 2)], {}
    plain, none = [False, [0], 1], [0]
    image = floats(1, 4, 6, 5)
    yield "convolution.default", [image, floats(3, 4, 3, 2), floats(3), [2, 1], [1, 0], [1, 2], False, [0, 0], 1], {}
    yield "convolution.default", [image, floats(6, 2, 3, 3), None, [1], [2], [1], False, [0], 2], {}
    yield "convolution.default", [floats(1, 2, 9), floats(3, 2, 3), floats(3), [2], [1], [1], *plain], {}
    yield "convolution.default", [floats(1, 2, 3, 4, 3), floats(3, 2, 2, 2, 2), None, [1], none, [1], *plain], {}
    yield "convolution.default", [image, floats(4, 2, 3, 3), floats(2), [2, 2], [1, 1], [1, 1], True, [1, 0], 1], {}
    yield "convolution.default", [image, floats(4, 3, 2, 3), None, [1, 2], [0, 1], [2, 1], True, [0, 0], 2], {}
    weight, bias, mean, var = floats(4), floats(4), floats(4), between(0.5, 2, 4)
    yield "_native_batch_norm_legit_no_training.default", [image, weight, bias, mean, var, 0.1, 1e-3], {}
    yield "_native_batch_norm_legit_no_training.default", [image, None, None, mean, var, 0.1, 1e-3], {}
    yield "_native_batch_norm_legit.no_stats", [image, weight, bias, True, 0.1, 1e-3], {}
    yield "native_layer_norm.default", [floats(2, 3, 4), [3, 4], floats(3, 4), floats(3, 4), 1e-3], {}
    yield "native_layer_norm.default", [floats(2, 4), [4], None, None, 1e-3], {}
    yield "native_group_norm.default", [image, weight, bias, 1, 4, 30, 2, 1e-3], {}
    for settings in ([[2, 2]], [[3, 2], [2, 1], [1, 1], [1, 2]], [[3, 3], [2, 2], [1, 1], [1, 1], True]):
        yield "max_pool2d_with_indices.default", [image, *settings], {}
    space = floats(1, 2, 4, 4, 5)
    yield "max_pool3d_with_indices.default", [space, [2, 2, 2], [2, 2, 1]], {}
    for settings in (
        [[2, 2]],
        [[3, 3], [2, 2], [1, 1]],
        [[3, 3], [2, 2], [1, 1], True],
        [[3, 3], [2, 2], [1, 1], True, False],
    ):
        yield "avg_pool2d.default", [image, *settings], {}
    yield "avg_pool2d.default", [image, [3, 2], [1, 1], [0, 0], False, True, 5], {}
    yield "avg_pool3d.default", [space, [2, 2, 3], [1, 2, 1]], {}
    yield "_adaptive_avg_pool2d.default", [image, [4, 3]], {}
    yield "_adaptive_avg_pool3d.default", [space, [3, 2, 2]], {}
    yield "adaptive_max_pool2d.default", [image, [4, 3]], {}
    for align, size, factors in (
        (False, [9, 4], None),
        (True, [9, 4], None),
        (False, None, [1.5, 2.0]),
        (True, None, [1.5, 2.0]),
    ):
        yield "upsample_bilinear2d.vec", [image, size, align, factors], {}
    for size, factors in (([9, 4], None), (None, [1.5, 2.0])):
        yield "upsample_nearest2d.vec", [image, size, factors], {}


def calls():
    """(name, arguments, keywords) of each."""
    return [*elementwise(), *shapes(), *reductions(), *layers()]


def encoded(part):
    if isinstance(part, np.ndarray):
        return {"array": [list(part.shape), part.dtype.name, base64.b64encode(part.tobytes()).decode()]}
    if isinstance(part, list | tuple):
        return [encoded(each) for each in part]
    return {"float": str(part)} if isinstance(part, float) and math.isinf(part) else part


def record() -> None:
    import torch

    def as_tensors(part):
        if isinstance(part, dict):
            return getattr(torch, part["dtype"])
        if isinstance(part, list):
            return [as_tensors(each) for each in part]
        return torch.tensor(part) if isinstance(part, np.ndarray) else part

    records = []
    for name, arguments, keywords in calls():
        base, overload = name.split(".")
        operation = getattr(getattr(torch.ops.aten, base), overload)
        found = operation(*as_tensors(arguments), **{key: as_tensors(part) for key, part in keywords.items()})
        results = [each.numpy() for each in found] if isinstance(found, list | tuple) else found.numpy()
        records.append([name, encoded(arguments), keywords, encoded(results)])
    lines = ",\n".join(json.dumps(each) for each in records)
    FILE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    record()
