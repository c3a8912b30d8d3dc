"""What held-out rows say of temperatures, in words. Where cold is better the model is at fault, and the words name it.

Without underfitting there is no cold-posterior effect (Zhang et al. 2024); a prior that is too narrow (Noci et al.
2021) and a likelihood that takes clear labels for noisy ones (Kapoor et al. 2022) underfit. Nothing is cooled here.
"""

from collections.abc import Mapping

import numpy as np

NUM_ERRORS = 2.0  # standard errors that chance explains
CLASSES = "NoisyDirichlet or LabelSmoothing where labels were checked"
OTHERS = "with less noise, or noise that is inferred"


def words(held_out: Mapping[float, np.ndarray], kind: str, fitted: Mapping[float, float] | None = None) -> str:
    """Of log scores a held-out row, (n,), by temperature, T = 1 among them, else nothing is said.

    `kind` is the likelihood's. `fitted` has the mean log score of the rows that were fitted, by temperature.
    """
    if 1.0 not in held_out or len(held_out) < 2:
        return ""
    best = max(held_out, key=lambda temperature: float(np.mean(held_out[temperature])))
    if best == 1.0:
        return f"T = 1 predicts held-out rows best of {_listed(held_out)}."
    ahead = np.asarray(held_out[best], np.float64) - np.asarray(held_out[1.0], np.float64)
    by, error = float(ahead.mean()), float(ahead.std() / len(ahead) ** 0.5)
    measured = f"by {by:.3f} ± {error:.3f} nats a row"
    if by <= NUM_ERRORS * error:
        return f"T = 1 is within chance of the best of {_listed(held_out)}: T = {best:g} is better {measured}."
    if best > 1:
        return (
            f"T = {best:g} predicts held-out rows better than T = 1, {measured}: the model at T = 1 is surer than the "
            "rows bear. Narrow the prior, or take a likelihood with heavier tails, and compare again at T = 1."
        )
    why = ""
    if fitted is not None:
        why = f" (the rows that were fitted: {fitted[1.0]:.3f} nats at T = 1, {fitted[best]:.3f} at T = {best:g})"
    remedy = CLASSES if kind == "classes" else OTHERS
    return (
        f"T = {best:g} predicts held-out rows better than T = 1, {measured}: the model at T = 1 underfits{why}. Widen "
        f"the prior, or change the likelihood ({remedy}), and compare again at T = 1; nothing was cooled for you."
    )


def _listed(temperatures: Mapping[float, object]) -> str:
    return ", ".join(f"{temperature:g}" for temperature in sorted(temperatures))
