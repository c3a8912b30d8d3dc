"""Nothing is lost: killed fits end as if they had never been killed, and what does not belong together is refused."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteria as po
from engine import killed_fit
from posteria.engine import loop
from posteria.errors import StoreError
from posteria.posteriors import store

SCRIPT = Path(__file__).with_name("killed_fit.py")


def start_process(folder: Path, method: str) -> subprocess.Popen:
    compiled = {  # apart from the test's own, and nothing that a kill cuts in half is left for other tests
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    own = f"{Path(po.__file__).parent.parent}{os.pathsep}{SCRIPT.parent.parent}"  # this Posteria, and the tests
    environment = os.environ | compiled | {"PYTHONPATH": own}
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder), method], env=environment, stderr=subprocess.PIPE)


@pytest.mark.parametrize(
    "method, num_kills",
    [
        ("hmc", 3),
        pytest.param("hmc", 10, marks=pytest.mark.slow),
        *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ("map", "ensemble", "sghmc", "mclmc")),
    ],
)
def test_a_fit_killed_at_random_moments_ends_bit_identical(tmp_path, method, num_kills):
    model, data = killed_fit.problem()
    whole = po.fit(model, data, killed_fit.METHODS[method], key=3, progress=False)
    folder = tmp_path / "run"
    rng = np.random.default_rng(1)
    stages: list[set] = []
    while len(stages) < num_kills or (method == "hmc" and not was_killed_in_both(stages)):
        process = start_process(folder, method)
        states_before = states(folder)
        while states(folder) == states_before and process.poll() is None:  # wait until it has moved on, then some
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.3) if method == "hmc" else 0.02)
        assert process.poll() is None, "it ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        stages.append({path.parent.name for path in folder.rglob("state.npz")})
    finished = start_process(folder, method)
    _, errors = finished.communicate()
    assert finished.returncode == 0, errors.decode()
    loaded = po.load(folder)
    for mine, theirs in zip(members(whole), members(loaded)):
        np.testing.assert_array_equal(mine.stored.flat, theirs.stored.flat)
        for name in mine.info:
            np.testing.assert_array_equal(mine.info[name], theirs.info[name])


def was_killed_in_both(stages: list[set]) -> bool:
    """In warm-up, and later among the draws."""
    return any("warm-up" in names and "draws" not in names for names in stages) and "draws" in stages[-1]


def states(folder: Path) -> list:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("state.npz") if path.exists())


def members(posterior) -> list:
    return getattr(posterior, "members", [posterior])


@pytest.fixture
def linear():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    return po.Model(po.nn.mlp(())), (x, x[:, 0] + 0.1 * rng.normal(size=40))


QUICK = po.HMC(num_chains=2, num_draws=20, num_warmup=10)


def interrupted(model, data, method, folder, monkeypatch, after: str = "draws", **settings):
    """A fit that stops, as by Ctrl-C, in its stage `after`."""
    check = loop.Run._check_finite

    def stop(self, info, rows, first, thinning):
        check(self, info, rows, first, thinning)
        if self._path[-1:] == (after,) and first > 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.Run, "_check_finite", stop)
        with pytest.raises(KeyboardInterrupt):
            po.fit(model, data, method, out=folder, progress=True, **settings)


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path, linear, monkeypatch, capsys):
    model, data = linear
    interrupted(model, data, QUICK, tmp_path / "run", monkeypatch)
    said = capsys.readouterr().err
    assert "Interrupted, and saved." in said and "po.resume(" in said
    posterior = po.resume(tmp_path / "run", data, progress=False)
    whole = po.fit(model, data, QUICK, progress=False)
    np.testing.assert_array_equal(posterior.stored.flat, whole.stored.flat)


def test_ctrl_c_before_the_first_draw_claims_nothing(tmp_path, linear, monkeypatch, capsys):
    model, data = linear

    def stop(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Run, "loop", stop)
    with pytest.raises(KeyboardInterrupt):
        po.fit(model, data, QUICK, out=tmp_path / "run")
    said = capsys.readouterr().err
    assert "before anything was drawn" in said and "saved" not in said


def test_a_resume_with_other_data_network_prior_or_method_is_refused(tmp_path, linear, monkeypatch):
    model, (x, y) = linear
    folder = tmp_path / "run"
    interrupted(model, (x, y), QUICK, folder, monkeypatch)
    with pytest.raises(StoreError, match="data"):
        po.resume(folder, (x, y + 1), progress=False)
    with pytest.raises(StoreError, match="network"):
        po.resume(folder, (x, y), network=po.nn.mlp((3,)), progress=False)
    with pytest.raises(StoreError, match="density"):
        po.resume(folder, (x, y), prior=po.priors.Normal(3.0), progress=False)
    nearly = (
        {"temperature": 1.001},
        {"prior": po.priors.FanIn(1.001)},
        {"likelihood": po.likelihoods.Gaussian(rate=0.0101)},
    )
    for settings in nearly:
        with pytest.raises(StoreError, match="density"):
            other = po.Model(model.network, **settings)
            po.fit(other, (x, y), QUICK, out=folder, if_exists="resume", progress=False)
    with pytest.raises(StoreError, match="method"):
        po.resume(folder, (x, y), method=po.HMC(num_chains=2, num_draws=20, num_warmup=11), progress=False)
    with pytest.raises(StoreError, match="key"):
        po.fit(model, (x, y), QUICK, key=5, out=folder, if_exists="resume", progress=False)


def test_a_network_that_differs_only_in_its_activation_is_refused(tmp_path, linear):
    _, data = linear
    posterior = po.fit(po.Model(po.nn.mlp((4,))), data, po.MAP(num_epochs=2), progress=False)
    posterior.save(tmp_path / "saved")
    with pytest.raises(StoreError, match="another function"):
        po.load(tmp_path / "saved", network=po.nn.mlp((4,), activation="tanh"))


def test_what_cannot_be_written_down_is_passed_again(tmp_path, linear, monkeypatch):
    _, data = linear
    network = po.Network(lambda key, x: {"w": jnp.zeros((2, 1))}, lambda params, x: x @ params["w"])
    method = po.MAP(num_epochs=200, optimizer=optax.sgd(0.01))
    folder = tmp_path / "run"
    model = po.Model(network)
    po.fit(model, data, method, out=folder, max_seconds=1e-9, progress=False)
    with pytest.raises(StoreError, match="your own network"):
        po.resume(folder, data, progress=False)
    with pytest.raises(po.errors.SettingError, match="optimizer"):
        po.resume(folder, data, network=network, progress=False)
    with pytest.raises(StoreError, match="method"):
        other = po.MAP(num_epochs=200, optimizer=optax.sgd(0.1))
        po.resume(folder, data, network=network, method=other, progress=False)
    posterior = po.resume(folder, data, network=network, method=method, progress=False)
    whole = po.fit(model, data, method, progress=False)
    np.testing.assert_array_equal(posterior.stored.flat, whole.stored.flat)


def test_starting_weights_survive_an_interruption(tmp_path, linear, monkeypatch):
    model, data = linear
    first = po.fit(model, data, po.MAP(num_epochs=50), progress=False)
    method = po.HMC(num_chains=2, num_draws=20, num_warmup=10, start=first)
    interrupted(model, data, method, tmp_path / "run", monkeypatch, after="warm-up")
    resumed = po.resume(tmp_path / "run", data, progress=False)
    whole = po.fit(model, data, method, progress=False)
    np.testing.assert_array_equal(resumed.stored.flat, whole.stored.flat)


def test_max_seconds_ends_early_says_so_and_can_be_continued(tmp_path, linear):
    model, data = linear
    method = po.HMC(num_chains=2, num_draws=1_000_000, num_warmup=10)
    posterior = po.fit(model, data, method, out=tmp_path / "run", max_seconds=5.0, progress=False)
    num_draws = posterior.stored.flat.shape[1]
    assert 0 < num_draws < 1_000_000
    assert "max_seconds" in posterior.diagnose().verdict
    began = time.monotonic()
    again = po.resume(tmp_path / "run", data, max_seconds=3.0, progress=False)
    assert again.facts["seconds"] > time.monotonic() - began + 2.0  # of the first 5; in between, nothing is counted
    assert again.stored.flat.shape[1] > num_draws
    np.testing.assert_array_equal(again.stored.flat[:, :num_draws], posterior.stored.flat)


def test_a_warm_up_that_was_cut_short_is_remembered(tmp_path, linear):
    model, data = linear
    method = po.HMC(num_chains=2, num_draws=20, num_warmup=5000, start="prior")
    po.fit(model, data, method, out=tmp_path / "run", max_seconds=1e-6, progress=False)
    resumed = po.resume(tmp_path / "run", data, progress=False)
    assert resumed.stored.flat.shape[1] == 20
    assert any("cut warm-up short" in note for note in resumed.facts["notes"])


def test_a_posterior_of_another_package_is_saved_and_loaded_once_it_is_imported(tmp_path, linear):
    model, data = linear
    fitted = po.fit(model, data, QUICK, progress=False)

    class Renamed(type(fitted)):
        kind = "renamed"

    Renamed(fitted.target, fitted.stored).save(tmp_path / "saved")
    assert type(po.load(tmp_path / "saved")) is Renamed
    del po.Posterior.kinds["renamed"]
    with pytest.raises(StoreError, match="renamed"):
        po.load(tmp_path / "saved")


def test_a_folder_that_is_being_written_is_refused(tmp_path, linear, monkeypatch):
    model, data = linear
    folder = tmp_path / "run"
    interrupted(model, data, QUICK, folder, monkeypatch)
    with store.locked(folder):
        with pytest.raises(StoreError, match="another process"):
            po.resume(folder, data, progress=False)
        with pytest.raises(StoreError, match="another process"):
            po.fit(model, data, QUICK, out=folder, if_exists="replace", progress=False)
    assert po.resume(folder, data, progress=False).facts["is_whole"]
    with store.locked(folder):  # a finished one is only read
        po.resume(folder, data, progress=False)


def test_a_file_in_the_way_is_refused(tmp_path, linear):
    model, data = linear
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="is a file"):
        po.fit(model, data, QUICK, out=tmp_path / "file", progress=False)


def test_an_occupied_folder_is_refused_and_never_removed_unless_it_is_ours(tmp_path, linear):
    model, data = linear
    folder = tmp_path / "run"
    po.fit(model, data, po.MAP(num_epochs=2), out=folder, progress=False)
    with pytest.raises(StoreError, match="if_exists"):
        po.fit(model, data, po.MAP(num_epochs=2), out=folder, progress=False)
    po.fit(model, data, po.MAP(num_epochs=3), out=folder, if_exists="replace", progress=False)
    assert po.load(folder).facts["method"]["settings"]["num_epochs"] == 3
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter1.tex").write_text("irreplaceable")
    with pytest.raises(StoreError):
        po.fit(model, data, po.MAP(num_epochs=2), out=foreign, if_exists="replace", progress=False)
    assert (foreign / "chapter1.tex").read_text() == "irreplaceable"


def test_what_a_kill_before_the_first_manifest_leaves_is_no_obstacle(tmp_path, linear):
    model, data = linear
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".manifest.json.123").write_text("{")
    (folder / store.START).write_bytes(b"half")
    po.fit(model, data, po.MAP(num_epochs=2), out=folder, progress=False)
    assert po.load(folder).num_draws == 1


def test_a_prior_without_an_input_is_saved_and_loaded(tmp_path):
    network = po.Network(lambda key, x: {"w": jnp.zeros((2, 1))}, lambda params, x: x @ params["w"])
    posterior = po.fit(po.Model(network), None, QUICK, out=tmp_path / "run", progress=False)
    loaded = po.load(tmp_path / "run", network=network)
    np.testing.assert_array_equal(posterior.stored.flat, loaded.stored.flat)


@pytest.mark.parametrize(
    "damage", ["truncate", "flip", "remove", "remove counts", "nonsense", "foreign", "newer", "gap"]
)
def test_a_damaged_store_is_refused_by_name(tmp_path, linear, damage):
    model, data = linear
    folder = tmp_path / "run"
    po.fit(model, data, QUICK, out=folder, progress=False)
    chunk = next(
        path for path in (folder / "arrays" / "draws").rglob("*") if path.is_file() and path.name != "zarr.json"
    )
    content = chunk.read_bytes()
    if damage == "truncate":
        chunk.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        chunk.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "remove":
        chunk.unlink()
    elif damage == "remove counts":
        counts = folder / "arrays" / "info.num_divergent"
        next(path for path in counts.rglob("*") if path.is_file() and path.name != "zarr.json").unlink()
    elif damage == "gap":
        manifest = store.read_manifest(folder)
        del manifest["posterior"]["arrays"]
        store.write_manifest(folder, manifest)
    elif damage == "nonsense":
        (folder / store.MANIFEST).write_bytes(b"\x80\x04nonsense")
    elif damage == "foreign":
        (folder / store.MANIFEST).write_text('{"format": "something else"}')
    else:
        (folder / store.MANIFEST).write_text('{"format": "posteria", "schema": 99}')
    with pytest.raises(StoreError):
        po.load(folder)


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, linear, monkeypatch):
    model, data = linear
    interrupted(model, data, QUICK, tmp_path / "run", monkeypatch)
    state = next((tmp_path / "run" / "stages").rglob("draws/state.npz"))
    state.write_bytes(state.read_bytes()[:-40])
    with pytest.raises(StoreError, match=r"state\.npz"):
        po.resume(tmp_path / "run", data, progress=False)


def test_an_unfinished_run_cannot_be_loaded_but_says_how_to_go_on(tmp_path, linear, monkeypatch):
    model, data = linear
    interrupted(model, data, QUICK, tmp_path / "run", monkeypatch)
    with pytest.raises(StoreError, match="resume"):
        po.load(tmp_path / "run")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Two fits stopped among their draws, which differ in their key alone, and one that was cut short in warm-up."""
    home = tmp_path_factory.mktemp("two")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    model, data = po.Model(po.nn.mlp(())), (x, x[:, 0] + 0.1 * rng.normal(size=40))
    start = po.fit(model, data, QUICK, progress=False).sample(0, 2)
    with pytest.MonkeyPatch.context() as patch:
        for key in (0, 1):
            interrupted(model, data, QUICK, home / str(key), patch, key=key, start=start)
    method = po.HMC(num_chains=2, num_draws=20, num_warmup=5000, start="prior")
    po.fit(model, data, method, out=home / "cut", max_seconds=1e-6, progress=False)
    return home, data


