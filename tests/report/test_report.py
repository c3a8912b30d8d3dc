"""The page says what results.json says, whatever of it is there, and needs nothing else."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from posteria import disk
from posteria.comparison.judge import columns, verdicts
from posteria.comparison.run import records
from posteria.comparison.tell import results
from posteria.comparison.tell.first_screen import first_screen
from posteria.errors import StoreError
from posteria.report import page as written_page
from posteria.report import page_drawings, page_figures, page_tables, write
from report import made_up
from report.page import Page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made_up.folder(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def text(folder):
    return write(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def row_of(table: dict, label: str) -> list:
    return next(cells for name, cells in table.items() if name.startswith(label))


def test_every_number_of_the_table_is_the_one_in_the_results(folder, page):
    found = json.loads((folder / "results.json").read_text())
    for problem, table in zip(found["problems"], page.tables, strict=True):
        assert len(table) == len(problem["rows"])
        for row in problem["rows"]:
            if row["status"] != "done":
                continue
            cells = row_of(table, row["label"])
            for column, (shown, attributes) in zip(problem["columns"], cells, strict=True):
                score = row["scores"][column["key"]]
                if score["value"] is None:
                    assert shown == score["text"]
                    continue
                assert float(attributes["data-value"]) == score["value"]
                number = re.match(r"[\d.\u202f\u2212]+", shown)[0].replace("\u202f", "").replace("\u2212", "-")
                places = len(number.partition(".")[2])
                assert abs(float(number) - score["value"]) <= 0.5 * 10**-places + 1e-12
                assert ("±" in shown) == (bool(score["se"]) and column["group"] != "cost")


def test_what_is_best_and_what_ties_with_it_is_marked_as_the_results_say(folder, page):
    found = json.loads((folder / "results.json").read_text())
    marked = 0
    for problem, table in zip(found["problems"], page.tables):
        for row in problem["rows"]:
            for column, (_, attributes) in zip(problem["columns"], row_of(table, row["label"])):
                versus = row["versus_best"].get(column["key"])
                mark = " ".join(set(attributes.get("class", "").split()) - {"first", "minor", "reason"})
                if versus is None:
                    assert mark == ""
                else:
                    assert mark == (
                        "best" if versus["difference"] == 0 else "tied" if versus["indistinguishable"] else ""
                    )
                    marked += mark != ""
    assert marked > 5


def test_what_to_use_comes_first_then_the_commands_then_the_science(folder, text):
    problem = json.loads((folder / "results.json").read_text())["problems"][-1]
    first = first_screen(problem)
    order = [
        first["headline"],
        *(point["text"] for point in first["points"]),
        problem["next"]["fit"],
        problem["next"]["predict"],
        "How its predictions turned out",
        "Rows worth a look",
        "Best on held-out data",
        "Closest to the posterior",
        "All scores",
        "Appendix",
    ]
    article = html.unescape(text[text.index('<article id="digits"') :])
    fit = [word for word in problem["next"]["fit"].split() if word.startswith("-")]
    assert fit and all(f'<span class="option">{word}</span>' in article for word in fit)  # not broken at its hyphens
    article = re.sub('<span class="option">([^<]*)</span>', r"\1", article)
    places = [article.index(part) for part in order]
    assert places == sorted(places)


def test_the_page_is_well_formed_and_every_picture_has_a_text(page):
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(pictures) > 50
    assert all(one["role"] == "img" and len(one["aria-label"]) > 15 for one in pictures)
    assert not [tag for tag, _ in page.tags if tag == "img"]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_is_fetched(text, page):
    for tag, attributes in page.tags:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest", text)


def test_every_reference_inside_a_picture_finds_what_it_refers_to(text):
    referred = set(re.findall(r'(?:xlink:href="|url\()#(p[0-9a-f]{8}\d+)', text))
    assert referred
    assert referred <= set(re.findall(r' id="([^"]+)"', text))


def test_a_comparison_that_has_just_begun_has_its_page(tmp_path):
    text = write(made_up.folder(tmp_path, finished=0, failed=None)).read_text(encoding="utf-8")
    page = Page(text)
    assert row_of(page.tables[0], "NUTS")[0][0] == "running"
    assert row_of(page.tables[0], "MAP")[0][0] == "waiting"
    assert "0 of 11 rows are here; NUTS is being fitted" in text
    assert "<svg" not in text


def test_rows_that_are_done_are_shown_while_others_wait_and_one_has_failed(tmp_path):
    text = write(made_up.folder(tmp_path, finished=6, failed="laplace")).read_text(encoding="utf-8")
    table = Page(text).tables[0]
    assert row_of(table, "Laplace")[0][0].startswith("failed: DensityError: the log density is not finite at step 140")
    assert row_of(table, "SGHMC")[0][0] == "running"
    assert len(row_of(table, "MAP")) > 5
    labels = re.findall(r"<figcaption>([^<]+)</figcaption>", text)
    assert "MAP" in labels and "Laplace" not in labels and "SGHMC" not in labels


def test_without_a_converged_reference_no_distance_is_drawn_or_printed(tmp_path, text):
    assert "Distance to the reference against cost" in text
    unjudged = write(made_up.folder(tmp_path, converged=False)).read_text(encoding="utf-8")
    assert "Distance to the reference against cost" not in unjudged
    assert '<p class="notice">NUTS has not converged' in unjudged
    place = next(i for i, c in enumerate(made_up._columns("regression")) if c["group"] == "truth")
    assert {cells[place][0] for name, cells in Page(unjudged).tables[0].items() if len(cells) > 1} == {
        "not judged",
        "is the truth",
    }


def test_the_reference_comes_first_and_baselines_last(page):
    names = list(page.tables[0])
    assert names[0].startswith("NUTS") and names[-2].startswith("Linear") and names[-1].startswith("Gradient boosting")


def test_text_from_outside_is_never_markup(tmp_path):
    made_up.folder(tmp_path, finished=3)
    found = results.read(tmp_path)
    found["problems"][0]["rows"][1]["label"] = '<script>alert("x")</script>'
    found["problems"][0]["rows"][2]["about"] = '"><img src=x>'
    found["problems"][0]["data"]["notes"] = ["<b>bold</b>"]
    results.write(tmp_path, found)
    text = write(tmp_path).read_text(encoding="utf-8")
    Page(text)
    assert "<script>alert" not in text and "<img" not in text and "<b>" not in text


def test_only_what_changed_is_drawn_again(tmp_path):
    made_up.folder(tmp_path, finished=4)
    write(tmp_path)
    before = written_page._drawings.num_drawn
    write(tmp_path)
    assert written_page._drawings.num_drawn == before

    found = results.read(tmp_path)
    arrays = results.read_picture(tmp_path, "gap", "laplace")
    arrays["pit"] = np.linspace(0, 1, 300) ** 2
    records.write_picture(tmp_path, "gap", "laplace", arrays)
    results.write(tmp_path, found)
    text = write(tmp_path).read_text(encoding="utf-8")
    drawn = written_page._drawings.num_drawn - before
    of_the_row = sum(
        not figure.together and set(figure.needs) <= set(arrays) for s in page_figures.SECTIONS for figure in s.figures
    )
    together = sum(figure.together for s in page_figures.SECTIONS for figure in s.figures)
    for_everybody = sum(set(figure.needs) <= set(arrays) for s in page_figures.FOR_EVERYBODY for figure in s.figures)
    assert of_the_row <= drawn <= of_the_row + together + for_everybody
    covered = np.mean(np.abs(2 * arrays["pit"] - 1) <= 0.9)
    assert f"Laplace: {np.mean(np.abs(2 * arrays['pit'] - 1) <= 0.5):.0%} of truths in 50% intervals" in text
    assert f"{covered:.0%} of truths in 90% intervals" in text


def test_a_new_column_and_a_new_figure_need_no_change_of_the_page(tmp_path, monkeypatch):
    made_up.folder(tmp_path, finished=3)
    found = results.read(tmp_path)
    found["problems"][0]["columns"].append(
        columns.column("evidence", "log evidence", "quality", "Of the model.", better="higher")
    )
    found["problems"][0]["rows"][1]["scores"]["evidence"] = verdicts.score([-3.25])
    results.write(tmp_path, found)
    arrays = results.read_picture(tmp_path, "gap", "map") | {"sparsity": np.eye(3)}
    records.write_picture(tmp_path, "gap", "map", arrays)

    def draw(axes, row, problem):
        axes.imshow(row.arrays["sparsity"])
        return f"{row.label}: {row.arrays['sparsity'].sum():.0f} weights are left"

    added = page_figures.Section(
        "Which weights are left", "", (page_figures.Figure("Sparsity", "", draw, ("sparsity",)),)
    )
    monkeypatch.setattr(written_page, "SECTIONS", (*page_figures.SECTIONS, added))
    text = write(tmp_path).read_text(encoding="utf-8")
    assert "log evidence" in text and 'data-value="-3.25"' in text
    assert text.count("3 weights are left") == 1


def test_a_half_written_page_is_never_seen(tmp_path, monkeypatch):
    target = write(made_up.folder(tmp_path, finished=1))
    before = target.read_text(encoding="utf-8")
    monkeypatch.setattr(disk.os, "replace", lambda half, whole: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path)
    assert target.read_text(encoding="utf-8") == before


FULL = """
import errno, os, pathlib, sys, tempfile

