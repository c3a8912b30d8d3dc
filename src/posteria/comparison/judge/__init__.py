"""Scores, differences, verdicts: from a posterior on a split, and from the records of all."""
