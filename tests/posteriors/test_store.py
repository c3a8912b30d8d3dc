"""Every file of a store is under a checksum, older stores still load, and a store is replaced whole or not at all."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posteria as po
from posteria import disk
from posteria.disk import ArrayFile
from posteria.errors import DiskError, StoreError
from posteria.posteriors import store

SCHEMA_1 = Path(__file__).with_name("schema1.zip")  # written by the last version that had it
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(20, 2)).astype(np.float32)
DATA = X, (X[:, 0] + 0.1 * RANDOM.normal(size=20)).astype(np.float32)
QUICK = po.HMC(num_chains=2, num_draws=6, num_warmup=4, num_leapfrog=3, start="prior")


def fit(folder: Path | None = None, key: int = 0, **settings):
    model = po.Model(po.nn.mlp(()))
    return po.fit(model, DATA, QUICK, key=key, out=folder, progress=False, **settings)


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> Path:
    """Two fits that differ in their key alone, started from given weights."""
    home = tmp_path_factory.mktemp("stores")
    start = fit().sample(0, 2)
    for key in (0, 1):
        fit(home / str(key), key, start=start)
    return home


@pytest.fixture
def folder(stores, tmp_path) -> Path:
    return Path(shutil.copytree(stores / "0", tmp_path / "run"))


@pytest.fixture
def schema_1(tmp_path) -> Path:
    """A fit, one that was interrupted, an export, and what was predicted."""
    shutil.unpack_archive(SCHEMA_1, tmp_path / "schema1")
    return tmp_path / "schema1"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def test_every_file_of_a_store_is_covered(folder):
    manifest = store.read_manifest(folder)
    listed = {store.MANIFEST, *manifest["files"]}
    assert {path.relative_to(folder).as_posix() for path in files(folder)} == listed
    assert store.START in listed and any(name.endswith("zarr.json") for name in listed)


@pytest.mark.parametrize("damage", ["flip", "truncate", "grow", "remove", "swap"])
def test_a_damage_of_any_file_is_noticed(stores, folder, damage):
    for number, path in enumerate(files(folder)):
        if path.name == store.START:
            continue  # of use only while it ran
        content = path.read_bytes()
        place = (7919 * number) % len(content)
        other = (stores / "1" / path.relative_to(folder)).read_bytes()
        if damage == "flip":
            path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        elif damage == "truncate":
            path.write_bytes(content[:place])
        elif damage == "grow":
            path.write_bytes(content + content[-1:])
        elif damage == "remove":
            path.unlink()
        elif other == content or path.name == store.MANIFEST:
            continue
        else:
            path.write_bytes(other)
        with pytest.raises(StoreError):
            po.load(folder)
        path.write_bytes(content)
    po.load(folder)


def test_a_file_that_was_added_where_arrays_are_is_noticed(folder):
    (folder / "arrays" / "draws" / "c" / "9").write_bytes(b"")
    with pytest.raises(StoreError, match="not of this store"):
        po.load(folder)


def test_an_edit_is_noticed_and_white_space_and_order_are_none(folder):
    path = folder / store.MANIFEST
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(manifest.items()))))
    po.load(folder)
    path.write_text(json.dumps(manifest | {"schema": 1}))
    with pytest.raises(StoreError, match="SHA-256"):
        po.load(folder)
    path.write_text(json.dumps({name: part for name, part in manifest.items() if name != "sha256"}))
    with pytest.raises(StoreError, match="SHA-256"):
        po.load(folder)


def test_schema_1_loads_and_says_that_it_is_unverified(schema_1):
    predicted = np.load(schema_1 / "predicted.npz")
    loaded = po.load(schema_1 / "complete")
    np.testing.assert_array_equal(loaded.stored.flat, predicted["draws"])
    np.testing.assert_allclose(loaded.predict(X).mean, predicted["mean"], rtol=1e-5)
    assert store.UNVERIFIED in loaded.facts["notes"]


def test_a_run_of_schema_1_goes_on_and_ends_as_schema_2(schema_1):
    folder = schema_1 / "running"
    resumed = po.resume(folder, DATA, progress=False)
    wanted = np.load(schema_1 / "predicted.npz")["draws"]  # of that version, and of its compiler's rounding
    np.testing.assert_allclose(resumed.stored.flat, wanted, rtol=1e-5, atol=1e-6)
    assert store.UNVERIFIED in resumed.facts["notes"]
    assert store.read_manifest(folder)["schema"] == store.SCHEMA
    assert store.UNVERIFIED in po.load(folder).facts["notes"]


def test_an_array_that_says_it_is_huge_is_refused_before_it_is_made(schema_1):
    about = schema_1 / "complete" / "arrays" / "draws" / "zarr.json"
    metadata = json.loads(about.read_text())
    metadata["shape"][1] = 10**12
    about.write_text(json.dumps(metadata))
    with pytest.raises(StoreError, match="bytes"):
        po.load(schema_1 / "complete")


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_, np.uint8])
def test_an_array_comes_back_and_zeros_are_written_too(tmp_path, dtype):
    values = np.zeros((2, 9, 3), dtype)
    ArrayFile(tmp_path / "a", values.shape, values.dtype).write(values)
    np.testing.assert_array_equal(ArrayFile(tmp_path / "a").read(), values)
    chunks = [path for path in files(tmp_path / "a") if path.name != disk.METADATA]
    assert len(chunks) == 1


def test_a_matrix_is_one_file_and_a_large_one_a_few(tmp_path):
    ArrayFile(tmp_path / "a", (300, 300), np.float32).write(np.ones((300, 300), np.float32))
    ArrayFile(tmp_path / "b", (3000, 1500), np.float32).write(np.ones((3000, 1500), np.float32))
    assert len(files(tmp_path / "a")) == 1 + 1
    assert len(files(tmp_path / "b")) == 1 + 5  # of 4 MB each


def test_a_fit_in_64_bits_says_so_in_a_process_of_32(tmp_path):
    code = (
        "import sys, numpy as np, posteria as po; x = np.linspace(-1, 1, 20)[:, None]; "
        "po.fit(po.Model(po.nn.mlp((2,))), (x, x[:, 0]), po.MAP(num_epochs=2), out=sys.argv[1], progress=False)"
    )
    environment = os.environ | {"JAX_ENABLE_X64": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True, env=environment)
    with pytest.raises(StoreError) as caught:
        po.load(tmp_path / "run")
    assert "float32" in caught.value.got and "float64" in caught.value.wanted
    assert "jax_enable_x64" in caught.value.fix


def test_a_save_that_fails_leaves_what_was(tmp_path, monkeypatch):
    first, second = fit(key=0), fit(key=1)
    first.save(tmp_path / "saved")
    with monkeypatch.context() as patch:
        patch.setattr(store, "save_arrays", lambda folder, arrays: (_ for _ in ()).throw(DiskError("full")))
        with pytest.raises(DiskError):
            second.save(tmp_path / "saved", if_exists="replace")
    np.testing.assert_array_equal(po.load(tmp_path / "saved").stored.flat, first.stored.flat)
    with pytest.raises(StoreError, match="not empty"):
        second.save(tmp_path / "saved")
    second.save(tmp_path / "saved", if_exists="replace")
    np.testing.assert_array_equal(po.load(tmp_path / "saved").stored.flat, second.stored.flat)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_what_a_kill_left_is_no_obstacle_and_a_damaged_store_is_replaced(tmp_path):
    posterior = fit()
    store.save_arrays(tmp_path / "saved", posterior.state()[1])  # and was killed
    posterior.save(tmp_path / "saved")
    (tmp_path / "saved" / store.MANIFEST).write_bytes(b"\x00")
    with pytest.raises(StoreError, match="not empty"):
        posterior.save(tmp_path / "saved")
    posterior.save(tmp_path / "saved", if_exists="replace")
    assert po.load(tmp_path / "saved").num_draws == posterior.num_draws


def test_a_fit_replaces_another_at_once(tmp_path):
    fit(tmp_path / "run")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "manifest.json").write_text('{"name": "an app"}')
    with pytest.raises(StoreError, match="not written by Posteria"):
        fit(tmp_path / "thesis", if_exists="replace")
    replaced = fit(tmp_path / "run", key=1, if_exists="replace")
    np.testing.assert_array_equal(po.load(tmp_path / "run").stored.flat, replaced.stored.flat)
