"""Gaussians fitted to the posterior: around its mode, or by matching moments."""