def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

pathlib.Path.mkdir = tempfile.mkdtemp = full  # what matplotlib tries at its first import
from posteria.cli import main
main()
"""


def test_no_room_for_matplotlibs_cache_is_one_sentence_and_the_old_page_stays(folder, text):
    environment = os.environ | {"PYTHONPATH": str(Path(written_page.__file__).parents[2])}
    command = [sys.executable, "-c", FULL, "report", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stderr.splitlines() if not line.startswith("mkdir -p failed")]  # matplotlib's own
    assert told[0].startswith("posteria: matplotlib's cache cannot be written: the disk is full") and len(told) == 2
    assert (folder / "index.html").read_text(encoding="utf-8") == text


def test_a_folder_without_results_is_refused_by_name(tmp_path):
    with pytest.raises(StoreError, match=r"no results\.json"):
        write(tmp_path)


def test_a_method_that_is_as_unsure_of_every_row_has_no_most_uncertain_ones():
    """MAP with one noise: an order by equal numbers would tell of rows what is not so."""
    from matplotlib.figure import Figure

    arrays = {"y": np.arange(12.0), "mean": np.zeros(12), "lower": -np.ones((9, 12)), "upper": np.ones((9, 12))}
    arrays |= {"driver_names": np.array(["a", "b"]), "driver_spread": np.array([0.0, 1e-7])}
    problem = SimpleNamespace(is_regression=True, data={"kind": "regression", "target": "y"})
    for std, titles in ((np.full(12, 0.5), ["Worst"]), (np.linspace(0.5, 1, 12), ["Most uncertain", "Worst"])):
        held = arrays | {"std": std}
        row = SimpleNamespace(label="MAP", arrays=held, has=lambda *names, held=held: set(names) <= set(held))
        assert [table.title for table in page_tables.remarkable_rows(problem, row)] == titles
    axes = Figure().add_subplot()
    assert "no column moves its uncertainty" in page_drawings.moves_uncertainty(axes, row, problem)
    assert "as unsure of every row" in axes.texts[0].get_text() and not axes.patches
