"""Laws of likelihoods for pytest: subclass `LikelihoodLaws` and set `likelihood`."""

import json
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteria.errors import DataError, NetworkError, PosteriaError
from posteria.models import likelihoods as built_in
from posteria.posteriors.predictive import Predictive
from posteria.testing import quadrature
from posteria.testing.distributions import NUM_ROWS, NUM_SAMPLES, distribution_of, outputs_of, own_of
from posteria.testing.quadrature import MASS_ERROR, MOMENT_ERROR
from posteria.testing.statistics import LEAST_P_VALUE
from posteria.tree import Params

ROUNDING = 40 * float(np.finfo(np.float32).eps)  # of a few float32 operations, relative
FISHER_ERROR = 1e-3  # of the largest entry, by quadrature


class LikelihoodLaws:
    """What every likelihood must do.

    Each law compares with something that can fail: `log_prob` is the truth, and its integral, draws, distribution
    function, moments and derivatives must agree with it; a `reference`, where one is given, is the truth of that.
    """

    likelihood: ClassVar[Any]
    num_outputs: ClassVar[int | None] = None  # of a network with one target; None: `outputs_per_target`, or 1
    own: ClassVar[Any] = None  # its own parameters; None: those that it starts with
    support: ClassVar[tuple[float, float]] = (-math.inf, math.inf)  # of y, for kind "regression"
    largest_output: ClassVar[float] = 1e15  # up to which densities and gradients are finite
    hessian: ClassVar[str] = "expected"  # what `output_hessian` is: "expected" over y, or "observed" at y

    def kinks(self, outputs: np.ndarray) -> np.ndarray | None:
        """Where the density of y has a kink or a jump inside its support, (n,); None: nowhere."""
        return None

    def reference(self, outputs: np.ndarray) -> Any:
        """The same distribution of y, (n, 1) or (n,) for labels, as a frozen one of SciPy's; None: there is none."""
        return None

    # ---- the contract

    def test_the_contract_is_met(self) -> None:
        likelihood = self.likelihood
        assert isinstance(likelihood, built_in.Likelihood)
        assert likelihood.kind in ("regression", "counts", "classes")
        assert hasattr(likelihood, "probs") == (likelihood.kind == "classes")
        assert hash(likelihood) == hash(type(likelihood)(**vars(likelihood)))
        own = likelihood.init(jax.random.key(0))
        assert jax.tree.structure(own) == jax.tree.structure(own_of(type(self)))
        assert all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(own))
        assert np.shape(likelihood.log_prior(own)) == ()
        if not jax.tree.leaves(own):
            assert float(likelihood.log_prior(own)) == 0.0

    def test_its_settings_survive_json(self) -> None:
        """A likelihood of Posteria is written down; any other is not, and is passed again."""
        stored = built_in.to_json(self.likelihood)
        if type(self.likelihood) in built_in.MEMBERS.values():
            assert built_in.from_json(json.loads(json.dumps(stored))) == self.likelihood
        else:
            assert stored is None

    # ---- one distribution, by five names

    def test_the_density_is_normalised(self) -> None:
        for measure in distribution_of(type(self)).measures:
            assert abs(measure.total - 1) < MASS_ERROR

    def test_draws_follow_the_density(self) -> None:
        found = distribution_of(type(self))
        for row, measure in enumerate(found.measures):
            assert measure.p_value(found.samples[:, row]) > LEAST_P_VALUE

    def test_the_moments_are_those_of_the_density(self) -> None:
        """Of y, or of each class's indicator. A moment that does not exist is infinite or NaN, and no other is."""
        found = distribution_of(type(self))
        mean, variance = (np.asarray(each, np.float64) for each in self.likelihood.moments(self._own, self._outputs))
        for row, measure in enumerate(found.measures):
            if self.likelihood.kind == "classes":
                chances = measure.masses if mean.shape[1] > 1 else measure.masses[1:]
                np.testing.assert_allclose(mean[row], chances, atol=MASS_ERROR)
                np.testing.assert_allclose(variance[row], chances * (1 - chances), atol=MASS_ERROR)
                continue
            assert np.isfinite(mean[row, 0]) == measure.has_moment(1)
            assert np.isfinite(variance[row, 0]) == measure.has_moment(2)
            if measure.has_moment(1):
                slack = 1.0 if not measure.has_moment(2) else math.sqrt(measure.variance())
                np.testing.assert_allclose(mean[row, 0], measure.mean(), atol=MOMENT_ERROR * slack, rtol=MOMENT_ERROR)
            if measure.has_moment(2):
                np.testing.assert_allclose(variance[row, 0], measure.variance(), rtol=MOMENT_ERROR)

    def test_the_distribution_function_or_the_class_probabilities_are_those_of_the_density(self) -> None:
        found = distribution_of(type(self))
        if self.likelihood.kind == "classes":
            for probs, measure in zip(self.likelihood.probs(self._own, self._outputs), found.measures):
                np.testing.assert_allclose(probs, measure.masses, atol=ROUNDING)
            return
        if not hasattr(self.likelihood, "cdf"):
            pytest.skip("it has no cdf, and so no quantiles")
        for row, measure in enumerate(found.measures):
            at = np.quantile(found.samples[:, row], np.linspace(0, 1, 41))
            if measure.is_discrete:  # also between and below the counts
                at = np.concatenate([[-1.0], at, at + 0.5])
            outputs = jnp.tile(self._outputs[row], (len(at), 1))
            got = jax.jit(self.likelihood.cdf)(self._own, outputs, jnp.asarray(at, jnp.float32)[:, None])
            np.testing.assert_allclose(got[:, 0], measure.cdf(at), atol=2 * MASS_ERROR)

    def test_quantiles_invert_the_distribution_function(self) -> None:
        """Of the prediction by one draw of the network; of counts, the least whose cdf reaches the level."""
        if not hasattr(self.likelihood, "cdf"):
            pytest.skip("it has no cdf, and so no quantiles")
        predictive, levels = self._predictive(), (0.1, 0.5, 0.95)
        for level, at in zip(levels, predictive.quantile(levels)):
            reached = predictive.cdf(at)
            if self.likelihood.kind == "regression":
                np.testing.assert_allclose(reached, level, atol=1e-3)
            else:
                below = self.likelihood.cdf(self._own, self._outputs, at - 1)
                assert (reached >= level - 1e-5).all() and (np.asarray(below) < level + 1e-5).all()
            if hasattr(self.likelihood, "quantile"):  # the same in closed form
                closed: Any = self.likelihood.quantile(self._own, self._outputs, level)
                np.testing.assert_allclose(closed, at, rtol=1e-3, atol=1e-3)

    def test_it_is_its_reference(self) -> None:
        outputs = np.asarray(self._outputs, np.float64)
        truth = self.reference(outputs)
        if truth is None:
            pytest.skip("no reference was given")
        y = np.asarray(self._y, np.float64)
        exact = truth.logpdf(y) if self.likelihood.kind == "regression" else truth.logpmf(y)
        got = self.likelihood.log_prob(self._own, self._outputs, self._y)
        np.testing.assert_allclose(got, np.reshape(exact, -1), rtol=ROUNDING, atol=ROUNDING)
        if self.likelihood.kind != "classes":
            mean, variance = self.likelihood.moments(self._own, self._outputs)
            np.testing.assert_allclose(mean, truth.mean(), rtol=ROUNDING)
            np.testing.assert_allclose(variance, truth.var(), rtol=ROUNDING)
            if hasattr(self.likelihood, "cdf"):
                got = self.likelihood.cdf(self._own, self._outputs, y)
                np.testing.assert_allclose(got, truth.cdf(y), atol=ROUNDING)

    # ---- what some methods need

    def test_what_a_row_contributes_is_a_term_a_row(self) -> None:
        """`log_factor`, where there is one: finite, and no row knows of another."""
        if not hasattr(self.likelihood, "log_factor"):
            pytest.skip("a row contributes its log_prob")
        terms = self.likelihood.log_factor(self._own, self._outputs, self._y)
        assert terms.shape == (NUM_ROWS,) and np.isfinite(terms).all()
        alone = [self._factor_of_row(outputs, y) for outputs, y in zip(self._outputs, self._y)]
        np.testing.assert_allclose(terms, alone, rtol=ROUNDING, atol=ROUNDING)
        assert not np.allclose(terms, self.likelihood.log_prob(self._own, self._outputs, self._y), atol=1e-3)

    def test_the_output_hessian_is_that_of_the_density(self) -> None:
        """The expected one is the mean of score score^T over y, which a kink does not disturb (Fisher 1925)."""
        if not hasattr(self.likelihood, "output_hessian"):
            pytest.skip("it has no output_hessian: Laplace will ask for the empirical curvature")
        found, outputs, y = distribution_of(type(self)), self._outputs, self._y
        claimed = np.asarray(self.likelihood.output_hessian(self._own, outputs, y))
        assert claimed.shape == (NUM_ROWS, outputs.shape[1], outputs.shape[1])
        for row, measure in enumerate(found.measures):
            if self.hessian == "observed":
                wanted = -np.asarray(jax.hessian(self._factor_of_row)(outputs[row], y[row]), np.float64)
            else:
                scores = np.asarray(found.scores[row], np.float64)
                wanted = np.einsum("p,pi,pj->ij", measure.masses / measure.total, scores, scores)
            np.testing.assert_allclose(claimed[row], wanted, atol=FISHER_ERROR * np.abs(wanted).max())
            assert np.linalg.eigvalsh(claimed[row]).min() > -1e-5 * np.abs(claimed[row]).max()

    def test_the_moment_update_is_the_integral_over_gaussian_outputs(self) -> None:
        """log of the integral of p(y | f)^power N(f; mean, variance), by quadrature of `log_prob`."""
        if not hasattr(self.likelihood, "moment_update"):
            pytest.skip("it has no moment_update: expectation propagation will refuse it")
        if jax.tree.leaves(self._own):
            pytest.skip("its own parameters enter: expectation propagation's laws hold it to account")
        y, variance = self._y, jnp.asarray([[0.3], [1.0], [2.5]])
        z, step = np.linspace(-9, 9, 2001), 18 / 2000
        outputs = self._outputs + jnp.sqrt(variance) * jnp.asarray(z, jnp.float32)[:, None, None]  # (z, row, 1)
        log_probs = jax.jit(jax.vmap(lambda outputs: self.likelihood.log_prob(self._own, outputs, y)))(outputs)
        for power in (1.0, 0.5):
            update = jax.jit(lambda mean, power=power: self.likelihood.moment_update(None, mean, variance, y, power)[0])
            terms = power * np.asarray(log_probs, np.float64) - 0.5 * z[:, None] ** 2 - 0.5 * math.log(2 * math.pi)
            wanted = np.log(np.exp(terms).sum(0) * step)
            np.testing.assert_allclose(update(self._outputs), wanted, rtol=MASS_ERROR, atol=MASS_ERROR)

    def test_the_prior_of_its_own_parameter_is_normalised_and_drawn_from(self) -> None:
        own = self.likelihood.init(jax.random.key(0))
        if sum(leaf.size for leaf in jax.tree.leaves(own)) != 1 or not hasattr(self.likelihood, "sample_own"):
            pytest.skip("there is not one such number with draws")
        structure = jax.tree.structure(own)
        shape = jax.tree.leaves(own)[0].shape

        def log_prior(value: jax.Array) -> jax.Array:
            return self.likelihood.log_prior(structure.unflatten([value.reshape(shape)]))

        keys = jax.random.split(jax.random.key(4), NUM_SAMPLES)
        draws = np.asarray(jax.tree.leaves(jax.jit(jax.vmap(self.likelihood.sample_own))(keys))[0]).ravel()
        measure = quadrature.of_density(jax.jit(jax.vmap(log_prior)), draws)
        assert abs(measure.total - 1) < MASS_ERROR
        assert measure.p_value(draws) > LEAST_P_VALUE

    # ---- arrays

    def test_several_targets_are_summed(self) -> None:
        """And independent given the outputs, which come as all targets' first outputs, then all second ones."""
        if self.likelihood.kind == "classes":
            pytest.skip("a class is one target")
        first, second = self._outputs, self._outputs[::-1] + 0.5
        y = self._y, self._y[::-1]
        both = jnp.stack([first, second], axis=-1).reshape(NUM_ROWS, -1)
        got = self.likelihood.log_prob(self._own, both, jnp.concatenate(y, axis=1))
        apart = sum(self.likelihood.log_prob(self._own, outputs, each) for outputs, each in zip((first, second), y))
        np.testing.assert_allclose(got, apart, rtol=ROUNDING, atol=ROUNDING)
        drawn = self.likelihood.sample(jax.random.key(0), self._own, both)
        assert drawn.shape == (NUM_ROWS, 2)
        assert (np.asarray(drawn[:, 0] - drawn[:, 1]) != 0).any()
        assert all(each.shape == (NUM_ROWS, 2) for each in self.likelihood.moments(self._own, both))

    def test_a_row_knows_of_no_other_and_vmap_over_draws_is_a_loop(self) -> None:
        y = self._y
        outputs = jnp.stack([self._outputs, self._outputs[::-1], 2 * self._outputs])  # (draw, batch, output)
        owns = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.5, leaf - 0.5]), self._own)

        def statistics(own: Params, outputs: jax.Array, y: jax.Array) -> list[jax.Array]:
            found = [self.likelihood.log_prob(own, outputs, y), *self.likelihood.moments(own, outputs)]
            names = ("output_hessian", "probs")
            return found + [
                getattr(self.likelihood, name)(own, outputs) for name in names if hasattr(self.likelihood, name)
            ]

        mapped = jax.jit(jax.vmap(statistics, in_axes=(0, 0, None)))(owns, outputs, y)
        one_row = jax.jit(statistics)
        for draw in range(3):
            own = jax.tree.map(lambda leaf, draw=draw: leaf[draw], owns)
            for row in range(NUM_ROWS):
                alone = one_row(own, outputs[draw, row : row + 1], y[row : row + 1])
                for together, single in zip(mapped, alone):
                    np.testing.assert_allclose(together[draw, row], single[0], rtol=ROUNDING, atol=ROUNDING)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_sixteen_bits_are_summed_in_thirty_two(self, dtype: str) -> None:
        y = self._y
        narrow_y = y if self.likelihood.kind == "classes" else y.astype(dtype)
        wide_y = y if self.likelihood.kind == "classes" else narrow_y.astype(jnp.float32)
        outputs = self._outputs.astype(dtype)
        got = self.likelihood.log_prob(self._own, outputs, narrow_y)
        wanted = self.likelihood.log_prob(self._own, outputs.astype(jnp.float32), wide_y)
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, wanted, rtol=ROUNDING, atol=ROUNDING)
        slope = jax.grad(lambda outputs: self.likelihood.log_prob(self._own, outputs, narrow_y).sum())(outputs)
        assert slope.dtype == outputs.dtype
        assert np.isfinite(np.asarray(slope, np.float32)).all()

    def test_extreme_outputs_have_finite_densities_and_gradients(self) -> None:
        sizes = [min(size, self.largest_output) for size in (80.0, 1e4, 1e15)]
        outputs = jnp.asarray(sizes)[:, None] * jnp.where(self._outputs > 0, 1.0, -1.0)
        y = jnp.zeros(NUM_ROWS, jnp.int32) if self.likelihood.kind == "classes" else self._inside()

        @jax.jit
        def extremes(outputs: jax.Array) -> list[jax.Array]:
            value, slope = jax.value_and_grad(lambda outputs: self.likelihood.log_prob(self._own, outputs, y).sum())(
                outputs
            )
            hessians = (
                [self.likelihood.output_hessian(self._own, outputs)]
                if hasattr(self.likelihood, "output_hessian")
                else []
            )
            return [value, slope, *hessians]

        for sign in (1.0, -1.0):
            assert all(np.isfinite(each).all() for each in extremes(sign * outputs))
            if hasattr(self.likelihood, "cdf"):
                cdf = np.asarray(self.likelihood.cdf(self._own, sign * outputs, y))
                assert ((cdf >= 0) & (cdf <= 1)).all()

    # ---- y on its way in

    def test_what_is_drawn_is_what_is_taken(self) -> None:
        """A draw has y's shape, `check` takes it, and leaves its values."""
        drawn = self.likelihood.sample(jax.random.key(5), self._own, self._outputs)
        checked = self.likelihood.check(np.asarray(drawn), self._outputs.shape[1])
        np.testing.assert_array_equal(checked, drawn)
        assert checked.shape == ((NUM_ROWS,) if self.likelihood.kind == "classes" else (NUM_ROWS, 1))
        flat = self.likelihood.check(np.asarray(drawn).reshape(-1), self._outputs.shape[1])
        np.testing.assert_array_equal(flat, checked)

    def test_bad_y_is_refused_by_name(self) -> None:
        good = np.asarray(self.likelihood.sample(jax.random.key(5), self._own, self._outputs)).reshape(-1).tolist()
        bad: dict[str, Any] = {
            "nan": [*good[:-1], math.nan],
            "infinite": [*good[:-1], math.inf],
            "missing": [*good[:-1], None],
            "strings": ["a", "b", "c"],
            "empty": [],
            "a single value": good[0],
            "three axes": np.zeros((NUM_ROWS, 1, 2)),
        }
        if self.likelihood.kind != "regression":
            bad |= {"fractions": [*good[:-1], 0.5], "negative": [*good[:-1], -1]}
        for name, y in bad.items():
            with pytest.raises(DataError) as caught:
                self.likelihood.check(y, self._outputs.shape[1])
            assert caught.value.wanted and caught.value.fix, name

    def test_a_network_whose_outputs_do_not_fit_is_refused(self) -> None:
        good = np.asarray(self.likelihood.sample(jax.random.key(5), self._own, self._outputs))
        misfit = self._outputs.shape[1] + 1 if self.likelihood.kind != "classes" or self._outputs.shape[1] == 1 else 1
        with pytest.raises((NetworkError, DataError)):
            self.likelihood.check(good, misfit)

    def test_nothing_broadcasts_silently(self) -> None:
        y = np.zeros((NUM_ROWS, 1), np.int32) if self.likelihood.kind == "classes" else np.zeros(NUM_ROWS, np.float32)
        with pytest.raises(PosteriaError):
            self.likelihood.log_prob(self._own, self._outputs, y)

    # ---- small things

    @property
    def _own(self) -> Params:
        return own_of(type(self))

    @property
    def _outputs(self) -> jax.Array:
        return outputs_of(type(self))

    def _factor_of_row(self, outputs: jax.Array, y: jax.Array) -> jax.Array:
        return built_in.factor_of(self.likelihood, self._own, outputs[None], y[None])[0]

    @property
    def _y(self) -> jax.Array:
        """A draw of y for each row."""
        values = distribution_of(type(self)).samples[0]
        is_class = self.likelihood.kind == "classes"
        return jnp.asarray(values, jnp.int32) if is_class else jnp.asarray(values, jnp.float32)[:, None]

    def _inside(self) -> jax.Array:
        """Some y in the support, near 0."""
        low, high = self.support
        return jnp.full((NUM_ROWS, 1), float(np.clip(0.0, low + 0.5, high - 0.5)))

    def _predictive(self) -> Predictive:
        lead = jax.tree.map(lambda leaf: leaf[None], self._own)
        outputs = np.asarray(self._outputs)
        return Predictive(self.likelihood, lambda x: (jnp.asarray(x)[None], lead), outputs, 1, outputs.shape[1])
