"""Files as sources of rows: NumPy's, Parquet's, and folders of images."""

import glob
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posteria import disk
from posteria.data import cache, sources
from posteria.data.sources import Source
from posteria.errors import DataError, SettingError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm")
PARQUET_ROWS = 65536  # read at once while a table is laid out


def source(
    data: Any,
    second: Any = None,
    *,
    x: "str | Sequence[str] | None" = None,
    y: str | None = None,
    size: tuple[int, int] | None = None,
) -> Source:
    """Rows that are read when they are asked for, from files or from an object; to fit, predict and grade with.

    `source("x.npy", "y.npy")`: arrays of one length. `source("rows/*.parquet", y="price")`: numbers of all other
    columns, or of those named by `x`; laid out once as arrays in the cache, since Parquet has no rows by number.
    `source("images")`: a folder with a folder of images for each class, each of one size, or brought to `size` (height,
    width); labels are in the order of the names, `source.class_names`. `source(dataset, x="image", y="label")`: any
    object with a length and rows; `source(x, y)`: two lazy arrays.
    """
    if second is not None:
        return sources.of_arrays(
            _opened(data), _opened(second), str(data)[:200] if isinstance(data, str | Path) else ""
        )
    if isinstance(data, str | Path):
        return _of_path(str(data), x, y, size)
    sources.refuse_iterator(data)
    found = sources.as_source(data) if x is None and y is None else sources.of_dataset(data, str(x), y)
    if found is None:
        raise DataError(
            f"a source of {type(data).__name__}", "files, lazy arrays or a data set", "pass arrays as they are"
        )
    return found


def _of_path(text: str, x: Any, y: str | None, size: tuple[int, int] | None) -> Source:
    path = Path(text)
    if path.is_dir():
        return _images(path, size)
    if text.endswith(".npy"):
        read = sources.reader(_opened(path))
        return Source(read, len(_opened(path)), text)
    found = sorted(glob.glob(text))
    if not found or not all(name.endswith((".parquet", ".pq")) for name in found):
        raise DataError(f"no rows at {text}", ".npy or .parquet files, or a folder of images", "check the path")
    return _parquet(found, x, y, text)


def _opened(part: Any) -> Any:
    """A .npy file as a memory map; anything else as it is."""
    if not isinstance(part, str | Path):
        return part
    try:
        return np.load(part, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{part} cannot be read ({error})", "a .npy file of numbers", "check the path") from error


# ---- images


def _images(folder: Path, size: tuple[int, int] | None) -> Source:
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = [(path, label) for label, name in enumerate(classes) for path in _pictures(folder / name)]
    if not files:
        raise DataError(
            f"{folder} has no images", f"a folder a class, with {', '.join(IMAGES)} in it", "check the path"
        )
    paths, labels = [path for path, _ in files], np.array([label for _, label in files], np.int32)

    def take(numbers: np.ndarray) -> Any:
        pictures = [_picture(paths[i], size) for i in numbers]
        if len({picture.shape for picture in pictures}) > 1:
            shapes = sorted({picture.shape for picture in pictures})
            raise DataError(f"images of {shapes}", "one size", "give size=(height, width)")
        return np.stack(pictures), labels[numbers]

    found = Source(take, len(paths), str(folder))
    found.class_names = tuple(classes)
    return found


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGES)


def _picture(path: Path, size: tuple[int, int] | None) -> np.ndarray:
    """(height, width, channels), whole numbers from 0 to 255."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            plain = image.convert("L" if image.mode in ("1", "L", "I;16") else "RGB")
            values = np.asarray(plain if size is None else plain.resize(size[::-1]))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error})", "an image", "restore or remove it") from error
    return values[..., None] if values.ndim == 2 else values


# ---- Parquet


def _parquet(files: list[str], x: Any, y: str | None, text: str) -> Source:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SettingError("pyarrow is not installed", "it, to read Parquet", "pip install posteria[tables]") from error
    names = list(pq.ParquetFile(files[0]).schema_arrow.names)
    if y is None or y not in names:
        raise DataError(f"y={y!r} of {text}", f"one of its columns: {names}", "name the target: y=")
    inputs = [name for name in names if name != y] if x is None else [x] if isinstance(x, str) else list(x)
    if unknown := [name for name in inputs if name not in names]:
        raise DataError(f"x={unknown} of {text}", f"some of its columns: {names}", "check the names")
    about = "|".join(
        f"{Path(file).resolve()}:{Path(file).stat().st_size}:{Path(file).stat().st_mtime_ns}" for file in files
    )
    folder = cache.folder() / "rows" / hashlib.sha256(f"{about}|{inputs}|{y}".encode()).hexdigest()[:32]
    if not folder.is_dir():
        with disk.written_whole(folder) as fresh:
            _lay_out([pq.ParquetFile(file) for file in files], inputs, y, fresh)
    return sources.of_arrays(_opened(folder / "x.npy"), _opened(folder / "y.npy"), text)


def _lay_out(files: list[Any], inputs: list[str], y: str, folder: Path) -> None:
    """As two arrays on disk, a stretch of rows at a time."""
    length = sum(file.metadata.num_rows for file in files)
    first = files[0].schema_arrow.field(y).type.to_pandas_dtype()
    whole = np.issubdtype(first, np.integer) or np.issubdtype(first, np.bool_)
    arrays = [
        np.lib.format.open_memmap(folder / name, "w+", dtype, shape)
        for name, dtype, shape in (
            ("x.npy", np.float32, (length, len(inputs))),
            ("y.npy", np.int32 if whole else np.float32, (length,)),
        )
    ]
    place = 0
    for file in files:
        for batch in file.iter_batches(PARQUET_ROWS, columns=[*inputs, y]):
            end = place + batch.num_rows
            for column, name in enumerate(inputs):
                arrays[0][place:end, column] = _numbers(batch.column(name), name)
            arrays[1][place:end] = _numbers(batch.column(y), y)
            place = end
    for array in arrays:
        array.flush()


def _numbers(column: Any, name: str) -> np.ndarray:
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf" or column.null_count:
        what = f"{column.null_count} missing values" if column.null_count else f"values of type {values.dtype}"
        raise DataError(f"column {name!r} has {what}", "numbers", "encode or fill them in, or leave the column out: x=")
    return values
