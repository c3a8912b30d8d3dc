"""What is said to be better is better: laws over many simulated comparisons, and the words of each case."""

import numpy as np
import pytest
from scipy.signal import lfilter

from comparison import simulated
from posteria.comparison.judge import differences
from posteria.comparison.judge.differences import Drawn
from posteria.comparison.run.records import Record
from posteria.comparison.tell.answers import answers

NUM_SIMULATED = 200
MOST_WINNERS = 0.05 + 1.65 * np.sqrt(0.05 * 0.95 / NUM_SIMULATED)  # 5 %, and the binomial error of so many
LEAST_NAMED = 0.9 - 1.65 * np.sqrt(0.9 * 0.1 / NUM_SIMULATED)
AR = 0.6  # correlation of neighbours in time
REFIT = 0.3  # std of what a refit adds to a row
SHIFT = 0.06  # and to all rows of a split
GROUPS = np.arange(200) // 5

DESIGNS = {
    "one test set": simulated.same_test(100, 60, 3),
    "by time": simulated.same_test(100, 100, 3, "time"),
    "random": simulated.random_splits(250, 4),
    "groups": simulated.by_groups(GROUPS, 4),
}


def row_scores(design: str, num_methods: int, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """Equally good methods: what is easy for one is for all; what is easier for one than for others has mean zero,
    stays with the row, and is alike for rows near in time or of one group; refits add to rows and to splits."""
    splits = DESIGNS[design]
    num_rows = max(test.max() for _, test in splits.parts) + 1
    common = rng.normal(size=num_rows)
    found = {}
    for number in range(num_methods):
        own = rng.normal(size=num_rows)
        if design == "by time":
            own[1:] *= np.sqrt(1 - AR**2)
            own = lfilter([1.0], [1.0, -AR], own)
        if design == "groups":
            own += rng.normal(size=GROUPS.max() + 1)[GROUPS]
        found[f"m{number}"] = [
            common[test] + own[test] + REFIT * rng.normal(size=len(test)) + SHIFT * rng.normal()
            for _, test in splits.parts
        ]
    return found


def judged(design: str, scores: dict[str, list[np.ndarray]]) -> dict:
    records = {name: [simulated.record(each) for each in found] for name, found in scores.items()}
    return simulated.problem_json(DESIGNS[design], records)


@pytest.mark.parametrize("num_methods", [2, 3, 8])
@pytest.mark.parametrize("design", list(DESIGNS))
def test_of_equally_good_methods_a_winner_is_declared_in_at_most_5_percent(design, num_methods):
    rng = np.random.default_rng(0)
    winners = [
        judged(design, row_scores(design, num_methods, rng))["answers"]["best"]["row"] for _ in range(NUM_SIMULATED)
    ]
    assert np.mean([winner is not None for winner in winners]) <= MOST_WINNERS


def true_error(design: str, number: int = 2000) -> float:
    """The standard deviation of a difference between two that are equally good."""
    rng = np.random.default_rng(5)
    pairs = (row_scores(design, 2, rng) for _ in range(number))
    return float(np.std([np.mean([(a - b).mean() for a, b in zip(pair["m0"], pair["m1"])]) for pair in pairs]))


def with_gain(scores: dict[str, list[np.ndarray]], gain: float) -> dict[str, list[np.ndarray]]:
    return scores | {"m0": [each + gain for each in scores["m0"]]}


@pytest.mark.parametrize("design", list(DESIGNS))
def test_one_of_two_that_is_better_by_3_standard_errors_is_named_as_often_as_a_t_test_can(design):
    """With the errors and degrees of freedom that there are: a noncentral t. (One that knows the errors has 85 %.) The
    errors are those of truth, up to what a term that is cut at zero adds where splits have rows of their own."""
    from scipy.stats import nct, t

    rng = np.random.default_rng(1)
    error, drawn = true_error(design), differences.drawn(DESIGNS[design])
    named, freedoms, variances = [], [], []
    for _ in range(2 * NUM_SIMULATED):
        scores = with_gain(row_scores(design, 2, rng), 3 * error)
        found = differences.estimate([a - b for a, b in zip(scores["m0"], scores["m1"])], drawn)
        freedoms.append(found.freedom)
        variances.append(found.se**2 / error**2)
        named.append(found.mean > 0 and differences.p_value(found) <= 0.05)
    freedom = np.quantile(freedoms, 0.25)
    assert 0.85 < np.mean(variances) < 1.5
    power = nct.sf(t.ppf(0.975, freedom), freedom, 3.0 / np.sqrt(np.mean(variances)))
    assert np.mean(named) >= power - 1.65 * np.sqrt(power * (1 - power) / len(named))


@pytest.mark.parametrize("num_methods", [3, 8])
@pytest.mark.parametrize("design", list(DESIGNS))
def test_one_that_is_better_than_all_leads_those_named_and_is_alone_where_that_can_be(design, num_methods):
    """By 3 standard errors of a difference it leads; by 6.5 it is named alone, by few rows or splits too
    (`benchmarks/verdicts.py` prints the shares between, and those of a test that knows the errors)."""
    rng = np.random.default_rng(1)
    error = true_error(design)
    led, alone = [], []
    for _ in range(NUM_SIMULATED):
        scores = row_scores(design, num_methods, rng)
        led.append(judged(design, with_gain(scores, 3 * error))["answers"]["best"]["rows"][0] == "m0")
        alone.append(judged(design, with_gain(scores, 6.5 * error))["answers"]["best"]["row"] == "m0")
    assert np.mean(led) >= LEAST_NAMED
    assert np.mean(alone) >= LEAST_NAMED


# ---- errors


def test_one_split_of_independent_rows_is_the_paired_t_test():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 30))
    found = differences.estimate([a - b], Drawn([np.arange(30)]))
    assert found.freedom == pytest.approx(29)
    assert differences.p_value(found) == pytest.approx(ttest_rel(a, b).pvalue)


