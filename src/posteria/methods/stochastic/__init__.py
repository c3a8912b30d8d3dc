"""Markov chains by mini-batches."""
