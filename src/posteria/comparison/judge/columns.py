"""What is in the table of a comparison: a column a score, in the order it is shown."""

from posteria.comparison.judge.grades import LEVELS
from posteria.tree import Json

_FAR = "AUROC by {what}: can it tell {name} from data like the training rows? 0.5 is chance"


def columns_of(
    kind: str,
    foreign: list[str],
    has_reference: bool,
    unit: str = "",
    *,
    has_evidence: bool = False,
    has_joint: bool = False,
) -> list[Json]:
    """What is in the table, in the order it is shown."""
    found = []
    if kind == "regression":
        found += [
            column("rmse", "RMSE", "quality", "root mean squared error of the predictive mean", unit=unit),
            column("nll", "NLL", "quality", "negative log predictive density, nats a row"),
            column("crps", "CRPS", "quality", "continuous ranked probability score", unit=unit),
        ]
        for level in LEVELS:
            percent, minor = round(100 * level), level != 0.9
            title, about = f"in {percent} %", f"share of rows inside the central {percent} % interval"
            found.append(column(f"coverage_{percent}", title, "quality", about, better="near", goal=level, minor=minor))
            title = f"width {percent} %"
            about = f"mean width of the {percent} % interval: at equal coverage, narrower is better"
            found.append(column(f"width_{percent}", title, "quality", about, unit=unit, better="neither", minor=minor))
    else:
        found += [
            column("accuracy", "accuracy", "quality", "share of rows whose likeliest class is right", better="higher"),
            column("nll", "NLL", "quality", "negative log predictive probability, nats a row"),
            column("brier", "Brier", "quality", "squared distance from the truth, summed over classes"),
            column("ece", "ECE", "quality", "expected calibration error, 15 bins"),
        ]
    if has_joint:
        about = (
            "NLL of ten neighbouring rows together, nats a row: lower where a method knows what they have in common; "
            "of its draws, which a calibration leaves as they were"
        )
        found.append(column("joint", "joint NLL", "quality", about))
    what = "entropy" if kind == "classes" else "predictive std"
    for name in foreign:
        about = _FAR.format(what=what, name=name.replace("-", " "))
        found.append(column(f"auroc_{name}", f"OOD {name}", "quality", about, better="higher"))
    if has_reference and kind == "classes":
        about = "share of rows with the reference's likeliest class"
        found.append(column("agreement", "agreement", "truth", about, better="higher"))
        found.append(
            column("tv", "TV", "truth", "total variation distance to the reference's class probabilities", digits=4)
        )
    elif has_reference:
        about = "Wasserstein-1 distance to the reference's predictive distribution"
        found.append(column("w1", "W1", "truth", about, unit=unit))
    if has_evidence:
        about = "log p(training data | model) by the method's own approximation: larger for a better model, in nats"
        found.append(column("log_evidence", "log evidence", "quality", about, better="neither", digits=1, minor=True))
    return [*found, *COSTS]


def column(
    key: str,
    title: str,
    group: str,
    about: str,
    *,
    better: str = "lower",
    unit: str = "",
    goal: float | None = None,
    digits: int = 3,
    minor: bool = False,
) -> Json:
    return {
        "key": key,
        "title": title,
        "unit": unit,
        "better": better,
        "goal": goal,
        "group": group,
        "digits": digits,
        "about": about,
        "minor": minor,
    }


_GRADIENTS = "gradient evaluations, tuning included (of batches, if in batches)"
_COMPILING = "wall-clock time of compiling: little for who comes after one that has compiled the same"
_STORED = "size of the stored posterior, not of memory in use"
COSTS = [
    column("gradients", "gradients", "cost", _GRADIENTS, digits=0),
    column(
        "seconds", "seconds", "cost", "wall-clock time of the fit, with tuning, without compiling", unit="s", digits=1
    ),
    column("compile_seconds", "compiling", "cost", _COMPILING, unit="s", digits=1, minor=True),
    column("megabytes", "stored MB", "cost", _STORED, unit="MB", digits=2, minor=True),
    column("draws", "draws", "cost", "draws of the weights that are kept", digits=0),
    column("ms_row", "ms a row", "cost", "milliseconds to predict one row", unit="ms", digits=2),
]
