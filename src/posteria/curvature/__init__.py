"""Curvature of the log likelihood in the weights, in four structures: diagonal, Kronecker-factored, low rank, full."""
