"""The network at infinite width, where it is a Gaussian process: its posterior in closed form.

    f ~ GP(0, k),    k read off the network and its prior (`trace/kernels.py`)
    log p(y | x) = log N(y; 0, K + noise^2)

Neal 1996; Williams 1997; Lee et al. 2018; Matthews et al. 2018.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax
import numpy as np
import scipy.linalg

from posteria import tree
from posteria.data.arrays import Data, num_rows, rows
from posteria.engine.loop import Run
from posteria.errors import SettingError, TooLargeError
from posteria.machine import readable
from posteria.methods.chains.elliptical_slice import EllipticalSlice
from posteria.methods.costs import Costed
from posteria.methods.functions.latent import LATENT_ROWS, sample_latent
from posteria.methods.functions.spectrum import Inducing, Spectrum, check_one_noise, has_gaussian_noise
from posteria.models.limit import LimitKernel, in_float64, limit_kernel
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.process import Noise, ProcessPosterior, SparseProcessPosterior, cholesky
from posteria.settings import Count, check_settings, refuse_idle

MOST_ROWS = 12_000  # whose kernel is factorised; of more, that of inducing ones
NOISE_ROWS = 2000  # by whose evidence an inferred noise is chosen: it takes all eigenvalues of their kernel
INDUCING_SEED = 5  # of the rows that are inducing, so that a fit made again takes the same


@dataclass(frozen=True)
class InfiniteWidth(Costed):
    """The Gaussian process that the network becomes at infinite width: no training at all, and no weights.

    `kernel`: "auto" reads it off the network where that can be followed, and else estimates it from `num_functions`
    draws of the network; "walk" and "monte-carlo" insist. Inferred noise is at the mode of its posterior under the
    evidence. `classes`: "regression" on centred labels as in Lee et al. 2018; "latent" draws the latent function by
    `sampler`, as under any likelihood that is not Gaussian; "auto" is latent up to 2,000 rows. Up to 12,000 rows it is
    exact; of more, `num_inducing` rows sum up what all say (Titsias 2009): the evidence is then a lower bound,
    `facts["elbo"]`, and `facts["unexplained"]` is the share of the prior's variance that they leave out. In float64 on
    the host.
    """

    kernel: Literal["auto", "walk", "monte-carlo"] = "auto"
    num_functions: Count = 1000
    classes: Literal["auto", "regression", "latent"] = "auto"
    num_inducing: Count = 2000
    sampler: EllipticalSlice = field(default_factory=lambda: EllipticalSlice(num_draws=200, thinning=10))

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Lee et al. 2018; Matthews et al. 2018"
    model_differs: ClassVar[str] = "the network at infinite width"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.kernel == "walk", "num_functions", 'kernel="walk"')

    def expected_gradients(self, num_data: int) -> float:
        return 0.0  # it takes none

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> Posterior:
        bare = target.without_data()
        if target.blank_input is None:
            raise SettingError("data is None", "an x for its shapes", "pass data=(x, None) for the prior")
        check_one_noise(bare)
        kernel, note = limit_kernel(target, self.kernel, self.num_functions)
        run.note(note)
        if target.data is None:
            x = rows(target.blank_input, slice(0, 0))
            return ProcessPosterior(bare, kernel, x, np.zeros((0, target.num_outputs or 1)), Noise(_given_noise(bare)))
        data: Any = target.data
        x, y, weight = data if len(data) == 3 else (*data, None)
        n = num_rows(x)
        likelihood: Any = target.model.likelihood
        if hasattr(likelihood, "probs") and self.classes != "latent" and (self.classes != "auto" or n > LATENT_ROWS):
            run.note("classes were fitted as numbers, centred labels, by regression")
            labels = _centred_labels(np.asarray(y), target.num_outputs or 1)
            return self._regression(bare, kernel, x, labels, weight, run, is_labels=True)
        if has_gaussian_noise(likelihood):
            return self._regression(bare, kernel, x, np.asarray(y, np.float64), weight, run, is_labels=False)
        _check_size(n, LATENT_ROWS)
        return sample_latent(self.sampler, key, target, kernel, run)

    def _regression(
        self, target: Target, kernel: LimitKernel, x: Data, y: np.ndarray, weight: Any, run: Run, *, is_labels: bool
    ) -> ProcessPosterior:
        root = np.ones(len(y)) if weight is None else np.sqrt(np.asarray(weight, np.float64))
        if len(y) > MOST_ROWS:
            return self._by_inducing(target, kernel, x, y, root, run, is_labels=is_labels)
        matrix, correction = kernel.cross(x, x), 0.0
        matrix *= np.outer(root, root)  # as if all rows had one noise
        if is_labels or jax.tree.leaves(target.structs["likelihood"]):
            chosen = np.random.default_rng(0).permutation(len(y))[:NOISE_ROWS]
            if len(y) > NOISE_ROWS:
                run.note(f"the noise was chosen by the evidence of {NOISE_ROWS:,} rows of {len(y):,}")
            spectrum = Spectrum.of(matrix[np.ix_(chosen, chosen)], (root[:, None] * y)[chosen], (root**2)[chosen].sum())
            if is_labels:
                noise, scale = spectrum.best_scale()
                y = y / scale
            else:
                _check_temperature(target)
                noise, correction = spectrum.inferred(target)
        else:
            noise = Noise(_given_noise(target))
        posterior = ProcessPosterior(target, kernel, x, y, noise, weight=root**2, is_labels=is_labels)
        matrix[np.diag_indices_from(matrix)] += noise.std**2
        posterior.factor, jitter = cholesky(matrix)
        if jitter:
            run.note(f"{jitter:.1e} was added to the kernel's diagonal, which rounding had made indefinite")
        if not is_labels and target.temperature == 1.0:
            missing = 0.5 * y.shape[1] * (len(y) - (root**2).sum()) * math.log(2 * math.pi * noise.std**2)
            posterior._log_evidence = _log_normal(posterior.factor, root[:, None] * y) + missing + correction
        return posterior

    def _by_inducing(
        self,
        target: Target,
        kernel: LimitKernel,
        x: Data,
        y: np.ndarray,
        root: np.ndarray,
        run: Run,
        *,
        is_labels: bool,
    ) -> SparseProcessPosterior:
        chosen = np.sort(np.random.default_rng(INDUCING_SEED).permutation(len(y))[: self.num_inducing])
        inducing = jax.tree.map(np.asarray, rows(x, chosen))
        found = Inducing.of(kernel, inducing, x, y, root)
        scale, correction = 1.0, 0.0
        if is_labels:
            noise, scale = found.spectrum().best_scale()
        elif jax.tree.leaves(target.structs["likelihood"]):
            _check_temperature(target)
            noise, correction = found.spectrum().inferred(target)
        else:
            noise = Noise(_given_noise(target))
        facts: dict[str, Any] = {"inducing": len(chosen), "unexplained": found.lost / found.variance}
        if not is_labels and target.temperature == 1.0:
            facts |= {"elbo": found.bound(noise.std) + correction, "elbo_error": 0.0}
        run.note(
            f"the process is that of {len(chosen):,} inducing rows, drawn from {len(y):,}: they leave "
            f"{100 * facts['unexplained']:.2g} % of the prior's variance at the rows unexplained; the evidence is a "
            "lower bound"
        )
        if found.jitter:
            run.note(f"{found.jitter:.1e} was added to the kernel's diagonal, which rounding had made indefinite")
        alpha, gain_root = found.summary(noise.std, scale)
        return SparseProcessPosterior(
            target, kernel, inducing, alpha, gain_root, noise, is_labels=is_labels, facts=facts
        )


def _given_noise(target: Target) -> float:
    likelihood: Any = target.model.likelihood
    if not has_gaussian_noise(likelihood):
        return 1.0
    with in_float64():
        return float(likelihood.noise_std(likelihood.init(jax.random.key(0))))


def _check_size(n: int, most: int) -> None:
    if n > most:
        raise TooLargeError(
            f"{n:,} rows, whose kernel would take {readable(8.0 * n**2)} and {n**3 / 3:.1e} multiplications",
            f"at most {most:,}",
            "take a part of the rows, or po.DeepKernel, which goes on with inducing points, under any likelihood",
        )


def _check_temperature(target: Target) -> None:
    if target.temperature != 1.0:
        raise SettingError(
            f"temperature {target.temperature}, and a noise to infer",
            "temperature 1, or a given noise",
            "give the noise as a number, or take temperature 1",
        )


def _centred_labels(y: np.ndarray, num_outputs: int) -> np.ndarray:
    """One column a class, of mean 0 over the classes; of one output, -1/2 and 1/2."""
    if num_outputs == 1:
        return np.asarray(y[:, None] - 0.5)
    return np.asarray(np.eye(num_outputs)[y] - 1 / num_outputs)


def _log_normal(factor: np.ndarray, y: np.ndarray) -> float:
    """Of the columns of y under N(0, factor factor^T)."""
    white = scipy.linalg.solve_triangular(factor, y, lower=True, check_finite=False)
    log_det = np.log(np.diag(factor)).sum()
    return float(-0.5 * (white**2).sum() - y.shape[1] * (log_det + 0.5 * len(y) * math.log(2 * math.pi)))
