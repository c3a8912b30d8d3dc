"""Have the chains converged? Numbers, and a verdict in plain words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from posteria import diagnostics
from posteria.tree import Arrays

RHAT_LIMIT = 1.05
RHAT_SHARE = 0.95  # of the values that must be below the limit
LOW_ACCEPTANCE = 0.1  # random walks aim at 0.234, all others higher
ESS_WANTED = 100  # independent draws behind a mean


@dataclass(frozen=True)
class Diagnosis:
    """R-hat, effective sample sizes and Monte Carlo errors of each value; NaN where a chain did not move."""

    space: str  # "functions", "weights" or "coordinates"
    rhat: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    mcse: np.ndarray
    acceptance: float  # NaN where there is no acceptance
    divergences: int
    num_chains: int
    num_draws: int  # a chain
    notes: tuple[str, ...]

    @property
    def ess(self) -> np.ndarray:
        return self.ess_bulk

    @property
    def share_converged(self) -> float:
        """Share of values whose R-hat is known and below the limit."""
        return float(np.mean(np.nan_to_num(self.rhat, nan=np.inf) < RHAT_LIMIT))

    @property
    def has_converged(self) -> bool:
        return self.num_chains > 1 and self.share_converged >= RHAT_SHARE

    @property
    def verdict(self) -> str:
        notes = [f"Note: {note}." for note in self.notes]
        if self.num_draws == 1:
            return " ".join(["A point, or one draw a chain: there is nothing to converge.", *notes])
        sentences = []
        if np.isnan(self.rhat).any():
            share = np.isnan(self.rhat).mean()
            sentences.append(f"{share:.0%} of the {self.space} did not move at all: no R-hat or ESS exists for them.")
        if self.num_chains == 1:
            sentences.append("One chain cannot show whether others would agree: run four (num_chains=4).")
        if self.share_converged < RHAT_SHARE:
            sentences.append(
                f"NOT CONVERGED: R-hat is below {RHAT_LIMIT} for {self.share_converged:.0%} of the {self.space} "
                f"(worst {_of(np.nanmax, self.rhat):.2f}). "
                "Warm up and draw for longer, or compare functions rather than weights."
            )
        elif self.num_chains > 1:
            sentences.append(
                f"Converged: R-hat is below {RHAT_LIMIT} for {self.share_converged:.0%} of the {self.space}."
            )
        if _of(np.nanmin, self.ess_bulk) < ESS_WANTED:
            sentences.append(
                f"The least effective sample size is {_of(np.nanmin, self.ess_bulk):.0f}: "
                "draw more for means within a tenth of a std."
            )
        if self.divergences:
            sentences.append(
                f"{self.divergences} trajectories diverged: raise target_acceptance, or use a tighter prior."
            )
        if self.acceptance < LOW_ACCEPTANCE:
            sentences.append(
                f"Acceptance is only {self.acceptance:.2f}: a smaller step_size or more warm-up would help."
            )
        return " ".join([*sentences, *notes])

    def __str__(self) -> str:
        lines = [
            f"{self.num_chains} chains of {self.num_draws} draws, {self.rhat.size:,} {self.space}",
            f"  R-hat     median {_of(np.nanmedian, self.rhat):.3f}, worst {_of(np.nanmax, self.rhat):.3f}",
            f"  ESS bulk  median {_of(np.nanmedian, self.ess_bulk):,.0f}, least {_of(np.nanmin, self.ess_bulk):,.0f}",
            f"  ESS tail  median {_of(np.nanmedian, self.ess_tail):,.0f}, least {_of(np.nanmin, self.ess_tail):,.0f}",
            f"  acceptance {self.acceptance:.2f}, divergences {self.divergences}",
            self.verdict,
        ]
        return "\n".join(lines)


def _of(reduce: Callable[[np.ndarray], float], values: np.ndarray) -> float:
    return float("nan") if np.isnan(values).all() else float(reduce(values))


def diagnose(values: np.ndarray, info: Arrays, space: str, notes: Sequence[str] = ()) -> Diagnosis:
    """Judge chains of values (chain, draw, ...)."""
    flat = values.reshape(*values.shape[:2], -1)
    return Diagnosis(
        space=space,
        rhat=diagnostics.rhat(flat),
        ess_bulk=diagnostics.ess_bulk(flat),
        ess_tail=diagnostics.ess_tail(flat),
        mcse=diagnostics.mcse_mean(flat),
        acceptance=float(np.mean(info["acceptance"])) if "acceptance" in info else float("nan"),
        divergences=int(np.sum(info.get("num_divergent", 0))),
        num_chains=values.shape[0],
        num_draws=values.shape[1],
        notes=tuple(notes),
    )
