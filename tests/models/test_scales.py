"""Scales that a prior infers: one density in two coordinates, and what is learnt of which leaf."""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria import tree
from posteria.errors import SettingError
from posteria.models import priors
from posteria.models.coordinates import coordinates
from posteria.models.priors import ByPath, FanIn, InputScales, Leaf, Normal
from posteria.trace.first import input_axes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = RNG.normal(size=12).astype(np.float32)
KERNEL, BIAS = "layers/0/kernel", "layers/0/bias"
LEARNT = {
    "fan-in": FanIn(scale=po.infer),
    "biases too": FanIn(scale=po.infer, bias_std=po.infer),
    "normal": Normal(po.infer),
    "laplace": priors.Laplace(po.infer),
    "student": priors.StudentT(4.0, po.infer),
    "logistic": priors.Logistic(po.infer),
    "inputs": InputScales(FanIn(), log_std=0.7),
    "layers and inputs": InputScales(FanIn(scale=po.infer)),
    "by path": ByPath({"layers/1/*": Normal(po.infer)}, default=Normal(0.3)),
    "inputs by path": InputScales(ByPath({"layers/1/*": Normal(po.infer)})),
}


def target_of(prior, temperature=1.0, data=(X, Y)):
    return po.Target(po.Model(po.nn.mlp((4,)), prior=prior, temperature=temperature), data)


def drawn(target, key=0):
    return target.sample_prior(jax.random.key(key))


# ---- what is inferred


def test_a_scale_for_each_leaf_that_has_one_to_infer():
    shapes = {name: jax.tree.map(jnp.shape, target_of(prior).structs["prior"]) for name, prior in LEARNT.items()}
    assert shapes["fan-in"] == {KERNEL: {"scale": ()}, "layers/1/kernel": {"scale": ()}}
    assert set(shapes["biases too"]) == set(shapes["normal"]) == {KERNEL, BIAS, "layers/1/kernel", "layers/1/bias"}
    assert shapes["inputs"] == {KERNEL: {"inputs": (3,)}}
    assert shapes["layers and inputs"] == {KERNEL: {"scale": (), "inputs": (3,)}, "layers/1/kernel": {"scale": ()}}
    assert set(shapes["by path"]) == {"layers/1/kernel", "layers/1/bias"}


def test_without_anything_to_infer_there_is_no_such_part():
    for prior in (FanIn(), Normal(2.0), ByPath({"*/bias": Normal(0.1)})):
        target = target_of(prior)
        assert (
            set(target.structs)
            == set(target.init(jax.random.key(0)))
            == set(drawn(target))
            == {"network", "likelihood"}
        )
        assert not target.scales and target.holding("prior") == target


@pytest.mark.parametrize("name", LEARNT)
def test_settings_survive_json_and_say_infer(name):
    prior = LEARNT[name]
    stored = json.loads(json.dumps(priors.to_json(prior)))
    assert priors.from_json(stored) == prior and hash(prior) == hash(priors.from_json(stored))
    assert "infer" in repr(po.Model(po.nn.mlp((4,)), prior=prior)) or "InputScales" in repr(prior)


# ---- the hyper-prior

LEAF = Leaf(KERNEL, (3, 4), jnp.dtype("float32"), 3, input_axis=0)


def test_a_scale_is_half_normal():
    prior, grid = Normal(po.infer), np.linspace(-25, 4, 100_001)
    density = np.exp(jax.vmap(lambda value: prior.log_prior({"scale": value}, LEAF))(jnp.asarray(grid, jnp.float32)))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = np.exp(jax.vmap(lambda key: prior.sample_own(key, LEAF)["scale"])(keys))
    assert stats.kstest(draws, stats.halfnorm(scale=2.0).cdf).pvalue > 1e-3
    middle = np.exp(grid)
    exact = stats.halfnorm(scale=2.0).pdf(middle) * middle
    np.testing.assert_allclose(density, exact, atol=1e-6)


def test_inputs_have_normal_logarithms():
    prior = InputScales(FanIn(), log_std=0.3)
    own = {"inputs": jnp.asarray([0.0, 1.0, -2.0])}
    assert float(prior.log_prior(own, LEAF)) == pytest.approx(stats.norm.logpdf([0, 1, -2]).sum(), rel=1e-6)
    np.testing.assert_allclose(prior.log_scale(own, LEAF), [[0.0], [0.3], [-0.6]], rtol=1e-6)
    sideways = LEAF._replace(shape=(4, 3), input_axis=1)
    assert prior.log_scale(own, sideways).shape == (1, 3)


