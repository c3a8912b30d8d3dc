"""What is asked: from arrays with their model, or a table, a file or a data set that is made ready, to a problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np

from posteria.data import splits
from posteria.data.arrays import Data, check_same_length, check_x, num_rows, rows
from posteria.data.directions import flat_directions
from posteria.data.features import Features, guess
from posteria.data.origin import Origin, origin_of_frame, read_more, read_origin
from posteria.data.preparation import Preparation
from posteria.data.splits import Split, Splits, extremes
from posteria.data.standardise import Standardiser
from posteria.data.table_columns import Category, Means
from posteria.errors import DataError, SettingError
from posteria.models.model import Model, model_for
from posteria.models.priors import Normal
from posteria.models.target import Target
from posteria.posteriors.store import fingerprint
from posteria.posteriors.units import in_units
from posteria.settings import CountFromZero, checked, up_to
from posteria.shift.conditions import Asked, asked
from posteria.tree import Json

SEEDS = 1  # splits, unless more are asked for
MOST_SEEDS = 10_000
NETWORK = "mlp:50,50"
CURVE_POINTS = 120


@dataclass(frozen=True, eq=False)
class Fold:
    """One split. `train` is as the model wants it; `y_test` and `y_train` are in the data's own units, or labels."""

    seed: int
    train: tuple[Any, np.ndarray]
    y_train: np.ndarray
    x_test: Any
    y_test: np.ndarray
    scale: Standardiser | None = None  # of y; None: the model sees own units
    far: dict[str, np.ndarray] = field(default_factory=dict)  # test rows out of distribution, as masks by name
    out: Json = field(default_factory=dict)  # further inputs out of distribution, by name
    preparation: Preparation | None = None
    test_rows: np.ndarray | None = None  # their numbers in the file they came from, the first is 0
    features: Features | None = None  # rows as they came, column by column
    memory: Json = field(default_factory=dict)  # what is found once for all rows of a comparison, by name

    def predict(self, posterior: Any, x: Data, num_draws: int | None = None) -> Any:
        """A posterior's (or a baseline's) prediction in the data's own units."""
        if not hasattr(posterior, "draws"):
            return posterior.predict(x)
        return in_units(posterior.predict(x) if num_draws is None else posterior.predict(x, num_draws), self.scale)

    @property
    def fingerprint(self) -> str:
        return fingerprint((self.train, self.x_test, self.y_test, self.out))


@dataclass(frozen=True, eq=False)
class Curve:
    """Inputs along the one axis of a one-dimensional problem, for its picture."""

    x: np.ndarray  # (g,), own units
    inputs: np.ndarray  # (g, 1), as the model wants them
    train_x: np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    name: str
    title: str
    model: Model
    folds: tuple[Fold, ...]
    splits: Splits
    data: Json  # of results.json
    curve: Curve | None = None
    source: Json = field(default_factory=dict)  # JSON that travels with every run: how the command line reads the data
    options: dict[str, str] | None = None  # of `posteria fit`, for this model; None where it has no words for it
    shift: Asked | None = None  # under which methods are scored too

    @property
    def kind(self) -> str:
        return kind_of(self.model)

    @property
    def num_classes(self) -> int:
        return len(self.data["class_names"])

    @property
    def setting(self) -> Json:
        """Of results.json: the model and the splits."""
        return {
            "network": _spelled(self.model),
            "likelihood": repr(self.model.likelihood),
            "prior": repr(self.model.prior),
            "temperature": self.model.temperature,
            "split": self.splits.about,
            "seeds": [fold.seed for fold in self.folds],
        }


def kind_of(model: Model) -> str:
    return "classes" if hasattr(model.likelihood, "probs") else "regression"


