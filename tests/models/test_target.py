"""One meaning of N, the prior and the temperature; the same density whatever the framework."""

import dataclasses
from functools import lru_cache

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posteria as po
from posteria.errors import DataError, NetworkError, SettingError
from posteria.models.target import Target

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = RNG.normal(size=24).astype(np.float32)


def target_of(temperature: float = 1.0, **settings) -> po.Target:
    return po.Target(po.Model(po.nn.mlp((5,)), temperature=temperature, **settings), (X, Y))


def test_the_density_is_prior_plus_scaled_likelihood_over_temperature():
    target = target_of(temperature=0.5)
    params = target.sample_prior(jax.random.key(1))
    prior, likelihood = target.log_prior(params), target.log_likelihood(params, (X, Y[:, None]))
    assert likelihood.shape == (24,)
    assert float(target.log_density(params)) == pytest.approx(float(prior + likelihood.sum()) / 0.5, rel=1e-5)
    powered = target.log_density(params, likelihood_power=0.3)
    assert float(powered) == pytest.approx(float(prior + 0.3 * likelihood.sum()) / 0.5, rel=1e-5)


def test_batches_are_unbiased_for_the_whole():
    target = target_of()
    params = target.sample_prior(jax.random.key(2))
    parts = [target.log_density(params, (X[i : i + 6], Y[i : i + 6, None])) for i in range(0, 24, 6)]
    assert float(np.mean(parts)) == pytest.approx(float(target.log_density(params)), rel=1e-5)


def test_targets_of_equal_models_are_equal_whatever_the_data():
    model = po.Model(po.nn.mlp((5,)))
    one, other = po.Target(model, (X, Y)), po.Target(model, (X + 1, Y))
    assert one == other and hash(one) == hash(other)
    assert one != po.Target(model, (X[:-1], Y[:-1]))
    assert one != target_of(temperature=2.0)
    assert one.without_data().data is None


def test_prior_functions_of_the_default_prior_have_unit_size():
    outputs = po.Model(po.nn.mlp((50, 50))).prior_functions(0, X, 200)
    assert outputs.shape == (200, 24, 1)
    assert 0.8 < float(outputs.std()) < 2.0
    unit = po.Model(po.nn.mlp((50, 50)), prior=po.priors.Normal(1.0)).prior_functions(0, X, 200)
    assert float(unit.std()) > 30


def test_an_embedding_is_looked_up_and_keeps_a_unit_prior():
    network = po.nn.cnn_lstm(vocabulary=50, embedding=4, filters=4, cells=4)
    leaves = po.Model(network, po.likelihoods.Categorical()).leaves(np.zeros((1, 20), np.int32))
    table = next(leaf for leaf in leaves if leaf.shape == (50, 4))
    assert table.fan_in is None


# ---- one model, four frameworks

WEIGHTS = {name: RNG.normal(size=shape).astype(np.float32) * 0.5 for name, shape in
           {"w1": (3, 4), "b1": (4,), "w2": (4, 1), "b2": (1,)}.items()}  # fmt: skip


class NNXNet(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(jnp.tanh(linen.Dense(4)(x)))


def plain():
    def init(key, x):
        return {name: jnp.zeros(value.shape) for name, value in WEIGHTS.items()}

    return po.Network(init, lambda p, x: jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]), WEIGHTS


def in_nnx():
    layers = {"first": {"kernel": "w1", "bias": "b1"}, "second": {"kernel": "w2", "bias": "b2"}}
    return po.network(lambda key: NNXNet(nnx.Rngs(key))), jax.tree.map(WEIGHTS.get, layers)


def in_linen():
    layers = {
        "Dense_1": {"kernel": "w1", "bias": "b1"},
        "Dense_0": {"kernel": "w2", "bias": "b2"},
    }  # the outer is made first
    return po.network(LinenNet()), jax.tree.map(WEIGHTS.get, layers)


