"""Convergence of chains, in weight space or function space: arrays in, numbers out."""

from posteria.diagnostics.chains import autocorrelation, ess_bulk, ess_mean, ess_tail, mcse_mean, mcse_std, rhat

__all__ = ["autocorrelation", "ess_bulk", "ess_mean", "ess_tail", "mcse_mean", "mcse_std", "rhat"]
