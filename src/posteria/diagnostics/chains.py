"""How far chains have converged: R-hat, effective sample size, Monte Carlo standard error, autocorrelation.

All follow Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021, "Rank-normalization, folding, and localization: an
improved R-hat for assessing convergence of MCMC". Chains are shaped (chain, draw, ...); each function works on every
trailing element at once and returns an array of the trailing shape. A value is nan where the question has no answer:
all draws equal, a draw that is not finite, or fewer than four draws. Where one chain never moved and the others did,
R-hat is inf and the rest is nan: the published formulas barely see one of eight chains that is stuck near the centre.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError, SettingError

MIN_DRAWS = 4  # two for each half of a chain: fewer have no variance
BLOCK_VALUES = 2**14  # values worked on at once, 128 kB: larger temporaries leave the cache and cost page faults
TAIL_PROBABILITIES = (0.05, 0.95)
RANK_OFFSET = 3 / 8  # Blom 1958


def rhat(x: ArrayLike) -> np.ndarray:
    """Rank-normalised split R-hat: the larger of the bulk's and, folded about the median, the tails'.

    One chain is compared with its own other half: that sees drift, but not a mode it never visited.
    """
    return _by_block(_rhat, x, if_a_chain_is_stuck=np.inf)


def ess_bulk(x: ArrayLike) -> np.ndarray:
    """Effective sample size of the rank-normalised draws: how well the centre of the distribution is known."""
    return _by_block(_ess_bulk, x)


def ess_tail(x: ArrayLike) -> np.ndarray:
    """The smaller of the effective sample sizes for the probabilities of lying below the 5 % and the 95 % quantile.

    A tail that holds no draw (the 95 % quantile of a binary variable is its maximum) is left out; nan if both are.
    """
    return _by_block(_ess_tail, x)


def ess_mean(x: ArrayLike) -> np.ndarray:
    """Effective sample size of the draws as they are, which must have a variance: it gives the error of their mean."""
    return _by_block(_ess_mean, x)


def mcse_mean(x: ArrayLike) -> np.ndarray:
    """Monte Carlo standard error of the posterior mean, in the units of x."""
    return _by_block(_mcse_mean, x)


def mcse_std(x: ArrayLike) -> np.ndarray:
    """Monte Carlo standard error of the posterior standard deviation, in the units of x, by the delta method.

    The effective sample size is that of the squared deviations, not of x: antithetic chains know their mean far better
    than their spread.
    """
    return _by_block(_mcse_std, x)


def autocorrelation(x: ArrayLike, max_lag: int) -> np.ndarray:
    """Autocorrelation of each chain about its own mean, shaped (chain, max_lag + 1, ...); nan for a constant chain."""
    x = _chains(x)
    num_draws = x.shape[1]
    if not 0 <= max_lag < num_draws:
        raise SettingError(f"max_lag is {max_lag}", f"0 to {num_draws - 1}", f"there are {num_draws} draws")
    draws = np.moveaxis(x, 1, -1).astype(np.float64)
    draws[~np.isfinite(draws).all(-1)] = np.nan  # infinities too, without warnings
    covariance = _autocovariance(_power_spectrum(draws), num_draws)[..., : max_lag + 1]
    covariance[draws.max(-1) == draws.min(-1)] = np.nan
    return np.moveaxis(covariance / covariance[..., :1], -1, 1)


# ------------------------------------------------------------------ the statistics of a block, (column, chain, draw)


def _rhat(draws: np.ndarray) -> np.ndarray:
    halves = _split(draws)
    places, ascending = _sorted(_flat(halves))
    bulk = _split_rhat(_normal_scores(places, ascending).reshape(halves.shape))

    # distances from the median fall, then rise along sorted draws: a stable sort merges such runs in linear time
    middle = (ascending.shape[-1] - 1) // 2
    ascending -= ascending[:, middle : middle + 2].mean(-1, keepdims=True)  # of an even number: halves of equal length
    by_distance, distance = _sorted(np.abs(ascending, out=ascending), kind="stable")
    tails = _split_rhat(_normal_scores(places.take(by_distance), distance).reshape(halves.shape))
    tails[distance[:, 0] == distance[:, -1]] = np.nan  # two values, equally often: folding leaves one
    return np.fmax(bulk, tails)


def _split_rhat(scores: np.ndarray) -> np.ndarray:
    num_draws = scores.shape[-1]
    within = scores.var(-1, ddof=1).mean(-1)
    between = num_draws * scores.mean(-1).var(-1, ddof=1)
    return np.sqrt((between / within + num_draws - 1) / num_draws)


def _ess_bulk(draws: np.ndarray) -> np.ndarray:
    halves = _split(draws)
    return _ess(_normal_scores(*_sorted(_flat(halves))).reshape(halves.shape))


def _ess_tail(draws: np.ndarray) -> np.ndarray:
    ascending = np.sort(_flat(draws), axis=-1)
    halves = _split(draws)
    tails = [_ess((halves <= _quantile(ascending, p)[..., None]).astype(float)) for p in TAIL_PROBABILITIES]
    return np.fmin(*tails)


def _ess_mean(draws: np.ndarray) -> np.ndarray:
    return _ess(_split(draws))


def _mcse_mean(draws: np.ndarray) -> np.ndarray:
    return _flat(draws).std(-1, ddof=1) / np.sqrt(_ess_mean(draws))


def _mcse_std(draws: np.ndarray) -> np.ndarray:
    squares = (draws - draws.mean((-2, -1), keepdims=True)) ** 2
    variance = squares.mean((-2, -1))
    return np.sqrt(squares.var((-2, -1)) / _ess_mean(squares) / variance / 4)


def _ess(values: np.ndarray) -> np.ndarray:
    """N / tau, tau the integrated autocorrelation time of all chains by Geyer's initial monotone sequence (1992).

    Correlations come in pairs of lags (0, 1), (2, 3), ...: pairs are summed up to the first that is not positive, each
    at most as large as the one before; of the pair where the sum stops, the even lag is counted once if it is positive.
    """
    _, num_chains, num_draws = values.shape
    covariance = _autocovariance(_power_spectrum(values).mean(1), num_draws)  # (column, lag), mean over chains
    within = covariance[:, :1] * num_draws / (num_draws - 1)
    total = covariance[:, :1] + values.mean(-1).var(-1, ddof=1)[:, None]
    correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1

    last = max((num_draws - 1) // 2 - 1, 0)  # further pairs rest on too few draws
    pairs = correlation[:, : 2 * last + 2].reshape(len(values), last + 1, 2).sum(-1)
    ended = pairs <= 0
    stop = np.where(ended.any(-1), ended.argmax(-1), last)
    monotone = np.minimum.accumulate(pairs, axis=-1)
    summed = np.where(np.arange(last + 1) < stop[:, None], monotone, 0).sum(-1)
    even = np.take_along_axis(correlation, 2 * stop[:, None], axis=-1)[:, 0]
    pair = np.take_along_axis(pairs, stop[:, None], axis=-1)[:, 0]
    tau = -1 + 2 * summed + np.where((even > 0) | (pair >= 0), even, 0)

    num_values = num_chains * num_draws
    ess = num_values / np.maximum(tau, 1 / math.log10(num_values))  # the bound on antithetic chains, as in Stan
    ess[values.max((-2, -1)) == values.min((-2, -1))] = np.nan
    return ess


def _power_spectrum(values: np.ndarray) -> np.ndarray:
    transform = np.fft.rfft(values - values.mean(-1, keepdims=True), _transform_length(values.shape[-1]))
    return transform.real**2 + transform.imag**2


def _autocovariance(power_spectrum: np.ndarray, num_draws: int) -> np.ndarray:
    return np.fft.irfft(power_spectrum, _transform_length(num_draws))[..., :num_draws] / num_draws


def _transform_length(num_draws: int) -> int:
    from scipy.fft import next_fast_len

    return next_fast_len(2 * num_draws, real=True)  # padded to twice: the covariance must not wrap around


# ------------------------------------------------------------------ ranks


def _sorted(rows: np.ndarray, kind: Literal["quicksort", "stable"] = "quicksort") -> tuple[np.ndarray, np.ndarray]:
    """Rows in ascending order, and where each value stood in the flattened array: (places, ascending)."""
    places = np.argsort(rows, axis=-1, kind=kind)
    places += np.arange(0, rows.size, rows.shape[-1])[:, None]
    return places, rows.take(places)


def _normal_scores(places: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """The normal scores of values in the order they had before they were sorted; equal values share their mean rank."""
    num_values = ascending.shape[-1]
    table = _score_table(num_values)
    scores = np.empty(ascending.size)
    scores[places] = table[::2]

    is_first = np.ones(ascending.shape, bool)  # of the values equal to it
    np.not_equal(ascending[:, 1:], ascending[:, :-1], out=is_first[:, 1:])
    is_last = np.roll(is_first, -1)  # flattened: a row's last value stands before the next row's first
    tied = np.flatnonzero(~(is_first & is_last))
    starts = np.flatnonzero(is_first.take(tied))
    counts = np.diff(starts, append=len(tied))
    firsts = tied[starts] % num_values
    scores[places.take(tied)] = np.repeat(table[2 * firsts + counts - 1], counts)
    return scores


@functools.lru_cache(maxsize=1)  # a constant of the number of draws, asked for block after block; no draws are in it
def _score_table(num_values: int) -> np.ndarray:
    """Normal scores at ranks 1, 1.5, 2, ... num_values: the mean of consecutive ranks is one of these."""
    from scipy.special import ndtri

    ranks = np.arange(2, 2 * num_values + 1) / 2
    return ndtri((ranks - RANK_OFFSET) / (num_values - 2 * RANK_OFFSET + 1))


def _quantile(ascending: np.ndarray, probability: float) -> np.ndarray:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7), (column, 1)."""
    position = probability * (ascending.shape[-1] - 1)
    below = math.floor(position)
    low, high = ascending[:, [below]], ascending[:, [math.ceil(position)]]
    return low + (high - low) * (position - below)


