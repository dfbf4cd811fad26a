"""How the variance of a residual grows with the distance from data, learned by a trial.

Training rows lie at no distance from themselves, and validation rows drawn at random at hardly any: places come back in
other quarters. So the same method, without the residual, is trained for half as long on rows that lack a side, some blocks
and single places, and what it misses there, beyond its own variance, tells how the rest grows with the distance from the
rows that it had.
"""

import logging
import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from geogp.basis.encoders import Encoder
from geogp.data import Data
from geogp.engines.plan import Hooks, Plan
from geogp.holdout import random_part, side_and_blocks
from geogp.linalg.distinct import distinct

if TYPE_CHECKING:
    from geogp.engines.base import Engine

log = logging.getLogger(__name__)
Array = NDArray[np.float64]

#: Fewer rows say too little once a third of them is left out; more are not needed.
FEWEST, MOST = 300, 20_000
#: Share of the whole training that a trial takes, and of its rows that choose its epoch.
EPOCHS, WATCHED = 0.5, 0.125
#: Share of the places left that are left out one by one.
SINGLY = 0.125
#: Candidates of the sill, and of the range in median distances of the rows left out, with the prior sd of their logarithms.
SILLS, RANGES = np.geomspace(0.01, 4.0, 16), np.geomspace(0.1, 30.0, 14)
SILL_SD, RANGE_SD = 2.0, 1.5
#: Candidates of the power, of a rough surface and of a smoother one.
POWERS = (1.0, 1.5)
#: No row counts as more of a miss than so many variances.
WORST = 16.0


@dataclass(frozen=True)
class Missed:
    """Rows left out, (n,) each: how far from the nearest row of the trial, by how much it missed, its own variance there."""

    distance: Array
    miss: Array
    variance: Array


def growth_of(
    engine: "type[Engine]", plan: Plan, encoder: Encoder, data: Data, hooks: Hooks = Hooks()
) -> dict[str, float]:
    """The sill, range and power, by standardised positions of an encoder, that rows left out of a trial find likeliest.

    Nothing without a position or with fewer than 300 rows. Of more than 20,000 a sample is drawn.

    Notes
    -----
    Cost of a training of at most 20,000 rows, half as long.
    """
    n = len(data.y)  # of a table that is streamed those of its sample
    if plan.shape.spatial is None or n < FEWEST:
        return {}
    some = torch.arange(n) if n <= MOST else random_part(n, MOST, plan.seed)[1].sort().values
    data = data.rows(some.to(data.y.device))
    columns = list(plan.shape.spatial)
    places = encoder.standardise(data.X)[:, columns].double().cpu().numpy()
    fitted, out = _left_out(places, plan.seed)
    if len(fitted) < FEWEST // 2 or not len(out):
        return {}
    parts = random_part(len(fitted), round(WATCHED * len(fitted)), plan.seed)
    rest, watched = (np.sort(fitted[part.numpy()]) for part in parts)

    def rows(numbers: Int[np.ndarray, " m"]) -> Data:
        return data.rows(torch.as_tensor(numbers, device=data.y.device))

    epochs = max(1, round(EPOCHS * plan.schedule.n_epochs(len(rest))))
    trial = engine.fit(
        replace(plan, row=replace(plan.row, residual="none"), schedule=replace(plan.schedule, epochs=epochs)),
        rows(rest),
        rows(watched),
        hooks.within("how its doubt grows with distance"),
    )
    left = rows(out).to(torch.device("cpu"))
    m = trial.moments(left.X, left.counts)
    missed = Missed(
        distance=cKDTree(places[rest]).query(places[out])[0],
        miss=(left.y - m.mean).double().numpy(),
        variance=(m.latent_variance + m.noise_variance).double().numpy(),
    )
    sill, reach, power = likeliest(missed)
    log.info("variance grows by %.3g within a distance of %.3g, as its power %.3g", sill, reach, power)
    return {"sill": sill, "range": reach, "power": power}


def _left_out(places: Array, seed: int) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " k"]]:
    """Rows to train on, and those left out: a side, some blocks, then an eighth of the places that are left, with all rows
    there."""
    fitted, out = side_and_blocks(places, seed=seed)
    found, place = distinct(places[fitted])
    gone = (np.random.default_rng([seed, 1]).uniform(size=len(found)) < SINGLY)[place]
    return fitted[~gone], np.concatenate([out, fitted[gone]])


def likeliest(missed: Missed) -> tuple[float, float, float]:
    """Sill, range and power of variance + sill (1 - exp(-(distance / range)^power)) under which Gaussian misses are likeliest.

    Of 16 sills, 14 ranges and two powers, under log-normal priors of the first about one and about the median distance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> d = rng.uniform(0, 3, 4000)
    >>> miss = np.sqrt(0.1 + 0.5 * (1 - np.exp(-d / 0.8))) * rng.standard_normal(4000)
    >>> sill, reach, power = likeliest(Missed(d, miss, np.full(4000, 0.1)))
    >>> 0.4 < sill < 0.6, 0.5 < reach < 1.2, power
    (True, True, 1.0)
    """
    unit = max(float(np.median(missed.distance)), 1e-12)
    best, found = math.inf, (1.0, unit, 1.0)
    squared = np.square(missed.miss)
    for power, reach in product(POWERS, RANGES * unit):
        grown = -np.expm1(-((missed.distance / reach) ** power))
        for sill in SILLS:
            v = missed.variance + sill * grown
            prior = (math.log(sill) / SILL_SD) ** 2 + (math.log(reach / unit) / RANGE_SD) ** 2
            score = float((np.minimum(squared / v, WORST) + np.log(v)).sum()) + prior
            if score < best:
                best, found = score, (float(sill), float(reach), power)
    return found