def test_splits_of_the_same_rows_are_no_more_rows():
    """Refits that agree say nothing new: the error is that of the rows, however many seeds."""
    rng = np.random.default_rng(0)
    difference = rng.normal(size=40)
    once = differences.estimate([difference], Drawn([np.arange(40)]))
    often = differences.estimate([difference] * 50, Drawn([np.arange(40)] * 50))
    assert often.se == pytest.approx(once.se) and often.freedom == pytest.approx(once.freedom)
    apart = differences.estimate([difference] * 50, Drawn([np.arange(40) + 40 * split for split in range(50)]))
    assert apart.se == pytest.approx(once.se / np.sqrt(50), rel=0.02)


def test_refits_count_where_rows_agree():
    by_split = np.array([0.0, 1.0, 2.0, 3.0])
    found = differences.estimate([np.full(1000, each) for each in by_split], Drawn([np.arange(1000)] * 4))
    assert found.se == pytest.approx(by_split.std(ddof=1) / 2)
    assert found.freedom == pytest.approx(3)


def test_rows_of_one_group_are_one_draw():
    rng = np.random.default_rng(0)
    by_group = rng.normal(size=12)
    found = differences.estimate([np.repeat(by_group, 30)], Drawn([np.repeat(np.arange(12), 30)]))
    assert found.se == pytest.approx(by_group.std(ddof=1) / np.sqrt(12))
    alone = differences.estimate([rng.normal(size=30)], Drawn([np.zeros(30, int)]))
    assert alone.se is None and differences.p_value(alone) == 1.0


@pytest.mark.parametrize("alike", [0.0, 0.6])
def test_the_error_of_a_series_is_that_of_rows_that_are_alike(alike):
    """Against the closed form of an autoregression: var(mean) = (1 + 2 sum_k (1 - k/T) alike^k) / T; and a test of 5 %
    says that there is something in 5 %, where ten blocks of neighbours said so in 7.2 % at 0.6."""
    rng = np.random.default_rng(3)
    length, number = 100, 4000
    noise = rng.normal(size=(number, length)) * np.where(np.arange(length) > 0, np.sqrt(1 - alike**2), 1.0)
    series = lfilter([1.0], [1.0, -alike], noise, axis=1)
    moments = Drawn([np.arange(length)], is_series=True)
    found = [differences.estimate([each], moments) for each in series]
    lags = np.arange(1, length)
    truth = (1 + 2 * ((1 - lags / length) * alike**lags).sum()) / length
    variances = np.array([each.se**2 for each in found])
    assert variances.mean() == pytest.approx(truth, rel=0.1)  # of the bias that is left, and 0.01 of chance
    assert np.mean([differences.p_value(each) <= 0.05 for each in found]) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / number)
    assert {each.freedom for each in found} == {float(differences.NUM_WAVES)}


