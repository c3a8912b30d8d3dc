"""Training as people train: curves of each epoch, rows held out, logs, augmented batches, 16-bit weights."""

import csv
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria.errors import DataError, SettingError, StoreError
from posteria.methods import registry

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=80)).astype(np.float32)
NET = po.nn.mlp((4,), outputs=1)
MODEL = po.Model(NET)
EPOCHS, BATCH, SHARE = 6, 16, 0.25

# every method that optimises over epochs, by its name
OPTIMISED = {
    name: method
    for name in registry.names()
    if name in ("map", "mean-field", "variational-online-newton", "svgd") or name.endswith("dropout")
    for method in [registry.get(name)]
}


def fitted(method, **kwargs):
    return po.fit(MODEL, (X, Y), method, progress=False, **kwargs)


def settings_of(name):
    return {"size": 3} if name == "svgd" else {}


QUICK = ("map", "mean-field", "mc-dropout")  # the rest share their code


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in OPTIMISED])
def test_every_optimised_method_has_scores_of_training_and_held_out_rows_by_epoch(name):
    method = OPTIMISED[name](
        num_epochs=EPOCHS, batch_size=BATCH, validation=SHARE, patience=EPOCHS, **settings_of(name)
    )
    history = fitted(method).history
    assert list(history["epoch"]) == list(range(1, EPOCHS + 1)) and not history["chain"].any()
    for column in ("objective", "training", "validation", "training_rmse", "validation_rmse"):
        assert history[column].shape == (EPOCHS,) and np.isfinite(history[column]).all()
    assert len(set(history["validation"])) > 1


def test_all_methods_with_epochs_are_held_to_that():
    with_epochs = {name for name in registry.names() if "num_epochs" in registry.get(name).__dataclass_fields__}
    without = {"folds", "epinet", "prior-network", "deep-kernel", "function-space-vi"}  # which hold no rows out
    assert with_epochs - without == set(OPTIMISED)
    assert not any("validation" in registry.get(name).__dataclass_fields__ for name in without)
    assert all("validation" in method.__dataclass_fields__ for method in OPTIMISED.values())


def test_scores_are_those_of_the_rows_held_out():
    """By hand, from the weights at the best epoch: the rows are those of the climb's own key."""
    method = po.MAP(num_epochs=EPOCHS, batch_size=BATCH, validation=SHARE, learning_rate=0.05)
    posterior = fitted(method, key=3)
    key_climb = jax.random.split(jax.random.key(3))[1]
    order = np.asarray(jax.random.permutation(jax.random.split(key_climb)[0], len(X)))
    left_out, beside = order[:20], order[20:40]
    for column, rows in (("validation", left_out), ("training", beside)):
        best = posterior.history[column][np.argmax(posterior.history["validation"])]
        expected = np.mean(posterior.predict(X[rows]).log_prob(Y[rows]))
        np.testing.assert_allclose(best, expected, rtol=1e-4)
    best = posterior.history["validation_rmse"][np.argmax(posterior.history["validation"])]
    errors = posterior.predict(X[left_out]).mean[:, 0] - Y[left_out]
    np.testing.assert_allclose(best, np.sqrt(np.mean(errors**2)), rtol=1e-4)


def test_training_ends_when_no_epoch_is_better_and_the_rest_is_not_shown():
    method = po.MeanField(num_epochs=400, batch_size=BATCH, validation=SHARE, patience=3, learning_rate=0.3)
    history = fitted(method).history
    best = int(np.argmax(history["validation"])) + 1
    assert len(history["epoch"]) == best + 3 < 400


def test_classes_have_accuracies():
    labels = (X[:, 0] > 0).astype(int)
    model = po.Model(po.nn.mlp((8,), outputs=2), likelihood=po.likelihoods.Categorical())
    method = po.MAP(num_epochs=60, learning_rate=0.05, validation=SHARE)
    history = po.fit(model, (X, labels), method, progress=False).history
    assert 0.8 < history["validation_accuracy"][-1] <= 1.0


def test_without_rows_held_out_there_is_the_objective_and_members_are_told_apart():
    history = fitted(po.Ensemble(po.MAP(num_epochs=EPOCHS, polish=False), 2)).history
    assert sorted(zip(history["chain"], history["epoch"])) == [(c, e + 1) for c in range(2) for e in range(EPOCHS)]
    assert "validation" not in history
    first = history["objective"][history["chain"] == 0]
    assert first[-1] > first[0]


