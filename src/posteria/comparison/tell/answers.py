"""The two answers in words, from the numbers alone: best on held-out data, and closest to the posterior."""

import numpy as np

JUDGE = "nll"  # the proper score that both kinds of target share
TRUTH = {"regression": ("w1", "Wasserstein-1 distance"), "classes": ("tv", "total variation")}


def answers(problem: dict) -> dict:
    return {"best": _best(problem), "closest": _closest(problem)}


def recommended(problem: dict) -> str | None:
    """The best row that is a method (or the reference): the one whose commands are given."""
    ranked = [row for row in _ranked(problem, JUDGE) if row["role"] != "baseline" and row["fidelity"]]
    return ranked[0]["name"] if ranked else None


def _best(problem: dict) -> dict:
    ranked = _ranked(problem, JUDGE)
    if not ranked:
        return {"row": None, "text": "Best on held-out data: nothing is finished yet."}
    first = ranked[0]
    text = f"Best on held-out data: {first['label']}, NLL {_value(first, JUDGE)}{_headline(problem, first)}"
    text += f"; {_cost(first)}."
    close = [row for row in ranked[1:] if row["versus_best"].get(JUDGE, {}).get("indistinguishable")]
    if len(problem["setting"]["seeds"]) < 2:
        text += " One split: differences have no standard error."
    elif close:
        cheapest = min(close, key=_seconds)
        names = " and ".join([", ".join(row["label"] for row in close[:-1]), close[-1]["label"]]).removeprefix(" and ")
        text += f" Indistinguishable from it on {len(problem['setting']['seeds'])} splits: {names}"
        text += f" ({cheapest['label']} {_cost(cheapest)})." if _seconds(cheapest) < _seconds(first) else "."
    else:
        text += f" All others are worse by more than chance on {len(problem['setting']['seeds'])} splits."
    if first["role"] == "reference" and len(ranked) > 1:
        others = [row for row in ranked if row["role"] == "method"]
        text += " It was cut short by the clock." if first["status"] == "cut short" else ""
        text += f" Next: {others[0]['label']}, NLL {_value(others[0], JUDGE)}; {_cost(others[0])}." if others else ""
    if first["role"] == "baseline":
        text += " No network is needed for that score on these data."
    return {"row": first["name"], "text": text}


def _closest(problem: dict) -> dict:
    reference = problem["reference"]
    key, name = TRUTH[problem["data"]["kind"]]
    if reference is None:
        return {"row": None, "text": "Closest to the posterior: not judged, since there is no reference."}
    if reference["status"] in ("waiting", "running"):
        return {"row": None, "text": "Closest to the posterior: not judged yet, the reference is still to come."}
    ranked = [row for row in _ranked(problem, key) if row["role"] == "method"]
    if not ranked:
        return {"row": None, "text": f"Closest to the posterior: not judged, since {_why_not(reference)}."}
    first = ranked[0]
    text = f"Closest to the posterior: {first['label']}, {name} {_value(first, key)} to the reference; {_cost(first)}."
    if key in reference["ceiling"]:
        text += (
            f" One chain of the reference is {_number(reference['ceiling'][key])} from its others: the limit of what"
        )
        text += " can be told."
    for label in first["labels"]:
        text += f" It has {label}."
    close = [row["label"] for row in ranked[1:] if row["versus_best"].get(key, {}).get("indistinguishable")]
    if close:
        text += f" Indistinguishable from it: {', '.join(close)}."
    return {"row": first["name"], "text": text}


def _why_not(reference: dict) -> str:
    if reference["status"] == "failed":
        return f"the reference failed: {reference['verdict']}".rstrip(". ")
    text = "the reference has not converged"
    if reference["rhat_share"] is not None:
        text += f" (R-hat is good for {reference['rhat_share']:.0%} of function values)"
    if reference["status"] == "cut short":
        text += "; run again with more minutes (--minutes), it alone is fitted anew"
    return text


def _ranked(problem: dict, key: str) -> list[dict]:
    """Rows that have the score, best first; all scores used here are better when lower."""
    rows = [row for row in problem["rows"] if row["scores"].get(key, {}).get("value") is not None]
    return sorted((row for row in rows if row["status"] != "failed"), key=lambda row: row["scores"][key]["value"])


def _headline(problem: dict, row: dict) -> str:
    key, title = ("accuracy", "accuracy") if problem["data"]["kind"] == "classes" else ("rmse", "RMSE")
    return f", {title} {_value(row, key)}"


def _value(row: dict, key: str) -> str:
    score = row["scores"][key]
    return _number(score["value"]) + (f" ± {_number(score['se'])}" if score["se"] else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _seconds(row: dict) -> float:
    value = row["scores"]["seconds"]["value"]
    return np.inf if value is None else value


def _cost(row: dict) -> str:
    gradients = row["scores"]["gradients"]["value"]
    seconds = f"{_seconds(row):.1f} s a fit" if np.isfinite(_seconds(row)) else "at no cost here"
    return seconds + (f" and {gradients:,.0f} gradients" if gradients else "")
