"""Results as tables: text for a terminal, CSV, LaTeX, and HTML for a notebook."""

import csv
import io
from typing import Any

from posteria.tree import Json

WIDTH = 160  # characters, where there is no terminal to ask
GAP = 3  # between columns


def cell(row: Json, column: Json) -> str:
    """A score as it is shown: "0.312 ± 0.010", a text, or a dash."""
    score = row["scores"][column["key"]]
    if score.get("text"):
        return score["text"]
    if score["value"] is None:
        return "-"
    shown = number(score["value"], column["digits"])
    return f"{shown} ± {number(score['se'], column['digits'])}" if score["se"] and column["group"] != "cost" else shown


def number(value: float, digits: int) -> str:
    """At least `digits` decimals, and three significant ones of small numbers."""
    if value and abs(value) < 10.0**-digits:
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"


def as_text(found: Json, width: int = WIDTH) -> str:
    """For a terminal or a file, without colours: no number is cut, whatever the width."""
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(file=buffer, width=10_000, force_terminal=False, force_jupyter=False)
    for problem in found["problems"]:
        for shown in _tables(problem, width):
            console.print(shown)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _tables(problem: Json, width: int) -> list[Any]:
    """One rich table, or several below each other so that each fits; minor columns left out."""
    label_width = max(len(_label(row)) for row in problem["rows"])
    parts: list[list[Json]] = [[]]
    used = label_width
    for column in problem["columns"]:
        if column["minor"]:
            continue
        needed = GAP + max(len(text) for text in [column["title"], *(_shown(row, column) for row in problem["rows"])])
        if parts[-1] and used + needed > width:
            parts.append([])
            used = label_width
        parts[-1].append(column)
        used += needed
    shown = [_table(problem, part) for part in parts]
    shown[0].title = problem["title"]
    shown[-1].caption = "\n".join(_remarks(problem)) or None
    return shown


def _table(problem: Json, columns: list[Json]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(title_justify="left", title_style="bold", caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for column in columns:
        shown.add_column(column["title"], justify="right", no_wrap=True)
    for row in problem["rows"]:
        cells = [Text(_shown(row, column), "bold" if _is_best(row, column["key"]) else "") for column in columns]
        shown.add_row(Text(_label(row)), *cells)
    return shown


def _label(row: Json) -> str:
    """With what is to be known of it."""
    states = {"failed": " (failed)", "waiting": " (waiting)", "running": " (running)", "cut short": " (cut short)"}
    return row["label"] + (" *" if row["labels"] else "") + states.get(row["status"], "")


def _shown(row: Json, column: Json) -> str:
    return "" if row["status"] in ("failed", "waiting") else cell(row, column)


def _remarks(problem: Json) -> list[str]:
    marked = sorted({label for row in problem["rows"] for label in row["labels"]})
    failed = [f"{row['label']} failed: {row['reason']}" for row in problem["rows"] if row["status"] == "failed"]
    done = [f"{row['label']}: {row['reason']}" for row in problem["rows"] if row["status"] == "done" and row["reason"]]
    return [*(f"* {label}" for label in marked), *failed, *done]


def _is_best(row: Json, key: str) -> bool:
    versus = row["versus_best"].get(key)
    return versus is not None and (versus["difference"] == 0 or bool(versus["indistinguishable"]))


def as_csv(found: Json) -> str:
    """One line a row, a column a score and one for its standard error."""
    keys = list(dict.fromkeys(column["key"] for problem in found["problems"] for column in problem["columns"]))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["problem", "name", "role", "fidelity", "status", "reason", *(f for k in keys for f in (k, f"{k}_se"))]
    )
    for problem in found["problems"]:
        for row in problem["rows"]:
            cells: list[Any] = []
            for key in keys:
                score = row["scores"].get(key, {"value": None, "se": None})
                cells += [score.get("text") if score["value"] is None else score["value"], score["se"]]
            head = [problem["name"], *(row[part] for part in ("name", "role", "fidelity", "status", "reason"))]
            writer.writerow(["" if value is None else value for value in [*head, *cells]])
    return buffer.getvalue()


def as_latex(found: Json) -> str:
    """A booktabs table a problem; what is best, or cannot be told from it, is bold."""
    parts = []
    for problem in found["problems"]:
        columns = [column for column in problem["columns"] if not column["minor"]]
        lines = [
            f"% {problem['title']}",
            r"\begin{tabular}{l" + "r" * len(columns) + "}",
            r"\toprule",
            " & ".join(["method", *(_tex(column["title"]) for column in columns)]) + r" \\",
            r"\midrule",
        ]
        for row in problem["rows"]:
            cells = [_tex(cell(row, column)).replace("±", r"$\pm$") for column in columns]
            cells = [
                rf"\textbf{{{text}}}" if _is_best(row, column["key"]) else text for text, column in zip(cells, columns)
            ]
            if row["status"] == "failed":
                cells = [rf"\multicolumn{{{len(columns)}}}{{l}}{{failed}}"]
            lines.append(" & ".join([_tex(row["label"]), *cells]) + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""]))
    return "\n".join(parts)


def _tex(text: str) -> str:
    spelled = {character: "\\" + character for character in "&%$#_{}"}
    spelled |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(spelled.get(character, character) for character in text)


def as_html(found: Json) -> str:
    """For a notebook."""
    from html import escape

    parts = []
    for problem in found["problems"]:
        columns = [column for column in problem["columns"] if not column["minor"]]
        head = "".join(f"<th title='{escape(column['about'])}'>{escape(column['title'])}</th>" for column in columns)
        body = "".join(
            f"<tr><th>{escape(row['label'])}</th>"
            + "".join(f"<td>{escape(cell(row, column))}</td>" for column in columns)
            + "</tr>"
            for row in problem["rows"]
        )
        answers = "".join(f"<p>{escape(answer['text'])}</p>" for answer in problem["answers"].values())
        parts.append(
            f"<table><caption>{escape(problem['title'])}</caption><tr><th></th>{head}</tr>{body}</table>{answers}"
        )
    return "".join(parts)
