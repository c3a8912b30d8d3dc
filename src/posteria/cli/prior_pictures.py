"""`posteria prior`: what a model believes before any data, and what data do to it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posteria.cli.app import Json, Quiet, app
from posteria.cli.fits import NetworkText, PriorStd
from posteria.cli.printing import print_json, say
from posteria.cli.set_option import build_method
from posteria.cli.table_options import As, Encoding, Ignore, Kind, Target, as_pairs
from posteria.errors import CapabilityError, DataError, SettingError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from posteria.data.origin import Origin
    from posteria.data.preparation import Preparation
    from posteria.models.model import Model
    from posteria.models.priors import Prior
    from posteria.plots.drawn_functions import Line

NUM_POINTS = 61
BEYOND = 0.5  # of the data's range, on either side
MOST_ROWS = 300  # whose places are marked
WIDE, NARROW = 5.0, 0.2  # of prior functions' spread to the data's, beyond which it is said


@app.command()
def prior(
    data: Annotated[str, typer.Argument(help="A file (with --target), an .npz with x and y, or a data set's name.")],
    target: Target = None,
    network: NetworkText = "mlp:50,50",
    prior_std: PriorStd = None,
    prior_text: Annotated[
        str | None,
        typer.Option(
            "--prior",
            help="fan-in, normal, laplace, student-t, ..., with settings: fan-in:scale=2.  [default: as fit's]",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Along this column; may be given again.  [default: the three that go most with the target]"),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Fit this too, and show what data did.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, as num_draws=200.", show_default=False)
    ] = None,
    draws: Annotated[int, typer.Option(help="Functions drawn.", min=2)] = 200,
    kind: Kind = None,
    ignore: Ignore = None,
    as_: As = None,
    encoding: Encoding = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture to write: .png, .svg or .pdf.")] = Path(
        "prior.png"
    ),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Picture the functions that a model believes in before any data, along columns of a table, and after."""
    import io

    from posteria import disk, runs
    from posteria.data.origin import read_origin
    from posteria.models.model import model_for
    from posteria.plots.drawn_functions import before_and_after

    suffix = out.suffix.lower().removeprefix(".")
    if suffix not in ("png", "svg", "pdf"):
        raise SettingError(f"--out {out}", "a file that ends in .png, .svg or .pdf", "name it prior.png")
    if method is None and settings:
        raise SettingError(f"--set {settings[0]} without a method", "--method beside it", "name the method")
    chosen = None if method is None else build_method(method, settings or [])
    source = read_origin(data, target, kind, ignore or (), as_pairs(as_), encoding)
    preparation, (x, y) = source.prepare()
    if preparation.x is None:
        raise CapabilityError(
            f"{source.name}, whose x is no table", "a table", "use model.prior_functions(key, x, 100)"
        )
    model = model_for(preparation.kind, preparation.num_outputs, len(y), network, prior=prior_of(prior_text, prior_std))
    posterior = None if chosen is None else runs.fit(model, (x, y), chosen, key=seed, progress=not quiet)
    names = columns_of(source, column)
    lines = [line_along(source, preparation, model, posterior, name, draws, seed) for name in names]
    label = preparation.target or "y"
    if preparation.kind == "classes":
        label = f"P({label} = {preparation.class_names[class_shown(source)]})"
    figure = before_and_after(lines, label, method or "")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=130)
    disk.write_output(out, buffer.getvalue())
    found = [about(line, source, preparation) for line in lines]
    if as_json:
        return print_json({"picture": str(out), "columns": found})
    for each in found:
        typer.echo(told(each, preparation.kind, method))
    say(f"wrote {out}", quiet)
    return None


