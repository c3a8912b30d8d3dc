"""What posteriors and predictions say of themselves, as cards: nothing is computed that costs more than a moment."""

from typing import Any

import jax
import numpy as np

from posteria.cards import Card, Remark, Shown, Table
from posteria.tree import Json

MOST_SETTINGS = 6  # of a method, those that were changed or come first
SHOWN_ROWS = 5  # of a prediction
MOST_COMPUTED = 1000  # rows of a prediction that showing it may compute
MOST_CLASSES = 6


def posterior_card(posterior: Any) -> Card:
    """Who made it, of what, at what price, and what was noted on the way."""
    facts, model, target = posterior.facts, posterior.model, posterior.target
    method = facts.get("method") or {}
    rows = [("method", _method(method))] if method else []
    rows += model.described()
    stored = getattr(posterior, "stored", None)
    if stored is not None:
        chains, draws, size = stored.flat.shape
        rows.append(("draws", f"{chains} x {draws:,} of {size:,} parameters"))
    elif target.blank_input is not None:
        rows.append(("parameters", f"{sum(leaf.size for leaf in jax.tree.leaves(target.structs)):,}"))
    if "num_data" in facts:
        rows.append(("rows", f"{facts['num_data']:,}"))
    if "seconds" in facts:
        rows.append(("took", f"{facts['seconds']:.3g} s, {facts.get('gradients', 0):,.0f} gradients"))
    if (coverage := getattr(posterior, "coverage", None)) and 0.9 in coverage:
        held = coverage[0.9]
        rows.append(("90 % held", f"{held['before']:.1%} before calibration, {held['after']:.1%} after"))
    remarks = [Remark(f"{note[0].upper()}{note[1:]}.", "bad") for note in facts.get("notes", []) if note]
    if facts.get("cut"):
        remarks.insert(0, Remark(f"Cut short by time: {', '.join(facts['cut'])}.", "bad"))
    if stored is not None and stored.flat.shape[1] > 1:
        remarks.append(Remark("Whether chains agree: posterior.diagnose(x)."))
    name = type(posterior).__name__.removesuffix("Posterior") or "Posterior"
    return Card(f"Posterior ({name})", rows, remarks)


def _method(method: Json) -> str:
    said = []
    for name, value in list(method.get("settings", {}).items())[:MOST_SETTINGS]:
        if isinstance(value, dict) and "name" in value:
            value = f"{value['name']}(...)"
        if value is not None:
            said.append(f"{name}={value}")
    rest = ", ..." if len(method.get("settings", {})) > MOST_SETTINGS else ""
    return f"{method['name']}({', '.join(said)}{rest})"


class ShownPrediction(Shown):
    """A prediction that shows its first rows, where few have to be computed for it."""

    def _card(self) -> Card:
        return prediction_card(self)


def prediction_card(predictive: Any) -> Card:
    num_rows = len(predictive)
    what = "classes" if _is_classes(predictive) else "numbers"
    title = f"Prediction of {what}, {num_rows:,} row{'s' * (num_rows != 1)}"
    if num_rows > MOST_COMPUTED:
        ask = "probs, entropy, mutual_information" if what == "classes" else "mean, std, interval(0.9), quantile(q)"
        return Card(title, [], [Remark(f"Computed when asked for: {ask}, log_prob(y), sample(key, n).")])
    rest = [Remark(f"and {num_rows - SHOWN_ROWS:,} more")] if num_rows > SHOWN_ROWS else []
    return Card(title, [], rest, _classes(predictive) if what == "classes" else _numbers(predictive))


def _is_classes(predictive: Any) -> bool:
    likelihood = getattr(predictive, "_likelihood", None)
    return hasattr(predictive, "probs") if likelihood is None else hasattr(likelihood, "probs")


def _classes(predictive: Any) -> Table:
    probs = np.asarray(predictive.probs)[:SHOWN_ROWS]
    shown = probs.shape[1] if probs.shape[1] <= MOST_CLASSES else 0
    head = ("row", "likeliest", "its probability", "entropy", *(f"p({k})" for k in range(shown)))
    entropy = np.asarray(predictive.entropy)
    rows = [
        (str(i), str(p.argmax()), f"{p.max():.3f}", f"{entropy[i]:.3f}", *(f"{value:.3f}" for value in p[:shown]))
        for i, p in enumerate(probs)
    ]
    return Table(head, rows)


def _numbers(predictive: Any) -> Table:
    mean, std = np.asarray(predictive.mean), np.asarray(predictive.std)
    epistemic = np.sqrt(np.asarray(predictive.epistemic))
    many = mean.shape[1] > 1
    head = ("row", *(["target"] if many else []), "mean", "std", "of it not noise")
    rows = [
        (str(i), *([str(j)] if many else []), f"{mean[i, j]:.4g}", f"{std[i, j]:.3g}", f"{epistemic[i, j]:.3g}")
        for i in range(min(len(mean), SHOWN_ROWS))
        for j in range(mean.shape[1])
    ]
    return Table(head, rows)
