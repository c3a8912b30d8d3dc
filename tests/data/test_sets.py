import gzip

import numpy as np
import pytest
from test_formats import cifar_bytes, idx_bytes

from posteria.data import load, names
from posteria.errors import DataError

UCI_SHAPES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "naval": (11934, 16),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine": (1599, 11),
    "yacht": (308, 6),
}
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)
LABELS = np.array([0, 9, 3, 3, 2, 1], np.uint8)


def write_idx(folder, stem, images=IMAGES, labels=LABELS):
    folder.mkdir(exist_ok=True)
    (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
    (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(labels)))


@pytest.mark.parametrize(
    ("name", "kind", "shape"),
    [
        ("diabetes", "regression", (442, 10)),
        ("breast-cancer", "classes", (569, 30)),
        ("digits", "classes", (1797, 8, 8, 1)),
        ("iris", "classes", (150, 4)),
        ("wine-recognition", "classes", (178, 13)),
    ],
)
def test_bundled_sets_load(name, kind, shape):
    data = load(name)
    assert (data.kind, data.x.shape, data.y.shape) == (kind, shape, shape[:1])
    if kind == "classes":
        assert data.y.dtype == np.int32
        assert data.y.max() + 1 == len(data.class_names)
    if data.x.ndim == 4:
        assert (data.x.dtype, data.x.min(), data.x.max()) == (np.float32, 0.0, 1.0)
    else:
        assert len(data.feature_names) == shape[1]


def test_idx_sets_are_unit_images_and_parts_join_train_first(cache_folder):
    write_idx(cache_folder / "fashion_mnist", "train")
    write_idx(cache_folder / "fashion_mnist", "t10k", IMAGES[:2], LABELS[:2])
    test = load("fashion-mnist", "test")
    np.testing.assert_allclose(test.x[..., 0] * 255, IMAGES[:2], rtol=1e-6)
    assert test.x.dtype == np.float32
    assert (test.x.shape, test.y.dtype) == ((2, 28, 28, 1), np.int32)
    whole = load("fashion-mnist")
    np.testing.assert_array_equal(whole.y, [*LABELS, *LABELS[:2]])
    assert (whole.num_test, test.num_test, load("iris").num_test) == (2, 0, 0)


def test_cifar_says_when_some_of_its_files_are_missing(cache_folder):
    folder = cache_folder / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    images = np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3), np.uint8)
    for i in (1, 2, 3, 4, 5):
        (folder / f"data_batch_{i}.bin").write_bytes(cifar_bytes(images, [i, 0]))
    np.testing.assert_array_equal(load("cifar10", "train").y, [1, 0, 2, 0, 3, 0, 4, 0, 5, 0])
    (folder / "data_batch_4.bin").unlink()
    with pytest.warns(UserWarning, match="4 of 5"):
        data = load("cifar10", "train")
    np.testing.assert_array_equal(data.y, [1, 0, 2, 0, 3, 0, 5, 0])
    np.testing.assert_allclose(data.x[:2] * 255, images, rtol=1e-6)


def test_images_and_labels_must_belong_together(cache_folder):
    write_idx(cache_folder / "notmnist", "t10k", IMAGES, LABELS[:5])
    with pytest.raises(DataError, match="6 inputs and 5 labels"):
        load("notmnist", "test")
    write_idx(cache_folder / "notmnist", "t10k", IMAGES, LABELS + 1)
    with pytest.raises(DataError, match="label 10"):
        load("notmnist", "test")


def test_what_is_not_there_is_named(cache_folder):
    with pytest.raises(DataError, match=r"'fashion-mnist'"):
        load("fashionmnist")
    with pytest.raises(DataError, match="uci_splits"):
        load("yacht", "test")
    with pytest.raises(DataError, match="no part 'train'"):
        load("notmnist", "train")
    with pytest.raises(DataError, match="part='valid'"):
        load("mnist", "valid")
    with pytest.raises(DataError) as caught:
        load("yacht")
    assert str(cache_folder / "uci" / "yacht") in str(caught.value)
    assert {listing.name for listing in names() if listing.present} == {
        "diabetes", "breast-cancer", "digits", "iris", "wine-recognition",
    }  # fmt: skip


def test_a_part_alone_is_listed(cache_folder):
    write_idx(cache_folder / "mnist", "t10k")
    listing = next(listing for listing in names() if listing.name == "mnist")
    assert (listing.present, listing.parts) == (False, ("test",))


@pytest.mark.parametrize("name", UCI_SHAPES)
def test_real_uci_sets(real_data, name):
    data = load(name)
    assert data.x.shape == UCI_SHAPES[name]
    assert data.y.shape == data.x.shape[:1]
    assert np.isfinite(data.x).all()


@pytest.mark.parametrize(
    ("name", "shape", "first_labels"),
    [
        ("mnist", (10000, 28, 28, 1), [7, 2, 1, 0, 4]),
        ("fashion-mnist", (10000, 28, 28, 1), [9, 2, 1, 1, 6]),
        ("cifar10", (10000, 32, 32, 3), [3, 8, 8, 0, 6]),
    ],
)
def test_real_image_sets_start_with_the_well_known_labels(real_data, name, shape, first_labels):
    data = load(name, "test")
    assert data.x.shape == shape
    assert (data.x.min(), data.x.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(data.y[:5], first_labels)
    np.testing.assert_array_equal(np.unique(data.y), np.arange(10))


def test_real_sets_from_npz(real_data):
    assert load("kmnist", "test").x.shape == (10000, 28, 28, 1)
    assert load("svhn-small").x.shape == (554 + 486, 32, 32, 3)
    imdb = load("imdb", "train")
    assert (imdb.x.shape, imdb.x.dtype) == ((25000, 100), np.int32)
    np.testing.assert_array_equal(np.bincount(imdb.y), [12500, 12500])
