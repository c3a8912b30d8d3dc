"""A folder from someone else whose files lead elsewhere: nothing outside of it is written, and nothing read unseen."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import posteria as po
from damage import killed
from posteria import report
from posteria.errors import StoreError
from posteria.posteriors import store


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("links")
    model, data = killed.problem()
    short = {"max_seconds": 1e-9, "progress": False}
    po.fit(model, data, po.MAP(num_epochs=3), out=home / "cut", **short)
    killed.compare(home / "comparison")
    return home


@pytest.fixture
def copy(home, tmp_path):
    return lambda name: Path(shutil.copytree(home / name, tmp_path / name))


def again(path: Path, change) -> None:
    """Edit a JSON file with its sum computed again."""
    content = store.read_json(path)
    change(content)
    store.write_json(path, content)


@pytest.mark.parametrize("name", ["stages", "stages/x/state.npz", "arrays", "start.npz"])
def test_a_run_with_a_link_in_it_is_not_gone_on_with(copy, tmp_path, name):
    folder, outside = copy("cut"), tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("")
    place = folder / name
    shutil.rmtree(place) if place.is_dir() else None
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    with pytest.raises(StoreError, match="is a link"):
        po.resume(folder, killed.problem()[1], progress=False)
    assert os.listdir(outside) == ["precious"]


def test_a_report_takes_the_place_of_a_link(copy, tmp_path):
    folder, victim = copy("comparison"), tmp_path / "victim"
    victim.write_text("precious")
    (folder / "index.html").unlink(missing_ok=True)
    (folder / "index.html").symlink_to(victim)
    with pytest.raises(StoreError, match="is a link"):
        killed.compare(folder)
    report.write(folder)
    assert victim.read_text() == "precious" and not (folder / "index.html").is_symlink()


@pytest.mark.parametrize(
    "name", ["../../cut/arrays/{}", "{}/../{}", "/dev/zero", "a" * 300, "\ud800", "a\0b", "", 3, None]
)
def test_arrays_are_those_of_the_folder(copy, name):
    folder = copy("cut")

    def change(manifest):
        first = manifest["posterior"]["arrays"][0]
        manifest["posterior"]["arrays"][0] = name.replace("{}", first) if isinstance(name, str) else name

    again(folder / "manifest.json", change)
    with pytest.raises(StoreError):
        po.load(folder)


@pytest.mark.parametrize("name", ["arrays/../../a", "arrays/" + "a" * 300, "arrays/\ud800", "arrays/a\0b"])
def test_files_are_those_of_the_folder(copy, name):
    folder = copy("cut")
    again(folder / "manifest.json", lambda manifest: manifest["files"].update({name: "0" * 64}))
    with pytest.raises(StoreError):
        po.load(folder)


def test_a_hard_link_is_checked_as_any_other_file(copy, home, tmp_path):
    folder = copy("cut")
    chunk = next(path for path in sorted((folder / "arrays").rglob("*")) if path.is_file() and path.name != "zarr.json")
    os.link(chunk, tmp_path / "elsewhere")
    po.load(folder)
    (tmp_path / "elsewhere").write_bytes(bytes(len(chunk.read_bytes())))
    with pytest.raises(StoreError, match="SHA-256"):
        po.load(folder)


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "a loop"])
def test_what_is_no_file_is_missing(copy, kind):
    folder = copy("cut")
    for place in [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]:
        content = place.read_bytes()
        place.unlink()
        {
            "a pipe": os.mkfifo,
            "a device": lambda path: path.symlink_to("/dev/zero"),
            "a folder": os.mkdir,
            "a loop": lambda path: path.symlink_to(path),
        }[kind](place)
        part = place.relative_to(folder).parts[0]
        if part != "stages":
            with pytest.raises(StoreError):
                po.load(folder)
        if part != "arrays":  # which a run that goes on makes anew
            with pytest.raises(StoreError):
                po.resume(folder, killed.problem()[1], progress=False)
        place.rmdir() if kind == "a folder" else place.unlink()
        place.write_bytes(content)


def test_a_schema_without_sums_does_not_excuse_a_file_that_had_them(copy):
    path = copy("cut") / "manifest.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content | {"schema": 1}))
    with pytest.raises(StoreError, match="SHA-256"):
        po.load(path.parent)


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path, monkeypatch):
    store.write_npz(tmp_path / "bomb.npz", {"a": np.zeros(2**22, np.uint8)})
    assert store.read_npz(tmp_path / "bomb.npz")["a"].shape == (2**22,)
    monkeypatch.setattr(store, "LARGE_NPZ", 2**21)
    with pytest.raises(StoreError, match="unpack"):
        store.read_npz(tmp_path / "bomb.npz")
