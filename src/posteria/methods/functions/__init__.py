"""Methods in the space of functions: Gaussian processes, and variational inference on functions."""
