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
CLASSES, BATCHES = "src/posteria/metrics/scores.py", "src/posteria/data/batches.py"
OWN = "flat.at[: len(self.own)].set((self.own**2).sum(1))"
DENSE = "dense.at[: len(self.own), : len(self.own)].set(self.own @ self.own.T)"
UNTEMPERED = "flat.at[: len(own)].set(own / jnp.sqrt(self.temperature))"
FILL = "jnp.where(offsets < left, start + offsets, offsets - left)"

PREPARED = "tests/posteriors/test_thin_and_export.py::test_an_export_of_a_calibrated_table_prepares_rows_as_the_fit_did"
SOURCE = "tests/data/test_sources.py::test_a_fit_of_a_source_is_the_fit_of_its_rows"
ONE_OUTPUT = (
    "tests/laws/test_infinite_width.py::test_two_classes_by_one_output_are_as_probable_as_it_is_above_0_with_its_noise"
)
HALF = "tests/laws/test_infinite_width.py::test_one_output_of_two_classes_is_half_the_difference_of_two"
WIDER = "tests/test_estimators.py::test_the_default_prior_is_wider_for_classes_and_where_rows_are_many"
TRAINED = "tests/models/test_target.py::test_a_trained_network_has_one_start_of_its_own_and_others_from_the_prior"
WEIGHTED = "tests/methods/test_sgmcmc.py::test_to_a_suggested_step_weights_of_3_are_a_temperature_of_a_third"
LAST = "tests/posteriors/test_linearised.py::test_after_training_the_noise_is_the_evidences_for_the_weights_that_vary"
SRC = "src/posteria"

FIRST = (
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

# of the sample of docs/results/mutants.txt: what survived its nearest tests
SAMPLED = (
    Named("many rows, from the next on", f"{SRC}/models/model.py", "num_rows >= MANY", "num_rows > MANY", WIDER),
    Named(
        "labels of one output",
        f"{SRC}/methods/functions/infinite_width.py",
        "y[:, None] - 0.5",
        "y[:, None] - 1.0",
        HALF,
    ),
    Named("one output as many", f"{SRC}/posteriors/process.py", "if outputs.shape[-1] == 1:", "if False:", ONE_OUTPUT),
    Named(
        "the variance of Student's t",
        f"{SRC}/models/error_size.py",
        "(self.df - 2)",
        "(self.df + 2)",
        "tests/laws/test_likelihoods.py::TestErrorSize",
    ),
    Named(
        "groups that are none",
        f"{SRC}/metrics/scores.py",
        "groups.ndim != 2 or not np",
        "groups.ndim != 2 and not np",
        "tests/metrics/test_joint.py::test_what_cannot_be_scored_is_refused",
    ),
    Named("the noise of weighted rows", SAMPLER, "(weight**2).sum()", "(weight * 2).sum()", WEIGHTED),
    Named(
        "a spline that ends beyond its reach",
        f"{SRC}/posteriors/flow.py",
        "(1 - LEAST_BIN * BINS)",
        "(1 + LEAST_BIN * BINS)",
        "tests/laws/test_flows.py::test_a_spline_is_monotone_and_has_its_slope",
    ),
    Named("two starts of a trained network", f"{SRC}/models/target.py", "if num > 1 and", "if num > 2 and", TRAINED),
    Named(
        "a source is not taken for one",
        f"{SRC}/models/target.py",
        "if source is not None:\n            self.num_data",
        "if False:\n            self.num_data",
        SOURCE,
    ),
    Named(
        "drift since the beginning",
        f"{SRC}/methods/dropout/noisy_ascent.py",
        "COSINE_MARK) * num_steps",
        "COSINE_MARK) / num_steps",
        "tests/laws/test_modes.py::test_dropout_that_is_done_has_no_drift",
    ),
    Named(
        "the noise as if all weights varied",
        f"{SRC}/methods/points/tuning.py",
        "precision, own, paths=settings.paths)",
        "precision, own)",
        LAST,
    ),
    Named(
        "what an export takes is timed with its arguments swapped",
        f"{SRC}/posteriors/exported/predict.py",
        "_call(x, level))\n        times",
        "_call(level, x))\n        times",
        PREPARED,
    ),
)
NAMED = (*FIRST, *SAMPLED)
