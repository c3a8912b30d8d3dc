"""Tables as text: whatever the width, every number is whole."""

import json

import pytest

from posteria.comparison.tell import score_tables
from report import made_up


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = made_up.folder(tmp_path_factory.mktemp("results"), failed="mean-field")
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("width", [80, 120, 400])
def test_no_line_is_wider_than_asked_and_no_cell_is_cut(found, width):
    text = score_tables.as_text(found, width)
    remarks = [line for line in text.splitlines() if line.startswith(("*", "Mean")) or "failed:" in line]
    assert max(len(line) for line in text.splitlines() if line not in remarks) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for problem in found["problems"]:
        for row in problem["rows"]:
            for column in problem["columns"]:
                if not column["minor"] and row["status"] == "done":
                    assert score_tables.cell(row, column) in text
    assert "failed: " in text


def test_what_latex_would_take_for_a_command_is_escaped():
    assert score_tables._tex("a_b {50 %} ~x^2") == r"a\_b \{50 \%\} \textasciitilde{}x\textasciicircum{}2"
