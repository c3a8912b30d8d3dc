"""The answers of a comparison in words, from the numbers of results.json alone: who is best on held-out data, whom to
use, who is closest to the posterior. Nothing is said to be better that chance explains."""

import math
import re

from posteria.comparison.judge import verdicts
from posteria.posteriors.diagnosis import SHARE_WANTED
from posteria.tree import Json

TRUTH_NAMES = {"w1": "Wasserstein-1 distance", "tv": "total variation"}
MORE_SEEDS = 5  # splits, where one says too little
MORE_TIME = 3  # times the minutes of a reference that did not converge


def answers(problem: Json, command: str = "") -> Json:
    """Of a problem of results.json that has its rows; `command` is the one that made them."""
    return {"best": _best(problem), "use": _use(problem), "closest": _closest(problem, command)}


# ---- best on held-out data


def _best(problem: Json) -> Json:
    ranked, score = verdicts.best(problem["rows"]), verdicts.JUDGE
    if not ranked:
        return _nobody(f"Best on held-out data: {_nothing(problem['rows'])}.")
    leaders = verdicts.leaders(ranked, score)
    first, splits = ranked[0], ranked[0]["versus_best"][score]["splits"]
    where = "on this one split" if splits == 1 else f"on {splits} splits"
    if len(leaders) > 1:
        text = f"{_names(leaders)} cannot be told apart {where}"
        text += f"; the lowest NLL is {first['label']}'s, {_value(first, score)}{_headline(problem, first)}."
        behind = len(ranked) - len(leaders)
        text += f" {_others(behind)} worse by more than chance." if behind else ""
    else:
        text = f"{first['label']}, NLL {_value(first, score)}{_headline(problem, first)}; {_cost(first)}."
        if len(ranked) > 1:
            versus = ranked[1]["versus_best"][score]
            text += f" {_others(len(ranked) - 1, is_all=True)} worse {where} by more than chance"
            text += f", the next, {ranked[1]['label']}, by {_number(versus['difference'])}"
            text += f" ± {_number(versus['se'])} nats a row."
    if splits == 1 and len(ranked) > 1:
        text += f" One split counts its test rows, not other splits and refits: --seeds {MORE_SEEDS} does."
    if first["role"] == "reference" and first["status"] == "cut short":
        text += f" {first['label']} was cut short by the clock."
    return _named(leaders, f"Best on held-out data: {text}")


def _nothing(rows: list[Json]) -> str:
    failed = [row for row in rows if row["status"] == "failed"]
    if any(row["status"] in ("waiting", "running") for row in rows):
        return "nothing is finished yet"
    if failed:
        reason = f"{failed[0]['label']}: {failed[0]['reason']}".rstrip(". ")
        return f"not judged, since {len(failed)} of {len(rows)} rows failed and no other has a finite NLL ({reason})"
    return "not judged, since no row has a finite NLL"


def _others(count: int, is_all: bool = False) -> str:
    if count == 1:
        return "The other one is"
    if is_all and count == 2:
        return "Both others are"
    return f"All {count} others are" if is_all else f"The other {count} are"


# ---- the recommendation


def _use(problem: Json) -> Json:
    rows = problem["rows"]
    name = verdicts.recommended(rows)
    if name is None:
        return _nobody("Recommended: no method yet.")
    row = next(row for row in rows if row["name"] == name)
    leaders = verdicts.leaders(verdicts.best(rows), verdicts.JUDGE)
    methods = [each for each in leaders if each["role"] != "baseline"]
    text = f"{row['label']}, {_cost(row)}"
    if not methods:
        text += f", if a network is wanted: {_names(leaders)} {'is' if len(leaders) == 1 else 'are'} better without one"
    elif len(methods) > 1:
        text += f": the cheapest of {len(methods)} that cannot be told from the best"
        text += " and hold what they promise" if verdicts.holds(row) and not all(map(verdicts.holds, methods)) else ""
    text += f". {_promise(problem, row)}"
    if not verdicts.holds(row):
        text += " None of those that lead does better." if len(methods) > 1 else ""
        text += " Calibrate it on rows that it has not seen before you rely on it: posteria calibrate, or"
        text += " posterior.calibrate(x, y)."
    return {"row": name, "rows": [name], "text": f"Recommended: {text}"}


def _promise(problem: Json, row: Json) -> str:
    promise = row.get("promise")
    if promise is None:
        return "What it promises was not measured."
    kept = f"{100 * promise['held']:.0f} of 100 held-out rows"
    error = f"({promise['rows']:,} rows, ± {100 * promise['se']:.1f})"
    if problem["data"]["kind"] == "classes":
        said = f"Its likeliest class was right on {kept}, where it said {100 * promise['promised']:.0f}"
    else:
        said = f"Its {100 * promise['promised']:.0f} % intervals held {kept}"
    return f"{said} {error}" + ("." if promise["holds"] else ": too few.")


# ---- closest to the posterior


