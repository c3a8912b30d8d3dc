"""How good predictions are, and how far two predictive distributions are apart: arrays in, numbers out."""

from posteria.metrics.distances import (
    agreement,
    quantile_levels,
    total_variation,
    wasserstein,
    wasserstein_1_from_cdf,
    wasserstein_from_samples,
)
from posteria.metrics.scores import (
    accuracy,
    auroc,
    brier,
    coverage,
    crps_from_quantiles,
    crps_from_samples,
    crps_gaussian_mixture,
    ece,
    joint_log_loss,
    negative_log_likelihood,
    neighbours,
    quantile_losses,
    rmse,
    width,
)

__all__ = [
    "accuracy",
    "agreement",
    "auroc",
    "brier",
    "coverage",
    "crps_from_quantiles",
    "crps_from_samples",
    "crps_gaussian_mixture",
    "ece",
    "joint_log_loss",
    "negative_log_likelihood",
    "neighbours",
    "quantile_levels",
    "quantile_losses",
    "rmse",
    "total_variation",
    "wasserstein",
    "wasserstein_1_from_cdf",
    "wasserstein_from_samples",
    "width",
]
