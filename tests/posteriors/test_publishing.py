"""Released samples: a published folder is what was fitted, from a path or a URL; a changed byte is refused."""

import functools
import http.server
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.bridges import safetensors_file
from posteria.cli import app
from posteria.errors import StoreError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)).astype(np.float32)
Y = (X[:, 0] + 0.1 * RNG.normal(size=40)).astype(np.float32)
METHOD = po.HMC(num_chains=2, num_draws=6, num_warmup=4, num_leapfrog=3, start="prior")


@pytest.fixture(scope="module")
def posterior():
    return po.fit(po.Model(po.nn.mlp(())), (X, Y), METHOD, progress=False)


@pytest.fixture(scope="module")
def folder(posterior, tmp_path_factory):
    place = tmp_path_factory.mktemp("published") / "hmc"
    po.publish(posterior, place, (X, Y))
    return place


def test_it_comes_back_as_it_was(posterior, folder):
    loaded = po.load(folder)
    np.testing.assert_array_equal(loaded.stored.flat, posterior.stored.flat)
    np.testing.assert_array_equal(loaded.predict(X).mean, posterior.predict(X).mean)
    assert loaded.facts["method"] == posterior.facts["method"]
    with pytest.raises(StoreError, match="not empty"):
        po.publish(posterior, folder)


def test_others_read_its_arrays(folder):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays, own = numpy.load_file(folder / "draws.safetensors"), safetensors_file.read(folder / "draws.safetensors")
    assert set(arrays) == set(own)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, own[name])


def test_the_card_begins_with_what_a_hub_of_models_reads(folder):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    empty, front, rest = (folder / "README.md").read_text().split("---\n", 2)
    said = yaml.safe_load(front)
    assert not empty and said == {
        "library_name": "posteria",
        "tags": ["bayesian", "uncertainty", "jax", "hmc", "draws"],
    }
    assert rest.lstrip().startswith("# hmc")


def test_the_card_has_what_was_measured_and_how_to_load_it(posterior, folder):
    card = (folder / "README.md").read_text()
    log_likelihood = float(np.mean(posterior.predict(X).log_prob(Y)))
    assert f"log_likelihood a row: {log_likelihood:.4f}".rstrip("0") in card and 'po.load("hmc")' in card
    assert "rmse" in card and "num_leapfrog=3" in card


def test_one_changed_byte_anywhere_is_refused(folder, tmp_path):
    """A hundred of each file, or all, where it has fewer."""
    chosen = random.Random(0)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(files) == {"manifest.json", "draws.safetensors", "README.md"}
    place = tmp_path / "copy"
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    po.load(place)
    for name, content in files.items():
        for position in chosen.sample(range(len(content)), min(100, len(content))):
            changed = bytearray(content)
            changed[position] ^= 1 << chosen.randrange(8)
            (place / name).write_bytes(changed)
            with pytest.raises(StoreError):
                po.load(place)
        (place / name).write_bytes(content[:-1])
        with pytest.raises(StoreError):
            po.load(place)
        (place / name).unlink()
        with pytest.raises(StoreError):
            po.load(place)
        (place / name).write_bytes(content)
    spaced = files["manifest.json"].replace(b",\n", b", \n", 1)  # the same content, written otherwise
    (place / "manifest.json").write_bytes(spaced)
    with pytest.raises(StoreError, match="SHA-256"):
        po.load(place)


def test_it_is_read_over_http(posterior, folder, tmp_path):
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        loaded = po.load(url)
        np.testing.assert_array_equal(loaded.stored.flat, posterior.stored.flat)
        with pytest.raises(StoreError, match="cannot be read"):
            po.load(f"{url}/nothing")
    finally:
        server.shutdown()


def test_the_command_line_publishes_a_fit_and_compares_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{a},{b},{c}" for (a, b), c in zip(X, Y))
    (tmp_path / "table.csv").write_text(f"a,b,c\n{rows}\n")
    run = CliRunner()
    fit = ["fit", "table.csv", "--target", "c", "--method", "map", "--set", "num_epochs=20", "--out", "run", "--quiet"]
    for words in (fit, ["publish", "run", "out", "--test", "table.csv"]):
        answer = run.invoke(app, words)
        assert answer.exit_code == 0, answer.output
    assert "rmse" in (tmp_path / "out" / "README.md").read_text()
    assert po.load("out").facts["method"]["name"] == "map"
    again = run.invoke(app, ["publish", "run", "out"])
    assert again.exit_code == 1 and "not empty" in again.output
    assert run.invoke(app, ["publish", "run", "out", "--if-exists", "replace"]).exit_code == 0


@pytest.mark.slow
def test_a_fresh_environment_loads_it(folder):
    """A process that has imported nothing of ours before; where it stands does not matter."""
    code = f"import posteria as po, numpy as np; print(po.load({str(folder)!r}).predict(np.zeros((1, 2))).mean.shape)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert found.stdout.strip() == "(1, 1)", found.stderr


@pytest.mark.slow
def test_a_kill_while_publishing_leaves_the_old_or_the_new(posterior, tmp_path):
    """Two posteriors in turn: after each of twenty kills one of them is there, whole."""
    place = tmp_path / "out"
    other = po.fit(posterior.target.model, (X, Y), METHOD, key=1, progress=False)
    for name, each in (("a", posterior), ("b", other)):
        each.save(tmp_path / name)
    po.publish(posterior, place)
    code = (
        "import itertools, posteria as po\n"
        f"both = [po.load({str(tmp_path)!r} + '/' + name) for name in 'ab']\n"
        f"def publish(p): po.publish(p, {str(place)!r}, if_exists='replace')\n"
        "publish(both[1])\n"
        "print('ready', flush=True)\n"
        "for p in itertools.cycle(both): publish(p)\n"
    )
    found = []
    for seed in range(20):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        time.sleep(random.Random(seed).uniform(0.05, 0.5))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        flat = po.load(place).stored.flat
        (which,) = (n for n, p in (("a", posterior), ("b", other)) if np.array_equal(flat, p.stored.flat))
        found.append(which)
        assert json.loads((place / "manifest.json").read_text())["status"] == "published"
    print(f"\n20 kills: a {found.count('a')} times, b {found.count('b')} times")
    assert set(found) == {"a", "b"}  # else no kill came while something was replaced
    assert not [path.name for path in tmp_path.iterdir() if path.name not in ("a", "b", "out") and path.name[0] != "."]


def test_a_card_says_where_it_was_measured_on_the_rows_of_the_fit(posterior, folder, tmp_path):
    assert "- rows: 40, those that it was fitted to: others it predicts less well" in (folder / "README.md").read_text()
    po.publish(posterior, tmp_path / "p", (X[:30], Y[:30]))
    assert "- rows: 30\n" in (tmp_path / "p" / "README.md").read_text()


def test_an_estimator_is_refused_with_what_to_publish(tmp_path):
    with pytest.raises(po.errors.SettingError, match="posterior_"):
        po.publish(po.Regressor(), tmp_path / "published")
