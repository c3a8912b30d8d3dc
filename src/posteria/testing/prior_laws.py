"""Laws of priors for pytest: subclass `PriorLaws` and set `prior`."""

import json
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteria.compiled import kept
from posteria.errors import PosteriaError
from posteria.models import priors as built_in
from posteria.models.priors import Leaf
from posteria.testing import quadrature
from posteria.testing.quadrature import MASS_ERROR, MOMENT_ERROR, Measure
from posteria.testing.statistics import LEAST_P_VALUE

NUM_SAMPLES = 5000
ROUNDING = 40 * float(np.finfo(np.float32).eps)
FLOAT32 = jnp.dtype("float32")
EXTREMES = (0.0, -0.0, 1e-30, 1e-38, 1.0, -50.0, 1e15)


class PriorLaws:
    """What every prior must do, at a kernel and at a bias.

    Each law compares with something that can fail: `log_prob` is the truth, and its integral, draws, unit and
    derivatives must agree with it; a `reference`, where one is given, is the truth of that.
    """

    prior: ClassVar[Any]
    leaves: ClassVar[tuple[Leaf, ...]] = (
        Leaf("layers/0/kernel", (5, 4), FLOAT32, fan_in=5),
        Leaf("layers/0/bias", (4,), FLOAT32, fan_in=None),
    )

    support: ClassVar[tuple[float, float]] = (-math.inf, math.inf)  # of an entry

    def reference(self, leaf: Leaf) -> Any:
        """The distribution of one entry of the leaf, as one of SciPy's; None: there is none."""
        return None

    # ---- the contract

    def test_the_contract_is_met(self) -> None:
        assert isinstance(self.prior, built_in.Prior)
        assert isinstance(self.prior.is_proper, bool)
        assert hash(self.prior) == hash(self.prior)
        if hasattr(self.prior, "check"):
            self.prior.check(self.leaves)

    def test_its_settings_survive_json(self) -> None:
        """A prior of Posteria is written down; any other is not, and is passed again."""
        stored = built_in.to_json(self.prior)
        if type(self.prior) in (*built_in.MEMBERS.values(), built_in.ByPath, built_in.InputScales):
            assert built_in.from_json(json.loads(json.dumps(stored, sort_keys=True))) == self.prior
        else:
            assert stored is None

    # ---- one distribution, by four names

    def test_the_density_is_normalised_or_owns_up_to_being_improper(self) -> None:
        for leaf in self.leaves:
            measure = _measure(type(self), leaf)
            if self.prior.is_proper:
                assert abs(measure.total - 1) < MASS_ERROR
            else:
                assert not measure.has_moment(0)

    def test_entries_are_summed(self) -> None:
        """Each leaf's density is the sum of its entries', which are independent and alike."""
        for leaf in self.leaves:
            value = self._inside(jax.random.normal(jax.random.key(0), leaf.shape))
            got = self.prior.log_prob(value, leaf)
            assert got.shape == ()
            alone = [self.prior.log_prob(entry[None], _single(leaf)) for entry in value.ravel()]
            np.testing.assert_allclose(got, sum(map(float, alone)), rtol=ROUNDING)

    def test_draws_follow_the_density(self) -> None:
        for leaf in self.leaves:
            if not self.prior.is_proper:
                with pytest.raises(PosteriaError):
                    self.prior.sample(jax.random.key(0), leaf)
                continue
            draws = _draws(type(self), leaf)  # (draw, *leaf.shape)
            assert draws.shape == (NUM_SAMPLES, *leaf.shape)
            measure, entries = _measure(type(self), leaf), draws.reshape(NUM_SAMPLES, -1)
            for entry in (0, -1):
                assert measure.p_value(entries[:, entry]) > LEAST_P_VALUE
            # ranks have a correlation whatever the tails, of standard deviation 1 / sqrt(draws)
            if entries.shape[1] > 1:
                ranks = entries[:, [0, -1]].argsort(0).argsort(0)
                assert abs(np.asarray(np.corrcoef(ranks.T))[0, 1]) < 4 / math.sqrt(NUM_SAMPLES)

    def test_the_unit_is_the_standard_deviation_where_there_is_one(self) -> None:
        for leaf in self.leaves:
            unit = self.prior.unit(leaf)
            assert isinstance(unit, float) and 0.0 < unit < math.inf
            measure = _measure(type(self), leaf)
            if self.prior.is_proper and measure.has_moment(2):
                np.testing.assert_allclose(unit, math.sqrt(measure.variance()), rtol=MOMENT_ERROR)

    def test_where_it_says_that_it_is_normal_it_is(self) -> None:
        if all(built_in.normal_of(self.prior, leaf) is None for leaf in self.leaves):
            pytest.skip("it is not Normal, or does not say so: expectations will be sampled")
        for leaf in self.leaves:
            if (normal := built_in.normal_of(self.prior, leaf)) is None:
                continue
            mean, std = normal
            value = jax.random.normal(jax.random.key(2), leaf.shape)
            z = (np.asarray(value, np.float64) - mean) / std
            wanted = (-0.5 * z**2 - np.log(std) - 0.5 * math.log(2 * math.pi)) * np.ones(leaf.shape)
            np.testing.assert_allclose(self.prior.log_prob(value, leaf), wanted.sum(), rtol=ROUNDING)

    def test_it_is_its_reference(self) -> None:
        if self.reference(self.leaves[0]) is None:
            pytest.skip("no reference was given")
        for leaf in self.leaves:
            value = np.resize([0.0, 1e-3, -0.1, 0.5, -2.0, 3.0], leaf.shape).astype(np.float32)
            exact = self.reference(leaf).logpdf(value.astype(np.float64))
            got = float(self.prior.log_prob(value, leaf))
            assert abs(got - exact.sum()) < ROUNDING * (1 + np.abs(exact).sum())

    # ---- arrays

    def test_density_and_gradient_are_finite_at_zero_and_far_out(self) -> None:
        for leaf in self.leaves:
            value = self._inside(jnp.resize(jnp.asarray(EXTREMES), leaf.shape))
            log_prob, slope = jax.jit(jax.value_and_grad(lambda value, leaf=leaf: self.prior.log_prob(value, leaf)))(
                value
            )
            assert np.isfinite(log_prob) and np.isfinite(slope).all()

    def test_the_slope_at_the_middle_of_a_symmetric_density_is_zero(self) -> None:
        """A kink or a pole there must not push to one side."""
        for leaf in self.leaves:
            single = _single(leaf)
            value = jnp.asarray([0.3])
            if not np.allclose(self.prior.log_prob(value, single), self.prior.log_prob(-value, single), rtol=ROUNDING):
                pytest.skip("it is not symmetric about 0")
            for zero in (0.0, -0.0):
                assert float(jax.grad(self.prior.log_prob)(jnp.asarray([zero]), single)[0]) == 0.0

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_sixteen_bit_leaves_are_summed_in_thirty_two(self, dtype: str) -> None:
        for leaf in self.leaves:
            narrow = leaf._replace(dtype=jnp.dtype(dtype))
            value = self._inside(jax.random.normal(jax.random.key(0), leaf.shape)).astype(dtype)
            log_prob = self.prior.log_prob(value, narrow)
            assert log_prob.dtype == jnp.float32
            np.testing.assert_array_equal(log_prob, self.prior.log_prob(value.astype(jnp.float32), leaf))
            assert jax.grad(lambda value, leaf=narrow: self.prior.log_prob(value, leaf))(value).dtype == narrow.dtype
            if self.prior.is_proper:
                drawn = self.prior.sample(jax.random.key(0), narrow)
                assert (drawn.shape, drawn.dtype) == (narrow.shape, narrow.dtype)
                assert self.prior.sample(jax.random.key(0), leaf).dtype == leaf.dtype

    def test_vmap_over_draws_is_a_loop(self) -> None:
        for leaf in self.leaves:
            values = self._inside(jax.random.normal(jax.random.key(1), (3, *leaf.shape)))
            mapped = jax.jit(jax.vmap(lambda value, leaf=leaf: self.prior.log_prob(value, leaf)))(values)
            np.testing.assert_allclose(mapped, [self.prior.log_prob(value, leaf) for value in values], rtol=ROUNDING)

    def _inside(self, values: jax.Array) -> jax.Array:
        """Moved into the support, and off its ends."""
        low, high = self.support
        return jnp.clip(values, low + 0.1, high - 0.1)


def _single(leaf: Leaf) -> Leaf:
    """The same leaf with one entry."""
    return leaf._replace(shape=(1,))


@kept
def _draws(laws: type[PriorLaws], leaf: Leaf) -> np.ndarray:
    keys = jax.random.split(jax.random.key(3), NUM_SAMPLES)
    return np.asarray(jax.jit(jax.vmap(lambda key: laws.prior.sample(key, leaf)))(keys), np.float64)


@kept
def _measure(laws: type[PriorLaws], leaf: Leaf) -> Measure:
    """Of one entry; what a prior has of kinks and poles, it has at 0."""
    draws = _draws(laws, leaf) if laws.prior.is_proper else np.array([-1.0, 0.0, 1.0])
    single = _single(leaf)
    log_density = jax.jit(jax.vmap(lambda entry: laws.prior.log_prob(entry[None], single)))
    return quadrature.of_density(log_density, draws, laws.support, middle=0.0)
