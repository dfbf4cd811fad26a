"""Trend, local Gaussian process and count shift given observations: all of a local field but its smooth noise."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geogp.field import neighbours
from geogp.field.frame import SPACINGS, Frame
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.averaged import Averaged
from geogp.field.likelihood.repeated import repeat
from geogp.field.local_gp import LocalGP
from geogp.field.mean.drift import Drift, Whitened, learned
from geogp.field.mean.trend import Trend
from geogp.field.observations import Observations
from geogp.field.options import FieldOptions
from geogp.field.predict.cells import Cells
from geogp.field.regional import Region, RegionalSurface, fit_regional
from geogp.field.solve import PLACES_AT_ONCE, Predictors, predictors
from geogp.field.surroundings import Surroundings, survey
from geogp.field.variation.told import Told
from geogp.linalg.distinct import begins
from geogp.linalg.threads import side_by_side

#: Rows a cell rests on, in neighbours of a place: so many of places that are seen again and again, so many of others.
ROWS, ROWS_SEEN_ONCE = 2.0, 8.0 / 3.0
#: Rows that they share at most, where places are measured again and again at one time.
MOST_ROWS = 512
#: Times at which a place may be seen before it is asked whether a cell's rows are of the places around it, too; from twice as many on
#: there are more rows.
OFTEN = 10.0
#: Share of the places that rows are of which a cell may hold then, and of how many rows that is asked.
HELD, ASKED = 0.8, 64
#: Observations that tell how the drift would have been without those left out.
SAMPLE = 2000
#: Places whose neighbours are looked for in one thread at once.
SEARCHED_AT_ONCE = 512
#: Share of the widest component's variance that is at least each place's own.
LEAST_OF_A_PLACE = 0.25


@dataclass(frozen=True, eq=False, repr=False)
class Conditioned:
    """u = β t + Φ(x)'w + r(x) + b(n) + ε, r given its nearest observations. C (N, D) are coordinates of `frame`.

    trend : β₀ + β t
    drift : Φ'w and how uncertain w is given the observations
    has_counts : whether counts differ from row to row, so that noise and mean may depend on them
    gp : kernel, noise and b
    seen : the observations, less trend and count shift
    horizon : how far ahead of the known rows the noise was learned; beyond it the mean drifts
    learned_until : the newest time that kernel and noise learned from; observations may be newer after an update
    device : where the neighbourhoods are solved; everything else, the neighbour search included, is on the CPU
    lengths : what lengthscale and variance were learned to follow; None where they follow nothing, and in a run that
        was opened
    averaged : kernels and noises that few rows bear out beside `gp`, which is in their middle; None of many
    """

    options: FieldOptions
    frame: Frame
    has_counts: bool
    trend: Trend
    drift: Drift
    gp: LocalGP
    seen: Observations
    horizon: float
    learned_until: float
    device: str = "cpu"
    lengths: Told | None = None
    averaged: Averaged | None = None

    # -- what is found once and kept -----------------------------------------------------------------

    @cached_property
    def latest(self) -> float:
        """Time of the newest observation, 0 without a time."""
        return self.frame.newest(self.seen.X)

    @cached_property
    def earliest(self) -> float:
        """Time of the oldest observation, 0 without a time."""
        return self.frame.oldest(self.seen.X)

    @cached_property
    def search(self) -> neighbours.NeighbourSearch:
        """Over the places of the observations."""
        return self.frame.search_among(self.seen.X)

    @property
    def _once(self) -> float:
        """Places to an observation: 1 where none is seen twice."""
        return len(self.search.place_space) / len(self.seen)

    @cached_property
    def _repeats(self) -> float:
        """Rows of a place at one time, on average; 1 where few places have several. So many say no more than one would of
        what lies around."""
        rows = self.seen.X.numpy()[self.search.row]  # those of a place together, by time
        apart = int(begins(list(rows.T)).sum())
        return len(rows) / apart if repeat(len(rows), apart) else 1.0

    @property
    def _times(self) -> float:
        """At which a place is seen, on average."""
        return 1.0 / (self._once * self._repeats)

    @cached_property
    def rows_a_cell(self) -> int:
        """How many observations the places of a cell share."""
        rows = round(self.options.neighbours * max(ROWS, ROWS_SEEN_ONCE * self._once))
        more = max(1.0, self._times / (2.0 * OFTEN)) * self._repeats
        return min(len(self.seen), max(rows, min(round(rows * more), MOST_ROWS)))

    @property
    def rests_on_all(self) -> bool:
        """Whether every prediction rests on all observations."""
        return self.rows_a_cell == len(self.seen)

    @cached_property
    def cells(self) -> Cells:
        """Whose places share their neighbours; one where these are all observations."""
        P, k = self.search.place_space, self.options.neighbours
        if self.rests_on_all or len(P) < 2:
            return Cells.over(P, 0)
        # Half of the places that its rows stand for where these are seen again and again, all where they are seen once.
        nth = max(k // 3, round(k * self._once * max(0.5 * ROWS, ROWS_SEEN_ONCE * self._once)))
        held = self._places_held if self._times > OFTEN else nth
        return Cells.over(P, max(2, min(nth, len(P) // 3, held)))

    @cached_property
    def _places_held(self) -> int:
        """Of how many places a cell may be, for its rows to be of those around it, too: of places that are seen many times they are of few."""
        some = np.linspace(0, len(self.seen) - 1, min(ASKED, len(self.seen))).astype(np.int64)
        rows = neighbours.query(self.search, self.frame.near(self.seen.X[some]).numpy(), self.rows_a_cell)
        at = np.empty(len(self.seen), np.int64)
        at[self.search.row] = np.cumsum(begins(list(self.seen.X.numpy()[self.search.row, :2].T))) - 1
        return int(HELD * np.median([len(np.unique(at[found[found >= 0]])) for found in rows]))

    @property
    def hears_in_detail(self) -> bool:
        """Whether the smooth noise sees what the neighbours measured one by one."""
        return self.options.smooth and self.options.testimony

    @cached_property
    def left(self) -> Observations:
        """The observations less the drift, too: what r is conditioned on."""
        return replace(self.seen, value=self.seen.value - self.columns @ self.drift.weights)

    @cached_property
    def members(self) -> list[tuple[float, "Conditioned"]]:
        """Weights, and the same with each kernel and noise that the rows bear out; none of many rows."""
        if self.averaged is None:
            return []
        return [
            (
                w,
                replace(self, gp=gp, averaged=None).told(
                    gp.observed(self.seen.X, self.seen.value, self.seen.counts)
                ),
            )
            for w, gp in self.averaged.of(self.gp)
        ]

    @cached_property
    def on_device(self) -> tuple[LocalKernel, Observations]:
        return self.gp.kernel.to(self.device), self.left.to(self.device)

    @cached_property
    def columns(self) -> Tensor:
        """Φ at the observations."""
        return self.drift.columns(self.seen.X)

    @cached_property
    def _sample(self) -> Whitened:
        """Some observations that tell how the drift would have been without others."""
        return Whitened.of(self.frame.near(self.seen.X), self.options.seed, SAMPLE)

    @cached_property
    def _region(self) -> Region | None:
        """Where the regional surface is supported; None where the field has none."""
        if self.options.regional is None or not self.options.smooth:
            return None
        return Region.of(self.seen.X[:, :2].contiguous(), self.options.regional / SPACINGS)

    @cached_property
    def regional(self) -> RegionalSurface | None:
        """The regional surface given all observations."""
        return self.regional_given(torch.arange(len(self.seen)))

    # -- questions -----------------------------------------------------------------------------------

    def neighbours_of(self, C: Tensor) -> Tensor:
        """(N, k) rows of the observations that predictions at C rest on, -1 for none."""
        k = min(self.options.neighbours, len(self.seen))
        parts = self.frame.near(C).split(SEARCHED_AT_ONCE)
        found = side_by_side(lambda part: neighbours.query(self.search, part.numpy(), k), parts)
        return torch.from_numpy(np.concatenate(list(found)))

    def survey(
        self,
        C: Tensor,
        index: Tensor,
        latest: float,
        *,
        given: Observations | None = None,
        kernel: LocalKernel | None = None,
    ) -> Surroundings:
        """What the observations of `index` (N, k) say about C, the newest of all known ones being at `latest`.

        given, kernel : the observations less the drift, and the kernel, as they are known without some of them, see
            `left_given` and `kernel_given`
        """
        usual, seen = self.on_device
        kernel = usual if kernel is None else kernel.to(self.device)
        if given is not None:
            seen = given.to(self.device)
        with torch.no_grad():
            around = survey(
                kernel,
                seen,
                C.to(self.device),
                index.to(self.device),
                spacing=1.0 / SPACINGS,
                latest=latest,
                columns=self.columns.to(self.device),
                degrees_of_freedom=self.gp.tails,
                in_detail=self.hears_in_detail,
            )
        return around.to("cpu")

    def predictors(self, C: Tensor, index: Tensor) -> Predictors:
        """How predictions at C (N, D) are made of the observations `index` (N, k), a few at once."""
        kernel, seen, tails = self.gp.kernel, self.left, self.gp.tails
        parts = zip(C.split(PLACES_AT_ONCE), index.split(PLACES_AT_ONCE))
        return Predictors.together(
            list(side_by_side(lambda part: predictors(kernel, part[0], seen, part[1], tails), parts))
        )

    def common_factor(self, C: Tensor, leaning: Tensor) -> Tensor:
        """(N, q + 2) factor F of what predictions at C err together: F F' is the covariance that the drift's uncertain weights,
        and its walks ahead of the data and before them bring. `leaning` is what the predictions' weights make of the
        drift's columns (N, q)."""
        size, axes = torch.linalg.eigh(self.drift.covariance)  # zero where a run knows of no drift
        L = axes * size.clamp_min(0.0).sqrt()
        open_ = self.drift.columns(C) - leaning
        return torch.cat([open_ @ L, self._walks(C).sqrt()], dim=1)

    def regional_given(self, rows: Tensor) -> RegionalSurface | None:
        """The regional surface given some of the observations."""
        if self._region is None:
            return None
        # The last component is the widest: what it carries beyond the neighbours is regional, the rest is places'.
        # Of a single component some is places', too: no place is the region's exact level.
        variance = self.gp.kernel.log_variance.exp()
        regional = float(variance[-1])
        return fit_regional(
            self._region,
            rows,
            self.left.value,
            self.seen.noise_variance,
            place_variance=max(float(variance[:-1].sum()), LEAST_OF_A_PLACE * regional),
            prior_variance=regional,
            degrees_of_freedom=self.gp.tails,
        )

    def kernel_given(self, rows: Tensor) -> LocalKernel:
        """The kernel where some of the observations alone say how long and how large its surface varies."""
        return self.gp.kernel if self.lengths is None else self.gp.told(self.lengths.says(rows)).kernel

    def left_given(self, rows: Tensor, of: Tensor) -> Observations:
        """`left`, with those of the numbers `of` as noisy as the observations `rows` alone, among which they are, tell: those left
        out have no say in how noisy others are. Numbers in order."""
        C, value, counts = self.seen.X[rows], self.seen.value[rows], self.seen.counts[rows]
        noise = self.left.noise_variance.clone()
        noise[of] = self.gp.observed(C, value, counts, torch.searchsorted(rows, of)).noise_variance
        return replace(self.left, noise_variance=noise)

    def drift_given(self, rows: Tensor) -> Drift:
        """The drift as it would be known from some of the observations; from a sample of those where they are many."""
        return self._sample.among(len(self.seen), rows).drift(self.drift, self.gp, self.seen)

    def told(self, seen: Observations) -> "Conditioned":
        """Conditioned on other observations, the drift's weights learned from them alone."""
        drift = learned(self.drift, self.gp, seen, self.frame.near(seen.X), self.options.seed)
        return replace(self, drift=drift, seen=seen)

    def level(self, C: Tensor, counts: Tensor) -> Tensor:
        """(N,) trend and count shift."""
        return self.trend(self.frame.times(C), len(C)) + self.gp.b(counts)

    def prior_mean(self, C: Tensor, counts: Tensor) -> Tensor:
        """(N,) trend, drift and count shift: the mean of an average of `counts` measurements but for r."""
        return self.level(C, counts) + self.drift(C)

    def time_variance(self, C: Tensor) -> Tensor:
        """(N,) variance of the mean ahead of the data, beyond what was learned, and before them."""
        return self._walks(C).sum(-1)

    def _walks(self, C: Tensor) -> Tensor:
        """(N, 2) variance of the mean ahead of the data and before them: what errs at one end says nothing of the other."""
        time = self.frame.times(C)
        if time is None:
            return torch.zeros(len(C), 2, dtype=C.dtype)
        after, before = time.clamp_min(self.latest), time.clamp_max(self.earliest)
        ahead = (after - self.latest - self.horizon).clamp_min(0.0)
        ends = (ahead, after, self.latest), (self.earliest - before, before, self.earliest)
        trend = self.trend
        return torch.stack(
            [trend.extra_variance(gap) + trend.doubt(t, since) for gap, t, since in ends], dim=-1
        )
