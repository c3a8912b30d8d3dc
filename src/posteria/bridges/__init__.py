"""To and from other frameworks: weights from files and state dicts, draws for a PyTorch module, and its operations."""

from posteria.bridges.aten import register
from posteria.bridges.draws_out import to_torch
from posteria.bridges.weights import load

__all__ = ["load", "register", "to_torch"]
