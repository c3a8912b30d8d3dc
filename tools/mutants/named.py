"""Mutants that once survived, each with the test that is there to kill it: `python tools/mutants named`."""

from typing import NamedTuple


class Named(NamedTuple):
    what: str
    path: str
    old: str
    new: str
    test: str


SVRG = "tests/laws/test_sgmcmc.py::test_the_anchor_of_svrg_is_where_the_epoch_began_and_that_of_a_control_variate_stays"
NOISE = "tests/laws/test_laplace.py::test_inferred_noise_is_as_wide_as_its_tempered_closed_form"
EDGE = "tests/metrics/test_classes.py::test_ece_puts_an_edge_into_the_bin_below"
FILLED = "tests/data/test_batches.py::test_an_epochs_last_batch_is_filled_up_with_its_first_rows"
SAMPLER, LINEARISED = "src/posteria/methods/stochastic/sampler.py", "src/posteria/posteriors/linearised.py"
CLASSES, BATCHES = "src/posteria/metrics/classes.py", "src/posteria/data/batches.py"
OWN = "flat.at[: len(self.own)].set((self.own**2).sum(1))"
DENSE = "dense.at[: len(self.own), : len(self.own)].set(self.own @ self.own.T)"
UNTEMPERED = "flat.at[: len(own)].set(own / jnp.sqrt(self.temperature))"
FILL = "jnp.where(offsets < left, start + offsets, offsets - left)"

NAMED = (
    Named(
        "SVRG's anchor is never renewed",
        SAMPLER,
        "max(1, settings.batch_size)) == 0",
        "max(1, settings.batch_size)) == -1",
        SVRG,
    ),
    Named(
        "Laplace's own parameters not tempered: draws", LINEARISED, "flat.at[: len(own)].set(own)", UNTEMPERED, NOISE
    ),
    Named("the same: variances", LINEARISED, OWN, f"{OWN} / self.temperature", NOISE),
    Named("the same: covariance", LINEARISED, f"self.temperature * {DENSE}", DENSE, NOISE),
    Named(
        "the same: points of predictions",
        LINEARISED,
        "mean[:k] + jnp.sqrt(spread.temperature) * points",
        "mean[:k] + points",
        NOISE,
    ),
    Named("ECE's bin edges reversed", CLASSES, 'confidence, side="left")', 'confidence, side="right")', EDGE),
    Named(
        "the last batch is filled up with its own last row",
        BATCHES,
        FILL,
        "start + jnp.minimum(offsets, left - 1)",
        FILLED,
    ),
    Named(
        "the last batch is filled up from the second row on",
        BATCHES,
        FILL,
        FILL.replace("- left)", "- left + 1)"),
        FILLED,
    ),
)