def test_of_a_handful_of_moments_nothing_is_said():
    drawn = differences.drawn(simulated.same_test(10, 4, 1, "time"))
    assert drawn.is_series and drawn.clusters[0].tolist() == [0, 1, 2, 3]
    assert differences.estimate([np.array([1.0, 1.1, 0.9, 1.0])], drawn).se is None
    assert differences.estimate([np.ones(9)], Drawn([np.arange(9)], is_series=True)).se == 0.0


def test_splits_with_rows_of_their_own_do_not_count_them_twice():
    """The variance of the mean of disjoint splits is that of all rows: the average of what is estimated says so, where
    the sum of both terms would be twice as much."""
    rng = np.random.default_rng(4)
    splits, length = 4, 50
    drawn = Drawn([np.arange(length) + length * split for split in range(splits)])
    variances = [
        differences.estimate([rng.normal(size=length) for _ in range(splits)], drawn).se ** 2 for _ in range(2000)
    ]
    truth = 1 / (splits * length)
    assert truth < np.mean(variances) < 1.5 * truth  # a term that is cut at zero is positive on average


def test_a_winner_has_to_be_told_from_each_by_itself_and_then_from_all():
    assert differences.told_apart([0.04, 0.03, 0.001]) == [0.04, 0.03, 0.001]
    assert differences.told_apart([0.06, 0.03, 0.001]) == differences.holm([0.06, 0.03, 0.001])
    assert differences.told_apart([]) == []


@pytest.mark.parametrize("num_behind", [1, 6])
def test_of_two_equals_ahead_of_the_rest_a_winner_is_declared_in_at_most_5_percent(num_behind):
    """The case that is hardest: all others are sure to be worse, and two are equal."""
    rng = np.random.default_rng(2)
    winners = []
    for _ in range(NUM_SIMULATED):
        scores = row_scores("random", 2 + num_behind, rng)
        for number in range(2, 2 + num_behind):
            scores[f"m{number}"] = [each - 5.0 for each in scores[f"m{number}"]]
        winners.append(judged("random", scores)["answers"]["best"]["row"])
    assert np.mean([winner is not None for winner in winners]) <= MOST_WINNERS


def test_holm_is_that_of_statsmodels():
    """Values of statsmodels.stats.multitest.multipletests(method="holm")."""
    assert differences.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert differences.holm([0.6, 0.7]) == [1.0, 1.0]
    assert differences.holm([]) == []


def test_a_promise_is_held_within_its_binomial_error():
    rng = np.random.default_rng(0)

    def is_held(share: float, num_rows: int) -> float:
        found = [
            differences.held(
                [(rng.uniform(size=num_rows) < share).astype(float)],
                [np.full(num_rows, 0.9)],
                Drawn([np.arange(num_rows)]),
                num_rows,
                0.01,
            )["holds"]
            for _ in range(300)
        ]
        return float(np.mean(found))

    assert is_held(0.9, 100) > 0.9
    assert is_held(0.95, 100) > 0.99
    assert is_held(0.73, 100) < 0.05
    assert is_held(0.897, 10_000) > 0.95  # three rows of a thousand: sure, and no matter


# ---- words


ROWS = 200
SPLITS = simulated.same_test(100, ROWS, 2)


def made(rng: np.random.Generator, gain: float = 0.0, **more) -> list:
    """A record a split; the scores of one method."""
    base = np.random.default_rng(99).normal(size=ROWS)
    own = 0.3 * rng.normal(size=ROWS)
    return [simulated.record(base + own + gain + 0.05 * rng.normal(size=ROWS), **more) for _ in range(2)]


