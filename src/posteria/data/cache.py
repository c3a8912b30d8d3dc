"""The folder of data files, and how a missing one gets there.

The folder is `POSTERIA_DATA`, else `posteria` in the user's cache folder. A file is downloaded only where its home and
the SHA-256 of its unpacked contents are known; it appears under its name complete and checked, or not at all.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from posteria.data.formats import read_bytes
from posteria.errors import DataError

TIMEOUT = 30.0  # seconds without an answer
PACKED = (".gz", ".xz")

_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_KMNIST = "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"

# file in the folder -> (its home, SHA-256 of its unpacked contents)
DOWNLOADS = {
    "mnist/train-images-idx3-ubyte.gz": (
        _MNIST + "train-images-idx3-ubyte.gz",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "mnist/train-labels-idx1-ubyte.gz": (
        _MNIST + "train-labels-idx1-ubyte.gz",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "mnist/t10k-images-idx3-ubyte.gz": (
        _MNIST + "t10k-images-idx3-ubyte.gz",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "mnist/t10k-labels-idx1-ubyte.gz": (
        _MNIST + "t10k-labels-idx1-ubyte.gz",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion_mnist/t10k-images-idx3-ubyte.gz": (
        _FASHION + "t10k-images-idx3-ubyte.gz",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    "fashion_mnist/t10k-labels-idx1-ubyte.gz": (
        _FASHION + "t10k-labels-idx1-ubyte.gz",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "kmnist/kmnist-test-imgs.npz": (
        _KMNIST + "kmnist-test-imgs.npz",
        "692d824896bec8f3c357ebf7a0fe904ed67ac632ce953d0b58f7fbef7bb27d87",
    ),
    "kmnist/kmnist-test-labels.npz": (
        _KMNIST + "kmnist-test-labels.npz",
        "660f13a4705431ea2a6391c41ecbe384cd0d932c595a101ec4f3b8989e785046",
    ),
}


def folder() -> Path:
    """Where data files are looked for."""
    if os.environ.get("POSTERIA_DATA"):
        return Path(os.environ["POSTERIA_DATA"]).expanduser()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "posteria"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "posteria"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "posteria"


def find(name: str) -> Path | None:
    """The file called `name` (relative to the folder), packed or not, if it is there."""
    plain = folder() / name.removesuffix(".gz").removesuffix(".xz")
    candidates = [folder() / name, plain, *(plain.with_name(plain.name + suffix) for suffix in PACKED)]
    return next((path for path in candidates if path.is_file()), None)


def get(name: str) -> Path:
    """The file called `name`, downloaded if need be."""
    path = find(name)
    if path is not None:
        return path
    if name not in DOWNLOADS:
        raise _missing(name, "is not there, and has no download that can be checked")
    return download(name, *DOWNLOADS[name])


def download(name: str, url: str, sha256: str) -> Path:
    """Fetch `url` to `name` in the folder, if its unpacked contents have that SHA-256."""
    from http.client import HTTPException
    from urllib.request import urlopen

    path = folder() / name
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=f".part{path.suffix}", delete=False) as file:
            temporary = Path(file.name)
            with urlopen(url, timeout=TIMEOUT) as response:
                while block := response.read(1 << 20):
                    file.write(block)
        if _sha256(temporary) != sha256:
            raise DataError(
                f"{url} is not the published file (its SHA-256 differs); nothing was kept",
                f"contents with SHA-256 {sha256}",
                f"try again, or put the file into {path.parent} yourself",
            )
        temporary.chmod(0o644)  # temporary files are private; a cache may be shared
        temporary.replace(path)
    except (OSError, HTTPException) as error:
        raise _missing(name, f"could not be fetched from {url} ({error})") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except DataError:  # it does not even unpack
        return ""


def _missing(name: str, reason: str) -> DataError:
    path = folder() / name
    return DataError(
        f"the data file {path.name} {reason}",
        f"it in {path.parent}",
        "put it there, or set POSTERIA_DATA to a folder that has it",
    )