# ---- one density, in two coordinates


@pytest.mark.parametrize("name", LEARNT)
def test_the_density_is_that_of_the_prior_at_its_scales(name):
    """An independent sum: each leaf's own prior at w / scale, less the logarithms of the scales."""
    target = target_of(LEARNT[name], data=(X, None))
    params = drawn(target)
    total = target.scales.log_prior(params["prior"]) + target.model.likelihood.log_prior(params["likelihood"])
    for leaf, value in zip(target.leaves, jax.tree.leaves(params["network"])):
        own = params["prior"].get(leaf.path, {})
        scale = np.exp(np.float64(target.model.prior.log_scale(own, leaf))) if own else 1.0
        total += float(target.model.prior.log_prob(value / scale, leaf)) - np.log(scale * np.ones(leaf.shape)).sum()
    assert float(target.log_prior(params)) == pytest.approx(float(total), rel=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@pytest.mark.parametrize("name", ["fan-in", "layers and inputs"])
def test_relative_coordinates_have_the_same_distribution(name, temperature):
    """Differences of the two log densities are those of the logarithm of the Jacobian."""
    target = target_of(LEARNT[name], temperature)
    unravel = tree.unraveller(target.structs)

    def absolute(flat):
        return tree.ravel(target.absolute(unravel(flat)))

    for key in range(2):
        params = drawn(target, key)
        relative = target.relative(params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), target.absolute(relative), params)
        log_volume = np.linalg.slogdet(np.asarray(jax.jacobian(absolute)(tree.ravel(relative)), np.float64))[1]
        difference = target.relative_log_density(relative) - target.log_density(params)
        assert float(difference) == pytest.approx(log_volume, abs=2e-3)


def test_at_temperature_one_the_density_is_prior_times_likelihood():
    target = target_of(FanIn(scale=po.infer))
    params = drawn(target)
    joint = target.log_prior(params) + target.log_likelihood(params, target.data).sum()
    assert float(target.log_density(params)) == pytest.approx(float(joint), rel=1e-5)


def test_a_temperature_is_of_the_relative_density():
    """Log densities of relative weights and scales at T are those at 1, over T: it keeps an integral below T = 1."""
    cold, warm = (target_of(FanIn(scale=po.infer), temperature) for temperature in (0.25, 1.0))
    relative = warm.relative(drawn(warm))
    assert float(cold.relative_log_density(relative)) == pytest.approx(4 * float(warm.relative_log_density(relative)))
    shrunk = dict(relative, prior=jax.tree.map(lambda log: log - 30.0, relative["prior"]))
    assert float(cold.relative_log_density(shrunk)) < float(cold.relative_log_density(relative))


def test_coordinates_are_relative_and_lead_back():
    target = target_of(InputScales(FanIn(scale=po.infer))).without_data()
    flat, params = coordinates(target), drawn(target)
    z = flat.to_units(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), flat.to_params(z), params)
    np.testing.assert_allclose(flat.to_weights(z), tree.ravel(params), rtol=2e-5)
    np.testing.assert_allclose(flat.starts(tree.stack([params]))[0], z, rtol=2e-5)
    # relative weights under the prior have size 1, whatever their scale
    zs = np.stack([flat.to_units(drawn(target, key)) for key in range(100)])
    assert 0.85 < zs.std() < 1.25


def test_held_scales_have_no_gradient_and_weights_keep_theirs():
    target = target_of(FanIn(scale=po.infer))
    params = drawn(target)
    free, held = (jax.grad(t.log_density)(params) for t in (target, target.holding("prior")))
    assert all(float(leaf) == 0 for leaf in jax.tree.leaves(held["prior"]))
    assert all(float(leaf) != 0 for leaf in jax.tree.leaves(free["prior"]))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), held["network"], free["network"])
    assert target.holding("prior") != target


