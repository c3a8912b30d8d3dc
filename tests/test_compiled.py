"""The one owner of compiled code: kept as long as what it was made for, no longer, and not for what has changed.

On disk it is found again by a new process, in a folder that is the user's, bounded, and may be turned off.
"""

import copy
import gc
import os
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import compiled
from posteria.compiled import Shared, contents, kept

X = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
Y = X[:, 0] ** 2
CHEAP = [
    po.MAP(num_epochs=2),
    po.HMC(num_chains=2, num_draws=2, num_warmup=2, start="prior"),
    po.Laplace(map=po.MAP(num_epochs=2)),
    po.SGLD(num_chains=1, num_draws=2, num_warmup=2, start="prior"),
    po.MeanField(num_epochs=2),
    po.MCDropout(num_epochs=2),
]


def fresh_network(width=3):
    def init(key, x):
        return {"w": jax.random.normal(key, (1, width)), "v": jax.random.normal(key, (width, 1))}

    return po.Network(init, lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"])


@pytest.mark.parametrize("method", CHEAP, ids=lambda method: type(method).__name__)
def test_compiled_code_goes_with_the_network_that_it_was_made_for(method):
    network = fresh_network()
    posterior = po.fit(po.Model(network), (X, Y), method, progress=False)
    assert np.isfinite(posterior.predict(X).mean).all()
    alive = weakref.ref(network.apply)
    del network, posterior
    gc.collect()
    assert alive() is None


SEVERAL = [
    po.SWAG(rank=2, num_snapshots=4, map=po.MAP(num_epochs=2)),
    po.SVGD(size=3, num_epochs=2),
    po.VariationalOnlineNewton(num_epochs=2),
    po.MCLMC(num_chains=2, num_draws=2, num_warmup=50),
    po.Folds(po.MAP(num_epochs=2)),
    po.NUTS(num_chains=2, num_draws=2, num_warmup=2),
]


@pytest.mark.parametrize(
    "method",
    [CHEAP[0], *(pytest.param(method, marks=pytest.mark.slow) for method in (*CHEAP[1:], *SEVERAL))],
    ids=lambda method: type(method).__name__,
)
def test_no_code_of_single_operations_stays_behind(method):
    """JAX keeps what it compiles for an operation outside of any function, one for every shape, some 2 MB each."""

    def fit(width):
        posterior = po.fit(po.Model(fresh_network(width)), (X, Y), method, progress=False)
        assert np.isfinite(posterior.predict(X).mean).all()

    def alive():
        gc.collect()
        return sorted(code.hlo_modules()[0].name for code in jax.devices()[0].client.live_executables())

    fit(5)  # what no width matters to may stay
    before = alive()
    fit(7)
    assert alive() == before


def test_a_density_goes_with_its_code():
    def log_density(params):
        return -0.5 * (params["a"] ** 2).sum()

    po.sample(log_density, {"a": jnp.zeros(2)}, po.HMC(num_chains=1, num_draws=2, num_warmup=2), progress=False)
    alive = weakref.ref(log_density)
    del log_density
    gc.collect()
    assert alive() is None


class Shifted:
    """A user's prior, hashed by identity: its field may change between fits."""

    is_proper = True

    def __init__(self, centre):
        self.centre = centre

    def log_prob(self, value, leaf):
        return -0.5 * (100.0 * (value - self.centre) ** 2).sum()

    def sample(self, key, leaf):
        return self.centre + 0.1 * jax.random.normal(key, leaf.shape)

    def unit(self, leaf):
        return 0.1


def test_a_prior_whose_field_has_changed_gives_another_answer_and_the_old_one_again():
    prior = Shifted(0.0)
    model = po.Model(po.nn.mlp((), outputs=1), po.likelihoods.Gaussian(10.0), prior)

    def mode():
        posterior = po.fit(model, (X, Y), po.MAP(num_epochs=300), progress=False)
        return float(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.params)]).mean())

    first = mode()
    prior.centre = 2.0
    second = mode()
    prior.centre = 0.0
    assert second - first > 0.5  # a plain Adam is on its way there
    assert mode() == first