def in_equinox():
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        first: eqx.nn.Linear
        second: eqx.nn.Linear

        def __init__(self, key):
            one, two = jax.random.split(key)
            self.first, self.second = eqx.nn.Linear(3, 4, key=one), eqx.nn.Linear(4, 1, key=two)

        def __call__(self, x):
            return self.second(jnp.tanh(self.first(x)))

    weights = {
        "first": {"weight": WEIGHTS["w1"].T, "bias": WEIGHTS["b1"]},
        "second": {"weight": WEIGHTS["w2"].T, "bias": WEIGHTS["b2"]},
    }
    return po.network(lambda key: Net(key)), weights


FRAMEWORKS = {"plain": plain, "nnx": in_nnx, "linen": in_linen, "equinox": in_equinox}


def density_and_gradient(framework):
    network, weights = framework()
    target = po.Target(po.Model(network, po.likelihoods.Gaussian(0.3)), (X, Y))
    structure = jax.tree.structure(target.structs["network"])
    params = {"network": jax.tree.map(jnp.asarray, weights), "likelihood": {}}
    assert jax.tree.structure(params["network"]) == structure
    value, gradient = jax.value_and_grad(target.log_density)(params)
    return float(value), np.sort(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)]))


@pytest.mark.parametrize("name", ["nnx", "linen", "equinox"])
def test_frameworks_have_equal_density_and_gradient_at_mapped_weights(name):
    """With the default prior, whose fan-in is found by the walk and not by the layout of a kernel."""
    value, gradient = density_and_gradient(plain)
    other_value, other_gradient = density_and_gradient(FRAMEWORKS[name])
    assert other_value == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(other_gradient, gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["nnx", "linen", "equinox"])
def test_frameworks_have_equal_function_means(name):
    (mean, mcse), (other_mean, other_mcse) = function_means("plain"), function_means(name)
    assert (np.abs(mean - other_mean) < 4 * np.hypot(mcse, other_mcse)).all()


@lru_cache(maxsize=4)
def function_means(name):
    """By HMC, with their Monte Carlo standard errors."""
    network = FRAMEWORKS[name]()[0]
    method = po.HMC(num_chains=2, num_draws=200, num_warmup=100, start="prior")
    posterior = po.fit(po.Model(network, po.likelihoods.Gaussian(0.5)), (X, Y), method, key=4, progress=False)
    return posterior.predict(X[:8]).mean[:, 0], posterior.diagnose(X[:8]).mcse.ravel()


# ---- bad input


@pytest.mark.parametrize(
    "x, y, match",
    [
        (np.where(np.arange(24)[:, None] == 7, np.nan, X), Y, "7"),
        (X, np.where(np.arange(24) == 3, np.inf, Y), "3"),
        (X, Y[:-1], "23"),
        (X, np.stack([Y, Y], 1), "2"),
        (X[:0], Y[:0], "0"),
        (X.astype(str), Y, "."),
    ],
)
def test_bad_data_is_refused_with_what_was_got(x, y, match):
    with pytest.raises((DataError, NetworkError), match=match):
        po.fit(po.Model(po.nn.mlp((5,))), (x, y), po.MAP(num_epochs=1), progress=False)


def test_labels_outside_the_classes_and_outputs_that_do_not_fit_are_refused():
    model = po.Model(po.nn.mlp((5,), outputs=3), po.likelihoods.Categorical())
    with pytest.raises(DataError, match="3"):
        po.fit(model, (X, np.full(24, 3)), po.MAP(num_epochs=1), progress=False)
    with pytest.raises(NetworkError):
        po.fit(po.Model(po.nn.mlp((5,), outputs=3), po.likelihoods.Bernoulli()), (X, np.zeros(24, int)), progress=False)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_temperatures_that_are_not_positive_are_refused(temperature):
    with pytest.raises(SettingError, match="temperature"):
        po.Model(po.nn.mlp((5,)), temperature=temperature)


def test_a_start_without_a_finite_density_is_refused():
    huge = jax.tree.map(lambda leaf: np.full(leaf.shape, 1e30, np.float32), target_of().structs["network"])
    with pytest.raises(po.errors.DensityError, match="start"):
        po.fit(po.Model(po.nn.mlp((5,))), (X, Y), po.HMC(num_draws=2), start=huge, progress=False)


