"""What a shift does to the methods, in words, from the "shift" of results.json and its rows alone."""

from posteria.comparison.judge import verdicts
from posteria.tree import Json

MOST_NAMED = 3  # together
SURE = 1.96  # standard errors
HEADLINE = {"regression": "coverage_90", "classes": "accuracy"}  # a share of rows, with its error
PROMISED = 0.9  # of intervals


def shift_words(problem: Json) -> list[str]:
    """Sentences, of a problem of results.json; none where nothing was shifted, or no row is finished."""
    shift = problem.get("shift")
    if not shift or not shift["found"]:
        return []
    rows = {row["name"]: row for row in problem["rows"]}
    name = verdicts.recommended(problem["rows"])
    chosen = name if name in shift["found"] else next(iter(shift["found"]))
    kind = problem["data"]["kind"]
    told = [_fall(shift, rows[chosen], kind), _promise(shift, rows[chosen], kind)]
    reference = next((row for row in problem["rows"] if row["role"] == "reference"), None)
    is_truth = bool((problem.get("reference") or {}).get("converged"))  # only then it stands for the exact answer
    if is_truth and reference is not None and reference["name"] in shift["found"] and reference["name"] != chosen:
        told.append(_promise(shift, reference, kind))
    told.append(_first(shift, rows))
    told.append(_left_out(shift))
    return [text for text in told if text]


def _fall(shift: Json, row: Json, kind: str) -> str:
    key = "accuracy" if kind == "classes" else "rmse"
    found = shift["found"][row["name"]]
    if not found:
        return ""
    first = next(iter(found.values()))[key]["value"][0]
    ends = [f"{_spoken(name)} {_score(each[key]['value'][-1], kind)}" for name, each in found.items()]
    what = "names the right class for" if kind == "classes" else "is off by"
    unit = " of 100 rows" if kind == "classes" else " (root mean square)"
    return (
        f"{row['label']} {what} {_score(first, kind)}{unit} on {shift['rows']:,} held-out rows as they came, and at "
        f"the most severe: {', '.join(ends)}."
    )


def _promise(shift: Json, row: Json, kind: str) -> str:
    """What was promised and what came true, at the most severe; where it is too few, by more than chance."""
    found = shift["found"][row["name"]]
    if not found:
        return ""
    key = HEADLINE[kind]
    first = next(iter(found.values()))
    parts, broken = [], []
    for name, each in found.items():
        held, error = each[key]["value"][-1], each[key]["se"][-1] or 0.0
        promised = PROMISED if kind == "regression" else each["confidence"]["value"][-1]
        if held is None or promised is None:
            continue
        said = f"{100 * held:.0f}" if kind == "regression" else f"{100 * held:.0f} where it was {promised:.0%} sure"
        parts.append(f"{_spoken(name)} {said}")
        if promised - held > max(SURE * error, verdicts.TOLERANCE):
            broken.append(_spoken(name))
    if not parts:
        return ""
    came = _of_100(first[key]["value"][0])
    if kind == "regression":
        told = (
            f"Its 90 % intervals held {came} rows as they came"
            if row["role"] != "reference"
            else (f"Those of {row['label']}, which stands for the exact answer, held {came}")
        )
    else:
        sure = first["confidence"]["value"][0]
        who = "It" if row["role"] != "reference" else f"{row['label']}, which stands for the exact answer,"
        told = f"{who} was right for {came} rows as they came, where it was {sure:.0%} sure"
    told += f"; at the most severe: {', '.join(parts)}."
    if broken and row["role"] != "reference":
        told += f" It promises more than it holds under {_list(broken)}."
    elif row["role"] != "reference":
        told += " It holds what it promises under all of them, as far as these rows can tell."
    return told


def _first(shift: Json, rows: dict[str, Json]) -> str:
    parts = []
    for name, leaders in shift["leaders"].items():
        labels = [rows[each]["label"] for each in leaders]
        if len(labels) == 1:
            parts.append(f"{_spoken(name)}: {labels[0]}, by more than chance")
        elif len(labels) > MOST_NAMED:
            parts.append(f"{_spoken(name)}: {len(labels)} of {len(shift['found'])} that cannot be told apart")
        elif labels:
            parts.append(f"{_spoken(name)}: {_list(labels)}, not told apart")
    return f"Best at the most severe, by NLL: {'; '.join(parts)}." if parts else ""


def _left_out(shift: Json) -> str:
    parts = [f"{_spoken(name)} ({why.rstrip('. ')})" for name, why in shift["left_out"].items()]
    return f"Not tried: {'; '.join(parts)}." if parts else ""


def _spoken(name: str) -> str:
    return {"attack": "an attack on itself", "transfer": "an attack on another network"}.get(
        name, name.replace("_", " ")
    )


def _score(value: float | None, kind: str) -> str:
    if value is None:
        return "beyond all numbers"
    return f"{100 * value:.0f}" if kind == "classes" else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _of_100(share: float | None) -> str:
    return "an unknown number of" if share is None else f"{100 * share:.0f} of 100"


def _list(labels: list[str]) -> str:
    return " and ".join([*([", ".join(labels[:-1])] if labels[1:] else []), labels[-1]])