def test_the_objective_of_an_epoch_is_the_mean_over_its_steps():
    seen = []
    posterior = fitted(po.MAP(num_epochs=3, batch_size=20), on_log=seen.append)
    single = fitted(po.MAP(num_epochs=3, batch_size=20), key=0)
    assert [entry["epoch"] for entry in seen] == [1, 2, 3]
    np.testing.assert_allclose([entry["objective"] for entry in seen], posterior.history["objective"], rtol=1e-6)
    np.testing.assert_array_equal(single.history["objective"], posterior.history["objective"])


def test_history_is_stored_and_a_resumed_fit_has_all_of_it(tmp_path):
    method = po.SWAG(po.MAP(num_epochs=40, batch_size=BATCH, validation=0.2), num_snapshots=4, rank=2)
    whole = fitted(method, out=tmp_path / "whole")
    loaded = po.load(tmp_path / "whole")
    assert set(loaded.history) == set(whole.history) and set(whole.history["stage"]) == {"training", "snapshots"}
    for name, column in whole.history.items():
        np.testing.assert_array_equal(loaded.history[name], column)
    seen, calls = [], []

    def interrupted(entry):
        calls.append(entry)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(method, out=tmp_path / "cut", on_log=interrupted)
    resumed = po.resume(tmp_path / "cut", (X, Y), progress=False, on_log=seen.append)
    for name, column in whole.history.items():
        np.testing.assert_array_equal(resumed.history[name], column)
    assert seen[-1]["stage"] == "snapshots" and seen[-1]["epoch"] == 4


def test_samplers_log_their_draws():
    seen = []
    method = po.HMC(num_chains=2, num_draws=5, num_warmup=5, num_leapfrog=3, step_size=0.01, start="prior")
    posterior = fitted(method, on_log=seen.append)
    draws = [entry for entry in seen if entry["stage"] == "draws"]
    assert [entry["draw"] for entry in draws] == [1, 2, 3, 4, 5] and all("acceptance" in entry for entry in draws)
    assert posterior.history == {}


def test_csv_has_a_line_for_each_number(tmp_path):
    path = tmp_path / "curves.csv"
    for key in (0, 1):  # a file that exists is gone on with
        fitted(po.MAP(num_epochs=2, batch_size=20, validation=SHARE), key=key, on_log=po.logs.CSV(path))
    rows = list(csv.DictReader(path.open()))
    names = {row["name"] for row in rows}
    assert {"objective", "training", "validation"} < names and len(rows) == 2 * 2 * len(names)
    assert {row["step"] for row in rows} == {"1", "2"}


def test_tensorboard_opens_its_files(tmp_path):
    pytest.importorskip("tensorboardX")
    posterior = fitted(po.MAP(num_epochs=3, validation=SHARE), on_log=po.logs.TensorBoard(tmp_path))
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    read = events.Scalars("fit/validation")
    assert [event.step for event in read] == [1, 2, 3]
    np.testing.assert_allclose([event.value for event in read], posterior.history["validation"], rtol=1e-6)


# ---- augmented batches


def test_augmentation_that_reflects_makes_a_symmetric_function():
    """Labels are those of x > 0; with x negated at random, nothing can be told but 1/2."""
    x = np.linspace(-2, 2, 64, dtype=np.float32)[:, None]
    y = (x[:, 0] > 0).astype(np.int32)
    model = po.Model(po.nn.mlp((8,), outputs=2), likelihood=po.likelihoods.Categorical())

    def reflect(key, batch):
        x, y = batch
        return jnp.where(jax.random.bernoulli(key, shape=(len(x), 1)), -x, x), y

    method = po.MAP(num_epochs=150, batch_size=32, learning_rate=0.02)
    plain = po.fit(model, (x, y), method, progress=False)
    changed = po.fit(model, (x, y), method, progress=False, augment=reflect)
    told = np.abs(plain.predict(x).probs[:, 1] - 0.5).mean()
    assert told > 0.4 and np.abs(changed.predict(x).probs[:, 1] - 0.5).mean() < 0.5 * told
    assert "augmented" in changed.facts["notes"][0]
    again = po.fit(model, (x, y), method, progress=False, augment=reflect)
    np.testing.assert_array_equal(changed.predict(x).probs, again.predict(x).probs)


