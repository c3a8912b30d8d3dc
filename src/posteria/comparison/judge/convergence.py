"""Whether the chains of a reference have converged: only then it stands for the truth."""

from typing import Any

import numpy as np

from posteria import diagnostics
from posteria.comparison.ask.question import Fold
from posteria.data.arrays import rows
from posteria.posteriors.base import Posterior
from posteria.posteriors.diagnosis import RHAT_LIMIT

FEW_ROWS = 256  # test rows from which convergence is read
MOST_WEIGHTS = 2000  # whose R-hat is taken


def convergence_of(posterior: Posterior, fold: Fold) -> dict:
    if not hasattr(posterior, "stored"):
        return {"converged": False, "verdict": "It holds no chains, so that convergence cannot be judged."}
    functions = diagnose(posterior, fold)
    weights = np.nan_to_num(weight_rhat(posterior), nan=np.inf)
    worst = float(np.nanmax(functions.rhat)) if np.isfinite(functions.rhat).any() else None
    return {
        "converged": bool(functions.has_converged),
        "rhat_share": functions.share_converged,
        "rhat_worst": worst if worst is None or np.isfinite(worst) else None,
        "weights_rhat_share": float(np.mean(weights < RHAT_LIMIT)),
        "verdict": functions.verdict,
    }


def diagnose(posterior: Any, fold: Fold) -> Any:
    """Convergence of the functions at a few test rows."""
    return posterior.diagnose(rows(fold.x_test, slice(0, FEW_ROWS)))


def weight_rhat(posterior: Any) -> np.ndarray:
    """Of weights evenly spread over all."""
    flat = posterior.stored.flat
    return diagnostics.rhat(flat[..., :: -(-flat.shape[-1] // MOST_WEIGHTS)])