def test_sixteen_bit_leaves_have_scales_of_thirty_two():
    network = po.Network(
        lambda key, x: {"w": jnp.zeros((3, 1), jnp.bfloat16)}, lambda p, x: x @ p["w"].astype(jnp.float32)
    )
    target = po.Target(po.Model(network, prior=FanIn(scale=po.infer)), (X, Y))
    params = drawn(target)
    assert params["network"]["w"].dtype == jnp.bfloat16 and params["prior"]["w"]["scale"].dtype == jnp.float32
    relative = target.relative(params)
    assert relative["network"]["w"].dtype == jnp.float32
    np.testing.assert_array_equal(target.absolute(relative)["network"]["w"], params["network"]["w"])


def test_a_start_may_leave_the_scales_out():
    target = target_of(FanIn(scale=po.infer))
    network = target.init(jax.random.key(0))["network"]
    starts = target.as_starts(network, 2)
    assert jax.tree.structure(starts) == jax.tree.structure(target.structs)
    assert all((leaf == 0).all() and leaf.shape == (2,) for leaf in jax.tree.leaves(starts["prior"]))
    own = {"network": network, "likelihood": target.init(jax.random.key(0))["likelihood"]}
    jax.tree.map(np.testing.assert_array_equal, target.as_starts(own, 2), starts)


def test_prior_functions_vary_in_scale():
    """Their kurtosis is that of a normal times a half-normal, squared scale's: above a normal's 3 by far."""
    network = po.Network(lambda key, x: {"w": jnp.zeros((3, 1))}, lambda p, x: x @ p["w"])
    outputs = np.asarray(po.Model(network, prior=FanIn(scale=po.infer)).prior_functions(0, X[:1], 20_000)).ravel()
    assert stats.kurtosis(outputs, fisher=False) == pytest.approx(9.0, abs=1.5)  # 3 E s^4 / (E s^2)^2 = 3 * 3


# ---- the inputs' operation is found


def linear_after(change):
    return po.Network(lambda key, x: {"w": jnp.zeros((3, 4)), "v": jnp.zeros((4, 1))},
                      lambda p, x: jnp.tanh(change(x) @ p["w"]) @ p["v"])  # fmt: skip


def axes_of(network, x=X):
    network = po.network(network)
    return input_axes(network.apply, network.init(jax.random.key(0), x), x)


def test_the_first_dense_layer_is_found_in_any_layout():
    assert axes_of(po.nn.mlp((4, 4))) == {KERNEL: 0}
    assert axes_of(lambda key: eqx.nn.MLP(3, 1, 4, 1, key=key)) == {"layers/0/weight": 1}
    assert axes_of(linear_after(lambda x: (x - 1.0) / 2.0)) == {"w": 0}
    assert axes_of(linear_after(lambda x: jax.jit(jnp.sin)(x))) == {"w": 0}


def test_every_branch_that_meets_the_inputs_counts():
    network = po.Network(
        lambda key, x: {"a": jnp.zeros((3, 2)), "b": jnp.zeros((2, 1)), "skip": jnp.zeros((1, 3))},
        lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"] + x @ p["skip"].T,
    )
    assert axes_of(network) == {"a": 0, "skip": 1}


def test_an_operation_behind_a_parameter_is_not_first():
    network = po.Network(
        lambda key, x: {"shift": jnp.zeros(3), "w": jnp.zeros((3, 1))}, lambda p, x: (x + p["shift"]) @ p["w"]
    )
    assert axes_of(network) == {}


def test_where_there_is_none_that_is_said():
    images = np.zeros((2, 16, 16, 1), np.float32)
    with pytest.raises(SettingError, match="convolution"):
        po.Target(po.Model(po.nn.lenet5(), po.likelihoods.Categorical(), InputScales()), (images, None))
    with pytest.raises(SettingError, match=r"\(x, None\)"):
        po.Target(po.Model(linear_after(lambda x: x), prior=InputScales()), None)
    with pytest.raises(SettingError, match="InputScales"):
        InputScales(InputScales())
    with pytest.raises(SettingError, match="ByPath inside InputScales"):
        ByPath({"*": InputScales()})


def test_scaling_a_weights_row_is_scaling_its_input():
    target = target_of(InputScales(FanIn(), log_std=0.5), data=(X, None))
    params = drawn(target)
    relative = target.relative(params)["network"]
    factor = np.exp(0.5 * np.asarray(params["prior"][KERNEL]["inputs"]))
    model = target.model
    np.testing.assert_allclose(
        model.outputs(params["network"], X), model.outputs(relative, X * factor), rtol=1e-4, atol=1e-5
    )
    assert math.isfinite(float(target.log_density(params)))
