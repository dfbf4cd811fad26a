"""How fast what a basis does not know grows with the distance from data, read from places left out of its training.

Validation rows drawn at random lie among the training rows: none tells how wrong a learned basis is in a gap or beyond the
data. So the network is trained again without a side of the data and without some blocks, as long as it took the first
time to learn what it keeps, and what it then misses there is compared with how far those rows lie from its places.
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP
from geogp.basis.rescale import (
    FARTHEST,
    FEWEST,
    NOISE_SD,
    SEEN,
    SHARES_SD,
    SMALLEST_DF,
    SURFACE_SD,
    Spread,
    spread_of,
)
from geogp.basis.residuals.distance import Distance, grown
from geogp.basis.schedule import Schedule
from geogp.basis.train import Loss, Training
from geogp.data import Data
from geogp.densities import log_density
from geogp.holdout import sides_and_blocks

log = logging.getLogger(__name__)

#: Trainings without some of the places; none of them is longer than this share of the first.
FOLDS, SHARE = 2, 0.15
#: Prior sd of the logarithms of sill, about the variance of the targets, and range, about how far rows left out lie.
GROWTH_SD = 1.0
#: Of the logarithm of the degrees of freedom, mean and sd: rows far out shall not pass for places far away.
LOG_DF, DF_SD = math.log(20.0), 1.5
#: What the rows left out count beside those near data: at the edges of a map the noise, too, may be another.
FAR = 0.5
#: Nothing.
NONE = {"sill": 0.0, "range": 1.0}


@dataclass(frozen=True)
class Away:
    """Rows seen through a model and the distance (n,) of each from the places that the model was trained on."""

    rows: Spread
    distance: Tensor


def growth_of(
    model: LowRankGP,
    data: Data,
    held: Data | None,
    *,
    untrained: Callable[[Data], LowRankGP],
    loss_of: Callable[[LowRankGP, Data], Loss],
    schedule: Schedule,
    epochs: tuple[int, int],
    seed: int,
) -> dict[str, float]:
    """Sill and range of a residual that grows with distance, as `Distance.take` takes them; a sill of 0 where nothing tells.

    Parameters
    ----------
    model : trained, with residual `Gaps`, which has no sill yet
    data, held : its training rows, and rows that it has not seen
    untrained : a new model scaled to these rows; loss_of : what it minimises on them
    epochs : that the model was trained for, and after which it was best

    Notes
    -----
    Two trainings of at most 15% of the epochs each, and O(n A) for their A anchors.
    """
    spatial = model.encoder.spatial
    # A streamed table's places are not at hand.
    if not spatial or held is None or len(held) < FEWEST or len(data.y) != len(data):
        return NONE
    places = Distance(model.expansion)  # in the units of the model, whoever is trained on them
    near = _away(model, data, held, model, places)
    seen = spread_of(model, _some(data))
    space = data.X[:, list(spatial)].cpu().numpy()
    far: list[Away] = []
    long = min(epochs[1], max(1, math.ceil(SHARE * epochs[0])))
    for out in sides_and_blocks(space, FOLDS, seed=seed):
        kept, left = (data.rows(rows.to(data.y.device)) for rows in _split(out))
        if len(left) < FEWEST or len(kept) < FEWEST:
            continue
        again = untrained(kept)
        warm_start(again, kept.X, kept.y, kept.counts, seed=seed)
        training = Training(again, kept, loss_of(again, kept), schedule, seed)
        for _ in range(long):
            training.run_epoch()
            training.progress.epoch += 1
        training.finish()
        far.append(_away(again, kept, _some(left), model, places))
    if not far:
        return NONE
    sill, reach = fit_growth(near, seen, far)
    log.info("away from data the surface's variance grows to %.3g, with a range of %.3g sd", sill, reach)
    return {"sill": sill, "range": reach}


def _split(out: np.ndarray) -> Iterator[Tensor]:
    yield torch.as_tensor(np.flatnonzero(~out))
    yield torch.as_tensor(np.flatnonzero(out))


def _some(data: Data) -> Data:
    """All of the rows, or about `SEEN` of them spread over the whole."""
    return data.rows(torch.arange(0, len(data), -(-len(data) // SEEN), device=data.y.device))


def _away(again: LowRankGP, data: Data, rows: Data, model: LowRankGP, places: Distance) -> Away:
    """Rows seen through a model that was trained on `data`, distances in units of `model`."""
    with torch.no_grad():
        places.stand(model, data)
        distance = places.distance(model.encoder.standardise(rows.X))
    return Away(spread_of(again, rows), distance.double())


def fit_growth(near: Away, seen: Spread, far: list[Away]) -> tuple[float, float]:
    """The likeliest sill and range, with tails and factors on surface and noise that are the same for all rows.

    Held-out rows and training rows each count as one row's mean, see `rescale.fit_factors`, and rows left out as half of
    one; sill and range have log-normal priors, about the variance of the training targets and the median distance of the
    rows left out, that count as one row, as the others have. Cost O(n) a step of L-BFGS, some 50 of them.
    """
    n = len(near.rows.y)
    distance = torch.cat([away.distance for away in far])
    start = float(seen.y.var()), float(distance.median())
    if not all(value > 0.0 for value in start):
        return 0.0, 1.0

    def grows(away: Away, p: Tensor) -> Tensor:
        return grown(away.distance, start[0] * p[3].exp(), start[1] * p[4].exp())

    def loss(p: Tensor) -> Tensor:
        p = p.clamp(-FARTHEST, FARTHEST)
        surface, noise, averaging = p[0].exp(), p[1].exp(), p[2].exp()
        nu = SMALLEST_DF + (LOG_DF + p[5]).exp()

        def miss(rows: Spread, variance: Tensor) -> Tensor:
            return -log_density(rows.y, rows.mean, variance, nu)

        def total(away: Away) -> Tensor:
            flat, _ = away.rows.flat_variance(surface, noise, 0.0, averaging)
            return miss(away.rows, flat + grows(away, p))

        fit = total(near).mean() + miss(seen, seen.after_fit(surface, noise, 0.0, averaging)).mean()
        fit = fit + FAR * sum(total(away).sum() for away in far) / len(distance)
        mean = p[1] + near.rows.noise_factor(1.0, averaging).log()
        about = torch.stack([p[0], mean, p[2], p[3], p[4], p[5]])
        sds = p.new_tensor([SURFACE_SD, NOISE_SD, SHARES_SD, GROWTH_SD, GROWTH_SD, DF_SD])
        return fit + 0.5 * (about / sds).square().sum() / n

    p = torch.zeros(6, dtype=torch.float64, device=near.distance.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([p], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(p)
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(closure)
    logs = p.detach()
    if not torch.isfinite(logs).all():
        return 0.0, start[1]
    sill, reach = (start[k] * float(logs[3 + k].clamp(-FARTHEST, FARTHEST).exp()) for k in (0, 1))
    return sill, reach