def converged(**changes) -> dict:
    facts = {"converged": True, "rhat_share": 1.0, "rhat_worst": 1.01, "weights_rhat_share": 1.0, "verdict": "Fine."}
    return facts | changes


def covering(share: float) -> np.ndarray:
    return (np.arange(ROWS) < share * ROWS).astype(float)


def text_of(problem: dict, key: str) -> str:
    """What is said, and that it is said anew from what is written down."""
    again = answers({name: problem[name] for name in ("rows", "data", "setting", "reference")}, COMMAND)
    assert again == problem["answers"]
    return problem["answers"][key]["text"]


COMMAND = "posteria compare rows.csv --target y --minutes 10"


def judge(records: dict, reference: str | None = None) -> dict:
    return simulated.problem_json(SPLITS, records, reference, COMMAND)


def test_one_that_is_better_is_best_and_the_next_is_told():
    rng = np.random.default_rng(0)
    problem = judge({"a": made(rng), "b": made(rng, 1.0), "c": made(rng, 0.5)})
    assert problem["answers"]["best"]["row"] == "b"
    text = text_of(problem, "best")
    assert text.startswith("Best on held-out data: b, NLL ") and "Both others are worse on 2 splits" in text
    versus = next(row for row in problem["rows"] if row["name"] == "c")["versus_best"]["nll"]
    assert f"the next, c, by {versus['difference']:.3g} ± {versus['se']:.3g} nats a row" in text


def test_those_that_cannot_be_told_apart_are_named_together_and_the_cheapest_that_holds_is_recommended():
    rng = np.random.default_rng(0)
    problem = judge(
        {
            "cheap": made(rng, seconds=1.0, held=covering(0.73)),
            "middle": made(rng, seconds=2.0, held=covering(0.89)),
            "dear": made(rng, seconds=9.0, held=covering(0.95)),
            "bad": made(rng, -1.0, seconds=0.1, held=covering(0.9)),
        }
    )
    best = problem["answers"]["best"]
    assert best["row"] is None and set(best["rows"]) == {"cheap", "middle", "dear"}
    assert "cannot be told apart on 2 splits" in text_of(problem, "best")
    assert "The other one is worse by more than chance." in best["text"]
    assert problem["answers"]["use"]["row"] == "middle"
    assert "Its 90 % intervals held 89 of 100 held-out rows (200 rows" in text_of(problem, "use")
    assert "cheapest of 3 that cannot be told from the best and hold what they promise" in text_of(problem, "use")


def test_where_none_covers_that_is_said_with_what_mends_it():
    rng = np.random.default_rng(0)
    problem = judge({"a": made(rng, held=covering(0.73)), "b": made(rng, held=covering(0.7), seconds=5.0)})
    assert problem["answers"]["use"]["row"] == "a"
    text = text_of(problem, "use")
    assert "held 73 of 100 held-out rows" in text and "too few" in text and "posteria calibrate" in text


def test_one_split_says_that_refits_are_not_counted():
    records = {
        name: found[:1]
        for name, found in {"a": made(np.random.default_rng(0)), "b": made(np.random.default_rng(1))}.items()
    }
    problem = simulated.problem_json(simulated.same_test(100, ROWS, 1), records, None, COMMAND)
    assert problem["answers"]["best"]["row"] is None
    assert "cannot be told apart on this one split" in text_of(problem, "best")
    assert "not other splits and refits: --seeds 5" in text_of(problem, "best")


def test_a_split_that_one_lacks_leaves_the_others_compared():
    rng = np.random.default_rng(0)
    problem = judge({"a": made(rng), "b": made(rng), "late": [made(rng)[0], None]})
    assert problem["answers"]["best"]["rows"] and "late" not in problem["answers"]["best"]["rows"]
    assert {row["name"] for row in problem["rows"] if "nll" in row["versus_best"]} == {"a", "b"}


