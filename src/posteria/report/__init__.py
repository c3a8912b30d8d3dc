"""One page that says which method to trust and what it costs, written from results.json and the arrays beside it."""

from posteria.report.page import write

__all__ = ["write"]