def test_a_density_that_leaves_the_finite_is_named_with_its_step():
    import optax

    method = po.MAP(num_epochs=100, optimizer=optax.sgd(1e6))
    with pytest.raises(po.errors.DensityError, match="step"):
        po.fit(po.Model(po.nn.mlp((5,)), po.likelihoods.Gaussian(0.01)), (X, Y), method, progress=False)


@pytest.mark.parametrize("method", [po.HMC(num_draws=2), po.HMC(num_draws=2, start="map"), po.MAP(num_epochs=2)])
def test_methods_that_need_a_density_refuse_an_improper_prior(method):
    model = po.Model(po.nn.mlp((5,)), prior=po.priors.LogUniform())
    with pytest.raises(SettingError, match="improper"):
        po.fit(model, (X, Y), method, progress=False)


def test_inputs_may_be_a_tree_of_tokens_and_mask():
    tokens = RNG.integers(0, 30, size=(20, 12)).astype(np.int32)
    x = {"tokens": tokens, "mask": tokens > 3}
    network = po.nn.cnn_lstm(vocabulary=30, embedding=4, filters=4, cells=4)
    model = po.Model(network, po.likelihoods.Categorical())
    posterior = po.fit(model, (x, np.arange(20) % 2), po.MAP(num_epochs=3, batch_size=8), progress=False)
    assert posterior.predict(x).probs.shape == (20, 2)
    with pytest.raises(DataError, match="features"):
        posterior.predict(tokens)


def test_starts_with_the_wrong_shape_are_refused():
    with pytest.raises(NetworkError, match="start"):
        po.fit(po.Model(po.nn.mlp((5,))), (X, Y), po.HMC(num_draws=2), start={"w": np.zeros(3)}, progress=False)


def test_a_weight_inside_a_branch_is_scaled_by_its_shape():
    def apply(params, x):
        return jax.lax.cond(x.sum() < 0, lambda h: h @ params["w"], lambda h: h[:, :2], x)

    network = po.Network(lambda key, x: {"w": jnp.zeros((x.shape[-1], 2))}, apply, by_datum=True)
    assert [leaf.fan_in for leaf in Target(po.Model(network), (X, np.zeros((len(X), 2)))).leaves] == [X.shape[1]]


def test_without_data_a_network_that_needs_an_input_says_what_to_pass():
    needs_x = po.Network(lambda key, x: {"w": jnp.zeros((x.shape[-1], 1))}, lambda params, x: x @ params["w"])
    with pytest.raises(NetworkError, match="x, None"):
        po.fit(po.Model(needs_x), None, po.HMC(num_draws=2), progress=False)


def test_without_data_a_network_that_needs_none_is_its_prior():
    needs_none = po.Network(lambda key, x: {"w": jnp.zeros((3, 1))}, lambda params, x: x @ params["w"])
    model = po.Model(needs_none, po.likelihoods.Gaussian(1.0))
    posterior = po.fit(model, None, po.HMC(num_chains=2, num_draws=20, num_warmup=5), progress=False)
    assert posterior.predict(X).mean.shape == (24, 1)
    assert any("fan-in" in note for note in posterior.facts["notes"])


def test_a_bad_y_is_refused_before_anything_is_compiled(caplog):
    network = po.nn.mlp((7,), activation=lambda x: x)  # not compiled by any other test
    with jax.log_compiles(), pytest.raises(DataError, match="y"):
        po.fit(po.Model(network), (X, np.full(24, np.nan)), po.MAP(num_epochs=1), progress=False)
    compiled = [record.getMessage() for record in caplog.records if "Compiling" in record.getMessage()]
    assert not [message for message in compiled if "apply" in message or "outputs" in message], compiled


@pytest.mark.parametrize("data", [X, (X,), (X, Y, None, Y), X[:2], "data"])
def test_data_that_are_not_a_pair_are_refused(data):
    with pytest.raises(DataError, match="pair"):
        po.fit(po.Model(po.nn.mlp((5,))), data, po.MAP(num_epochs=1), progress=False)


