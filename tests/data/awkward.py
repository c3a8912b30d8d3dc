"""Files as people have them. Each maker writes one into a folder, and says its target and how it should be taken."""

import gzip
from typing import NamedTuple

import numpy as np
import pandas as pd


class Awkward(NamedTuple):
    path: object
    target: str
    kind: str
    taken: dict[str, str]  # of every column but the target
    rows: int
    said: tuple[str, ...] = ()  # in the plan's text


def _signal(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    return rng, a, np.round(a + 0.3 * rng.normal(size=n), 4)


def _dated(folder, name, spelling):
    n = 800
    rng, a, y = _signal(n)
    when = pd.Timestamp("2021-03-01") + pd.to_timedelta(np.sort(rng.integers(0, 1000, n)), unit="D")
    season = 3 * np.sin(2 * np.pi * when.day_of_year / 365.25)
    frame = pd.DataFrame({"when": when.strftime(spelling), "a": a.round(4), "y": (y + season).round(4)})
    frame.to_csv(folder / name, index=False)
    return Awkward(folder / name, "y", "regression", {"when": "date", "a": "number"}, n, ("year, month, week",))


def iso_dates(folder):
    return _dated(folder, "iso.csv", "%Y-%m-%d")


def day_first_dates(folder):
    return _dated(folder, "day_first.csv", "%d.%m.%Y")


def month_first_dates(folder):
    return _dated(folder, "month_first.csv", "%m/%d/%Y %H:%M")


def latin_1(folder):
    rng, a, y = _signal(300)
    city = rng.choice(["München", "Zürich", "Orléans"], 300)
    frame = pd.DataFrame({"größe": a.round(3), "stadt": city, "preis": y})
    frame.to_csv(folder / "latin.csv", index=False, encoding="latin-1")
    taken = {"größe": "number", "stadt": "category"}
    return Awkward(folder / "latin.csv", "preis", "regression", taken, 300, ("cp1252",))


def decimal_commas(folder):
    _, a, y = _signal(300)
    frame = pd.DataFrame({"a": a.round(3), "b": np.arange(300) % 7, "y": y})
    frame.to_csv(folder / "commas.csv", index=False, sep=";", decimal=",")
    return Awkward(folder / "commas.csv", "y", "regression", {"a": "number", "b": "number"}, 300)


def byte_order_mark(folder):
    _, a, y = _signal(300)
    pd.DataFrame({"naïve": a, "y": y}).to_csv(folder / "bom.csv", index=False, encoding="utf-8-sig")
    pd.DataFrame({"naïve": a, "y": y}).to_csv(folder / "utf16.csv", index=False, encoding="utf-16")
    return Awkward(folder / "bom.csv", "y", "regression", {"naïve": "number"}, 300)


def utf_16(folder):
    return byte_order_mark(folder)._replace(path=folder / "utf16.csv")


def packed(folder):
    _, a, y = _signal(300)
    text = pd.DataFrame({"a": a, "y": y}).to_csv(index=False)
    with gzip.open(folder / "packed.csv.gz", "wt") as file:
        file.write(text)
    return Awkward(folder / "packed.csv.gz", "y", "regression", {"a": "number"}, 300)


def parquet(folder):
    _, a, y = _signal(300)
    when = pd.date_range("2020-01-01", periods=300, freq="h")
    frame = pd.DataFrame({"a": a, "when": when, "c": np.array(list("uvw"))[np.arange(300) % 3], "y": y})
    frame.to_parquet(folder / "t.parquet")
    taken = {"a": "number", "when": "date", "c": "category"}
    return Awkward(folder / "t.parquet", "y", "regression", taken, 300, ("days since the first, day",))


def repeated_names(folder):
    _, a, y = _signal(100)
    rows = "\n".join(f"{one:.3f},{one**2:.3f},{two}" for one, two in zip(a, y))
    (folder / "twice.csv").write_text(f"a, a ,y\n{rows}\n")
    return Awkward(
        folder / "twice.csv", "y", "regression", {"a": "number", "a (2)": "number"}, 100, ("several columns",)
    )


def missing_targets(folder):
    _, a, y = _signal(200)
    pd.DataFrame({"a": a, "y": np.where(np.arange(200) % 10 == 3, np.nan, y)}).to_csv(folder / "gaps.csv", index=False)
    return Awkward(folder / "gaps.csv", "y", "regression", {"a": "number"}, 180, ("20 rows without a target",))


def identifiers_and_constants(folder):
    rng, a, y = _signal(200)
    frame = pd.DataFrame(
        {
            "Id": rng.permutation(10_000)[:200],
            "row": np.arange(1, 201),
            "record": np.arange(200),
            "hash": [f"{rng.integers(2**40):x}" for _ in range(200)],
            "country": "NL",
            "scale": 1.0,
            "empty": np.nan,
            "year": 1800 + np.arange(200),
            "a": a,
            "label": np.where(y > 1.4, "hit", "no"),
        }
    )
    frame.to_csv(folder / "ids.csv", index=False)
    taken = dict.fromkeys(("Id", "row", "record", "hash"), "id") | dict.fromkeys(
        ("country", "scale", "empty"), "constant"
    )
    taken |= {"a": "number", "year": "number"}
    return Awkward(folder / "ids.csv", "label", "classes", taken, 200, ("left out",))


def many_valued_text(folder):
    rng, a, y = _signal(20_000)
    street = rng.integers(0, 5000, 20_000)
    effect = rng.normal(size=5000)
    words = ["quiet", "sunny", "old", "new", "large", "small", "flat", "house", "near", "park", "station", "garden"]
    frame = pd.DataFrame(
        {
            "street": [f"Street {number}" for number in street],
            "about": [" ".join(rng.choice(words, 8)) + f" {i}" for i in range(20_000)],
            "a": a.round(3),
            "y": (y + effect[street]).round(3),
        }
    )
    frame.to_csv(folder / "text.csv", index=False)
    taken = {"street": "category", "about": "text", "a": "number"}
    return Awkward(folder / "text.csv", "y", "regression", taken, 20_000, ("mean of the target", "words, hashed"))


def counted(folder):
    rng, a, _ = _signal(600)
    pd.DataFrame({"a": a, "visits": rng.poisson(np.exp(0.3 + 0.6 * a))}).to_csv(folder / "counts.csv", index=False)
    return Awkward(folder / "counts.csv", "visits", "counts", {"a": "number"}, 600, ("counts something",))


def wide(folder):
    rng, _, y = _signal(300)
    frame = pd.DataFrame(rng.normal(size=(300, 500)).round(3), columns=[f"x{i}" for i in range(500)])
    frame.assign(y=y + frame["x3"]).to_csv(folder / "wide.csv", index=False)
    taken = {f"x{i}": "number" for i in range(500)}
    return Awkward(folder / "wide.csv", "y", "regression", taken, 300, ("500 columns: x0, ..., x499",))


def thirty_rows(folder):
    _, a, y = _signal(30)
    frame = pd.DataFrame({"a": a, "group": np.array(["u", "v", "w"])[np.arange(30) % 3], "y": y})
    frame.to_csv(folder / "small.csv", index=False)
    return Awkward(folder / "small.csv", "y", "regression", {"a": "number", "group": "category"}, 30)


def very_long(folder):
    rng, a, y = _signal(200_000)
    frame = pd.DataFrame({"a": a.round(3), "b": rng.normal(size=200_000).round(2), "y": y})
    frame.to_csv(folder / "long.csv", index=False)
    return Awkward(folder / "long.csv", "y", "regression", {"a": "number", "b": "number"}, 200_000)


MAKERS = (
    iso_dates,
    day_first_dates,
    month_first_dates,
    latin_1,
    decimal_commas,
    byte_order_mark,
    utf_16,
    packed,
    parquet,
    repeated_names,
    missing_targets,
    identifiers_and_constants,
    many_valued_text,
    counted,
    wide,
    thirty_rows,
    very_long,
)