def test_augment_is_refused_where_it_cannot_be_and_where_it_changes_shapes(tmp_path):
    same = po.MAP(num_epochs=2, batch_size=20)
    with pytest.raises(SettingError, match="takes batches"):
        fitted(po.HMC(), augment=lambda key, batch: batch)
    with pytest.raises(DataError, match="same shapes"):
        fitted(same, augment=lambda key, batch: (batch[0][:, :2], batch[1]))
    with pytest.raises(DataError, match="raised"):
        fitted(same, augment=lambda batch: batch)

    def stretched(key, batch):
        return 1.1 * batch[0], batch[1]

    with pytest.raises(KeyboardInterrupt):
        fitted(po.MAP(num_epochs=9, batch_size=20), augment=stretched, out=tmp_path / "run", on_log=_interrupt)
    with pytest.raises(StoreError, match="augment"):
        po.resume(tmp_path / "run", (X, Y), progress=False)
    assert po.resume(tmp_path / "run", (X, Y), progress=False, augment=stretched).facts["is_whole"]


def _interrupt(entry):
    raise KeyboardInterrupt


# ---- dtypes


def as_dtype(network, dtype):
    def init(key, x):
        return jax.tree.map(lambda leaf: leaf.astype(dtype), network.init(key, x))

    return po.Network(init, network.apply)


@pytest.mark.parametrize("name", ["map", "swag"])
def test_weights_in_sixteen_bits_are_trained_in_thirty_two(name):
    """Steps far below a bfloat16's resolution of 2^-8 of a weight still add up."""
    method = po.MAP(num_epochs=200, learning_rate=1e-3, batch_size=20)
    if name == "swag":
        method = po.SWAG(map=method, num_snapshots=4, rank=2, batch_size=20, learning_rate=1e-3)
    errors = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        posterior = po.fit(po.Model(as_dtype(NET, dtype)), (X, Y), method, progress=False)
        leaf = jax.tree.leaves(posterior.sample(0, 1))[0]
        assert leaf.dtype == dtype
        errors[dtype] = math.sqrt(np.mean((np.asarray(posterior.predict(X).mean)[:, 0] - Y) ** 2))
    assert errors[jnp.bfloat16] < 1.02 * errors[jnp.float32]


def test_compute_dtype_casts_the_forward_pass_alone(tmp_path):
    seen = []

    def apply(params, x):
        seen.append((params["w"].dtype, x.dtype))
        return x @ params["w"]

    net = po.network((lambda key, x: {"w": jnp.zeros((x.shape[-1], 1))}, apply), compute_dtype="bfloat16")
    posterior = po.fit(po.Model(net), (X, Y), po.MAP(num_epochs=5), progress=False)
    assert set(seen) == {(jnp.dtype("bfloat16"), jnp.dtype("bfloat16"))}
    assert jax.tree.leaves(posterior.sample(0, 1))[0].dtype == jnp.float32
    assert posterior.functions(0, X, 1).dtype == jnp.float32
    with pytest.raises(po.errors.NetworkError, match="compute_dtype"):
        po.network(NET, compute_dtype="int32")
    ready = po.fit(po.Model(po.network(NET, compute_dtype="bfloat16")), (X, Y), po.MAP(num_epochs=5), progress=False)
    ready.save(tmp_path / "run")  # a ready network is built again with it
    np.testing.assert_array_equal(po.load(tmp_path / "run").predict(X).mean, ready.predict(X).mean)


# ---- modules in evaluation mode


def test_untrained_statistics_and_dropout_that_is_off_are_said_aloud(capsys):
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs, rate=0.0):
            self.first, self.last = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs) if rate == 0 else None
            self.drop = nnx.Dropout(rate, rngs=rngs)

        def __call__(self, x):
            x = self.first(x)
            return self.last(jax.nn.relu(self.drop(x if self.norm is None else self.norm(x))))

    method = po.MAP(num_epochs=2)
    for rate, words in ((0.0, "statistics of BatchNorm (norm) were never trained"), (0.5, "nnx.Dropout (drop) is off")):
        posterior = po.fit(po.Model(lambda key: Net(nnx.Rngs(key), rate)), (X, Y), method)  # noqa: B023
        assert words in posterior.facts["notes"][0] and words in capsys.readouterr().err
    trained = Net(nnx.Rngs(0))
    trained.train()
    for _ in range(50):
        trained(5.0 + 3.0 * X)  # moves the running statistics
    trained.eval()
    expected = trained(X)
    network = po.network(trained)
    assert network.note == ""
    np.testing.assert_allclose(network.apply(network.init(jax.random.key(0), X), X), expected, rtol=1e-5)
