import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from posteria.errors import SettingError, StoreError
from posteria.models import priors
from posteria.models.priors import ByPath, FanIn, Leaf, LogUniform, Normal, ScaleMixture, as_prior

EPS = float(np.finfo(np.float32).eps)
WEIGHT = Leaf("layers/0/kernel", (200, 100), jnp.dtype("float32"), fan_in=25)
BIAS = Leaf("layers/0/bias", (20_000,), jnp.dtype("float32"), fan_in=None)
LEAVES = [WEIGHT, BIAS, Leaf("layers/1/kernel", (100, 2), jnp.dtype("float32"), fan_in=100)]


class Mixture:
    """SciPy's two Normals."""

    def __init__(self, wide, narrow, weight):
        self.parts = [(weight, stats.norm(scale=wide)), (1 - weight, stats.norm(scale=narrow))]

    def pdf(self, w):
        return sum(weight * part.pdf(w) for weight, part in self.parts)

    def cdf(self, w):
        return sum(weight * part.cdf(w) for weight, part in self.parts)

    def std(self):
        return math.sqrt(sum(weight * part.var() for weight, part in self.parts))


# (prior, leaf, the same distribution by SciPy)
CASES = {
    "normal": (Normal(std=0.3), WEIGHT, stats.norm(scale=0.3)),
    "fan-in, weight": (FanIn(scale=2.0, bias_std=0.7), WEIGHT, stats.norm(scale=2.0 / 5)),
    "fan-in, bias": (FanIn(scale=2.0, bias_std=0.7), BIAS, stats.norm(scale=0.7)),
    "laplace": (priors.Laplace(scale=0.3), WEIGHT, stats.laplace(scale=0.3)),
    "student-t": (priors.StudentT(df=3.0, scale=0.3), WEIGHT, stats.t(3.0, scale=0.3)),
    "cauchy": (priors.StudentT(df=1.0, scale=0.3), WEIGHT, stats.t(1.0, scale=0.3)),
    "logistic": (priors.Logistic(scale=0.3), WEIGHT, stats.logistic(scale=0.3)),
    "mixture": (ScaleMixture(std_wide=0.8, std_narrow=0.05, weight=0.3), WEIGHT, Mixture(0.8, 0.05, 0.3)),
    "by path": (ByPath({"*/kernel": Normal(0.3)}), WEIGHT, stats.norm(scale=0.3)),
}
every = pytest.mark.parametrize("prior, leaf, truth", CASES.values(), ids=CASES.keys())


@every
def test_log_prob_is_that_of_scipy_summed_over_entries(prior, leaf, truth):
    value = np.array([[0.0, 1e-3, -0.1], [0.5, -2.0, 3.0]], np.float32)
    entries = np.log(truth.pdf(value.astype(np.float64)))
    got = prior.log_prob(value, leaf)
    assert got.shape == ()
    assert got == pytest.approx(entries.sum(), abs=20 * EPS * np.abs(entries).sum())


@every
def test_density_is_normalised(prior, leaf, truth):
    w = np.sinh(np.linspace(-20, 20, 40_001))  # to 2e8, fine at 0: even the Cauchy keeps 1e-9 outside
    density = jnp.exp(jax.jit(jax.vmap(lambda w: prior.log_prob(w, leaf)))(jnp.asarray(w, jnp.float32)))
    assert np.trapezoid(np.asarray(density, np.float64), w) == pytest.approx(1, abs=1e-5)


@every
def test_draws_follow_the_distribution(prior, leaf, truth):
    draws = prior.sample(jax.random.key(0), leaf)
    assert draws.shape == leaf.shape and draws.dtype == leaf.dtype
    assert stats.kstest(np.asarray(draws, np.float64).ravel(), truth.cdf).pvalue > 1e-4


@every
def test_the_unit_is_the_standard_deviation_where_there_is_one(prior, leaf, truth):
    std = truth.std() if prior != CASES["cauchy"][0] else 0.3
    assert prior.unit(leaf) == pytest.approx(std)


@pytest.mark.parametrize("prior", [*(case[0] for case in CASES.values()), LogUniform()])
def test_density_and_gradient_are_finite_at_zero_and_far_out(prior):
    value = jnp.array([0.0, -0.0, 1e-30, 1e-38, 1.0, -50.0, 1e15])
    log_prob, gradient = jax.jit(jax.value_and_grad(lambda w: prior.log_prob(w, WEIGHT)))(value)
    assert np.isfinite(log_prob) and np.isfinite(gradient).all()
    assert gradient[0] == gradient[1] == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_leaves_are_summed_in_thirty_two(dtype):
    leaf = WEIGHT._replace(dtype=jnp.dtype(dtype))
    draw = FanIn().sample(jax.random.key(0), leaf)
    assert draw.dtype == leaf.dtype
    log_prob = FanIn().log_prob(draw, leaf)
    assert log_prob.dtype == jnp.float32
    assert log_prob == FanIn().log_prob(draw.astype(jnp.float32), WEIGHT)
    assert jax.grad(lambda w: FanIn().log_prob(w, leaf))(draw).dtype == leaf.dtype