def copied(two_runs, name, tmp_path):
    return Path(shutil.copytree(two_runs[0] / name, tmp_path / "run"))


@pytest.mark.parametrize(
    "name, said",
    [
        ("stages/draws/state.npz", "another run"),
        ("stages/draws/kept", "not those that were written|has missing chunks"),  # by how far each had come
        ("stages/warm-up", "another run"),
        ("start.npz", "SHA-256"),
    ],
)
def test_a_file_of_another_run_is_refused(two_runs, tmp_path, name, said):
    folder = copied(two_runs, "0", tmp_path)
    other = two_runs[0] / "1" / name
    if other.is_dir():
        shutil.copytree(other, folder / name, dirs_exist_ok=True)
    else:
        (folder / name).write_bytes(other.read_bytes() + b"x" * (name == "start.npz"))
    with pytest.raises(StoreError, match=said):
        po.resume(folder, two_runs[1], progress=False)


def test_a_state_of_another_stage_and_a_lost_start_are_refused(two_runs, tmp_path):
    folder = copied(two_runs, "0", tmp_path)
    state = folder / "stages" / "draws" / "state.npz"
    whole = state.read_bytes()
    state.write_bytes((folder / "stages" / "warm-up" / "state.npz").read_bytes())
    with pytest.raises(StoreError, match="another stage"):
        po.resume(folder, two_runs[1], progress=False)
    state.write_bytes(whole)
    (folder / store.START).unlink()
    with pytest.raises(StoreError, match="missing"):
        po.resume(folder, two_runs[1], progress=False)


def test_a_lost_checkpoint_is_computed_again_or_missed(two_runs, tmp_path):
    """A warm-up is: from its key it ends in the same state. One that the clock had ended is not."""
    whole = po.resume(copied(two_runs, "0", tmp_path / "a"), two_runs[1], progress=False)
    folder = copied(two_runs, "0", tmp_path / "b")
    shutil.rmtree(folder / "stages" / "warm-up")
    np.testing.assert_array_equal(po.resume(folder, two_runs[1], progress=False).stored.flat, whole.stored.flat)
    folder = copied(two_runs, "cut", tmp_path / "c")
    shutil.rmtree(folder / "stages" / "warm-up")
    with pytest.raises(StoreError, match="missing"):
        po.resume(folder, two_runs[1], progress=False)
    manifest = store.read_manifest(folder)  # as a kill, soon after it was resumed, would leave it
    del manifest["posterior"]
    store.write_manifest(folder, manifest | {"status": "running"})
    with pytest.raises(StoreError, match="stages before"):
        po.resume(folder, two_runs[1], progress=False)
