"""Have the chains converged? Numbers, and a verdict in plain words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posteria import diagnostics
from posteria.cards import Card, Remark

RHAT_LIMIT = 1.05
ESS_WANTED = 100  # independent draws behind a mean, and behind each tail
SHARE_WANTED = 0.95  # of the values, that must be within either limit
LEAST_DRAWS = 20  # a chain: with fewer, R-hat and effective sizes are themselves noise
LOW_ACCEPTANCE = 0.1  # random walks aim at 0.234, all others higher
HEAT_TOLERANCE, HEAT_ERRORS = 0.05, 4.0  # of a heat of 1; standard errors beyond which it is not chance
WARMUPS = ("warm-up", "tuning")  # stages without which chains are not tuned
HEATS = {  # what samplers that discretise record of a draw, 1 on average where it is right
    "heat": "their momenta are {} times as hot as they should be",
    "virial": "they are spread as if the density were {} times as hot as it is",
    "stiff_virial": "along the density's stiffest direction they are spread as if it were {} times as hot as it is",
}


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
    heats: Mapping[str, tuple[float, float]]  # mean and standard error of what `HEATS` names
    step_size: float  # NaN where there is none
    num_chains: int
    num_draws: int  # a chain
    is_point: bool  # no chain at all
    cut: tuple[str, ...]  # stages that time cut short
    notes: tuple[str, ...]

    @property
    def ess(self) -> np.ndarray:
        return self.ess_bulk

    @property
    def share_converged(self) -> float:
        """Share of values whose R-hat is known and below the limit."""
        return float(np.mean(np.nan_to_num(self.rhat, nan=np.inf) < RHAT_LIMIT))

    @property
    def share_sampled(self) -> float:
        """Share of values whose effective sample sizes, in the bulk and in the tails, are known and large enough."""
        return float(np.mean(np.nan_to_num(np.fmin(self.ess_bulk, self.ess_tail)) >= ESS_WANTED))

    @property
    def has_converged(self) -> bool:
        """All of it: arrived, mixed, drawn from often enough, and not biased by the step."""
        has_mixed = self.num_chains > 1 and self.share_converged >= SHARE_WANTED and self.share_sampled >= SHARE_WANTED
        return has_mixed and not self._stopped_short() and not self._biased()

    @property
    def verdict(self) -> str:
        notes = [f"Note: {note}." for note in self.notes]
        if self.is_point:
            return " ".join(["A point, or one a member: there is nothing to converge.", *notes])
        if stopped := self._stopped_short():
            return " ".join([stopped, *notes])
        sentences = []
        if np.isnan(self.rhat).any():
            share = np.isnan(self.rhat).mean()
            sentences.append(f"{share:.0%} of the {self.space} did not move at all: no R-hat or ESS exists for them.")
        if self.num_chains == 1:
            sentences.append("One chain cannot show whether others would agree: run four (num_chains=4).")
        if self.share_converged < SHARE_WANTED:
            functions = ", or compare functions, diagnose(x)" if self.space == "weights" else ""
            sentences.append(
                f"NOT CONVERGED: R-hat is below {RHAT_LIMIT} for {self.share_converged:.0%} of the {self.space} "
                f"(worst {_of(np.nanmax, self.rhat):.2f}). Warm up and draw for longer{functions}."
            )
        elif self.share_sampled < SHARE_WANTED:
            sentences.append(f"NOT CONVERGED: {self._few_effective()}")
        elif self.has_converged:
            sentences.append(
                f"Converged: R-hat is below {RHAT_LIMIT} for {self.share_converged:.0%} of the {self.space}, "
                f"with {ESS_WANTED} effective draws or more, tails included, of {self.share_sampled:.0%}."
            )
        if biased := self._biased():
            sentences.append(f"BIASED: {biased}: a smaller step_size (it is {self.step_size:.2g}) would mend it.")
        if self.divergences:
            sentences.append(
                f"{self.divergences} trajectories diverged: raise target_acceptance, or use a tighter prior."
            )
        if self.acceptance < LOW_ACCEPTANCE:
            sentences.append(
                f"Acceptance is only {self.acceptance:.2f}: a smaller step_size or more warm-up would help."
            )
        return " ".join([*sentences, *notes])

    def _stopped_short(self) -> str:
        """What keeps the chains from being judged at all; empty where nothing does."""
        if any(stage in WARMUPS for stage in self.cut):
            return (
                f"CUT IN WARM-UP: time ran out before the chains were tuned, and the draws of each ({self.num_draws}) "
                "are of a chain that may not have arrived. Allow more seconds, or a shorter num_warmup."
            )
        if self.num_draws < LEAST_DRAWS and not self.is_point:
            return (
                f"TOO FEW DRAWS TO JUDGE: {self.num_draws} a chain, where R-hat and effective sizes need {LEAST_DRAWS} "
                "or more. Draw for longer (num_draws)."
            )
        return ""

    def _few_effective(self) -> str:
        bulk, tail = (_of(np.nanmin, ess) for ess in (self.ess_bulk, self.ess_tail))
        return (
            f"there are fewer than {ESS_WANTED} effective draws of {1 - self.share_sampled:.0%} of the {self.space} "
            f"(least {bulk:.0f} in the bulk, {tail:.0f} in the tails). Draw for longer (num_draws, thinning)."
        )

    def _biased(self) -> str:
        """By which heats, in words; empty where none is above 1 by more than chance and tolerance."""
        hot = {name: heat for name, heat in self.heats.items() if heat[0] - 1 > _margin(heat[1])}
        return " and ".join(HEATS[name].format(f"{mean:.2f} ± {error:.2f}") for name, (mean, error) in hot.items())

    def _repr_html_(self) -> str:
        lines = str(self).splitlines()[1:-1]
        facts = [(line[:11].strip(), line[11:].strip()) for line in lines if line.startswith(("  R-hat", "  ESS"))]
        facts += [("", line.strip()) for line in lines if not line.startswith(("  R-hat", "  ESS"))]
        tone = "good" if self.has_converged else "" if self.is_point else "bad"
        return Card(str(self).splitlines()[0], facts, [Remark(self.verdict, tone)]).html()

    def __str__(self) -> str:
        lines = [
            f"{self.num_chains} chains of {self.num_draws} draws, {self.rhat.size:,} {self.space}",
            f"  R-hat     median {_of(np.nanmedian, self.rhat):.3f}, worst {_of(np.nanmax, self.rhat):.3f}",
            f"  ESS bulk  median {_of(np.nanmedian, self.ess_bulk):,.0f}, least {_of(np.nanmin, self.ess_bulk):,.0f}",
            f"  ESS tail  median {_of(np.nanmedian, self.ess_tail):,.0f}, least {_of(np.nanmin, self.ess_tail):,.0f}",
            f"  acceptance {self.acceptance:.2f}, divergences {self.divergences}",
            *(f"  {name.replace('_', ' ')} {mean:.3f} ± {error:.3f}" for name, (mean, error) in self.heats.items()),
            self.verdict,
        ]
        return "\n".join(lines)


def _margin(error: float) -> float:
    return max(HEAT_TOLERANCE, HEAT_ERRORS * error)


def _of(reduce: Callable[[np.ndarray], float], values: np.ndarray) -> float:
    return float("nan") if np.isnan(values).all() else float(reduce(values))


def diagnose(
    values: np.ndarray, info: dict[str, np.ndarray], space: str, notes: Sequence[str] = (), cut: Sequence[str] = ()
) -> Diagnosis:
    """Judge chains of values (chain, draw, ...); `cut` are the stages of the fit that time cut short."""
    flat = values.reshape(*values.shape[:2], -1)
    heats = {
        name: (float(info[name].mean()), float(diagnostics.mcse_mean(info[name])))
        for name in HEATS
        if name in info and np.ptp(info[name]) > 0
    }
    return Diagnosis(
        space=space,
        rhat=diagnostics.rhat(flat),
        ess_bulk=diagnostics.ess_bulk(flat),
        ess_tail=diagnostics.ess_tail(flat),
        mcse=diagnostics.mcse_mean(flat),
        acceptance=float(np.mean(info["acceptance"])) if "acceptance" in info else float("nan"),
        divergences=int(np.sum(info.get("num_divergent", 0))),
        heats=heats,
        step_size=float(np.mean(info["step_size"])) if "step_size" in info else float("nan"),
        num_chains=values.shape[0],
        num_draws=values.shape[1],
        is_point=values.shape[1] == 1 and not {"acceptance", "step_size"} & set(info),
        cut=tuple(cut),
        notes=tuple(notes),
    )
