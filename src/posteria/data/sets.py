"""Data sets by name: scikit-learn's bundled ones, and those read from the data folder (`posteria.data.cache`)."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posteria.data import cache
from posteria.data.formats import read_cifar, read_idx, read_matrix, read_npz
from posteria.errors import DataError

PARTS = ("train", "test")
CIFAR_BATCHES = 5
DIGITS = tuple("0123456789")
MOST_FOREIGN = 1000  # rows of data from elsewhere
SHIFT = 3 / 8  # of the width of an image


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images x are (n, height, width, channel) float32 in [0, 1], tokens (n, length) int32, tables (n, feature)
    float64 in their own units; y is (n,): float64 for "regression", int32 labels for "classes"."""

    name: str
    kind: str  # "regression" or "classes"
    x: np.ndarray
    y: np.ndarray
    description: str  # what it is, and whom to cite
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    num_test: int = 0  # of its last rows, which are its standard test rows; 0: it has none


class Listing(NamedTuple):
    name: str
    kind: str
    source: str  # "scikit-learn", or the folder its files belong in
    present: bool  # the whole set loads without a network
    parts: tuple[str, ...]  # those of its parts ("train", "test") that do; empty for a set without parts


@dataclass(frozen=True)
class _Set:
    """How a set is read. `files[part]` are its files; a set without parts has the one part ""."""

    kind: str
    description: str
    files: dict[str, tuple[str, ...]]
    read: Callable[..., tuple[np.ndarray, np.ndarray]]  # (part, *paths) -> x, y
    class_names: tuple[str, ...] = ()
    may_lack: dict[str, tuple[str, ...]] = field(default_factory=dict)  # further files of a part, read if there


def load(name: str, part: str | None = None) -> Dataset:
    """The data set called `name`; `part` is "train", "test" or None for all of it, train rows first."""
    if part not in (None, *PARTS):
        raise DataError(f"part={part!r}", '"train", "test" or None')
    if name in _SKLEARN:
        _refuse_part(name, part, has_parts=False)
        return _load_sklearn(name)
    if name not in _SETS:
        near = get_close_matches(name, [*_SKLEARN, *_SETS], n=3, cutoff=0.4)
        raise DataError(f"no data set {name!r}", f"one of {near or [*_SKLEARN, *_SETS]}", "see posteria.data.names()")
    entry = _SETS[name]
    _refuse_part(name, part, has_parts="" not in entry.files)
    if part is not None and part not in entry.files:
        raise DataError(f"{name} has no part {part!r}", f"{list(entry.files)}")
    pieces = []
    for each in [part] if part else entry.files:
        pieces.append(_read_part(name, entry, each))
    x, y = (np.concatenate(arrays) for arrays in zip(*pieces))
    features = tuple(f"x{i}" for i in range(x.shape[1])) if entry.kind == "regression" else ()
    num_test = len(pieces[-1][1]) if part is None and tuple(entry.files) == PARTS else 0
    return Dataset(name, entry.kind, x, y, entry.description, features, entry.class_names, num_test)


def names() -> list[Listing]:
    """Every data set: where it comes from and whether it is present."""
    listings = [Listing(name, kind, "scikit-learn", True, ()) for name, (kind, _) in _SKLEARN.items()]
    for name, entry in _SETS.items():
        present = [part for part, files in entry.files.items() if all(cache.find(file) for file in files)]
        whole = len(present) == len(entry.files) and all(
            cache.find(file) for files in entry.may_lack.values() for file in files
        )
        where = str(cache.folder() / Path(next(iter(entry.files.values()))[0]).parent)
        listings.append(Listing(name, entry.kind, where, whole, tuple(part for part in present if part)))
    return listings


