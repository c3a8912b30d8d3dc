"""Results as tables: text for a terminal, CSV, LaTeX, and HTML for a notebook."""

import csv
import io
from pathlib import Path
from typing import Any

from posteria.comparison import results
from posteria.posteriors import store


def cell(row: dict, column: dict) -> str:
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


def as_text(found: dict, width: int | None = None) -> str:
    """For a terminal or a file, without colours."""
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(file=buffer, width=width or 160, force_terminal=False)
    for problem in found["problems"]:
        console.print(as_rich(problem))
    return buffer.getvalue()


def as_rich(problem: dict) -> Any:
    """One problem as a rich table, minor columns left out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = [column for column in problem["columns"] if not column["minor"]]
    shown = Table(title=problem["title"], title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for column in columns:
        shown.add_column(column["title"], justify="right")
    for row in problem["rows"]:
        if row["status"] in ("failed", "waiting") or (row["status"] == "running" and _is_blank(row)):
            what = f"failed: {row['reason']}" if row["status"] == "failed" else row["status"]
            shown.add_row(Text(row["label"]), Text(what[:60], style="dim", overflow="ellipsis"))
            continue
        cells = [Text(cell(row, column), style="bold" if _is_best(row, column["key"]) else "") for column in columns]
        shown.add_row(Text(row["label"] + (" *" if row["labels"] else "")), *cells)
    if marked := {label for row in problem["rows"] for label in row["labels"]}:
        shown.caption = "* " + "; ".join(sorted(marked))
        shown.caption_justify = "left"
    return shown


def _is_blank(row: dict) -> bool:
    return all(score["value"] is None for score in row["scores"].values())


def _is_best(row: dict, key: str) -> bool:
    versus = row["versus_best"].get(key)
    return versus is not None and (versus["difference"] == 0 or bool(versus["indistinguishable"]))


def as_csv(found: dict) -> str:
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


def as_latex(found: dict) -> str:
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
    for character in "&%$#_":
        text = text.replace(character, "\\" + character)
    return text


def as_html(found: dict) -> str:
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


def write_all(out: Path, found: dict) -> None:
    results.write(out, found)
    store.write_bytes(out / "results.csv", as_csv(found).encode())
    store.write_bytes(out / "results.tex", as_latex(found).encode())
