"""Chains and rows over a mesh of host devices: the draws of one device, and one all-reduce a gradient."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import posteria as po
from engine import on_a_mesh
from posteria.engine import mesh as meshes
from posteria.engine.layout import is_layout
from posteria.errors import SettingError
from posteria.posteriors import store
from posteria.testing import linear_regression

HERE = Path(__file__).parent
FAST = ("hmc of 3", "sghmc", "map of batches")
SENSITIVE = {"hmc": 1e-3, "laplace": 1e-3, "polished": 1e-4, "nuts": 1e-4}  # a leapfrog's rounding grows as it goes


def on_mesh(folder: Path, shape: tuple[int, int], *names: str) -> str:
    command = [sys.executable, str(HERE / "on_a_mesh.py"), str(folder), *map(str, shape), *names]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_same(folder: Path, *names: str) -> None:
    x = on_a_mesh.problem()[1][0][:9]
    for name in names:
        alone = po.fit(*on_a_mesh.problem(), on_a_mesh.METHODS[name], key=1, progress=False)
        tolerance = SENSITIVE.get(name, 1e-5)
        np.testing.assert_allclose(np.load(folder / f"{name}.npy"), alone.functions(0, x, 8), atol=tolerance)
        if hasattr(alone, "stored"):
            np.testing.assert_allclose(np.load(folder / f"{name} draws.npy"), alone.stored.flat, atol=tolerance)


def test_two_by_two_devices_draw_what_one_draws(tmp_path):
    """Of 203 rows, which 2 does not divide; three chains, which 2 does not divide; batches of 33."""
    on_mesh(tmp_path, (2, 2), *FAST)
    check_same(tmp_path, *FAST)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (4, 1)])
def test_so_does_every_method_over_every_mesh(tmp_path, shape):
    on_mesh(tmp_path, shape, *on_a_mesh.METHODS)
    check_same(tmp_path, *on_a_mesh.METHODS)


@pytest.mark.slow
def test_over_a_mesh_draws_have_the_moments_of_the_posterior(tmp_path):
    on_mesh(tmp_path, (2, 2), "law")
    known, draws = linear_regression(), np.load(tmp_path / "law draws.npy")  # (chain, draw, size)
    flat = draws.reshape(-1, draws.shape[-1])
    std = np.sqrt(np.diag(known.covariance))
    assert np.all(np.abs(flat.mean(0) - known.mean) < 4 * std / np.sqrt(len(flat) / 4))  # four draws, at most, for one
    np.testing.assert_allclose(np.cov(flat.T), known.covariance, atol=0.15 * std.max() ** 2)


@pytest.mark.slow
def test_one_all_reduce_of_the_gradient_a_leapfrog_step_and_none_else():
    command = [sys.executable, str(HERE.parents[1] / "benchmarks" / "scaling.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert (HERE.parents[1] / "docs" / "results" / "scaling.txt").read_text() == done.stdout
    for line in done.stdout.splitlines()[3:6]:
        assert line.split("   ")[-1] == "all-reduce of 15,016 bytes in 2"


def test_a_mesh_that_cannot_be_is_refused_before_anything_runs():
    model, data = on_a_mesh.problem()
    device = np.array(jax.devices()[:1])
    with pytest.raises(SettingError, match="needs 4000 devices"):
        po.mesh(chains=1000, data=4)
    with pytest.raises(SettingError, match="chains"):
        po.mesh(chains=0)
    for wrong in ("2x2", Mesh(device, ("rows",)), Mesh(device[None], ("chains", "model"))):
        with pytest.raises(SettingError, match="with the axes 'chains' and 'data'"):
            po.fit(model, data, po.MAP(num_epochs=1), mesh=wrong, progress=False)


def test_any_mesh_with_these_axes_is_taken_in_any_order():
    device = np.array(jax.devices()[:1])
    for axes in (("data",), ("chains",), ("data", "chains")):
        mesh = meshes.as_mesh(Mesh(device.reshape((1,) * len(axes)), axes))
        assert mesh.axis_names == ("chains", "data") and mesh.devices.shape == (1, 1)


def test_a_run_that_leaves_its_mesh_says_so(tmp_path):
    """Here, one of four devices for the rows of one chain: where there is but one, it goes on without."""
    model, data = on_a_mesh.problem()
    po.fit(model, data, on_a_mesh.METHODS["map"], mesh=po.mesh(), out=tmp_path, max_seconds=1e-9, progress=False)
    manifest = tmp_path / "manifest.json"
    stored = store.read_manifest(tmp_path)
    stored["run"]["layout"] = "mesh:1x4"
    manifest.unlink()
    store.write_manifest(tmp_path, stored)
    assert any("not bit-identical" in note for note in po.resume(tmp_path, data, progress=False).facts["notes"])


def test_names_of_meshes_are_names_of_layouts():
    assert is_layout("mesh:2x2") and is_layout("mesh:1x512")
    assert not any(map(is_layout, ("mesh:", "mesh:2", "mesh:0x1", "mesh:2x2x2", "mesh:axb")))
    assert meshes.recorded_mesh("mesh:1x1").devices.shape == (1, 1)
    assert meshes.recorded_mesh("mesh:1000x4") is None


def test_a_mesh_of_one_device_resumes_bit_identically_and_says_what_it_was(tmp_path):
    model, data = on_a_mesh.problem()
    mesh = po.mesh()
    whole = po.fit(model, data, on_a_mesh.METHODS["map"], mesh=mesh, progress=False)
    po.fit(model, data, on_a_mesh.METHODS["map"], mesh=mesh, out=tmp_path / "run", max_seconds=1e-9, progress=False)
    resumed = po.resume(tmp_path / "run", data)
    assert np.array_equal(resumed.stored.flat, whole.stored.flat)
    assert '"layout": "mesh:1x1"' in (tmp_path / "run" / "manifest.json").read_text()
