"""One setting of the weights: the mode."""
