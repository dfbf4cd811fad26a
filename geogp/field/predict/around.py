"""What the observations say about places to predict: places of a cell share one neighbourhood and its factor.

A cell rests on rows on all sides of its centre; a place's moments are a product with them, and it lies in up to four
cells, whose answers blend. With all observations among the rows it is the exact GP. What the smooth noise sees it hears
from about as many rows as it learned from: those nearest to the place, its own, and those on all sides of the cell.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from geogp.field import neighbours
from geogp.field.columns import Columns
from geogp.field.conditioned import Conditioned
from geogp.field.frame import SPACINGS
from geogp.field.solve import Neighbourhoods
from geogp.field.surroundings import (
    NAMES,
    SAME,
    SPREAD,
    Given,
    Surroundings,
    Witnesses,
    busyness_of,
    nowhere,
)
from geogp.linalg.distinct import begins
from geogp.linalg.threads import side_by_side

Array = NDArray[np.float64]

#: Numbers in a batch of neighbourhoods' covariances, and in one of places by rows: few enough for the cache, and so many
#: that threads seldom meet at Python's lock.
COVARIANCES, CROSSED = 2**18, 2**18
#: So many times as many on an accelerator.
ON_DEVICE = 128
#: Threads at most: of 16 cores two made 76,000 places a second, four 82,000 and eight 71,000, for Python's lock goes round.
THREADS = 4
#: Batches of neighbourhoods whose rows are looked for together, and places that are told of together: a tenth of a second.
SEARCHED_TOGETHER, PAIRS = 4, 2**13


@dataclass(frozen=True)
class Places(Columns):
    """Pairs (M,) of a place and a cell, those of a neighbourhood together: the place's number, and its weight there."""

    place: Int[Tensor, " M"]
    weight: Float[Tensor, " M"]


@dataclass(frozen=True)
class Asked(Columns):
    """G neighbourhoods, those of most places first: centre (G, 2 or 3) in space and time, their first pair in `Places` and
    how many they have, (G,) each; the rows (G, K) of the observations, -1 for none, and which of these every place hears."""

    centre: Float[Tensor, "G d"]
    first: Int[Tensor, " G"]
    count: Int[Tensor, " G"]
    rows: Int[Tensor, "G K"]
    dealt: Bool[Tensor, "G K"]


def around(known: Conditioned, C: Float[Tensor, "N D"]) -> Surroundings:
    """What the observations say at coordinates C.

    Notes
    -----
    O(G K³ + N K²) for G neighbourhoods of K rows (`Conditioned.rows_a_cell`), one for each cell and time that is asked;
    memory does not grow with N beyond the result. A place's answer depends on it and on the observations, not on what
    else is asked.
    """
    if not len(C):
        return nowhere(known.columns, known.hears_in_detail)
    seen = known.on_device[1]
    here = C.to(seen.X.device)
    columns = torch.cat(
        [seen.value[:, None], busyness_of(seen)[:, None], known.columns.to(here.device)], dim=1
    )
    asked, places = asked_of(known, C, known.frame.near(C).numpy()[:, 2:])

    def ready(some: Asked) -> Callable[[slice, Tensor], Tensor]:
        near = Shared.of(known, some, columns)
        return lambda those, who: near.at(those).say(known, here[who])

    out = blended(known, asked, places, len(C), known.rows_a_cell, with_rows=_with_rows, ready=ready)
    features, leaning, testimony = out.cpu().split(
        [len(NAMES), known.columns.shape[1], out.shape[1] - len(NAMES) - known.columns.shape[1]], dim=1
    )
    return Surroundings(features[:, 0], features[:, 1], features, leaning, testimony)


def asked_of(known: Conditioned, C: Float[Tensor, "N D"], times: Array) -> tuple[Asked, Places]:
    """The neighbourhoods that places of coordinates C are predicted from, one a cell and row of times (N, t), their rows
    not yet found."""
    shares = known.cells.shares(known.frame.near(C).numpy()[:, :2])
    when = times[shares.place]
    order = np.lexsort((shares.place, *when.T, shares.cell))
    cell, when = shares.cell[order], when[order]
    first = np.flatnonzero(begins([cell, *when.T]))
    count = np.diff(np.append(first, len(order)))
    centre = np.concatenate([shares.centre[cell[first]], when[first]], axis=1)
    most = np.argsort(-count, kind="stable")
    none = np.zeros((len(first), 0), dtype=np.int64)
    asked = Asked(*(torch.from_numpy(v) for v in (centre[most], first[most], count[most], none, none > 0)))
    return asked, Places(torch.from_numpy(shares.place[order]), torch.from_numpy(shares.weight[order]))


def _with_rows(known: Conditioned, asked: Asked) -> Asked:
    """The same with their rows."""
    k = min(known.options.neighbours, len(known.seen))
    centre = asked.centre.numpy()
    rows = neighbours.query(known.search, centre, known.rows_a_cell)
    dealt = neighbours.dealt(known.search, centre, rows, k)
    return replace(asked, rows=torch.from_numpy(rows), dealt=torch.from_numpy(dealt))


