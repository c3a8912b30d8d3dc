"""The page's section on shift and its curves of training say what results.json says."""

import html
import re

import numpy as np
import pytest

from posteria.comparison.tell import results
from posteria.comparison.tell.sentences import shift_words
from posteria.report import phrases, shift_page, write
from report import made_up


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made_up.folder(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def text(folder):
    return html.unescape(write(folder).read_text(encoding="utf-8"))


def test_sentences_are_those_of_the_results_and_these_of_its_numbers(folder, text):
    for problem in results.read(folder)["problems"]:
        assert problem["shift"]["texts"] and problem["shift"]["texts"] == shift_words(problem)
        for told in problem["shift"]["texts"]:
            assert told in text


def test_every_number_of_its_tables_is_the_one_in_the_results(folder, text):
    tables = re.findall(r'<table class="rows by-severity">(.*?)</table>', text, re.S)
    problems = results.read(folder)["problems"]
    assert len(tables) == 2 * len(problems)  # shifts, and attacks
    for number, problem in enumerate(problems):
        shift = problem["shift"]
        labels = {row["label"]: row["name"] for row in problem["rows"]}
        for table, (name, places) in zip(tables[2 * number :], (("noise", (0, 3, 5)), ("attack", (0, 1, 2)))):
            lines = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table, re.S)
            assert {labels[label] for label, _ in lines} == {
                row for row, each in shift["found"].items() if name in each
            }
            for label, cells in lines:
                shown = [cell.split(" ± ")[0] for cell in re.findall(r"<td>(.*?)</td>", cells)]
                wanted = [
                    phrases.number(shift["found"][labels[label]][name][score["key"]]["value"][place], digits)
                    for score in shift["scores"]
                    for digits in [shift_page.ORDINARY[score["key"]]]
                    for place in places
                ]
                assert shown == wanted


def test_pictures_tell_the_ends_of_each_line(folder, text):
    shift = results.read(folder)["problems"][0]["shift"]
    first, last = (shift["found"]["laplace"]["noise"]["rmse"]["value"][place] for place in (0, -1))
    told = f"Laplace {phrases.number(first, 3)} to {phrases.number(last, 3)}"
    assert re.search(
        rf'aria-label="RMSE from rows as they came to the largest severity of noise, A curve with a gap: [^"]*{told}',
        text,
    )


def test_where_nothing_was_shifted_there_is_no_such_section(folder, tmp_path):
    found = results.read(folder)
    for problem in found["problems"]:
        problem["shift"] = None
    results.write(tmp_path, found)
    assert shift_page.TITLE not in write(tmp_path).read_text(encoding="utf-8")


def test_a_fit_that_is_under_way_shows_its_curve(tmp_path):
    made_up.folder(tmp_path, finished=2)
    found = results.read(tmp_path)
    running = next(row for row in found["problems"][0]["rows"] if row["status"] == "running")
    before = write(tmp_path).read_text(encoding="utf-8")
    told = f"{running['label']}: 30 epochs"
    assert told not in before
    live = {"learning_epoch": list(range(1, 31)), "learning_stage": ["fit"] * 30}
    live["learning_objective"] = [None, *np.linspace(-9, -1, 29).tolist()]
    found["problems"][0]["live"] = {"row": running["name"]} | live
    results.write(tmp_path, found)
    assert told in html.unescape(write(tmp_path).read_text(encoding="utf-8"))
