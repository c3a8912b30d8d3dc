"""The network at infinite width is a Gaussian process: exact, as far as a NumPy of ten lines can tell."""

import posteria as po
from posteria.testing import ExactLaws


class TestInfiniteWidth(ExactLaws):
    method = po.InfiniteWidth()