def blended(
    known: Conditioned,
    asked: Asked,
    places: Places,
    n: int,
    k: int,
    *,
    with_rows: Callable[[Conditioned, Asked], Asked],
    ready: Callable[[Asked], Callable[[slice, Tensor], Tensor]],
) -> Float[Tensor, "n p"]:
    """What cells say of n places, blended by their weights, a few neighbourhoods of k rows at once.

    with_rows : finds the rows of some
    ready : of some neighbourhoods, what tells of the first g of them (a slice) at numbers of places (g, b): (g, b, p)
    """
    device = known.on_device[1].X.device
    more = 1 if device.type == "cpu" else ON_DEVICE
    weight, place = places.weight.to(device), places.place.to(device)
    solved = max(1, COVARIANCES * more // k**2)

    def told(numbers: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Numbers of places, and their shares of what is said there."""
        many, found = with_rows(known, asked.at(numbers)), []
        for some in (many.at(part) for part in torch.arange(len(many)).split(solved)):
            say, start = ready(some), 0
            while start < int(some.count[0]):
                # Those of most places come first: the others have been told all.
                g = int((some.count > start).sum())
                b = max(1, min(int(some.count[0]) - start, CROSSED * more // (g * k)))
                slot = start + torch.arange(b)
                real = slot < some.count[:g, None]
                pair = torch.where(real, some.first[:g, None] + slot, some.first[:g, None]).to(device)
                who, real = place[pair], real.to(device)
                said = say(slice(0, g), who)
                found.append((who[real], said[real] * weight[pair[real]][:, None]))
                start += b
        return found

    out: Tensor | None = None
    pieces = _pieces(asked.count, solved * SEARCHED_TOGETHER, PAIRS * more)
    for found in side_by_side(told, pieces, most=THREADS):
        for who, share in found:
            out = share.new_zeros(n, share.shape[-1]) if out is None else out
            out.index_add_(0, who, share)
    assert out is not None, "there is a place"
    return out


def _pieces(count: Int[Tensor, " G"], most: int, most_places: int) -> Iterator[Tensor]:
    """Neighbourhoods, in their order, that are told of together: at most so many, and of so many places."""
    start, places = 0, 0
    for end, more in enumerate(count.tolist()):
        if end > start and (end - start == most or places + more > most_places):
            yield torch.arange(start, end)
            start, places = end, 0
        places += more
    yield torch.arange(start, len(count))


@dataclass(frozen=True)
class Shared(Columns):
    """G neighbourhoods of K rows, ready to be asked.

    X : (G, K, D); present, dealt : (G, K) whether there is a row, and whether every place hears it
    half : (G, K, K) inverse Cholesky factor of the rows' covariance
    sums : (G, K, 2 + q) whose product with the prior covariances at a place is its mean, its busyness, and what the
        weighted rows say of the drift's columns
    value, counts, noise_variance, busyness : (G, K)
    """

    X: Float[Tensor, "G K D"]
    present: Bool[Tensor, "G K"]
    dealt: Bool[Tensor, "G K"]
    half: Float[Tensor, "G K K"]
    sums: Float[Tensor, "G K q"]
    value: Float[Tensor, "G K"]
    counts: Float[Tensor, "G K"]
    noise_variance: Float[Tensor, "G K"]
    busyness: Float[Tensor, "G K"]

    @classmethod
    def of(cls, known: Conditioned, asked: Asked, columns: Float[Tensor, "n q"]) -> Self:
        """Of the rows asked for; columns are the values that are carried: the value, busyness, the drift's columns."""
        kernel, seen = known.on_device
        index = asked.rows.to(seen.X.device)
        near = Neighbourhoods.among_rows(kernel, seen.X, index)
        half = near.whitener(seen, known.gp.tails)
        rows = near.rows
        return cls(
            X=seen.X[rows],
            present=near.present,
            dealt=asked.dealt.to(index.device),
            half=half,
            sums=half.mT @ (half @ near.of_neighbours(columns)),
            value=seen.value[rows],
            counts=seen.counts[rows],
            noise_variance=seen.noise_variance[rows],
            busyness=columns[rows, 1],
        )

    def say(self, known: Conditioned, X_new: Float[Tensor, "G b D"]) -> Float[Tensor, "G b p"]:
        """Of b places of each neighbourhood, all at one time: features, what the drift's columns lean on, testimony."""
        kernel, t = known.on_device[0], known.frame.time_axis
        cross, squares = kernel.at_one_time(X_new, self.X)
        if not bool(self.present.all()):
            cross = cross * self.present[:, None, :].to(X_new.dtype)
        variance = kernel.prior_at(X_new) - (cross @ self.half.mT).square().sum(-1)
        sums = cross @ self.sums
        given = Given(sums[..., 0], variance.clamp_min(0.0), sums[..., 1], cross)
        age = torch.zeros_like(self.value) if t is None else (X_new[:, :1, t] - self.X[..., t]).abs()
        expected = self.noise_variance + SPREAD
        near = Witnesses(self.X, self.value, self.counts, expected, self.busyness, age, self.present)
        distance = squares.sqrt().mul_(SPACINGS)
        heard = self._heard(squares.float(), distance, age.float(), known.options.neighbours)
        features, testimony = near.say(
            kernel, X_new, given, heard, distance, known.latest, known.hears_in_detail
        )
        return torch.cat([features, sums[..., 2:], testimony], dim=-1)

    def _heard(self, squares: Tensor, distance: Tensor, age: Tensor, k: int) -> Tensor:
        """(G, b, K) the nearest half of k rows, those of the place itself, and those on all sides of the cell."""
        absent = torch.where(self.present, 0.0, math.inf)
        apart = squares.add_((age.square() + absent)[:, None, :])
        limit = _nth(apart, min(k - k // 2, apart.shape[-1]))
        heard = (apart <= limit) | (distance < SAME)
        return heard.logical_or_(self.dealt[:, None, :]).logical_and_(self.present[:, None, :])


def _nth(values: Tensor, n: int) -> Tensor:
    """The n-th smallest of each row of values (..., k): (..., 1). On a CPU numpy's search is five times as fast."""
    if values.device.type != "cpu":
        return torch.kthvalue(values, n, dim=-1, keepdim=True).values
    return torch.from_numpy(np.partition(values.numpy(), n - 1, axis=-1)[..., n - 1 : n])