# ------------------------------------------------------------------ blocks of columns


def _by_block(
    statistic: Callable[[np.ndarray], np.ndarray], x: ArrayLike, if_a_chain_is_stuck: float = np.nan
) -> np.ndarray:
    """The statistic of every trailing element, with bounded memory."""
    x = _chains(x)
    (num_chains, num_draws), trailing = x.shape[:2], x.shape[2:]
    columns = x.reshape(num_chains, num_draws, math.prod(trailing))
    result = np.full(columns.shape[-1], np.nan)
    if num_draws < MIN_DRAWS:
        return result.reshape(trailing)
    block = max(BLOCK_VALUES // (num_chains * num_draws), 1)
    for start in range(0, len(result), block):
        part = columns[..., start : start + block]
        draws = np.ascontiguousarray(np.moveaxis(part, -1, 0), dtype=np.float64)
        low, high = draws.min(-1), draws.max(-1)  # (column, chain)
        is_finite = np.isfinite(low).all(-1) & np.isfinite(high).all(-1)
        is_constant = low.min(-1) == high.max(-1)
        is_stuck = (low == high).any(-1)
        usable = is_finite & ~is_stuck
        value = result[start : start + block]
        value[is_finite & is_stuck & ~is_constant] = if_a_chain_is_stuck
        if usable.any():
            # a tail may hold no draw, and halves of chains may not move: 0 / 0 is nan, which is meant
            with np.errstate(divide="ignore", invalid="ignore"):
                value[usable] = statistic(draws if usable.all() else draws[usable])
    return result.reshape(trailing)


def _chains(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x)
    if x.ndim < 2 or x.shape[0] == 0:
        raise DataError(f"draws shaped {x.shape}", "(chain, draw, ...)", "pass x[None] for the draws of one chain")
    return x


def _split(draws: np.ndarray) -> np.ndarray:
    """Halves of chains as chains of their own; the middle one of an odd number of draws is left out."""
    num_columns, num_chains, num_draws = draws.shape
    half = num_draws // 2
    if num_draws % 2:
        draws = np.delete(draws, half, axis=-1)
    return draws.reshape(num_columns, 2 * num_chains, half)


def _flat(draws: np.ndarray) -> np.ndarray:
    return draws.reshape(len(draws), -1)
