"""The page's section on shift: what happens to each method as data stop being like those it learnt from. Pictures, a
table and sentences, all from the "shift" of results.json."""

import json
from typing import Any, NamedTuple

import numpy as np

from posteria.plots import severity, svg, theme
from posteria.plots.side_by_side import Series
from posteria.report import phrases
from posteria.report.reading import Drawings, Problem

_drawings = Drawings[list[dict[str, Any]]](most=64)

TITLE = "What if new data are not like these?"
LEAD = (
    "Held-out rows are changed as data change in use, from as they came (0) to the most severe (5), and every method "
    "is scored on them again; nothing is fitted anew. Scores fall for all: what matters is how fast, and whether a "
    "method says that it is less sure."
)
SHOWN = (0, 3, 5)  # severities in the table; results.json has all
MOST_SIZES = 3  # of attacks, shown beside the rows as they came
ORDINARY = {"rmse": 3, "nll": 3, "coverage_90": 2, "accuracy": 2, "ece": 3}  # digits
MEANINGS = {
    "rmse": "how far predictions are off",
    "nll": "surprise at what came true; lower is better",
    "coverage_90": "share of truths inside 90 % intervals; the dashed line is what was promised",
    "accuracy": "share of rows whose class is right",
    "ece": "how far stated probabilities are from what came true",
}


class ShiftTable(NamedTuple):
    title: str
    groups: list[tuple[str, int]]  # a score, and how many columns it has
    header: list[str]
    parts: list[tuple[str, list[tuple[str, list[str]]]]]  # a condition: its rows, label and cells


def section(problem: Problem) -> dict[str, Any] | None:
    """As the template's sections are, with its tables and texts; None where nothing was shifted."""
    shift = problem.facts.get("shift")
    if not shift or not shift["found"]:
        return None
    about = json.dumps([shift, [[row.name, row.label, row.style] for row in problem.rows]])
    return {
        "title": TITLE,
        "lead": LEAD,
        "texts": shift["texts"],
        "figures": [figure for figure in _drawings.get(about, lambda: _figures(problem)) if figure],
        "tables": [table for table in (_table(problem, False), _table(problem, True)) if table],
        "caption": f"By {shift['rows']:,} held-out rows, the same for all methods, and at most {shift['draws']} draws.",
        "is_appendix": False,
    }


def _figures(problem: Problem) -> list[dict[str, Any]]:
    shift = problem.facts["shift"]
    rows = [row for row in problem.rows if row.name in shift["found"]]
    labels = [(row.label, row.style) for row in rows]
    found = [_legend(labels, problem.facts["title"])]
    for condition in shift["conditions"]:
        drawings = []
        for score in shift["scores"]:
            series = [
                Series(row.label, row.style, np.array(condition["levels"]), _values(each))
                for row in rows
                if (each := shift["found"][row.name].get(condition["name"], {}).get(score["key"]))
            ]
            series = [one for one in series if np.isfinite(one.y).any()]
            if series:
                drawings.append(
                    {"label": score["title"], "svg": _drawn(series, condition, score, problem.facts["title"])}
                )
        if drawings:
            title = {"attack": "An attack on the method itself", "transfer": "An attack on another network"}.get(
                condition["name"], condition["name"].replace("_", " ").capitalize()
            )
            caption = condition["about"][0].upper() + condition["about"][1:] + "."
            if condition["is_attack"]:
                caption += f" Sizes are {condition['unit']}."
            found.append({"title": title, "caption": caption, "size": "small", "drawings": drawings})
    return found


def _values(each: dict[str, Any]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in each["value"]], np.float64)


def _drawn(series: list[Series], condition: dict[str, Any], score: dict[str, Any], title: str) -> str:
    word = "size" if condition["is_attack"] else "severity"
    goal = 0.9 if score["key"] == "coverage_90" else None
    with svg.Canvas(svg.SMALL) as canvas:
        severity.by_severity(canvas.axes[0], series, word, goal)
        ends = "; ".join(
            f"{one.label} {phrases.number(one.y[0], 3)} to {phrases.number(one.y[-1], 3)}" for one in series
        )
        name = condition["name"].replace("_", " ")
        return canvas.svg(f"{score['title']} from rows as they came to the largest {word} of {name}, {title}: {ends}")


def _legend(labels: list[tuple[str, theme.Style]], title: str) -> dict[str, Any]:
    lines = -(-len(labels) // svg.LEGEND_COLUMNS)
    with svg.Canvas((svg.LARGE[0], (svg.LEGEND_LINE * lines + 30) / svg.POINTS_PER_INCH)) as canvas:
        severity.legend(canvas.axes[0], labels)
        drawn = canvas.svg(f"{title}, which line is which: " + ", ".join(label for label, _ in labels))
    return {"title": "Which line is which", "caption": "", "size": "legend", "drawings": [{"label": "", "svg": drawn}]}


def _table(problem: Problem, is_attack: bool) -> ShiftTable | None:
    shift = problem.facts["shift"]
    conditions = [one for one in shift["conditions"] if one["is_attack"] == is_attack]
    if not conditions:
        return None
    if is_attack:
        places = list(range(min(len(conditions[0]["levels"]), 1 + MOST_SIZES)))
        header = ["as they came", *(f"size {conditions[0]['levels'][place]:g}" for place in places[1:])]
    else:
        places = [place for place, level in enumerate(conditions[0]["levels"]) if level in SHOWN]
        header = ["as they came" if not level else f"severity {level:g}" for level in SHOWN]
    parts = []
    for one in conditions:
        lines = []
        for row in problem.rows:
            found = shift["found"].get(row.name, {}).get(one["name"])
            if found:
                cells = [
                    _cell(found[score["key"]], place, score["key"]) for score in shift["scores"] for place in places
                ]
                lines.append((row.label, cells))
        name = {"attack": "an attack on the method itself", "transfer": "an attack on another network"}
        parts.append((name.get(one["name"], one["name"].replace("_", " ")), lines))
    groups = [(f"{score['title']}: {MEANINGS[score['key']]}", len(places)) for score in shift["scores"]]
    title = "Scores on rows that were moved on purpose" if is_attack else "Scores by severity"
    return ShiftTable(title, groups, header * len(shift["scores"]), parts)


def _cell(found: dict[str, Any], place: int, key: str) -> str:
    value, error = found["value"][place], found["se"][place]
    if value is None:
        return "inf"
    return phrases.number(value, ORDINARY[key]) + (f" ± {phrases.number(error, 2)}" if error else "")
