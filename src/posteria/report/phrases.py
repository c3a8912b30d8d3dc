"""Numbers and sentences as the report says them."""

import math
from typing import Any

from posteria.comparison.tell.results import in_words
from posteria.report.reading import Problem

MINUS = "\N{MINUS SIGN}"
NOTHING = "\N{EN DASH}"
NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"


def number(value: float | None, digits: int = 3) -> str:
    """To `digits` significant digits, thousands set apart, whole numbers of four digits and more in full."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == 0:
        return "0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    if places > 6:
        return f"{value:.{max(digits - 1, 0)}e}".replace("-", MINUS)
    return f"{value:,.{places}f}".replace("-", MINUS).replace(",", NARROW_SPACE)


def fixed(value: float | None, places: int) -> str:
    """With `places` decimals, so that a column lines up."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:,.{places}f}".replace("-", MINUS).replace(",", NARROW_SPACE)


def count(how_many: int, what: str) -> str:
    plural = what if how_many == 1 else f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{how_many:,} {plural}".replace(",", NARROW_SPACE)


def with_unit(column: dict[str, Any]) -> str:
    is_said = column["unit"].lower() in column["title"].lower()
    return column["title"] if is_said else f"{column['title']}, {column['unit']}"


def distance_column(problem: Problem) -> dict[str, Any] | None:
    """The first score of distance to the reference that any row was judged by."""
    for column in problem.columns:
        is_distance = column["group"] == "truth" and column["better"] == "lower"
        if is_distance and any(row.score(column["key"]) is not None for row in problem.rows if row.role != "reference"):
            return column
    return None


def cost_column(problem: Problem) -> dict[str, Any] | None:
    """Seconds where they are known, else the first column of cost."""
    costs = [column for column in problem.columns if column["group"] == "cost"]
    return next((column for column in costs if column["key"] == "seconds"), costs[0] if costs else None)


def progress(problem: Problem) -> str:
    """How far the comparison is, or nothing when all rows are there."""
    open_rows = [row for row in problem.rows if row.facts["status"] in ("waiting", "running")]
    if not open_rows:
        return ""
    done = len(problem.rows) - len(open_rows)
    running = [row.label for row in open_rows if row.facts["status"] == "running"]
    now = f"; {', '.join(running)} is being fitted" if running else ""
    return f"{done} of {count(len(problem.rows), 'row')} are here{now}. This page renews itself."


def judged_by(problem: Problem) -> str:
    """What methods are compared by, a sentence each."""
    rest = "density" if problem.is_regression else "probability"
    told = [
        f"They are ranked by the {rest} that they gave to what came true on held-out rows (NLL: its negative "
        "logarithm, lower is better): being sure pays where one is right, and costs where one is not."
    ]
    if any(column["key"] == "joint" for column in problem.columns):
        told.append(
            "Joint NLL asks the same of ten neighbouring rows at once: it is lower where a method knows that it would "
            "be wrong about all of them together."
        )
    distance = phrase_of.get(column["key"]) if (column := distance_column(problem)) else None
    if distance:
        told.append(
            f"{distance} tells how far predictions are from those of the reference, long chains that stand for the "
            "exact answer under this model."
        )
    told.append("The prior says what weights were thought likely before any data: the same for all.")
    return " ".join(told)


phrase_of = {"w1": "W1", "tv": "TV, total variation,"}


def data_line(problem: Problem) -> str:
    data = problem.data
    kind = "a number" if problem.is_regression else f"one of {count(len(data['class_names']), 'class')}"
    parts = [
        count(data["rows"], "row"),
        f"{data['train_rows']:,} to fit and {data['test_rows']:,} held out".replace(",", NARROW_SPACE),
        count(data["columns"], "column") + (f" ({data['categorical']} categorical)" if data["categorical"] else ""),
        f"predicts {data['target']}, {kind}" if data["target"] else f"predicts {kind}",
    ]
    return " · ".join(parts)


def directions_line(problem: Problem) -> str:
    """Of inputs that do not vary; nothing where all do."""
    told = in_words(problem.data.get("directions"))
    return f"{told}." if told else ""


def setting_line(problem: Problem) -> str:
    setting = problem.facts["setting"]
    parts = [setting["network"], setting["likelihood"], f"prior {setting['prior']}"]
    if setting["temperature"] != 1:
        parts.append(f"temperature {setting['temperature']:g}")
    parts += [f"split: {setting['split']}", count(len(setting["seeds"]), "seed")]
    parts.append(f"budget {setting['budget']}" if setting["budget"] else "each method's own budget")
    return " · ".join(parts)
