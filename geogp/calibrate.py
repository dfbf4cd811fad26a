"""Calibration with a certificate: split-conformal factors by group, and what coverage was achieved.

A factor stretches the predictive scale of a group so that its 95% interval holds 95% of held-out rows. It is
kept at 1 where the rows are too few to tell, or where they already agree with the nominal level.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from geogp.predictive import Peak, Predictive
from geogp.scores import SMALLEST_GROUP, binomial_band, error_of_mean

#: Edges of the count bins: single tests, a few, some, many.
COUNT_EDGES = (1.5, 4.5, 19.5)
#: Farther than this many spacings of places from the nearest observation is far.
FAR_SPACINGS = 1.75


def standardised_miss(
    y: Float[np.ndarray, " n"],
    location: Float[np.ndarray, " n"],
    scale: Float[np.ndarray, " n"],
    degrees_of_freedom: Float[np.ndarray, " n"],
    level: float,
    log_skewness: Float[np.ndarray, " n"] | None = None,
    peak: Peak | None = None,
) -> Float[np.ndarray, " n"]:
    """|y - location| in units of the central interval's reach on that side at `level`: (n,), at most 1 inside.

    Parameters
    ----------
    y, location, scale, degrees_of_freedom, log_skewness : (n,) as of `Predictive`
    peak : a second one, with less than half of the mass, so that both ends lie beyond the location
    """
    zero, one = np.zeros_like(scale), np.ones_like(scale)
    if peak is not None:
        peak = Peak(peak.share, (peak.location - location) / scale, peak.scale / scale)
    standard = Predictive(zero, one, degrees_of_freedom, log_skewness=log_skewness, peak=peak)
    lower, upper = standard.interval(level)
    return np.abs(y - location) / (scale * np.where(y < location, -lower, upper))


def conformal_factor(miss: Float[np.ndarray, " n"], level: float = 0.95) -> float:
    """The factor on half-widths with which an exchangeable new row is covered with probability >= `level`.

    The ceil((n + 1) level)-th smallest of `standardised_miss` (n,); the largest where n is too small for that.

    Examples
    --------
    >>> conformal_factor(np.arange(1, 100) / 100.0, 0.9)
    0.9

    References
    ----------
    Vovk, Gammerman and Shafer 2005; Lei et al. 2018, algorithm 2
    """
    n = len(miss)
    if n == 0:
        return 1.0
    at = min(math.ceil((n + 1) * level), n) - 1
    return float(np.partition(miss, at)[at])


@dataclass(frozen=True)
class Calibration:
    """Factors on the predictive scale by group number; a group without its own takes the pooled one."""

    pooled: float = 1.0
    factors: tuple[float | None, ...] = ()
    rows: tuple[int, ...] = ()
    level: float = 0.95

    def factor(self, group: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """(n,) for group numbers (n,)."""
        own = [self.pooled if f is None else f for f in self.factors]
        table = np.array([*own, self.pooled])
        return table[np.where((group >= 0) & (group < len(own)), group, len(own))]


def groups_of(counts: Float[np.ndarray, " n"], distance: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Group numbers (n,) by count bin and by distance to the nearest observation in spacings of places."""
    return np.searchsorted(COUNT_EDGES, counts) * 2 + (distance > FAR_SPACINGS)


def fit_calibration(
    miss: Float[np.ndarray, " n"],
    group: Int[np.ndarray, " n"],
    *,
    cluster: Int[np.ndarray, " n"] | None = None,
    level: float = 0.95,
    smallest: int = SMALLEST_GROUP,
) -> Calibration:
    """Factors from held-out rows.

    Parameters
    ----------
    miss : (n,) of `standardised_miss` at `level`
    group : (n,) group numbers from 0
    cluster : (n,) number of the spatial block each row lies in: rows of a block share their luck
    smallest : groups with fewer rows take the pooled factor

    Notes
    -----
    A factor other than 1 needs evidence: the coverage without it must miss the level by more than the margin m, the
    larger of the 99% binomial band's and 2.58 standard errors between blocks. A miss of d > m earns the conformal
    factor to the power 1 - (m/d)²: near the margin a few unlucky blocks look like a wrong width.
    """
    rows = np.arange(len(miss)) if cluster is None else cluster
    pooled = _evident(miss, rows, level)
    factors: list[float | None] = []
    sizes = np.bincount(group) if len(group) else np.zeros(0, dtype=np.int64)
    for g, size in enumerate(sizes):
        inside = group == g
        factors.append(_evident(miss[inside], rows[inside], level) if size >= smallest else None)
    return Calibration(pooled, tuple(factors), tuple(int(s) for s in sizes), level)


def _evident(miss: Float[np.ndarray, " n"], cluster: Int[np.ndarray, " n"], level: float) -> float:
    n = len(miss)
    if n == 0:
        return 1.0
    inside = (miss <= 1.0).astype(np.float64)
    covered = float(inside.mean())
    low, high = binomial_band(n, level)
    margin = max(2.58 * error_of_mean(inside, cluster), level - low if covered < level else high - level)
    if abs(covered - level) <= margin:
        return 1.0
    # Positive-part shrinkage: nothing at the edge of the evidence, the whole conformal factor far beyond it.
    trust = 1.0 - (margin / (covered - level)) ** 2
    return conformal_factor(miss, level) ** trust


def certificate(
    inside: Mapping[float, Bool[np.ndarray, " n"]], groups: Mapping[str, Bool[np.ndarray, " n"]]
) -> dict:
    """Nominal and achieved coverage by group, with the 99% binomial band of a calibrated model; JSON-able.

    Parameters
    ----------
    inside : level -> (n,) whether each held-out row lies in its central interval at that level
    groups : name -> (n,) membership; "all" is added, a group without rows left out

    Returns
    -------
    {"levels": [..], "groups": {name: {"n", "judged", "achieved": [..], "band": [[low, high], ..], "within": [..]}}};
    `within` tells whether the achieved coverage lies in its band; a group below 500 rows is not judged: None there

    Examples
    --------
    >>> one = np.ones(3, dtype=bool)
    >>> certificate({0.5: one, 0.95: one}, {})["groups"]["all"]["achieved"]
    [1.0, 1.0]
    """
    out: dict[str, dict] = {}
    everyone = np.ones(len(next(iter(inside.values()))), dtype=bool)
    for name, member in {"all": everyone, **groups}.items():
        n = int(member.sum())
        if not n:
            continue
        achieved = [float(hit[member].mean()) for hit in inside.values()]
        band = [list(binomial_band(n, level)) for level in inside]
        judged = n >= SMALLEST_GROUP
        within = [low <= share <= high if judged else None for share, (low, high) in zip(achieved, band)]
        out[name] = {"n": n, "judged": judged, "achieved": achieved, "band": band, "within": within}
    return {"levels": list(inside), "groups": out}
