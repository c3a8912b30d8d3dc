"""A folder from someone else is read, not obeyed: nothing that it names or holds is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posteria as po
from posteria import own
from posteria.errors import SettingError, StoreError
from posteria.methods import registry
from posteria.posteriors import store

MARK = "import os\nopen(os.environ['EVIL_MARK'], 'a').write(__name__ + ' ')\n"
TABLE = "a,b,y\n" + "".join(f"{i / 7},{i % 3},{i / 5 + i % 3}\n" for i in range(30))
OWN = """
from dataclasses import dataclass
import posteria as po

def build(outputs=1):
    net = po.nn.mlp((3,), outputs=outputs)
    return po.Network(net.init, net.apply)

@dataclass(frozen=True)
class Mine(po.MAP):
    'A point.'
    num_epochs: int = 3

@dataclass(frozen=True)
class Other(po.MAP):
    'Another point.'
    num_epochs: int = 3
"""
PLANTED = ("evil", "sitecustomize", "usercustomize", "conftest", "json", "numpy", "jax", "tensorstore", "pandas")


def posteria(*arguments, cwd: Path, mark: Path) -> subprocess.CompletedProcess:
    """As the installed command runs: its folder is first on the path, never the current one."""
    script = Path(sys.executable).with_name("posteria")
    command = [script] if script.is_file() else [sys.executable, "-P", "-c", "from posteria.cli import main; main()"]
    environment = os.environ | {"EVIL_MARK": str(mark)}
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def plant(folder: Path) -> None:
    """Everything that Python might be made to run by lying around."""
    for name in PLANTED:
        (folder / f"{name}.py").write_text(MARK)
    (folder / "jax_plugins" / "evil").mkdir(parents=True)
    (folder / "jax_plugins" / "evil" / "__init__.py").write_text(MARK)
    about = folder / "evil-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    groups = ("posteria.methods", "jax_plugins", "pandas_plotting_backends", "pytest11")
    (about / "entry_points.txt").write_text("".join(f"[{group}]\nmine = evil:Mine\nevil = evil\n" for group in groups))
    (folder / "evil.pth").write_text("import evil\n")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """A fit of a network and by a method of the user's own, cut short so that it can also be resumed."""
    home = tmp_path_factory.mktemp("own")
    (home / "mypkg.py").write_text(OWN)
    (home / "table.csv").write_text(TABLE)
    options = ("--network", "mypkg:build", "--method", "mypkg:Mine", "--minutes", "1e-9", "-o", "run", "-q")
    answer = posteria("fit", "table.csv", "--target", "y", *options, cwd=home, mark=home / "mark")
    assert answer.returncode == 0, answer.stderr
    return home


def edit(folder: Path, change) -> None:
    manifest = store.read_manifest(folder)
    change(manifest)
    store.write_manifest(folder, manifest)  # with its sums computed again, as someone with a purpose would


def test_own_code_is_imported_by_the_users_word_and_by_no_others(fitted):
    mark = fitted / "mark"
    for command in ("predict run table.csv", "resume run", "export run out"):
        refused = posteria(*command.split(), cwd=fitted, mark=mark)
        line, hint = refused.stderr.splitlines()
        assert refused.returncode == 1 and "mypkg:build" in line and "--network mypkg:build" in hint
    refused = posteria("resume", "run", "--network", "mypkg:build", cwd=fitted, mark=mark)
    assert refused.returncode == 1 and "--method mypkg:Mine" in refused.stderr and "Traceback" not in refused.stderr
    other = posteria("resume", "run", "--network", "mypkg:build", "--method", "mypkg:Other", cwd=fitted, mark=mark)
    assert other.returncode == 1 and "'mine'" in other.stderr
    answer = posteria("predict", "run", "table.csv", "--network", "mypkg:build", "-q", cwd=fitted, mark=mark)
    assert answer.returncode == 0 and len(answer.stdout.splitlines()) == 31
    own_words = ("--network", "mypkg:build", "--method", "mypkg:Mine")
    answer = posteria("resume", "run", *own_words, "-q", "--json", cwd=fitted, mark=mark)
    assert answer.returncode == 0 and json.loads(answer.stdout)["is_whole"], answer.stderr


