import contextlib
import functools
import gzip
import hashlib
import http.server
import threading

import pytest

from posteria.data import cache
from posteria.errors import DataError

CONTENTS = b"the published contents"
SHA256 = hashlib.sha256(CONTENTS).hexdigest()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def home(tmp_path_factory):
    """The address of a web server on this machine, with one file."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "file.gz").write_bytes(gzip.compress(CONTENTS))
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_download_with_the_right_checksum_is_kept(cache_folder, home, monkeypatch):
    monkeypatch.setitem(cache.DOWNLOADS, "set/file.gz", (f"{home}/file.gz", SHA256))
    assert cache.find("set/file.gz") is None
    path = cache.get("set/file.gz")
    assert path == cache_folder / "set" / "file.gz"
    assert gzip.decompress(path.read_bytes()) == CONTENTS
    assert files(cache_folder) == ["file.gz"]
    monkeypatch.setitem(cache.DOWNLOADS, "set/file.gz", ("http://127.0.0.1:9/gone", SHA256))
    assert cache.get("set/file.gz") == path  # not fetched again


def test_a_download_with_a_wrong_checksum_leaves_nothing(cache_folder, home):
    with pytest.raises(DataError, match="SHA-256 differs"):
        cache.download("set/file.gz", f"{home}/file.gz", "0" * 64)
    assert files(cache_folder) == []


def test_a_download_that_does_not_unpack_leaves_nothing(cache_folder, tmp_path_factory):
    source = tmp_path_factory.mktemp("source") / "file.gz"
    source.write_bytes(gzip.compress(CONTENTS)[:-3])
    with pytest.raises(DataError, match="SHA-256 differs"):
        cache.download("set/file.gz", source.as_uri(), SHA256)
    assert files(cache_folder) == []


def test_without_a_network_the_error_names_the_folder(cache_folder, home):
    for url in ("http://127.0.0.1:9/file.gz", f"{home}/absent.gz"):
        with pytest.raises(DataError) as caught:
            cache.download("set/file.gz", url, SHA256)
        assert str(cache_folder / "set") in str(caught.value)
        assert "POSTERIA_DATA" in caught.value.fix
    assert files(cache_folder) == []


def test_a_file_with_no_known_home_names_the_folder(cache_folder):
    with pytest.raises(DataError, match="no download that can be checked"):
        cache.get("uci/yacht/data.txt")


def test_a_file_is_found_packed_or_not(cache_folder):
    for written, asked in [("a.gz", "a.gz"), ("b", "b.gz"), ("c.bin.xz", "c.bin"), ("d.bin", "d.bin")]:
        (cache_folder / written).write_bytes(b"")
        assert cache.find(asked) == cache_folder / written


def test_the_folder_is_the_variable_then_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("POSTERIA_DATA", str(tmp_path / "data"))
    assert cache.folder() == tmp_path / "data"
    monkeypatch.delenv("POSTERIA_DATA")
    assert cache.folder() == tmp_path / "cache" / "posteria"
    monkeypatch.delenv("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):
        assert cache.folder().name == "posteria"


def test_the_checksums_are_those_of_the_real_files(real_data):
    for name, (_, sha256) in cache.DOWNLOADS.items():
        path = cache.find(name)
        if path is not None:
            assert cache._sha256(path) == sha256, name
