"""Beside the laws of priors (tests/laws): by path, what is understood as a prior, and settings."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteria.errors import SettingError, StoreError
from posteria.models import priors
from posteria.models.priors import ByPath, FanIn, Leaf, LogUniform, Normal, ScaleMixture, as_prior

EPS = float(np.finfo(np.float32).eps)
WEIGHT = Leaf("layers/0/kernel", (200, 100), jnp.dtype("float32"), fan_in=25)
BIAS = Leaf("layers/0/bias", (20_000,), jnp.dtype("float32"), fan_in=None)
LEAVES = [WEIGHT, BIAS, Leaf("layers/1/kernel", (100, 2), jnp.dtype("float32"), fan_in=100)]


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


def test_json_keeps_the_order_of_patterns():
    prior = ByPath({"b*": Normal(0.1), "a*": LogUniform()}, Normal())
    assert priors.from_json(json.loads(json.dumps(priors.to_json(prior), sort_keys=True))) == prior


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
