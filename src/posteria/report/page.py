"""From a folder of results to its index.html: one file that needs nothing else, written anew after each row."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from posteria import disk
from posteria.comparison.tell import results
from posteria.comparison.tell.first_screen import first_screen
from posteria.errors import StoreError
from posteria.plots import theme
from posteria.plots.svg import Canvas
from posteria.report import page_tables, phrases, shift_page
from posteria.report.page_figures import FOR_EVERYBODY, SECTIONS, Figure, Section
from posteria.report.reading import Drawings, Problem, Row, problem

_drawings = Drawings[str](most=1024)

ANSWERS = {"best": "Best on held-out data", "closest": "Closest to the posterior"}


def write(folder: str | Path) -> Path:
    """Write `folder`/index.html from `folder`/results.json and the arrays beside it, finished or not; its path."""
    folder = Path(folder)
    if not (folder / results.FILE).exists():
        raise StoreError(f"{folder} has no {results.FILE}", "the folder of a comparison", "give what compare wrote")
    found = results.read(folder)
    with disk.refuse_damage(folder):
        page = render(found, folder)
    disk.write_bytes(folder / "index.html", page.encode())
    return folder / "index.html"


def render(found: dict[str, Any], folder: Path) -> str:
    """The page for these results, with the arrays beside them."""
    problems = [problem(facts, folder) for facts in found["problems"]]
    template, style, script = _assets()
    return template.render(
        results=found,
        problems=[_shown(one, _facts(found, one)) for one in problems],
        style=_colour_names() + style,
        script=script,
    )


def _shown(one: Problem, facts: list[tuple[str, str]]) -> dict[str, Any]:
    """What the template says of one problem, in its order."""
    answers = one.facts["answers"]
    first = first_screen(one.facts)
    chosen = one.row(first["row"])
    sections = [shown for section in SECTIONS if (shown := _section(section, one, chosen))]
    reference = one.facts["reference"] or {"verdict": "", "converged": None}
    return {
        "id": one.facts["name"],
        "title": one.facts["title"],
        "data_line": phrases.data_line(one),
        "setting_line": phrases.setting_line(one),
        "notes": one.data["notes"],
        "read": one.data.get("table"),
        "directions": phrases.directions_line(one),
        "progress": phrases.progress(one),
        "answers": [_answer(one, key, title) for key, title in ANSWERS.items() if key in answers],
        "judged_by": phrases.judged_by(one),
        "first": first,
        "hands_on": [shown for section in FOR_EVERYBODY if (shown := _section(section, one, chosen))],
        "table": page_tables.scores(one),
        "verdict": "" if reference["verdict"] in _said(answers) else reference["verdict"],
        "is_judged": reference["converged"] is not False,
        "shift": shift_page.section(one),
        "sections": [section for section in sections if not section["is_appendix"]],
        "appendix": [section for section in sections if section["is_appendix"]],
        "chosen": chosen.label if chosen else "",
        "remarkable": page_tables.remarkable_rows(one, chosen) if chosen else [],
        "numbers_are_of_file": chosen is not None and chosen.has("row"),
        "next": one.facts["next"],
        "facts": facts,
    }


def _said(answers: dict[str, Any]) -> str:
    return " ".join(answer["text"] for answer in answers.values())


def _answer(one: Problem, key: str, title: str) -> dict[str, str]:
    answer = one.facts["answers"][key]
    named = [row for name in answer.get("rows", [answer["row"]]) if (row := one.row(name))]
    label = "" if not named else named[0].label if len(named) == 1 else f"{len(named)} that cannot be told apart"
    text = answer["text"].removeprefix(f"{title}: ").removeprefix(f"{label}, ")  # said by the headings
    return {"title": title, "label": label, "text": text[:1].upper() + text[1:]}


def _section(section: Section, one: Problem, chosen: Row | None) -> dict[str, Any] | None:
    figures = [shown for figure in section.figures if (shown := _figure(figure, one, chosen))]
    if not figures:
        return None
    return {"title": section.title, "lead": section.lead, "figures": figures, "is_appendix": section.is_appendix}


def _figure(figure: Figure, one: Problem, chosen: Row | None) -> dict[str, Any] | None:
    rows = [row for row in one.rows if row.has(*figure.needs) and (not figure.of_chosen or row is chosen)]
    if not rows:
        return None
    if figure.together:
        about = json.dumps([one.facts, [row.identity for row in rows]], default=str)
        drawings = [{"label": "", "svg": _drawn(figure, about, rows, one)}]
    else:
        reference = one.reference.identity if one.reference else ""
        about = json.dumps([one.data, reference], default=str)
        drawings = [
            {
                "label": "" if figure.of_chosen else row.label,
                "svg": _drawn(figure, about + row.identity, row, one),
            }
            for row in rows
        ]
    drawings = [drawing for drawing in drawings if drawing["svg"]]
    size = "wide" if figure.together else "middle" if figure.size[0] > 3 else "small"
    return {"title": figure.title, "caption": figure.caption, "size": size, "drawings": drawings} if drawings else None


def _drawn(figure: Figure, about: str, what: Row | list[Row], one: Problem) -> str:
    """The picture as SVG, or nothing if there is nothing to draw; the same `about` is not drawn twice."""

    def draw() -> str:
        with Canvas(figure.size, figure.columns, figure.share_y) as canvas:
            alt = figure.draw(canvas.axes if figure.columns > 1 else canvas.axes[0], what, one)
            return canvas.svg(alt) if alt else ""

    return _drawings.get((figure, about), draw)


def _facts(found: dict[str, Any], one: Problem) -> list[tuple[str, str]]:
    """Where a problem's numbers come from."""
    data, setting = one.data, one.facts["setting"]
    pairs = [
        ("command", found["command"]),
        ("data", data["name"]),
        ("fingerprint of the data", data["fingerprint"]),
        *((key, setting[key]) for key in ("split", "seeds", "network", "likelihood", "prior", "temperature")),
        *((f"scales learnt, {row.label}", row.facts["prior"]) for row in one.rows if "prior" in row.facts),
        ("budget", setting["budget"] or "each method's own"),
        ("tuned on validation data", "yes" if setting["tune"] else "no"),
        ("reference", setting["reference"]),
        ("reference's cap", f"{setting['minutes']:g} minutes" if setting["minutes"] else None),
        ("begun", found["created"]),
        (
            "versions",
            [f"{name} {version}" for name, version in ({"posteria": found["posteria"]} | found["versions"]).items()],
        ),
    ]
    return [(name, _plain(value)) for name, value in pairs if value not in (None, "", [])]


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _colour_names() -> str:
    """The theme's colours as CSS variables, light and dark; paper is for printing, which is light."""
    every = {"paper": theme.PAPER, **theme.COLOURS}
    light = "".join(f"--{name}:{colour.light};" for name, colour in every.items())
    dark = "".join(f"--{name}:{colour.dark};" for name, colour in every.items())
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


@cache  # of files of this package
def _assets() -> tuple[Any, str, str]:
    """The template, its style sheet and its script."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    here = files("posteria.report")
    text = {name: here.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")}
    return environment.from_string(text["page.html"]), text["page.css"], text["page.js"]