def ask(
    data: Any,
    target: str | None = None,
    *,
    model: Model | None = None,
    kind: str | None = None,
    network: Any = NETWORK,
    likelihood: Any = None,
    prior: Any = None,
    temperature: float = 1.0,
    seeds: int | list[int] = SEEDS,
    split: str = "random",
    group: str | None = None,
    time: str | None = None,
    test: Any = None,
    out_of_distribution: Mapping[str, Any] | None = None,
    ignore: Sequence[str] = (),
    as_: Mapping[str, str] = {},
    encoding: str | None = None,
    name: str | None = None,
    shift: Any = None,
    attack: Any = None,
) -> Problem:
    """A problem on `data`: the path of a table (or a frame) with its `target`, of an npz, or a data set's name.

    How a table is read is in `data["table"]` of the problem; `as_={"column": "date"}` takes a column otherwise. An npz
    holds x and y. Such data are encoded and standardised by their training rows, and get a model of `network`.
    With a `model`, `data = (x, y)` are arrays that it takes as they are, and so are `test` rows. `shift` (True, or
    names) and `attack` (sizes) ask for scores under these too.
    """
    numbers = seeds_of(seeds)
    is_as_it_came = (shift is None or shift is False) and attack is None
    under = None if is_as_it_came else asked(shift, attack)
    if model is None:
        source = _source(data, target, kind, ignore, as_, encoding)
    else:
        source = _as_they_are(model, data, name or "data")
    tested = _test_rows(model, test, source, encoding)
    source, found = _split(source, numbers, split, group, time, tested)
    foreign = dict(out_of_distribution or {})
    folds = tuple(_fold(seed, source, part, foreign, model is None) for seed, part in zip(numbers, found.parts))
    if tested is not None and model is None:  # numbered as in their own file
        folds = tuple(replace(fold, test_rows=tested.row_numbers(slice(None))) for fold in folds)
    elif source.num_test and split == "random" and model is None:  # a set that has its own test rows: among these
        folds = tuple(replace(fold, test_rows=np.arange(source.num_test)) for fold in folds)
    facts = _facts(source, folds)
    if group or time:
        facts["notes"].append(f"column {group or time!r} splits the rows and is no input")
    title = f"{source.name}: {target}" if target else source.name
    if model is not None:
        facts["directions"] = _directions(model, folds[0])
        return Problem(source.name, title, model, folds, found, facts, shift=under)
    preparation: Any = folds[0].preparation
    made = model_for(
        preparation.kind,
        preparation.num_outputs,
        len(folds[0].y_train),
        network,
        likelihood=likelihood,
        prior=prior,
        temperature=temperature,
    )
    facts["directions"] = _directions(made, folds[0])  # refuses what cannot be fitted, and says why
    said = {
        "data": str(data) if isinstance(data, str | Path) else "DATA",
        "target": target,
        "kind": kind,
        "ignore": [*ignore, *filter(None, (group, time))],
        "as": dict(as_),
        "encoding": encoding,
        "network": network if isinstance(network, str) else "NETWORK",
    }
    options = _options(likelihood, prior, temperature)
    return Problem(source.name, title, made, folds, found, facts, _curve(folds[0]), said, options, under)


def seeds_of(seeds: int | list[int]) -> list[int]:
    """Their numbers, or those from 0 on."""
    if not isinstance(seeds, list | tuple):
        return list(range(checked("compare", "seeds", seeds, Annotated[int, up_to(1, MOST_SEEDS)], 1)))
    if not seeds:
        raise SettingError(f"seeds is {seeds!r}", "at least one", "5 gives standard errors")
    return [checked("compare", "seeds", seed, CountFromZero, 1) for seed in seeds]


# ---- rows


def _source(
    data: Any,
    target: str | None,
    kind: str | None,
    ignore: Sequence[str],
    as_: Mapping[str, str],
    encoding: str | None,
) -> Origin:
    if isinstance(data, str | Path):
        return read_origin(str(data), target, kind, ignore, as_, encoding)
    return origin_of_frame(data, target, kind, ignore, as_=as_)


def _as_they_are(model: Model, data: tuple[Any, Any], name: str) -> Origin:
    if len(data) > 2:
        raise DataError("data with weights", "(x, y): test rows count once each", "leave the weights out")
    target = Target(model, data)  # refuses what cannot be fitted, and says why
    kind = kind_of(model)
    num_classes = max(target.num_outputs or 0, 2) if kind == "classes" else 0  # one output is two classes
    class_names = tuple(map(str, range(num_classes)))
    return Origin(name, kind, "", class_names, None, check_x(data[0]), np.asarray(target.data[1]))  # type: ignore[index]


def _test_rows(model: Model | None, test: Any, source: Origin, encoding: str | None) -> Origin | None:
    if test is None:
        return None
    if model is None:
        return read_more(test, source, encoding)
    x = check_x(test[0], "test x")
    num_outputs = Target(model, (rows(source.x, slice(0, 1)), None)).num_outputs or 1
    y = np.asarray(model.likelihood.check(test[1], num_outputs))
    check_same_length(x, y)
    return replace(source, x=x, y=y)


def _split(
    source: Origin, seeds: list[int], split: str, group: str | None, time: str | None, test: Origin | None
) -> tuple[Origin, Splits]:
    """The rows (with given test rows behind them, without a column that only splits), and a split a seed."""
    ways = [name for name, way in {"group": group, "time": time, "test": test}.items() if way is not None]
    if len(ways) > 1 or (ways and split != "random"):
        raise SettingError(f"{' and '.join([*ways, split])}", "one way to split the rows", "leave the others out")
    if test is not None:
        source = source.with_test(test)
    elif ways:
        if source.frame is None:
            raise SettingError(f"a split by {ways[0]}", "a CSV for that", "leave it out")
        by, column = (splits.by_time, time) if group is None else (splits.by_group, group)
        if column == source.target:
            raise SettingError(f"a split by {column!r}, the target", "another column", "name one, or leave it out")
        found = by(source.frame, str(column), seeds)
        return source.without(str(column)), found
    if source.num_test and split == "random":
        return source, splits.last_rows(source.num_rows, source.num_test, seeds)
    return source, splits.of_rows(source.num_rows, split, seeds)