@pytest.mark.parametrize("is_here", [True, False])
def test_nothing_that_lies_around_is_run(fitted, tmp_path, is_here):
    """With the folder as the current one, and with both beside each other."""
    evil, cwd = tmp_path / "evil", tmp_path
    subprocess.run(["cp", "-r", str(fitted / "run"), str(evil)], check=True)
    (tmp_path / "table.csv").write_text(TABLE)

    def name_evil(manifest):
        manifest["attached"]["source"] |= {"network": "evil:build", "data": str(tmp_path / "table.csv")}
        manifest["run"]["method"]["name"] = "evil:Mine"
        manifest["posterior"]["facts"]["method"]["name"] = "evil"

    edit(evil, name_evil)
    plant(evil)
    if is_here:
        cwd = evil
    else:
        plant(tmp_path)
    mark = tmp_path / "mark"
    told = [
        posteria(*command, cwd=cwd, mark=mark)
        for command in (
            ("predict", evil, tmp_path / "table.csv"),
            ("resume", evil),
            ("export", evil, tmp_path / "out"),
            ("report", evil),
            ("methods",),
        )
    ]
    assert not mark.exists(), mark.read_text()
    assert [answer.returncode for answer in told] == [1, 1, 1, 1, 0]
    assert all("Traceback" not in answer.stderr for answer in told)
    assert "evil" not in told[-1].stdout


def test_python_imports_nothing_that_a_manifest_names(tmp_path, monkeypatch):
    """Though the current folder be on Python's path, as it is at a prompt."""
    x = np.linspace(-1, 1, 20)[:, None].astype(np.float32)
    data = x, x[:, 0]
    short = {"max_seconds": 1e-9, "progress": False}
    po.fit(po.Model(po.nn.mlp((2,))), data, po.MAP(num_epochs=3), out=tmp_path / "run", **short)
    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.setenv("EVIL_MARK", str(tmp_path / "mark"))
    for name in ("evil:Mine", "evil", "mine"):
        edit(tmp_path / "run", lambda manifest, name=name: manifest["run"]["method"].update(name=name))
        with pytest.raises(SettingError, match="pass it"):
            po.resume("run", data, progress=False)
    edit(tmp_path / "run", lambda manifest: manifest["posterior"].update(kind="evil"))
    with pytest.raises(StoreError, match="kind 'evil'"):
        po.load("run")
    assert not {"evil", "mine"} & set(registry.names())
    assert not (tmp_path / "mark").exists()


def test_an_estimator_that_is_loaded_never_imports_what_its_file_names(tmp_path):
    x = np.linspace(-1, 1, 20)[:, None]
    po.Regressor(po.MAP(num_epochs=3), "mlp:2").fit(x, x[:, 0]).save(tmp_path / "saved")
    named = {"network": "evil:build", "method": "evil:Mine"}
    edit(tmp_path / "saved", lambda manifest: manifest["attached"]["estimator"].update(named))
    loaded = po.Regressor.load(tmp_path / "saved")
    assert isinstance(loaded.network, po.Network) and loaded.method == po.MAP(num_epochs=3)


@pytest.mark.parametrize("word", ["./x.py:build", "x y:build", "json:", ":build", "json:nothing", "__main__.x:y"])
def test_a_word_that_names_nothing_is_refused_in_one_sentence(word):
    with pytest.raises(SettingError, match="network"):
        own.imported(word, "network")


def test_nothing_that_lies_around_is_run_by_python_m(tmp_path):
    plant(tmp_path)
    for name in ("typer", "posteria_plugin", "rich", "click"):
        (tmp_path / f"{name}.py").write_text(MARK)
    environment = os.environ | {"EVIL_MARK": str(tmp_path / "mark")}
    command = [sys.executable, "-m", "posteria", "methods", "-h"]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert told.returncode == 0 and "Usage" in told.stdout, told.stderr
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()
