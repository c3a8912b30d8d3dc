"""`posteria predict`: new rows to predictions beside them."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posteria.cli.app import Quiet, app
from posteria.cli.fitted import OwnMethods, OwnNetwork, in_words, load_posterior
from posteria.cli.printing import say
from posteria.cli.table_options import Encoding
from posteria.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from posteria.data.preparation import Preparation


STDOUT = Path("-")


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="The folder of a fit, or one that was published.")],
    data: Annotated[
        str,
        typer.Argument(help="A file with the columns of the fit (in any order), or an .npz with x; - reads a pipe."),
    ],
    interval: Annotated[float, typer.Option(help="The share that the interval holds.")] = 0.9,
    draws: Annotated[
        int | None, typer.Option(help="Average over so many draws; over all otherwise.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The CSV to write; standard output otherwise, or -.", show_default=False),
    ] = None,
    encoding: Encoding = None,
    network: OwnNetwork = None,
    methods: OwnMethods = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write rows as JSON, not CSV.")] = False,
    quiet: Quiet = False,
) -> None:
    """Predict new rows: mean, std, interval and epistemic std, or class probabilities and entropy, beside each row."""
    from posteria.posteriors.units import in_units

    posterior, preparation = load_posterior(folder, network, methods)
    with _as_file(data) as path:
        frame, beside, rows = _read(path, preparation, encoding)
    encoded = preparation.encode(rows)
    for line in preparation.told_of(encoded).values():
        say(line, quiet)
    if encoded.ignored:
        say(f"columns not used: {', '.join(encoded.ignored)}", quiet)
    outside = preparation.num_outside(encoded.x) + encoded.num_unseen
    if outside.any():
        num_outside = f"{(outside > 0).sum():,} of {len(outside):,}"
        say(f"{num_outside} rows lie outside the range of the training rows: nothing was checked there", quiet)
    if covered := in_words(posterior, interval):
        say(covered, quiet)
    grouped = _groups(posterior.attached.get("groups"), frame)
    predictive = in_units(posterior.predict(preparation.standardised(encoded.x), draws, **grouped), preparation.y)
    columns = _columns(predictive, preparation, interval) | {"features_outside": outside}
    _write(frame if as_json else beside, {_free(name, frame): each for name, each in columns.items()}, out, as_json)
    if out is not None and out != STDOUT:
        say(f"wrote {out}: {len(frame):,} rows", quiet)


def _groups(column: str | None, frame: "pd.DataFrame") -> dict[str, Any]:
    """The groups that a calibration was by, where it was."""
    if column is None:
        return {}
    if column not in frame.columns:
        raise DataError(f"the rows lack {column!r}", "the column that it was calibrated by", "add it")
    return {"groups": frame[column].astype(str).to_numpy()}


@contextmanager
def _as_file(data: str) -> Iterator[Path]:
    """Its path; what is piped in, as "-", is a file for as long as it is read."""
    if data != "-":
        yield Path(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "standard input.csv"
        path.write_bytes(sys.stdin.buffer.read())
        yield path


def _read(
    path: Path, preparation: "Preparation", encoding: str | None
) -> "tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame | np.ndarray]":
    """The table, its cells as the file has them, to write beside, and the rows to predict."""
    import numpy as np
    import pandas as pd

    from posteria.data.formats import read_npz
    from posteria.data.table_file import as_written, read_frame

    if path.suffix.lower() == ".npz":
        if not path.is_file():
            raise DataError(f"no file {path}", "an .npz file with an array x", "check the path")
        (x,) = read_npz(path, "x")
        numbered = pd.DataFrame({"row": np.arange(len(x))})
        return numbered, numbered, x
    columns = preparation.encoder.columns if preparation.encoder is not None else ()
    levels = {column.name: getattr(column, "levels", ()) for column in columns}
    frame = read_frame(path, levels, encoding)
    for note in frame.attrs["notes"]:
        say(note)
    rows = frame if preparation.encoder is not None else frame.to_numpy(np.float64)
    return frame, as_written(frame, path, encoding), rows


def _columns(predictive: Any, preparation: "Preparation", level: float) -> "dict[str, np.ndarray]":
    import numpy as np

    if preparation.kind == "classes":
        probs = predictive.probs
        columns = {"predicted": np.array(preparation.class_names)[probs.argmax(1)]}
        columns |= {f"p({name})": probs[:, i] for i, name in enumerate(preparation.class_names)}
        return columns | {"entropy": predictive.entropy, "mutual_information": predictive.mutual_information}
    lower, upper = predictive.interval(level)
    columns = {
        "mean": predictive.mean,
        "std": predictive.std,
        "lower": lower,
        "upper": upper,
        "epistemic_std": np.sqrt(predictive.epistemic),
    }
    return {name: values[:, 0] for name, values in columns.items()}


def _free(name: str, frame: "pd.DataFrame") -> str:
    """A name that is not a column of the input's."""
    while name in frame.columns:
        name = f"predicted_{name}"
    return name


def _write(beside: "pd.DataFrame", columns: "dict[str, np.ndarray]", out: Path | None, as_json: bool) -> None:
    from posteria import disk

    if as_json:
        text = beside.assign(**columns).to_json(orient="records", indent=1)
    else:
        text = beside.assign(**{name: _in_digits(values) for name, values in columns.items()}).to_csv(index=False)
    if out is None or out == STDOUT:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        disk.write_output(out, text.encode())


def _in_digits(values: "np.ndarray") -> "np.ndarray | list[str]":
    """Seven digits are what float32 holds; the columns of the input keep all of theirs."""
    return [f"{value:.7g}" if value == value else "" for value in values] if values.dtype.kind == "f" else values