def test_contents_are_what_an_object_holds_now():
    prior = Shifted(np.zeros(3))
    before = contents(prior)
    assert contents(prior) == before != contents(Shifted(np.zeros(3)))  # which might change by itself
    prior.centre[1] = 1.0
    assert contents(prior) != before
    assert contents(po.priors.Normal(2.0)) == po.priors.Normal(2.0)
    prior.centre = prior  # an object may hold itself
    hash(contents(prior))


def test_equal_settings_are_one_network_and_compile_once():
    def fit():
        return po.fit(po.Model(po.nn.mlp((4,), outputs=1)), (X, Y), po.MAP(num_epochs=2), progress=False)

    assert po.nn.mlp((4,), outputs=1) is po.nn.mlp((4,), outputs=1)
    fit()
    with jax.log_compiles(), pytest.MonkeyPatch.context() as patch:
        traced = []
        patch.setattr(compiled, "_Entry", lambda *args: traced.append(args) or pytest.fail("made again"))
        fit()
    assert not traced


def test_clear_lets_go_and_all_is_compiled_again():
    calls = []

    @kept
    def made(number):
        calls.append(number)
        return number + 1

    assert [made(1), made(1), made(2)] == [2, 2, 3]
    assert calls == [1, 2]
    po.clear()
    assert made(1) == 2
    assert calls == [1, 2, 1]


def test_what_was_used_least_recently_goes_when_there_is_too_much(monkeypatch):
    @kept
    def call(number):
        return jax.jit(lambda x: x + number)

    po.clear()
    monkeypatch.setattr(compiled, "MOST_BYTES", 3.5 * compiled.CALL_BYTES)
    calls = [call(0)]
    calls[0](1.0)
    for number in range(1, 8):
        calls.append(call(number))
        calls[-1](1.0)
        assert call(0) is calls[0]  # it is used all the time
    assert call(7) is calls[7]
    assert call(1) is not calls[1]


def test_shared_objects_live_while_somebody_holds_them(monkeypatch):
    monkeypatch.setattr(compiled, "RECENT_BYTES", 0)
    shared = Shared()
    held = shared.get("a", fresh_network)
    assert shared.get("a", fresh_network) is held
    shared.get("b", fresh_network)
    assert shared.get("a", fresh_network) is held
    dropped = weakref.ref(shared.get("c", fresh_network))
    shared.get("a", fresh_network)
    gc.collect()
    assert dropped() is None


def test_a_copy_begins_with_nothing_and_shares_what_its_function_has():
    network = fresh_network()
    po.fit(po.Model(network), (X, Y), po.MAP(num_epochs=2), progress=False)
    twin = copy.deepcopy(network)
    assert twin == network
    assert twin.compiled_for is network.compiled_for


# ---- on disk

FIT = """
import numpy as np, posteria as po
x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
model = po.Model(po.nn.mlp(()), po.likelihoods.Gaussian())
posterior = po.fit(model, (x, x[:, 0]), po.MAP(num_epochs=3), progress=False)
print(posterior.stored.flat.tobytes().hex())
"""


def run(**environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    answer = subprocess.run([sys.executable, "-c", FIT], env=kept | environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_a_second_process_compiles_nothing_again_and_gives_the_same_bits(tmp_path):
    first = run(XDG_CACHE_HOME=str(tmp_path))
    (folder,) = (tmp_path / "posteria" / "compiled").iterdir()
    names = {path.name for path in folder.iterdir() if path.name.endswith("-cache")}
    assert names and folder.stat().st_mode & 0o077 == 0
    assert run(XDG_CACHE_HOME=str(tmp_path)) == first
    assert {path.name for path in folder.iterdir() if path.name.endswith("-cache")} == names


def test_it_can_be_turned_off(tmp_path):
    run(XDG_CACHE_HOME=str(tmp_path), POSTERIA_COMPILED="off")
    assert not list(tmp_path.iterdir())


def test_what_was_used_last_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "DISK_BYTES", 1000)
    for i in range(12):
        (tmp_path / str(i)).write_bytes(bytes(100))
        os.utime(tmp_path / str(i), (i, i))
    compiled._make_room_on_disk(tmp_path)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [7, 8, 9, 10, 11]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are owners on POSIX alone")
def test_without_a_home_it_is_compiled_each_time(tmp_path):
    (tmp_path / "file").write_text("")
    run(XDG_CACHE_HOME=str(tmp_path / "file"))