def test_values_that_float32_cannot_hold_are_refused():
    with pytest.raises(DataError, match="too large"):
        po.fit(po.Model(po.nn.mlp((5,))), (X, Y.astype(float) * 1e39), po.MAP(num_epochs=1), progress=False)


@dataclasses.dataclass
class Changing:
    """A prior that meets the contract, but could be changed after code was compiled for it."""

    is_proper: bool = True

    def log_prob(self, value, leaf):
        return -0.5 * (value**2).sum()

    def sample(self, key, leaf):
        return jax.random.normal(key, leaf.shape, leaf.dtype)

    def unit(self, leaf):
        return 1.0


def test_models_refuse_what_is_no_likelihood_and_know_a_part_that_has_changed():
    for likelihood in (po.likelihoods.Gaussian, "gaussian", None):
        with pytest.raises(SettingError, match="likelihood"):
            po.Model(po.nn.mlp((5,)), likelihood)
    prior = Changing()  # a dataclass that is not frozen has no hash
    model = po.Model(po.nn.mlp((5,)), prior=prior)
    before = hash(model)
    assert model == po.Model(po.nn.mlp((5,)), prior=prior)
    prior.is_proper = False
    assert hash(model) != before


def test_biases_of_any_shape_and_added_tables_have_no_fan_in():
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        conv: eqx.nn.Conv2d
        table: jax.Array
        out: eqx.nn.Linear

        def __init__(self, key):
            self.conv, self.table = eqx.nn.Conv2d(3, 8, 3, key=key), jnp.zeros((8, 4))
            self.out = eqx.nn.Linear(32, 1, key=key)

        def __call__(self, x):
            return self.out((self.conv(x).reshape(8, 4) + self.table).ravel())

    leaves = po.Model(po.network(lambda key: Net(key))).leaves(np.zeros((2, 3, 4, 4), np.float32))
    fan_ins = {leaf.path: leaf.fan_in for leaf in leaves}
    assert fan_ins == {"conv/weight": 27, "conv/bias": None, "table": None, "out/weight": 32, "out/bias": None}


def test_frames_are_matched_by_column_name():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    posterior = po.fit(po.Model(po.nn.mlp((5,))), (frame, Y), po.MAP(num_epochs=2), progress=False)
    np.testing.assert_array_equal(posterior.predict(frame[["c", "a", "b"]]).mean, posterior.predict(frame).mean)
    with pytest.raises(DataError, match="'c'"):
        posterior.predict(frame[["a", "b"]])


def test_starts_are_compiled_where_they_are_drawn_and_read_anew_where_they_are_given():
    calls, given = [], {"w": np.ones((2, 1), np.float32)}

    def drawn(key, x):
        calls.append(1)
        return {"w": jax.random.normal(key, (2, 1))}

    def apply(params, x):
        return x @ params["w"]

    target = po.Target(po.Model(po.Network(drawn, apply)), (X[:, :2], Y))
    starts, _ = target.several_inits(jax.random.key(0), 3)
    num_calls = len(calls)
    others, _ = target.several_inits(jax.random.key(1), 3)
    assert len(calls) == num_calls and len(np.unique([starts["network"]["w"], others["network"]["w"]])) == 12
    fixed = po.Target(po.Model(po.Network(lambda key, x: dict(given), apply)), (X[:, :2], Y))
    assert fixed.init(jax.random.key(0))["network"]["w"][0] == 1.0
    given["w"] = 2 * given["w"]
    assert fixed.init(jax.random.key(0))["network"]["w"][0] == 2.0


def test_a_trained_network_has_one_start_of_its_own_and_others_from_the_prior():
    target = po.Target(po.Model(po.network(nnx.Linear(3, 1, rngs=nnx.Rngs(0)))), (X, Y))
    one, note = target.several_inits(jax.random.key(0), 1)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), one, target.init(jax.random.key(1)))
    assert not note
    two, note = target.several_inits(jax.random.key(0), 2)
    assert all((leaf[0] != leaf[1]).any() for leaf in jax.tree.leaves(two["network"]))
    assert "came trained" in note