def test_where_all_failed_the_reason_is_said():
    problem = judge({"a": [Record("failed", "the mean is infinite")] * 2})
    assert "1 of 1 rows failed" in text_of(problem, "best") and "the mean is infinite" in text_of(problem, "best")
    assert problem["answers"]["use"]["row"] is None


def summaries(centre: float, spread: float, seed: int) -> dict:
    values = centre + spread * np.random.default_rng(seed).normal(size=ROWS)
    return {"summary": np.broadcast_to(values[None, :, None], (100, ROWS, 1))}


def reference_records(*facts: dict | str | None) -> list:
    """A record a split: convergence and ceiling, a failure's reason, or none yet."""
    found = []
    for each in facts:
        if isinstance(each, dict):
            more = {"ceiling": {"w1": each.pop("ceiling", 0.01)}, "convergence": converged(**each)}
            found.append(simulated.record(np.zeros(ROWS), arrays=summaries(0.0, 0.0, 0), **more))
        else:
            found.append(None if each is None else Record("failed", each))
    return found


def with_reference(*facts: dict | str | None) -> dict:
    rng = np.random.default_rng(0)
    records = {
        "near": made(rng, arrays=summaries(0.1, 0.01, 1)),
        "far": made(rng, arrays=summaries(0.5, 0.01, 2)),
        "truth": reference_records(*facts),
    }
    return judge(records, "truth")


def test_a_reference_that_converged_says_who_is_closest():
    problem = with_reference({}, {})
    assert problem["answers"]["closest"]["row"] == "near"
    text = text_of(problem, "closest")
    assert text.startswith("Closest to the posterior: near, Wasserstein-1 distance 0.099")
    assert "0.01 from its others" in text and "Judged on" not in text


def test_a_reference_that_failed_says_nothing_of_closeness():
    problem = with_reference("it broke.", "it broke.")
    assert problem["answers"]["closest"]["rows"] == []
    assert text_of(problem, "closest") == (
        "Closest to the posterior: not judged, since the reference failed: it broke."
    )


def test_a_reference_cut_short_is_continued_by_a_command():
    doubt = {"converged": False, "rhat_share": 0.4}
    problem = with_reference(dict(doubt), dict(doubt))
    assert problem["answers"]["closest"]["row"] is None
    assert "has not converged (R-hat is good for 40% of function values)" in text_of(problem, "closest")
    assert "reference=truth(num_draws" in text_of(problem, "closest") or "more draws" in text_of(problem, "closest")
    warming = {"converged": False, "rhat_share": 1.0, "verdict": "CUT IN WARM-UP: time ran out first, so. Allow more."}
    assert "has not converged (time ran out first, so)" in text_of(with_reference(warming, warming), "closest")
    rng = np.random.default_rng(0)
    cut = reference_records(dict(doubt), dict(doubt))
    for record in cut:
        record.status = "cut short"
    problem = judge({"near": made(rng, arrays=summaries(0.1, 0.01, 1)), "truth": cut}, "truth")
    assert "posteria compare rows.csv --target y --minutes 30" in text_of(problem, "closest")


def test_a_reference_that_is_missing_is_said_to_be():
    rng = np.random.default_rng(0)
    none = judge({"a": made(rng)})
    assert "there is no reference" in text_of(none, "closest")
    assert "still to come" in text_of(with_reference(None, None), "closest")


def test_splits_without_a_truth_are_said_and_neither_judged_nor_in_the_ceiling():
    problem = with_reference({"ceiling": 0.02}, {"converged": False, "ceiling": 5.0, "rhat_share": 0.4})
    assert problem["reference"]["ceiling"] == {"w1": 0.02} and not problem["reference"]["converged"]
    text = text_of(problem, "closest")
    assert problem["answers"]["closest"]["row"] == "near"
    assert "Judged on 1 of 2 splits: the reference has not converged on 1 split" in text
    broken = with_reference({"ceiling": 0.02}, "it broke")
    assert "Judged on 1 of 2 splits: the reference failed on 1 split: it broke." in text_of(broken, "closest")
    late = with_reference({}, None)
    assert "it is still to come on 1 split" in text_of(late, "closest")
