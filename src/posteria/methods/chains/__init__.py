"""Markov chains that see all the data at every step."""