def _fold(seed: int, source: Origin, split: Split, given: Json, is_prepared: bool) -> Fold:
    """One split; inputs out of distribution are those given, the data set's partners, or the furthest of its rows."""
    train, test = split
    if not is_prepared:
        (x_train, y_train), (x_test, y_test) = (source.part(None, part) for part in split)
        out = {name: check_x(x, name) for name, x in given.items()}
        far = {} if out else extremes(x_train, x_test)
        columns = Features.of(x_train, x_test, lambda x: x)
        return Fold(seed, (x_train, y_train), y_train, x_test, y_test, far=far, out=out, features=columns)
    preparation, (x_train, y_train) = source.prepare(train)
    x_test, y_test = source.part(preparation, test)
    out = {name: preparation.inputs(x) for name, x in (given or source.foreign(test)).items()}
    far = {} if out else extremes(x_train, x_test)
    own = (y_train, y_test) if source.kind == "classes" else (source.own_targets(train), source.own_targets(test))
    numbers = source.row_numbers(test)
    came = source.x if source.frame is None else source.frame.drop(columns=source.target)
    first, second = (came[part] if source.frame is None else came.iloc[part] for part in split)
    columns = Features.of(first, second, preparation.inputs)
    fold = Fold(seed, (x_train, y_train), own[0], x_test, own[1], preparation.y, far, out, preparation, numbers)
    return replace(fold, features=columns)


# ---- what is said of them


def describe(
    name: str,
    kind: str,
    folds: tuple[Fold, ...],
    *,
    num_rows_all: int,
    columns: int,
    class_names: tuple[str, ...] = (),
    **more: Any,
) -> Json:
    """The `data` part of results.json."""
    return {
        "name": name,
        "rows": num_rows_all,
        "train_rows": num_rows(folds[0].train[0]),
        "test_rows": len(folds[0].y_test),
        "columns": columns,
        "categorical": 0,
        "kind": kind,
        "target": "",
        "class_names": list(class_names),
        "guess": guess(kind, [(fold.y_train, fold.y_test) for fold in folds]),
        "fingerprint": folds[0].fingerprint,
        "notes": [],
        "directions": None,  # of the inputs, those without variance
        "table": None,  # how its columns are taken: see `data.table_plan`
    } | more


def _facts(source: Origin, folds: tuple[Fold, ...]) -> Json:
    """The `data` part of results.json."""
    preparation = folds[0].preparation
    encoder = None if preparation is None else preparation.encoder
    return describe(
        source.name,
        "classes" if source.kind == "classes" else "regression",
        folds,
        num_rows_all=source.num_rows,
        columns=num_features(source.x) if encoder is None else len(encoder.columns),
        class_names=source.class_names,
        categorical=0 if encoder is None else sum(isinstance(column, Category | Means) for column in encoder.columns),
        target=source.target,
        notes=[] if source.plan is None else list(source.plan.notes),
        table=source.plan and source.plan.to_json(),
    )


def _directions(model: Model, fold: Fold) -> Json | None:
    """Of the training inputs, those without variance."""
    target = Target(model, fold.train)
    return flat_directions(fold.train[0], [leaf.shape for leaf in jax.tree.leaves(target.structs)])


def num_features(x: Data) -> int:
    return sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(x))


def _curve(fold: Fold) -> Curve | None:
    """A line through and beyond the data, where there is one input and one real target."""
    preparation = fold.preparation
    x = fold.train[0]
    if preparation is None or preparation.y is None or preparation.x is None or x.shape[1:] != (1,):
        return None
    low, high = float(preparation.lowest[0]), float(preparation.highest[0])
    margin = 0.3 * (high - low)
    grid = np.linspace(low - margin, high + margin, CURVE_POINTS)
    return Curve(grid, preparation.standardised(grid[:, None]), preparation.x.invert(x)[:, 0])


def _options(likelihood: Any, prior: Any, temperature: float) -> dict[str, str] | None:
    """Of `posteria fit`, which knows of priors one std for all weights, and of likelihoods the data's own."""
    is_plain = isinstance(prior, Normal) and isinstance(prior.std, int | float)
    if likelihood is not None or not (prior is None or is_plain):
        return None
    options = {} if prior is None else {"--prior-std": f"{prior.std:g}"}
    return options | ({} if temperature == 1.0 else {"--temperature": f"{temperature:g}"})


def _spelled(model: Model) -> str:
    """The network, as a reader would write it."""
    spec = model.network.spec
    if spec is None:
        return "your own network"
    settings = ", ".join(f"{key}={value}" for key, value in spec["settings"].items() if value is not None)
    return f"{spec['name']}({settings})"
