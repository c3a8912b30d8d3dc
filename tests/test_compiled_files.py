"""Compiled code is found again by a new process, in a folder that is the user's, bounded, and may be turned off."""

import os
import subprocess
import sys

import pytest

from posteria import compiled_files

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
    monkeypatch.setattr(compiled_files, "MOST_BYTES", 1000)
    for i in range(12):
        (tmp_path / str(i)).write_bytes(bytes(100))
        os.utime(tmp_path / str(i), (i, i))
    compiled_files._make_room(tmp_path)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [7, 8, 9, 10, 11]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are owners on POSIX alone")
def test_without_a_home_it_is_compiled_each_time(tmp_path):
    (tmp_path / "file").write_text("")
    run(XDG_CACHE_HOME=str(tmp_path / "file"))
