"""Noise on what enters a layer, as a distribution over its weights."""
