"""The first screen of a page, from the numbers of results.json alone: what to use, why, what its 90 % means here, what
it costs. In words for someone who has never heard of a posterior; what is not known is said to be not known."""

import math

from posteria.comparison.judge import verdicts
from posteria.tree import Json

OPEN = ("waiting", "running")


def first_screen(problem: Json) -> Json:
    """{"headline", "row": the method's name | null, "points": [{"about", "text"}], "is_final": none is to come}."""
    rows = problem["rows"]
    to_come = [row for row in rows if row["status"] in OPEN and row["role"] != "reference"]
    name = verdicts.recommended(rows)
    if name is None:
        return {"headline": _no_answer(rows, to_come), "row": None, "points": [], "is_final": not to_come}
    row = next(each for each in rows if each["name"] == name)
    ranked = verdicts.best(rows)
    leaders = verdicts.leaders(ranked, verdicts.JUDGE)
    points = [
        ("What it is", row["about"]),
        ("Why", _why(problem, row, ranked, leaders)),
        ("How good", _how_good(problem, row)),
        (
            "What its 90 % means here" if _is_numbers(problem) else "What its probabilities mean here",
            _meaning(problem, row),
        ),
        ("What it costs", _cost(row)),
        ("Still to come", _to_come(problem, to_come)),
    ]
    return {
        "headline": _headline(row, leaders, bool(to_come)),
        "row": name,
        "points": [{"about": about, "text": text} for about, text in points if text],
        "is_final": not to_come,
    }


def _no_answer(rows: list[Json], to_come: list[Json]) -> str:
    if to_come:
        return "No answer yet: the first method is being fitted"
    failed = sum(row["status"] == "failed" for row in rows)
    return f"No answer: {failed} of {len(rows)} rows failed" if failed else "No answer: no method could be judged"


def _headline(row: Json, leaders: list[Json], is_early: bool) -> str:
    text = f"Use {row['label']}"
    if row not in leaders:
        text = f"{_names(leaders)} predict{'s' if len(leaders) == 1 else ''} best; of the networks, use {row['label']}"
    if not verdicts.holds(row):
        text += ", but calibrate it first"
    return f"So far: {text[0].lower()}{text[1:]}" if is_early else text


# ---- why


def _why(problem: Json, row: Json, ranked: list[Json], leaders: list[Json]) -> str:
    num_rows = problem["data"]["test_rows"]
    splits = row["versus_best"][verdicts.JUDGE]["splits"]
    where = f"{num_rows:,} held-out rows" + (f" of each of {splits} splits" if splits > 1 else "")
    if len(ranked) == 1:
        return f"It is the only one that has been judged, on {where}."
    if row not in leaders:
        told = _names(leaders)
        return (
            f"On {where} {told} {'is' if len(leaders) == 1 else 'are'} better by more than chance, without a network; "
            f"{row['label']} comes next of the networks."
        )
    if len(leaders) == 1:
        others = f"all {len(ranked) - 1} others" if len(ranked) > 2 else "the other one"
        return f"It predicted {where} better than {others}, by more than chance."
    told = f"{len(leaders)} of the {len(ranked)} that were judged predict equally well, as far as {where} can tell"
    usable = [each for each in leaders if each["role"] != "baseline" and each["fidelity"]]
    kept = [each for each in usable if verdicts.holds(each)]
    if len(usable) == 1:
        return f"{told}; it is the only network among them{'' if kept else ', and does not keep what it promises'}."
    if not kept:
        return f"{told}; it is the cheapest of the networks among them. None of these keeps what it promises."
    if len(kept) == 1:
        return f"{told}; of the networks among them it alone keeps what it promises."
    if len(kept) < len(usable):
        return (
            f"{told}; of the {_count(len(kept), 'network')} among them that keep what they promise, it is the cheapest."
        )
    return f"{told}; it is the cheapest of the {_count(len(usable), 'network')} among them."


def _how_good(problem: Json, row: Json) -> str:
    guess = problem["data"].get("guess")
    if _is_numbers(problem):
        value = row["scores"]["rmse"]["value"]
        if value is None:
            return ""
        what = problem["data"]["target"] or "the target"
        told = f"Its predictions of {what} are off by {_number(value)} (root mean square)"
        return told + (
            f"; always answering the average would be off by {_number(guess)}." if guess is not None else "."
        )
    value = row["scores"]["accuracy"]["value"]
    if value is None:
        return ""
    told = f"It names the right class for {_of_100(value)} held-out rows"
    return told + (
        f"; always naming the commonest class is right for {_of_100(guess, bare=True)}." if guess is not None else "."
    )


# ---- what it promises


def _meaning(problem: Json, row: Json) -> str:
    promise = row.get("promise")
    if promise is None:
        return "It was not measured."
    error = f"({promise['rows']:,} rows, so give or take {100 * promise['se']:.0f})"
    if not _is_numbers(problem):
        told = f"On average it was {promise['promised']:.0%} sure of the class that it named, and right for "
        told += f"{_of_100(promise['held'])} held-out rows"
        return f"{told} {error}" + (". " if promise["holds"] else ": too few. ") + _mended(promise)
    width = row["scores"].get("width_90", {}).get("value")
    told = (
        f"Its {promise['promised']:.0%} intervals held the truth for {_of_100(promise['held'])} held-out rows {error}"
    )
    told += "." if promise["holds"] else f", where {100 * promise['promised']:.0f} were promised: too few."
    told += f" They are {_number(width)} wide on average." if width is not None else ""
    return f"{told} {_mended(promise)}".strip()


def _mended(promise: Json) -> str:
    if promise["holds"]:
        return ""
    return "Do not rely on them as they are: calibrate it on rows that it has not seen, by the command below."


# ---- what it costs


def _cost(row: Json) -> str:
    seconds = row["scores"].get("seconds", {}).get("value")
    compiling = row["scores"].get("compile_seconds", {}).get("value")
    one = row["scores"].get("ms_row", {}).get("value")
    if seconds is None:
        return ""
    told = f"{_seconds(seconds)} to fit"
    told += f", and {_seconds(compiling)} to compile the first time" if compiling else ""
    told += f"; {_number(one)} ms to predict one row" if one is not None else ""
    return f"{told}, on this machine."


# ---- what is not there yet


def _to_come(problem: Json, to_come: list[Json]) -> str:
    parts = []
    if to_come:
        parts.append(f"{_names(to_come)} {'is' if len(to_come) == 1 else 'are'} still to come, and may change this")
    reference = next((row for row in problem["rows"] if row["role"] == "reference"), None)
    if reference is not None and reference["status"] in OPEN:
        parts.append(
            f"{reference['label']} goes on behind this page: how close each method comes to the exact answer follows"
        )
    return ". ".join(part[0].upper() + part[1:] for part in parts) + ("." if parts else "")


# ---- words


def _is_numbers(problem: Json) -> bool:
    return problem["data"]["kind"] != "classes"


def _of_100(share: float, bare: bool = False) -> str:
    return f"{100 * share:.0f}" + ("" if bare else " of 100")


def _names(rows: list[Json]) -> str:
    labels = [row["label"] for row in rows]
    return " and ".join([*([", ".join(labels[:-1])] if labels[1:] else []), labels[-1]])


def _count(how_many: int, what: str) -> str:
    return f"{how_many} {what}{'' if how_many == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _seconds(value: float) -> str:
    if value < 90:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{math.ceil(value / 60)} min"
