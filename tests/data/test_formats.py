import gzip
import lzma
import struct

import numpy as np
import pytest

from posteria.data.formats import read_cifar, read_idx, read_matrix, read_npz
from posteria.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)


def idx_bytes(array, magic=0x08):
    return bytes([0, 0, magic, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def cifar_bytes(images, labels):
    """One byte a label, then the red, green and blue planes, row by row."""
    return b"".join(
        bytes([label]) + b"".join(image[:, :, channel].tobytes() for channel in range(3))
        for image, label in zip(images, labels)
    )


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_idx_reads_what_was_written(tmp_path, suffix, pack):
    path = tmp_path / f"images{suffix}"
    path.write_bytes(pack(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(path), IMAGES)


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"\0\0",
        idx_bytes(IMAGES, magic=0x0D),
        idx_bytes(IMAGES)[:10],
        idx_bytes(IMAGES)[:-1],
        idx_bytes(IMAGES) + b"\0",
    ],
    ids=["empty", "two bytes", "wrong magic", "cut header", "cut values", "too long"],
)
def test_a_broken_idx_file_is_refused(tmp_path, contents):
    path = tmp_path / "images"
    path.write_bytes(contents)
    with pytest.raises(DataError, match="images"):
        read_idx(path)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_truncated_or_mislabelled_archive_is_refused(tmp_path, suffix, pack):
    path = tmp_path / f"images{suffix}"
    path.write_bytes(pack(idx_bytes(IMAGES))[:-12])
    with pytest.raises(DataError, match="unpacked"):
        read_idx(path)
    path.write_bytes(idx_bytes(IMAGES))
    with pytest.raises(DataError, match="unpacked"):
        read_idx(path)


@pytest.mark.parametrize(("suffix", "pack"), [(".bin", bytes), (".bin.xz", lzma.compress)])
def test_cifar_reads_what_was_written(tmp_path, suffix, pack):
    images = np.random.default_rng(1).integers(0, 256, (3, 32, 32, 3), np.uint8)
    path = tmp_path / f"batch{suffix}"
    path.write_bytes(pack(cifar_bytes(images, [9, 0, 4])))
    read, labels = read_cifar(path)
    np.testing.assert_array_equal(read, images)
    np.testing.assert_array_equal(labels, [9, 0, 4])


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b"", lambda b: b"\x0a" + b[1:]])
def test_a_broken_cifar_file_is_refused(tmp_path, spoil):
    path = tmp_path / "batch.bin"
    path.write_bytes(spoil(cifar_bytes(np.zeros((2, 32, 32, 3), np.uint8), [1, 2])))
    with pytest.raises(DataError, match=r"batch\.bin"):
        read_cifar(path)


def test_npz_is_never_unpickled_and_a_broken_one_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, good=np.arange(3), objects=np.array([{}], dtype=object))
    np.testing.assert_array_equal(read_npz(path, "good")[0], np.arange(3))
    with pytest.raises(DataError, match="npz"):
        read_npz(path, "objects")
    with pytest.raises(DataError, match="other"):
        read_npz(path, "good", "other")
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match="npz"):
        read_npz(path, "good")
    np.save(tmp_path / "b.npy", np.arange(3))
    with pytest.raises(DataError, match="npz"):
        read_npz(tmp_path / "b.npy", "good")


def test_a_matrix_with_uneven_lines_is_refused(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("1 2\n3\n")
    with pytest.raises(DataError, match="matrix"):
        read_matrix(path)
