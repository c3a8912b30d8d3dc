"""Puts the tables and verdicts of docs/results into docs/five-questions.md, between the comments that name them.

`<!-- table NAME -->` takes the table that a study printed under that name, `<!-- verdicts FILE PROBLEM -->` the lines
of a results file about a problem that have met or MISSED, or say how far HMC has converged; each up to `<!-- end -->`.

python docs/tables.py
"""

import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "five-questions.md"
BLOCK = re.compile(r"(<!-- (table|verdicts) (.+?) -->\n).*?(<!-- end -->)", re.S)
VERDICT = re.compile(
    r"\b(met|MISSED)\b|points apart|rank correlation|order here|the paper's:|no gap|draw alone|above MAP|within noise"
    r"|chosen:|above categorical"
)


def tables(results: Path) -> dict[str, str]:
    """By name, the lines of Markdown with the caption above them."""
    found = {}
    for file in sorted(results.glob("*.txt")):
        for name, caption, lines in re.findall(r"^table ([^:\n]+): (.*)\n((?:\|.*\n)+)", file.read_text("utf-8"), re.M):
            found[name] = f"*{caption[0].upper()}{caption[1:]}.*\n\n{lines}"
    return found


def verdicts(results: Path, file: str, problem: str) -> str:
    """A list of what a study said of a problem, its reference first."""
    text = (results / f"{file}.txt").read_text("utf-8")
    said = [
        line for line in text.splitlines() if line.startswith((f"{problem}:", f"{problem},")) and VERDICT.search(line)
    ]
    after = re.search(rf"^{problem}: .*\n((?:HMC.*\n)+)", text, re.M)
    reference = after.group(1).splitlines() if after else []
    return "".join(f"- {line}\n" for line in [*reference, *said])


def filled(page: str, results: Path) -> str:
    found = tables(results)

    def block(match: re.Match[str]) -> str:
        opening, kind, name, closing = match.groups()
        body = found[name] if kind == "table" else verdicts(results, *name.split())
        return f"{opening}\n{body}\n{closing}"

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8"), DOCS / "results"), "utf-8")