def foreign_to(name: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Inputs unlike those of the data set `name`, of which `x` are some: by name, none where it has no partner."""
    return _FOREIGN[name](x) if name in _FOREIGN else {}


def scrambled(images: np.ndarray) -> np.ndarray:
    """The same pixels in another order, another one for each image."""
    generator = np.random.default_rng(0)
    flat = images.reshape(len(images), -1)
    return generator.permuted(flat, axis=1).reshape(images.shape)


def shifted(images: np.ndarray) -> np.ndarray:
    """Moved to the right by three eighths of the width; what leaves the image is lost."""
    distance = round(SHIFT * images.shape[2])
    moved = np.zeros_like(images)
    moved[:, :, distance:] = images[:, :, :-distance]
    return moved


def _test_rows_of(*partners: str) -> dict[str, np.ndarray]:
    """Of those data sets that are here."""
    present = {each.name for each in names() if each.present or "test" in each.parts}
    return {name: load(name, "test").x[:MOST_FOREIGN] for name in partners if name in present}


def _refuse_part(name: str, part: str | None, has_parts: bool) -> None:
    if part is not None and not has_parts:
        raise DataError(
            f"{name} has no part {part!r}", "part=None", "split it with posteria.data.uci_splits or train_test"
        )


def _read_part(name: str, entry: _Set, part: str) -> tuple[np.ndarray, np.ndarray]:
    may_lack = entry.may_lack.get(part, ())
    further = [path for file in may_lack if (path := cache.find(file))]
    if len(further) < len(may_lack):
        warnings.warn(f"{name} {part}: reading {1 + len(further)} of {1 + len(may_lack)} files", stacklevel=3)
    x, y = entry.read(part, *(cache.get(file) for file in entry.files[part]), *further)
    if len(x) != len(y):
        raise DataError(f"{name} {part} has {len(x)} inputs and {len(y)} labels", "the same number", "copy it again")
    if entry.kind == "classes":
        y = y.astype(np.int32)
        if y.max() >= len(entry.class_names):
            raise DataError(f"{name} {part} has label {y.max()}", f"labels below {len(entry.class_names)}")
    return x, y


def _unit_images(pixels: np.ndarray) -> np.ndarray:
    """(n, height, width[, channel]) bytes as float32 in [0, 1] with a channel axis."""
    return np.divide(pixels if pixels.ndim == 4 else pixels[..., None], 255, dtype=np.float32)


def _read_idx_pair(part: str, images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    return _unit_images(read_idx(images)), read_idx(labels)


def _read_kmnist(part: str, images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    (pixels,), (classes,) = read_npz(images, "arr_0"), read_npz(labels, "arr_0")
    return _unit_images(pixels), classes


def _read_cifar_batches(part: str, *paths: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = (np.concatenate(arrays) for arrays in zip(*map(read_cifar, paths)))
    return _unit_images(images), labels


def _read_svhn(part: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = read_npz(path, f"x_{part}", f"y_{part}")
    return _unit_images(images), labels


def _read_imdb(part: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    tokens, labels = read_npz(path, f"x_{part}", f"y_{part}")
    return tokens.astype(np.int32), labels


def _read_uci(part: str, data: Path, features: Path, target: Path) -> tuple[np.ndarray, np.ndarray]:
    values = read_matrix(data)
    feature_columns, target_column = (read_matrix(path).astype(int).ravel() for path in (features, target))
    return values[:, feature_columns], values[:, target_column[0]]


def _idx_files(folder: str, *parts: str) -> dict[str, tuple[str, ...]]:
    stems = {"train": "train", "test": "t10k"}
    return {
        part: tuple(f"{folder}/{stems[part]}-{content}-ubyte.gz" for content in ("images-idx3", "labels-idx1"))
        for part in parts
    }


def _uci(folder: str, description: str) -> _Set:
    files = tuple(f"uci/{folder}/{file}.txt" for file in ("data", "index_features", "index_target"))
    return _Set("regression", f"{description} UCI regression benchmark.", {"": files}, _read_uci)


_CIFAR = "cifar10/cifar-10-batches-bin"
_FASHION_CLASSES = "T-shirt,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"
_CIFAR_CLASSES = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"

_SETS: dict[str, _Set] = {
    "mnist": _Set(
        "classes",
        "Handwritten digits, 28 x 28. LeCun, Bottou, Bengio and Haffner 1998.",
        _idx_files("mnist", *PARTS),
        _read_idx_pair,
        DIGITS,
    ),
    "fashion-mnist": _Set(
        "classes",
        "Articles of clothing, 28 x 28. Xiao, Rasul and Vollgraf 2017.",
        _idx_files("fashion_mnist", *PARTS),
        _read_idx_pair,
        tuple(_FASHION_CLASSES.split(",")),
    ),
    "kmnist": _Set(
        "classes",
        "Cursive Japanese characters, 28 x 28. Clanuwat et al. 2018, CC BY-SA 4.0.",
        {part: (f"kmnist/kmnist-{part}-imgs.npz", f"kmnist/kmnist-{part}-labels.npz") for part in PARTS},
        _read_kmnist,
        ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
    ),
    "notmnist": _Set(
        "classes",
        "Letters A to J in many fonts, 28 x 28. Bulatov 2011.",
        _idx_files("notmnist", "test"),
        _read_idx_pair,
        tuple("ABCDEFGHIJ"),
    ),
    "cifar10": _Set(
        "classes",
        "Photographs of ten kinds of things, 32 x 32 x 3. Krizhevsky 2009.",
        {"train": (f"{_CIFAR}/data_batch_1.bin",), "test": (f"{_CIFAR}/test_batch.bin",)},
        _read_cifar_batches,
        tuple(_CIFAR_CLASSES.split(",")),
        may_lack={"train": tuple(f"{_CIFAR}/data_batch_{i}.bin" for i in range(2, CIFAR_BATCHES + 1))},
    ),
    "svhn-small": _Set(
        "classes",
        "House numbers from street views, 32 x 32 x 3, a small selection. Netzer et al. 2011, non-commercial.",
        dict.fromkeys(PARTS, ("svhn_small/svhn_small.npz",)),
        _read_svhn,
        DIGITS,
    ),
    "imdb": _Set(
        "classes",
        "Film reviews as their last 100 tokens of 20,000 words, 0 for padding. Maas et al. 2011.",
        dict.fromkeys(PARTS, ("imdb/imdb_keras_w20000_len100.npz",)),
        _read_imdb,
        ("negative", "positive"),
    ),
    "boston": _uci("bostonHousing", "House prices around Boston. Harrison and Rubinfeld 1978."),
    "concrete": _uci("concrete", "Compressive strength of concrete. Yeh 1998."),
    "energy": _uci("energy", "Heating load of buildings. Tsanas and Xifara 2012."),
    "kin8nm": _uci("kin8nm", "Forward kinematics of an eight-link robot arm. Delve."),
    "naval": _uci("naval-propulsion-plant", "Decay of a frigate's gas turbine. Coraddu et al. 2016."),
    "power": _uci("power-plant", "Output of a combined-cycle power plant. Tufekci 2014."),
    "protein": _uci("protein-tertiary-structure", "Deviation of predicted protein structures. Rana 2013."),
    "wine": _uci("wine-quality-red", "Taste of red wines, graded 3 to 8. Cortez et al. 2009."),
    "yacht": _uci("yacht", "Resistance of sailing yachts. Gerritsma et al. 1981."),
}

# name -> (kind, loader in sklearn.datasets)
_SKLEARN = {
    "diabetes": ("regression", "load_diabetes"),
    "breast-cancer": ("classes", "load_breast_cancer"),
    "digits": ("classes", "load_digits"),
    "iris": ("classes", "load_iris"),
    "wine-recognition": ("classes", "load_wine"),
}
_FOREIGN: dict[str, Callable[[np.ndarray], dict[str, np.ndarray]]] = {
    "digits": lambda x: {made.__name__: made(x[:MOST_FOREIGN]) for made in (scrambled, shifted)},
    "mnist": lambda x: _test_rows_of("fashion-mnist", "kmnist", "notmnist"),
}
_DIGITS_MAX = 16.0  # brightest pixel of scikit-learn's digits


def _load_sklearn(name: str) -> Dataset:
    from sklearn import datasets

    kind, loader = _SKLEARN[name]
    # diabetes comes centred and scaled unless asked not to
    bunch = getattr(datasets, loader)(**({"scaled": False} if name == "diabetes" else {}))
    x, y = bunch.data, bunch.target
    if name == "digits":
        x = (bunch.images[..., None] / _DIGITS_MAX).astype(np.float32)
    classes = tuple(str(each) for each in bunch.target_names) if kind == "classes" else ()
    features = tuple(str(each) for each in bunch.feature_names) if x.ndim == 2 else ()
    y = y.astype(np.int32 if kind == "classes" else np.float64)
    # its heading, below the line that is only an anchor
    title = next(line for line in bunch.DESCR.splitlines() if line and not line.startswith(".."))
    return Dataset(name, kind, x, y, f"{title} (scikit-learn).", features, classes)
