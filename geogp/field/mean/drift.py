"""The drift: a plane over space, linear in the covariates, and waves of a year where there are any, whose weights are uncertain
and known jointly with the field.

    u = Φ(x)'w + r(x) + ε,   w ~ N(0, wide),   r ~ local GP

Whitened by the field's conditional weights, the rows are a linear regression: with c the weights of a row's earlier
neighbours and s² what they leave open, (u_i − c'u_N) / s = ((φ_i − Φ_N'c) / s)'w + N(0, 1). A prediction then is the
neighbours' and what the drift adds to it: mean φ*'ŵ + c'(u_N − Φ_N ŵ), variance v + (φ* − Φ_N'c)' Cov(w) (φ* − Φ_N'c).
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geogp.field.earlier import earlier, nearest
from geogp.field.local_gp import LocalGP
from geogp.field.mean.season import Season
from geogp.field.observations import Observations
from geogp.field.solve import JITTER, conditional_moments
from geogp.field.student import heavy_tailed, student_weights
from geogp.linalg import cholesky, with_diagonal
from geogp.linalg.threads import side_by_side

#: Prior sd of each weight: the targets are standardised and so are the columns.
PRIOR_SD = 3.0
#: Earlier rows that a row is whitened with, and rows whitened at once.
ANCESTORS, ROWS_AT_ONCE = 24, 1024
#: Of so few rows all at once: no approximation, and no time.
ALL_OF = 150
#: More rows than this say nothing more of a plane.
MOST = 200_000
#: Solves with weights renewed in between; Gaussian observations need one.
SOLVES = 3
#: Places to a weight of the plane, rows to a weight with the covariates': fewer tell of none, for what is fitted would go
#: through them and leave nothing to tell how far it is off.
TO_A_WEIGHT = 3
#: Of more rows so many tell how they differ, or some more.
SOME = 20_000
#: Beyond the data it levels off within about so many half extents, with covariates after so many more.
REACH, STRAIGHT = 2.0, 2.0
#: The first columns of coordinates are space.
N_SPACE = 2
#: Values of a column that say nothing of its weight: the outermost row lies beyond itself by rounding.
NEXT_TO_NOTHING = 1e-9
#: Of what goes on with a covariate beyond the data so much is one sd; and of what levelling off takes from the plane over space.
DOUBTED, LEVELLED = 0.5, 0.8


@dataclass(frozen=True, eq=False)
class Drift:
    """What Φ is made of, and what the observations say of w.

    Of fewer than nine places (six on a line) it has no plane, of fewer than three rows to a weight nothing linear in the covariates.

    center, scale : (p,) of the columns of the coordinates but time
    axes : those columns
    weights, covariance : (q,), (q, q) of w given the observations
    season : waves over time, or None
    slopes : (s,) that the axes had when they were fitted, s = p, see `doubting_beyond`; before, s = 0

    Examples
    --------
    >>> C = torch.stack([torch.arange(11), 2 * torch.arange(11)], dim=1).double()
    >>> Drift.over(C, None).columns(C[[0, 10]]).tolist()
    [[1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]
    """

    center: Float[Tensor, " p"]
    scale: Float[Tensor, " p"]
    axes: tuple[int, ...]
    weights: Float[Tensor, " q"]
    covariance: Float[Tensor, "q q"]
    season: Season | None = None
    slopes: Float[Tensor, " s"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    @classmethod
    def over(
        cls,
        C: Float[Tensor, "n D"],
        time_axis: int | None,
        *,
        n_space: int = 2,
        season: Season | None = None,
    ) -> "Drift":
        """The drift over coordinates C, nothing known of its weights: half the extent of a column is one unit.

        Of the first two columns, which are space, only as many count as positions have (n_space).

        Across a line of places, where there is none, the unit is that along it.
        """
        space = tuple(range(min(n_space, C.shape[1])))
        others = tuple(d for d in range(2, C.shape[1]) if d != time_axis)
        axes = space if space and _distinct(C[:, space]) >= TO_A_WEIGHT * (1 + len(space)) else ()
        q = 1 + len(axes) + len(others)
        if others and len(C) >= TO_A_WEIGHT * q and _distinct(C[:, others]) > len(others):
            axes += others
        P = C[:, axes]
        low, high = P.amin(0), P.amax(0)
        half = 0.5 * (high - low)
        if 0 in axes:
            along = half[: len(space)]
            half[: len(space)] = torch.where(along > 0, along, along.amax())
        q, waves = 1 + len(axes), 0 if season is None else len(season.waves)
        varies = bool(axes) and len(C) >= TO_A_WEIGHT * q * (1 + waves)
        q += waves * (q if varies else 1)
        zero, wide = torch.zeros(q, dtype=C.dtype), PRIOR_SD**2 * torch.eye(q, dtype=C.dtype)
        unit = torch.where(half > 0, half, torch.ones_like(half))
        return cls(0.5 * (low + high), unit, axes, zero, wide, season)

    @property
    def n_weights(self) -> int:
        """q"""
        return len(self.weights)

    @property
    def prior_variance(self) -> Float[Tensor, " q"]:
        """Of each weight before anything was measured."""
        out = torch.full_like(self.weights, PRIOR_SD**2)
        out[self.n_inside :] = 1.0
        return out

    @property
    def varies(self) -> bool:
        """Whether the height of the waves is a plane, too."""
        alone = 1 + len(self.axes) + (0 if self.season is None else len(self.season.waves))
        return self.n_inside > alone

    def doubting_beyond(self, slopes: Float[Tensor, " p"] | None = None) -> "Drift":
        """With more weights, one of space and one of each covariate, of what may be otherwise beyond the data than Φ says: nothing is
        known of them but their prior until measurements come from there, and then they are learned as all others are.

        Over space the plane may go on, in all its directions alike: axes of a metric may lie close together, with slopes that nearly cancel.
        Some of what levelling off takes from it is one sd. Of how much it goes on with a covariate half is, so that going on as before, and
        no more at all, are two of them apart. Both in proportion to the slopes, by default its own.
        """
        slopes = self.weights[1 : 1 + len(self.axes)] if slopes is None else slopes
        out = replace(self, slopes=slopes.clone())
        nothing = torch.zeros(out.n_beyond, dtype=slopes.dtype)
        return replace(
            out,
            weights=torch.cat([self.weights, nothing]),
            covariance=torch.block_diag(self.covariance, torch.diag(nothing + 1.0)),
        )

    @property
    def n_beyond(self) -> int:
        """How many weights tell of what is beyond the data."""
        space = int(self._over_space.sum()) if len(self.slopes) else 0
        return len(self.slopes) - space + (space > 0)

    @property
    def n_inside(self) -> int:
        """How many weights say something of where the data are."""
        return self.n_weights - self.n_beyond

    def sure(self) -> "Drift":
        """Without the weights of what may be otherwise beyond the data."""
        q = self.n_inside
        return replace(
            self, weights=self.weights[:q], covariance=self.covariance[:q, :q], slopes=self.slopes[:0]
        )

    def columns(self, C: Float[Tensor, "N D"]) -> Float[Tensor, "N q"]:
        """Φ at coordinates C: beyond the data it levels off, so that far away it says nothing wild; with covariates it goes straight on
        before, as temperatures fall above the highest station."""
        inside, beyond, taken = self._scaled(C)
        columns = [torch.ones(len(C), 1, dtype=C.dtype, device=C.device), inside + beyond]
        if self.season is not None:
            waves = self.season(C)
            columns.append(waves)
            if self.varies:
                columns.append((waves[:, :, None] * inside[:, None, :]).flatten(1))
        if len(self.slopes):
            space = self._over_space.to(C.device)
            share = torch.where(space, LEVELLED * taken, DOUBTED * beyond) * self.slopes.to(C.device)
            if bool(space.any()):
                columns.append(share[:, space].sum(1, keepdim=True))
            columns.append(share[:, ~space])
        return torch.cat(columns, dim=1)

    @property
    def _over_space(self) -> Tensor:
        """Which of the axes are space."""
        return torch.tensor([d < N_SPACE for d in self.axes], dtype=torch.bool)

    def _scaled(self, C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, p) each, in half extents: where C lie or the data end before, how far it goes on beyond, and how far it does not."""
        P = (C[:, self.axes] - self.center.to(C.device)) / self.scale.to(C.device)
        straight = torch.where(self._over_space.to(C.device), 0.0, STRAIGHT)
        beyond = (P.abs() - 1.0).clamp_min(0.0)
        late = (beyond - straight).clamp_min(0.0)
        on = beyond - late - REACH * torch.expm1(-late / REACH)
        return P.clamp(-1.0, 1.0), P.sign() * on, P.sign() * (beyond - on)

    def __call__(self, C: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """Φ ŵ at coordinates C."""
        return self.columns(C) @ self.weights

    def covariance_of(
        self, A: Float[Tensor, "N D"], B: Float[Tensor, "M D"], *, diagonal: bool = False
    ) -> Tensor:
        """Covariance of the drift at A and at B given the observations: (N, M), or its diagonal (N,)."""
        left, right = self.columns(A) @ self.covariance, self.columns(B)
        return (left * right).sum(-1) if diagonal else left @ right.T

    def extra(
        self, C: Float[Tensor, "N D"], leaning: Float[Tensor, "N q"], other: "Drift | None" = None
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """What uncertain weights add to predictions at C: a change of the mean where the weights are another drift's,
        0 for none, and the variance.

        leaning : Φ_N'c, what the neighbours' weighted values say of the drift
        """
        known = self if other is None else other
        open_ = self.columns(C) - leaning
        variance = ((open_ @ known.covariance) * open_).sum(-1)
        return open_ @ (known.weights - self.weights), variance.clamp_min(0.0)

    def least_squares(
        self, C: Float[Tensor, "n D"], y: Float[Tensor, " n"], weight: Float[Tensor, " n"]
    ) -> "Drift":
        """With the weights that (n,) weighted values y at C have by themselves: where a fit of the field starts."""
        phi = self.columns(C)
        return self.given(phi.T @ (phi * weight[:, None]), phi.T @ (weight * y))

    def given_all(self, gp: LocalGP, seen: Observations) -> "Drift":
        """With the weights' posterior given all observations.

        Notes
        -----
        O(n³), exact for Gaussian observations. Student-t ones are weighed by how well they agree, anew after each solve.
        """
        K, phi, own = gp.kernel(seen.X, seen.X), self.columns(seen.X), seen.noise_variance
        out = self.least_squares(seen.X, seen.value, 1.0 / own)
        tails = gp.tails
        for _ in range(SOLVES if heavy_tailed(tails) else 1):
            noise = own
            if heavy_tailed(tails):
                left = seen.value - phi @ out.weights
                noise = own / student_weights(K[None], own[None], left[None], tails)[0]
            L = cholesky(with_diagonal(K, noise), jitter=JITTER, what="the rows' covariance")
            both = torch.linalg.solve_triangular(L, torch.cat([seen.value[:, None], phi], dim=1), upper=False)
            Z = both[:, 1:]
            out = self.given(Z.T @ Z, Z.T @ both[:, 0])
        return out

    def given(self, precision: Float[Tensor, "q q"], right: Float[Tensor, " q"]) -> "Drift":
        """With the weights' posterior, from the normal equations of whitened rows; what all rows of a time err together they do not
        know, and the waves have their own doubt of it."""
        total = precision + self.prior_variance.reciprocal().diag()
        L = cholesky(total, jitter=0.0, what="the drift's normal equations")
        covariance = torch.cholesky_inverse(L)
        weights = covariance @ right
        if self.season is not None and self.season.doubt:
            w = slice(1 + len(self.axes), 1 + len(self.axes) + len(self.season.waves))
            covariance[w, w] += torch.tensor(self.season.doubt).to(covariance)
        return replace(self, weights=weights, covariance=covariance)


def learned(like: Drift, gp: LocalGP, seen: Observations, near: Float[Tensor, "n d"], seed: int) -> Drift:
    """A drift made of the same columns, its weights given the observations, of which `near` says who is near."""
    beyond = like.columns(seen.X)[:, like.n_inside :]
    if like.n_beyond and bool((beyond.abs() <= NEXT_TO_NOTHING).all()):
        return learned(like.sure(), gp, seen, near, seed).doubting_beyond(like.slopes)
    if len(seen) <= ALL_OF:
        return like.given_all(gp, seen)
    return Whitened.of(near, seed).drift(like, gp, seen)


def _distinct(P: Float[Tensor, "n p"]) -> int:
    """How many rows differ from all others, of some of them: values that few of many have tell little."""
    return len(np.unique(P[:: max(len(P) // SOME, 1)].numpy(), axis=0))


@dataclass(frozen=True, eq=False)
class Whitened:
    """Rows in a random order, each with some of those before it: what the drift's weights are learned from.

    rows : (m,) numbers of observations
    before : (m, k) numbers of observations that come before, -1 for none
    """

    rows: Int[Tensor, " m"]
    before: Int[Tensor, "m k"]

    @classmethod
    def of(cls, P: Float[Tensor, "n d"], seed: int = 0, most: int = MOST) -> "Whitened":
        """Of n observations at P, or of `most` of them drawn at random.

        Notes
        -----
        O(m k log m).
        """
        order = np.random.default_rng(seed).permutation(len(P))[:most]
        found = earlier(P.numpy()[order], ANCESTORS, nearest)
        return cls(torch.from_numpy(order), torch.from_numpy(np.where(found >= 0, order[found], -1)))

    def among(self, n: int, reference: Int[Tensor, " m"]) -> "Whitened":
        """The same without the observations, of n, that the reference leaves out."""
        inside = torch.zeros(n, dtype=torch.bool)
        inside[reference] = True
        keep = inside[self.rows]
        before = self.before[keep]
        return Whitened(self.rows[keep], torch.where(inside[before.clamp_min(0)] & (before >= 0), before, -1))

    def drift(self, like: Drift, gp: LocalGP, seen: Observations) -> Drift:
        """A drift made of the same columns, its weights given the observations.

        Notes
        -----
        Generalised least squares by the conditional weights of earlier rows, exact when all earlier rows are among
        them; O(m k³). Student-t observations are weighed by how well they agree, anew after each solve.

        References
        ----------
        Vecchia 1988; Rasmussen and Williams 2006, section 2.7 (explicit basis functions)
        """
        noise_variance, nu = seen.noise_variance, gp.tails
        own = noise_variance[self.rows]
        start = like.least_squares(seen.X[self.rows], seen.value[self.rows], 1.0 / own)
        phi = like.columns(seen.X)
        both = torch.cat([(seen.value - phi @ start.weights)[:, None], phi], dim=1)

        def left_over(piece: tuple[Tensor, Tensor]) -> Tensor:
            rows, before = piece
            c = conditional_moments(gp.kernel, seen.X[rows], seen.X, both, noise_variance, before, nu)
            return torch.cat([both[rows] - c.mean, c.variance[:, None]], dim=1)

        pieces = zip(self.rows.split(ROWS_AT_ONCE), self.before.split(ROWS_AT_ONCE))
        left = torch.cat(list(side_by_side(left_over, pieces)))
        Z, v = left[:, 1:-1], left[:, -1]
        u = left[:, 0] + Z @ start.weights
        weight = torch.ones_like(u)
        out = start
        for _ in range(SOLVES if heavy_tailed(nu) else 1):
            precision = 1.0 / (v + own / weight)
            out = like.given(Z.T @ (Z * precision[:, None]), Z.T @ (precision * u))
            if heavy_tailed(nu):
                away = u - Z @ out.weights
                # What is expected of the noise alone, given how far the row is from its prediction.
                share = own / weight / (v + own / weight)
                square = (share * away).square() + share * v
                weight = (nu + 1.0) / (nu + square / own)
        return out
