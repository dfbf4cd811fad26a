"""Scores for people. Objectives return losses; only this file makes numbers that are reported.

All scores are averages over rows of a predictive distribution of z, the standardised target (interface:
training mean and sd, ddof 0), whatever transform or likelihood the model uses inside.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import binom

if TYPE_CHECKING:
    from geogp.predictive import Predictive

LEVELS = (0.50, 0.80, 0.95)
#: Coverage of fewer rows is too noisy to hold against anyone.
SMALLEST_GROUP = 500


def interval_score(
    y: Float[np.ndarray, " n"],
    lower: Float[np.ndarray, " n"],
    upper: Float[np.ndarray, " n"],
    level: float,
) -> Float[np.ndarray, " n"]:
    """Width plus 2/alpha times the miss, elementwise (Gneiting and Raftery 2007, eq. 43).

    Examples
    --------
    >>> float(interval_score(np.array([3.0]), np.array([0.0]), np.array([2.0]), 0.5)[0])
    6.0
    """
    alpha = 1.0 - level
    return (upper - lower) + 2.0 / alpha * (np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0))


def binomial_band(n: int, level: float, mass: float = 0.99) -> tuple[float, float]:
    """The coverages that n rows of a perfectly calibrated model show with probability `mass`.

    Examples
    --------
    >>> low, high = binomial_band(1000, 0.95)
    >>> low < 0.95 < high
    True
    """
    if n == 0:
        return (0.0, 1.0)
    tail = (1.0 - mass) / 2.0
    return float(binom.ppf(tail, n, level) / n), float(binom.ppf(1.0 - tail, n, level) / n)


def error_of_mean(values: Float[np.ndarray, " n"], group: Int[np.ndarray, " n"]) -> float:
    """Standard error of the mean of rows (n,), those of a group (n,) sharing their luck.

    References
    ----------
    Liang and Zeger 1986 (sandwich variance of a mean of clustered rows)

    Examples
    --------
    >>> apart, alike = np.arange(4), np.zeros(4, dtype=int)
    >>> float(error_of_mean(np.array([0.0, 1.0, 0.0, 1.0]), apart)), error_of_mean(np.ones(4), alike)
    (0.25, 0.0)
    """
    number = np.unique(group, return_inverse=True)[1].ravel()
    sums = np.bincount(number, values - values.mean())
    return math.sqrt(float(np.square(sums).sum())) / len(values)


def score(
    predictive: "Predictive",
    y: Float[np.ndarray, " n"],
    *,
    target_mean: float,
    target_sd: float,
    bounds: tuple[float, float] | None = None,
) -> dict[str, float]:
    """Every score of `interface`: nll, crps, mae (of the median), rmse (of `Predictive.central`: the mean, where there
    is one), interval score, coverage at 50/80/95% and the 95% width, all in units of z = (y - target_mean) / target_sd.

    Parameters
    ----------
    predictive : of the same rows, on the scale of y
    y : (n,)
    bounds : between which the CRPS holds a distribution without a mean (it is infinite otherwise), such as the range of
        the training targets

    Notes
    -----
    Cost O(n).
    """
    sd = target_sd
    lower, upper = predictive.interval(0.95)
    held = predictive.center != "mean" and bounds is not None
    crps = predictive.crps_of(lambda v: v, y, bounds=bounds) if held else predictive.crps(y)
    out = {
        "nll": float(-predictive.log_density(y).mean() - math.log(sd)),
        "crps": float(crps.mean() / sd),
        "mae": float(np.abs(y - predictive.median()).mean() / sd),
        "rmse": float(np.sqrt(np.square(y - predictive.central()).mean()) / sd),
        "interval_score95": float(interval_score(y, lower, upper, 0.95).mean() / sd),
    }
    for level in LEVELS:
        a, b = predictive.interval(level)
        out[f"coverage{round(100 * level)}"] = float(((y >= a) & (y <= b)).mean())
    out["width95"] = float((upper - lower).mean() / sd)
    return out


def score_strata(
    predictive: "Predictive",
    y: Float[np.ndarray, " n"],
    strata: dict[str, Bool[np.ndarray, " n"]],
    *,
    target_mean: float,
    target_sd: float,
    bounds: tuple[float, float] | None = None,
) -> dict[str, dict]:
    """Scores within each named mask, with n and the 99% binomial band of the 95% coverage.

    A stratum below 500 rows carries `"judged": false`: its coverage is too noisy to hold against anyone.
    """
    out: dict[str, dict] = {}
    for name, mask in strata.items():
        n = int(mask.sum())
        out[name] = _size(n)
        if n:
            out[name] |= score(
                predictive.rows(mask), y[mask], target_mean=target_mean, target_sd=target_sd, bounds=bounds
            )
    return out


def _size(n: int) -> dict:
    """What the number of rows says of a stratum's scores."""
    return {"n": n, "judged": n >= SMALLEST_GROUP} | (
        {"coverage95_band": list(binomial_band(n, 0.95))} if n else {}
    )


def pool(scores: Sequence[Mapping[str, Any]], n: Sequence[int]) -> dict[str, Any]:
    """Scores of several sets of n rows each as those of all of them: means by row, of an RMSE of its square.

    Examples
    --------
    >>> pool([{"crps": 1.0, "rmse": 3.0}, {"crps": 2.0, "rmse": 4.0}], [1, 1])["crps"]
    1.5
    """
    out = dict(scores[0])
    for name, value in scores[0].items():
        if isinstance(value, float):
            power = 2.0 if name == "rmse" else 1.0
            mean = np.average(np.array([s[name] for s in scores]) ** power, weights=n)
            out[name] = float(mean ** (1.0 / power))
    return out


def pool_strata(strata: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """`pool` by stratum, of the documents that `score_strata` made of several sets of rows."""
    out = {}
    for name in strata[0]:
        some = [s[name] for s in strata if s.get(name, {}).get("n")]
        n = [s["n"] for s in some]
        out[name] = ({**pool(some, n), **_size(sum(n))}) if some else _size(0)
    return out


def pit(predictive: "Predictive", y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Probability integral transform F(y): uniform for a calibrated model."""
    return predictive.cdf(y)


def centred_quantile_metric(
    predictive: "Predictive", y: Float[np.ndarray, " n"], n_levels: int = 100
) -> float:
    """Mean |achieved - nominal| coverage of central intervals over a grid of levels: 0 is perfect.

    Source: fixed-mean-gp, eq. 31.
    """
    levels = (np.arange(n_levels) + 0.5) / n_levels
    central = np.abs(2.0 * pit(predictive, y) - 1.0)
    achieved = np.searchsorted(np.sort(central), levels, side="right") / len(y)
    return float(np.abs(achieved - levels).mean())