def prior_of(text: str | None, std: float | None) -> "Prior | None":
    """ "fan-in:scale=2" as FanIn(scale=2.0)."""
    from posteria.cli.set_option import _value
    from posteria.methods.registry import kebab
    from posteria.models import priors

    if text is not None and std is not None:
        raise SettingError("--prior and --prior-std", "one of them", "leave one out")
    if std is not None:
        return priors.Normal(std)
    if text is None:
        return None
    known = {kebab(name): cls for name, cls in priors.MEMBERS.items()}
    name, _, pairs = text.partition(":")
    if name not in known:
        raise SettingError(f"--prior {text}", f"one of {sorted(known)}", "settings follow a colon: fan-in:scale=2")
    fields = [field.name for field in dataclasses.fields(known[name])]
    given = {}
    for pair in filter(None, pairs.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or key.strip() not in fields:
            fix = f"write {name}:{fields[0]}=2" if fields else f"write {name}, which has none"
            raise SettingError(f"--prior {text}", f"settings of {name}: {fields}", fix)
        given[key.strip()] = _value(key.strip(), value.strip())
    found: Prior = known[name](**given)
    return found


def columns_of(source: "Origin", wanted: list[str] | None, most: int = 3) -> list[str]:
    """Those asked for, or those whose ranks go most with the target's."""
    import numpy as np
    import pandas as pd

    frame = _frame(source).dropna(axis=1, how="all")
    names = list(map(str, frame.columns))
    if wanted:
        if unknown := [name for name in wanted if name not in names]:
            raise SettingError(f"--column {unknown[0]}", f"one of {names}", "check its spelling")
        return wanted
    y = np.asarray(source.y, float)
    y = y if y.ndim == 1 else y[:, 0]
    numbers = frame.select_dtypes("number")
    ranks = numbers.rank().fillna(0.0).corrwith(pd.Series(y, index=frame.index).rank()).abs().fillna(0.0)
    order = [str(name) for name in ranks.sort_values(ascending=False, kind="stable").index]
    return (order + [name for name in names if name not in order])[:most]


def line_along(
    source: "Origin", preparation: "Preparation", model: "Model", posterior: Any, name: str, draws: int, seed: int
) -> "Line":
    """The others at their medians, or their most frequent values."""
    import numpy as np

    from posteria.plots.drawn_functions import Line

    frame = _frame(source)
    values = frame[name]
    is_number = values.dtype.kind in "iuf"
    labels: tuple[str, ...] = ()
    if is_number:
        there = values.dropna().to_numpy(float)
        low, high = float(there.min()), float(there.max())
        reach = BEYOND * ((high - low) or 1.0)
        x = np.linspace(low - reach, high + reach, NUM_POINTS)
        along: Any = x
    else:
        there = np.zeros(0)
        along = list(values.value_counts().index[:8])
        x, labels = np.arange(len(along), dtype=float), tuple(map(str, along))
    rows = _typical(frame, len(x)).assign(**{name: along})
    inputs = preparation.inputs(rows if source.frame is not None else rows.to_numpy(np.float32))
    shown = class_shown(source)
    before = _means(model, model.prior_functions(seed, inputs, draws), None, preparation, shown)
    after = None
    if posterior is not None:
        import jax

        outputs, own = posterior.draws(jax.random.key(seed), inputs, draws)
        after = _means(model, outputs, own, preparation, shown)
    some = np.random.default_rng(0).permutation(len(there))[:MOST_ROWS]
    is_alone = frame.shape[1] == 1 and preparation.kind == "regression" and is_number and not values.isna().any()
    y = np.asarray(source.y, float).reshape(len(frame), -1)[:, 0]
    return Line(name, x, before, after, there[some] if len(there) else None, y[some] if is_alone else None, labels)


def _means(model: "Model", outputs: Any, own: Any, preparation: "Preparation", shown: int) -> "np.ndarray":
    """The mean of y under each function (draw, n), in its own units: of classes, the probability of one."""
    import jax
    import numpy as np

    likelihood: Any = model.likelihood
    if own is None:
        own = jax.vmap(likelihood.init)(jax.random.split(jax.random.key(0), len(outputs)))

    def mean(own: Any, outputs: Any) -> Any:
        return likelihood.probs(own, outputs) if preparation.kind == "classes" else likelihood.moments(own, outputs)[0]

    values = np.asarray(jax.vmap(mean, (0 if jax.tree.leaves(own) else None, 0))(own, outputs), np.float64)
    if preparation.kind == "classes":
        return values[..., shown]
    assert preparation.y is not None
    scale, offset = (np.atleast_1d(part)[0] for part in (preparation.y.std, preparation.y.mean))
    return np.asarray(values[..., 0] * scale + offset)


def class_shown(source: "Origin") -> int:
    """The last of two; of more, the most frequent."""
    import numpy as np

    if source.kind != "classes":
        return 0
    return 1 if len(source.class_names) == 2 else int(np.bincount(np.asarray(source.y)).argmax())


def about(line: "Line", source: "Origin", preparation: "Preparation") -> dict[str, Any]:
    """How far functions reach within the data's range, beside the data."""
    import numpy as np

    inside = np.ones(len(line.x), bool)
    if line.rows is not None and not line.labels:
        inside = (line.x >= line.rows.min()) & (line.x <= line.rows.max())

    def spread(draws: "np.ndarray | None") -> float | None:
        return None if draws is None else float(np.sqrt(draws[:, inside].var(0).mean()))

    y = np.asarray(source.y, float)
    data = float(y.std()) if preparation.kind != "classes" else None
    return {"column": line.name, "prior_std": spread(line.before), "after_std": spread(line.after), "data_std": data}


def told(found: dict[str, Any], kind: str, method: str | None) -> str:
    before, data = found["prior_std"], found["data_std"]
    text = f"{found['column']}: before any data functions spread by {before:.3g}"
    if data:
        text += f", the data by {data:.3g}"
        if before > WIDE * data:
            text += f": {before / data:.0f} times wider than the data (a smaller --prior fan-in:scale=... narrows it)"
        if before < NARROW * data:
            text += ": too narrow to hold the data (a larger --prior fan-in:scale=... widens it)"
    if found["after_std"] is not None:
        text += f"; after {method}, by {found['after_std']:.3g}"
    return text


def _frame(source: "Origin") -> "pd.DataFrame":
    """The inputs by column."""
    import pandas as pd

    if source.frame is not None:
        return source.frame.drop(columns=source.target)
    x: Any = source.x
    if getattr(x, "ndim", 0) != 2:
        raise DataError(f"{source.name}, whose x is no table", "a table", "use model.prior_functions(key, x, 100)")
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])


def _typical(frame: "pd.DataFrame", num: int) -> "pd.DataFrame":
    import pandas as pd

    def one(values: Any) -> Any:
        if values.dtype.kind in "iuf":
            return float(values.median())
        common: Sequence[Any] = values.mode(dropna=True)
        return common[0] if len(common) else None

    return pd.DataFrame({name: [one(frame[name])] * num for name in frame.columns})