def _closest(problem: Json, command: str) -> Json:
    reference = problem["reference"]
    key = verdicts.TRUTH[problem["data"]["kind"]]
    if reference is None:
        return _nobody("Closest to the posterior: not judged, since there is no reference.")
    by_seed = reference["by_seed"]
    ranked = verdicts.closest(problem["rows"], problem["data"]["kind"])
    if None in by_seed and not any(by_seed):
        return _nobody("Closest to the posterior: not judged yet, the reference is still to come.")
    if not any(by_seed) or not ranked:
        return _nobody(f"Closest to the posterior: not judged, since {_missing(problem, command)}")
    leaders = verdicts.leaders(ranked, key)
    first = ranked[0]
    distance = f"{TRUTH_NAMES[key]} {_value(first, key)} to the reference"
    if len(leaders) > 1:
        text = f"{_names(leaders)} cannot be told apart; the nearest is {first['label']}, {distance}."
    else:
        text = f"{first['label']}, {distance}; {_cost(first)}."
        text += " The only one that was judged." if len(ranked) == 1 else ""
    if key in reference["ceiling"]:
        text += f" One chain of the reference is {_number(reference['ceiling'][key])} from its others: the limit of"
        text += " what can be told."
    for row in leaders:
        text += "".join(f" {row['label']} has {label}." for label in row["labels"])
    if not all(by_seed):
        text += f" Judged on {sum(map(bool, by_seed))} of {len(by_seed)} splits: {_missing(problem, command)}"
    return _named(leaders, f"Closest to the posterior: {text}")


def _missing(problem: Json, command: str) -> str:
    """Where the reference is not the truth, and what would make it so."""
    reference = problem["reference"]
    by_seed, failed = reference["by_seed"], reference["num_failed"]
    parts = []
    if failed:
        where = "" if failed == len(by_seed) else f" on {_splits(failed)}"
        parts.append(f"the reference failed{where}: {reference['failed']}".rstrip(". "))
    doubted = sum(each is False for each in by_seed) - failed
    if doubted:
        where = "" if doubted == len(by_seed) else f" on {_splits(doubted)}"
        parts.append(f"the reference has not converged{where}{_why_not(reference)}")
    if None in by_seed:
        parts.append(f"it is still to come on {_splits(sum(each is None for each in by_seed))}")
    if not parts:
        return "no method has a prediction to be compared with it."
    return "; ".join(parts) + (f". {_continued(problem, command)}" if doubted else ".")


def _why_not(reference: Json) -> str:
    """R-hat where it tells; else what its verdict says first, which is of too few draws, or of a cut warm-up."""
    share = reference["rhat_share"]
    if share is not None and share < SHARE_WANTED:
        return f" (R-hat is good for {share:.0%} of function values)"
    sentence = reference.get("verdict", "").partition(". ")[0].rstrip(".")
    first = sentence.partition(": ")[2] or sentence
    return f" ({first})" if first else ""


def _splits(count: int) -> str:
    return f"{count} split{'' if count == 1 else 's'}"


def _continued(problem: Json, command: str) -> str:
    """How a reference that did not converge gets further."""
    reference = next(row for row in problem["rows"] if row["role"] == "reference")
    minutes = problem["setting"]["minutes"]
    if problem["reference"]["status"] == "cut short" and minutes:
        more = f"{MORE_TIME * minutes:g}"
        if command.startswith("posteria compare"):
            bare = re.sub(r" --minutes[ =]\S+", "", command)
            return f"With more time, the reference alone is fitted anew: {bare} --minutes {more}"
        return f"Compare again with minutes={more}: the reference alone is fitted anew."
    draws = reference["settings"].get("num_draws")
    longer = f"num_draws={MORE_TIME * draws}" if draws else "more draws"
    return f"It needs longer chains: po.compare(..., reference={reference['label'].split(' ')[0]}({longer}))."


# ---- words


def _named(leaders: list[Json], text: str) -> Json:
    """A row where there is one, and all that are named together."""
    names = [row["name"] for row in leaders]
    return {"row": names[0] if len(names) == 1 else None, "rows": names, "text": text}


def _nobody(text: str) -> Json:
    return {"row": None, "rows": [], "text": text}


def _names(rows: list[Json]) -> str:
    labels = [row["label"] for row in rows]
    return " and ".join([*([", ".join(labels[:-1])] if labels[1:] else []), labels[-1]])


def _headline(problem: Json, row: Json) -> str:
    key, title = ("accuracy", "accuracy") if problem["data"]["kind"] == "classes" else ("rmse", "RMSE")
    return f", {title} {_value(row, key)}"


def _value(row: Json, key: str) -> str:
    score = row["scores"][key]
    if score["value"] is None:
        return score.get("text") or "unknown"
    return _number(score["value"]) + (f" ± {_number(score['se'])}" if score["se"] else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _cost(row: Json) -> str:
    gradients, seconds = row["scores"]["gradients"]["value"], verdicts.seconds(row)
    text = f"{seconds:.1f} s a fit" if math.isfinite(seconds) else "at no cost here"
    return text + (f" and {gradients:,.0f} gradients" if gradients else "")