def test_fan_in_keeps_the_size_of_a_layers_sums():
    leaf = Leaf("kernel", (400, 1000), jnp.dtype("float32"), fan_in=400)
    inputs = jax.random.normal(jax.random.key(1), (400,))
    sums = inputs @ FanIn().sample(jax.random.key(2), leaf)
    wanted = float(jnp.linalg.norm(inputs)) / 20
    assert abs(float(jnp.std(sums)) - wanted) < 4 * wanted / math.sqrt(2 * 1000)


def test_blundells_mixture_by_default():
    assert ScaleMixture().std_narrow == pytest.approx(math.exp(-6)) and ScaleMixture().std_wide == 1.0


def test_log_uniform_is_scale_free_and_improper():
    value = jnp.array([0.1, -2.0, 30.0])
    assert not LogUniform().is_proper
    assert LogUniform().log_prob(value, BIAS) == pytest.approx(-math.log(6.0), rel=4 * EPS)
    # rescaling w changes the density by the Jacobian alone: that of log|w| is flat
    change = LogUniform().log_prob(7 * value, BIAS) - LogUniform().log_prob(value, BIAS)
    assert change == pytest.approx(-3 * math.log(7), rel=10 * EPS)
    assert LogUniform().unit(BIAS) == 1.0
    with pytest.raises(SettingError, match="proper"):
        LogUniform().sample(jax.random.key(0), BIAS)


# ---- by path


def test_the_first_matching_pattern_decides():
    prior = ByPath({"layers/1/*": Normal(0.1), "*/kernel": priors.Laplace()}, default=Normal(3.0))
    assert [prior.prior_of(leaf) for leaf in LEAVES] == [priors.Laplace(), Normal(3.0), Normal(0.1)]
    prior.check(LEAVES)
    assert prior.is_proper and not ByPath({"*/kernel": LogUniform()}).is_proper
    assert hash(prior) == hash(ByPath(prior.priors, prior.default))


def test_by_path_is_the_prior_it_points_to():
    prior = ByPath({"*/bias": Normal(0.1)})
    key = jax.random.key(0)
    for leaf, inner in ((BIAS, Normal(0.1)), (WEIGHT, FanIn())):
        draw = prior.sample(key, leaf)
        np.testing.assert_array_equal(draw, inner.sample(key, leaf))
        assert prior.log_prob(draw, leaf) == inner.log_prob(draw, leaf)
        assert prior.unit(leaf) == inner.unit(leaf)


def test_a_pattern_that_decides_nothing_is_refused():
    with pytest.raises(SettingError, match=r"'layer/\*' matches no leaf;.*layers/0/kernel"):
        ByPath({"layer/*": Normal()}).check(LEAVES)
    with pytest.raises(SettingError, match="left to it"):
        ByPath({"*": Normal(), "layers/1/*": Normal(0.1)}).check(LEAVES)
    with pytest.raises(SettingError, match="one level"):
        ByPath({"*": {"*": Normal()}})


def test_what_is_understood_as_a_prior():
    assert as_prior({"*/bias": Normal(0.1)}) == ByPath({"*/bias": Normal(0.1)})
    assert as_prior(FanIn()) == FanIn()
    for bad in (Normal, 1.0, "normal", None):
        with pytest.raises(SettingError, match="prior"):
            as_prior(bad)


class Uniform:
    """A user's own, on (-1, 1)."""

    is_proper = True

    def log_prob(self, value, leaf):
        return jnp.where(jnp.abs(value) < 1, -math.log(2), -jnp.inf).sum()

    def sample(self, key, leaf):
        return jax.random.uniform(key, leaf.shape, leaf.dtype, -1, 1)

    def unit(self, leaf):
        return 1 / math.sqrt(3)


def test_a_class_of_the_users_own_meets_the_contract_and_is_not_written_down():
    assert as_prior(Uniform()).is_proper
    assert priors.to_json(Uniform()) is None
    assert priors.to_json(ByPath({"*/bias": Uniform()})) is None
    assert priors.to_json(ByPath({"*/bias": Normal()}, default=Uniform())) is None


# ---- settings


@pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf, True, "1", None])
def test_settings_out_of_range_are_refused(bad):
    for cls in (Normal, FanIn, priors.Laplace, priors.StudentT, priors.Logistic, ScaleMixture):
        for name in cls.__dataclass_fields__:
            if name != "is_proper":
                with pytest.raises(SettingError, match="finite number"):
                    cls(**{name: bad})


def test_a_mixture_is_a_mixture():
    with pytest.raises(SettingError, match="between 0 and 1"):
        ScaleMixture(weight=1.0)
    with pytest.raises(SettingError, match="swap"):
        ScaleMixture(std_wide=0.1, std_narrow=1.0)


@pytest.mark.parametrize(
    "prior",
    [*(case[0] for case in CASES.values()), LogUniform(), ByPath({"b*": Normal(0.1), "a*": LogUniform()}, Normal())],
)
def test_json_round_trip(prior):
    stored = priors.to_json(prior)
    assert set(stored) == {"name", "settings"}
    assert priors.from_json(json.loads(json.dumps(stored, sort_keys=True))) == prior


@pytest.mark.parametrize(
    "stored",
    [
        {},
        None,
        {"name": "Cauchy", "settings": {}},
        {"name": "Normal", "settings": {"std": -1}},
        {"name": "ByPath", "settings": {}},
        {"name": "ByPath", "settings": {"priors": ["a"], "default": {}}},
    ],
)
def test_damaged_json_is_refused(stored):
    with pytest.raises(StoreError):
        priors.from_json(stored)
