"""The first screen says what the numbers of results.json say, whatever of them is there."""

import json

import numpy as np

from comparison.test_verdicts import ROWS, covering, judge, made, reference_records
from posteria.comparison.run.records import Record
from posteria.comparison.tell.first_screen import first_screen


def said(problem: dict) -> dict[str, str]:
    """Headline and points, from what a file holds."""
    found = first_screen(json.loads(json.dumps(problem)))
    return {"headline": found["headline"]} | {point["about"]: point["text"] for point in found["points"]}


def test_a_winner_is_used_and_says_what_it_held_and_costs():
    rng = np.random.default_rng(0)
    problem = judge({"good": made(rng, gain=1.0, held=covering(0.91), seconds=3.2), "other": made(rng)})
    words = said(problem)
    assert words["headline"] == "Use good"
    assert words["Why"] == (
        "It predicted 200 held-out rows of each of 2 splits better than the other one, by more than chance."
    )
    assert words["What its 90 % means here"].startswith(
        "Its 90% intervals held the truth for 91 of 100 held-out rows (200 rows, so give or take 2)."
    )
    assert words["What it costs"].startswith("3.2 s to fit")


def test_of_equals_the_cheapest_that_keeps_its_promise_is_used():
    rng = np.random.default_rng(1)
    problem = judge(
        {
            "cheap": made(rng, held=covering(0.7), seconds=0.1),
            "honest": made(rng, held=covering(0.9), seconds=2.0),
            "dear": made(rng, held=covering(0.9), seconds=9.0),
        }
    )
    words = said(problem)
    assert words["headline"] == "Use honest"
    assert "3 of the 3 that were judged predict equally well" in words["Why"]
    assert "of the 2 networks among them that keep what they promise, it is the cheapest" in words["Why"]


def test_one_network_among_equals_is_not_the_cheapest_of_one():
    rng = np.random.default_rng(1)
    two = {"cheap": made(rng, held=covering(0.7), seconds=0.1), "honest": made(rng, held=covering(0.9), seconds=2.0)}
    assert said(judge(two))["Why"].endswith("of the networks among them it alone keeps what it promises.")
    told = {0.9: "the only network among them.", 0.7: "among them, and does not keep what it promises."}
    for held, words in told.items():
        problem = judge({"net": made(rng, held=covering(held)), "boosting": made(rng, held=covering(0.9))})
        row = next(row for row in problem["rows"] if row["name"] == "boosting")
        row |= {"role": "baseline", "fidelity": ""}
        assert said(problem)["Why"].endswith(words)


def test_where_none_covers_it_is_said_in_the_headline_with_what_mends_it():
    rng = np.random.default_rng(2)
    problem = judge({"a": made(rng, held=covering(0.73)), "b": made(rng, held=covering(0.75), seconds=9.0)})
    words = said(problem)
    assert words["headline"] == "Use a, but calibrate it first"
    assert words["Why"].endswith("None of these keeps what it promises.")
    assert "held the truth for 73 of 100 held-out rows" in words["What its 90 % means here"]
    assert "where 90 were promised: too few" in words["What its 90 % means here"]
    assert "calibrate it on rows that it has not seen, by the command below" in words["What its 90 % means here"]


def test_a_baseline_that_is_better_is_named_first():
    rng = np.random.default_rng(3)
    problem = judge({"boosting": made(rng, gain=1.0), "net": made(rng)})
    row = next(row for row in problem["rows"] if row["name"] == "boosting")
    row |= {"role": "baseline", "fidelity": ""}
    words = said(problem)
    assert words["headline"] == "boosting predicts best; of the networks, use net"
    assert "boosting is better by more than chance, without a network" in words["Why"]


def test_before_all_methods_are_there_it_says_so_far():
    rng = np.random.default_rng(4)
    problem = judge({"first": made(rng), "late": [None, None], "truth": reference_records(None, None)}, "truth")
    words = said(problem)
    assert words["headline"] == "So far: use first"
    assert words["Still to come"].startswith(
        "Late is still to come, and may change this. Truth goes on behind this page"
    )


def test_a_reference_that_goes_on_does_not_hold_up_the_answer():
    rng = np.random.default_rng(5)
    problem = judge({"a": made(rng), "truth": reference_records(None, None)}, "truth")
    assert said(problem)["headline"] == "Use a"
    assert first_screen(problem)["is_final"]
    failed = judge({"a": made(rng), "truth": reference_records("it broke", "it broke")}, "truth")
    assert "Still to come" not in said(failed) and said(failed)["headline"] == "Use a"


def test_where_nothing_could_be_judged_it_says_so():
    nothing = judge({"a": [None, None]})
    assert said(nothing) == {"headline": "No answer yet: the first method is being fitted"}
    broken = judge({"a": [Record("failed", "it broke"), Record("failed", "it broke")]})
    assert said(broken) == {"headline": "No answer: 1 of 1 rows failed"}


def test_classes_are_told_in_their_own_words():
    problem = judge({"a": made(np.random.default_rng(6))})
    problem["data"] |= {"kind": "classes", "guess": 0.51}
    row = problem["rows"][0]
    row["scores"]["accuracy"] = {"value": 0.93, "se": 0.01, "by_seed": [0.93, 0.93]}
    row["promise"] = {"promised": 0.95, "held": 0.93, "se": 0.018, "rows": ROWS, "holds": True}
    words = said(problem)
    assert words["How good"] == (
        "It names the right class for 93 of 100 held-out rows; always naming the commonest class is right for 51."
    )
    assert (
        "On average it was 95% sure of the class that it named, and right for 93 of 100"
        in (words["What its probabilities mean here"])
    )


def test_numbers_are_those_of_the_results():
    problem = judge({"a": made(np.random.default_rng(7))})
    problem["data"]["guess"] = 4.0
    assert said(problem)["How good"] == (
        "Its predictions of the target are off by 1 (root mean square); always answering the average would be off by 4."
    )
