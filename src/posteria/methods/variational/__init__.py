"""Families of distributions, fitted by the evidence lower bound."""
