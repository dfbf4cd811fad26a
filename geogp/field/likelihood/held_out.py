"""What rows that were left out say of a local Gaussian process."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from geogp.densities import log_density
from geogp.field.likelihood.conditional import among, as_neighbours
from geogp.field.likelihood.minibatches import Targets
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise
from geogp.field.noise.times import Misses
from geogp.field.solve import PLACES_AT_ONCE, conditional_moments
from geogp.linalg.threads import side_by_side

#: About so many targets of a kind judge what is fitted to the others.
JUDGES = 800


class Table(Protocol):
    """Rows X (N, D), y (N,), counts (N,), and how the noise may differ from row to row."""

    @property
    def X(self) -> Tensor: ...
    @property
    def y(self) -> Tensor: ...
    @property
    def counts(self) -> Tensor: ...
    @property
    def told(self) -> ToldNoise | None: ...


def held_out_misses(gp: LocalGP, table: Table, targets: Sequence[Targets]) -> Misses:
    """How far targets (m,) in all lie from what their neighbours say under the kernel and the local GP's own noise.

    Notes
    -----
    O(m k³), on as many threads as there are.
    """

    def misses(piece: tuple[LocalGP, Tensor, Tensor]) -> Misses:
        told, (rows, own, others) = piece[0], among(*piece[1:])
        X, counts = table.X[rows], table.counts[rows]
        value, says = table.y[rows] - gp.b(counts), None if table.told is None else table.told.says[rows]
        noise = told.noise_variance(counts, X, says)
        known, tails = as_neighbours(noise, gp.degrees_of_freedom, gp.weighted)
        c = conditional_moments(told.kernel.to(X.device), X[own], X, value, known, others, tails)
        t = gp.kernel.time_axis
        time = torch.zeros_like(c.mean) if t is None else X[own, t]
        return Misses(value[own] - c.mean, c.variance, noise[own], time)

    pieces = [
        (told, t, i)
        for told, target, index in ((gp.told(says), target, index) for target, index, says in targets)
        for t, i in zip(target.split(PLACES_AT_ONCE), index.split(PLACES_AT_ONCE))
    ]
    return Misses.together(list(side_by_side(misses, pieces)))


def held_out_densities(gp: LocalGP, table: Table, targets: Sequence[Targets]) -> Tensor:
    """Their log densities: (m,)."""
    rows, nu = held_out_misses(gp, table, targets), gp.degrees_of_freedom
    tails = None if nu is None else torch.as_tensor(nu).to(rows.miss)
    return log_density(rows.miss, torch.zeros_like(rows.miss), rows.variance + rows.noise, tails)


def divided(targets: list[Targets]) -> tuple[list[Targets], list[Targets]]:
    """Targets of a kind to fit to and to judge by: apart where there are enough of both, else all for both."""
    share = sum(len(t) for t, *_ in targets) // JUDGES
    if share < 2:
        return targets, targets
    judge = [(t[::share], i[::share], says) for t, i, says in targets]
    rest = [torch.arange(len(t), device=t.device) % share > 0 for t, *_ in targets]
    return [(t[keep], i[keep], says) for (t, i, says), keep in zip(targets, rest) if bool(keep.any())], judge
