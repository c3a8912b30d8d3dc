"""Weights in a safetensors file: a JSON header and raw bytes, checked against each other. Nothing in it is run."""

import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np

from posteria.errors import StoreError
from posteria.tree import Arrays

LARGEST_HEADER = 100 * 2**20  # bytes, as in the format's own reader
DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
}


def read(path: Path) -> Arrays:
    """Every tensor by its name."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error})", "a safetensors file", "check the path") from error
    try:
        return tensors(content)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged or no safetensors file ({error})",
            "a file that safetensors wrote",
            "load other kinds yourself, and pass the dictionary of arrays (torch.load(path, weights_only=True))",
        ) from error


def tensors(content: bytes) -> Arrays:
    """Of a file's content; ValueError and the like where it is none."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(LARGEST_HEADER, len(content) - 8):
        raise ValueError("no header")
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    arrays = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, (start, end) = np.dtype(DTYPES[about["dtype"]]), about["shape"], about["data_offsets"]
        if not all(isinstance(n, int) and n >= 0 for n in (*shape, start, end)):
            raise ValueError(f"{name} has shape {shape} at {start} to {end}")
        if end > len(body) or end - start != dtype.itemsize * math.prod(shape):
            raise ValueError(f"{name} of shape {shape} is not at {start} to {end}")
        arrays[name] = np.frombuffer(body[start:end], dtype).reshape(shape)
    return arrays


def written(arrays: Arrays) -> bytes:
    """A file's content with these arrays, in the order of their names."""
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header, body, place = {}, [], 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        header[name] = {
            "dtype": names[array.dtype],
            "shape": list(np.shape(arrays[name])),
            "data_offsets": [place, place + array.nbytes],
        }
        body.append(array.tobytes())
        place += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants tensors at multiples of 8
    return len(text).to_bytes(8, "little") + text + b"".join(body)
