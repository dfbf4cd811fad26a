"""The local field: trend + local Gaussian process + count shift + noise that knows its counts, in one fit.

    u = β t + Φ(x)'w + r(x) + b(x, n) + ε,   r ~ local GP,   ε ~ skewed Student-t(0, τ²(x) + s²(x)/n)

Φ(x)'w is a plane and what covariates say linearly, its weights known jointly with r; see `geogp.field.mean.drift`.

Nothing is tuned by hand: lengths are measured in spacings of the places, times in spans of the data.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.calibrate import Calibration
from geogp.field.conditioned import Conditioned
from geogp.field.fit import fit_conditioned
from geogp.field.frame import ISOTROPIC, Frame, at_one_place, frame_of
from geogp.field.joint import FieldJoint
from geogp.field.kernel import LocalKernel
from geogp.field.left_out import leave_out, leave_out_again
from geogp.field.likelihood.metric import learned_metric
from geogp.field.likelihood.pace import learned_pace
from geogp.field.local_gp import LocalGP
from geogp.field.mean.season import Season, season_of
from geogp.field.noise.fit import (
    Validation,
    calibration_of,
    fit_noise_and_calibration,
    fit_noise_and_warp,
    held_out_rows,
)
from geogp.field.noise.smooth import SmoothNoise
from geogp.field.observations import (
    Observations,
    canonical,
    canonical_order,
    counted,
    typical_precision,
)
from geogp.field.options import FieldOptions
from geogp.field.predict.averaged import between, moments_at
from geogp.field.predict.cells import near_each_other
from geogp.field.predict.moments import PLACES_AT_ONCE, FieldMoments, by_pieces
from geogp.field.predict.pairs import correlation
from geogp.field.stages import Stages
from geogp.field.state import restored, state_of
from geogp.linalg.threads import one_thread_each
from geogp.transforms import Warp

#: Fewer validation rows say too little about noise or coverage.
VALIDATE_FROM = 200


@dataclass(frozen=True, eq=False, repr=False)
class LocalField:
    """A fitted local field. Make one with `fit` or `from_state`; X (N, D) are raw inputs throughout.

    known : what it is conditioned on, and how
    noise : the smooth noise, None where τ² + s²/n is the same everywhere
    calibration : conformal factors on the predictive scale, or None
    warp : the scale on which the distribution of a new observation is as `moments` says, or None: see `geogp.transforms.warp`

    Examples
    --------
    >>> X = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> field = LocalField.fit(X, torch.sin(5 * X[:, 0]), None, options=FieldOptions(steps=10))
    >>> field.moments(torch.tensor([[0.5, 0.5], [99.0, 99.0]])).latent_variance.argmax()
    tensor(1)
    """

    known: Conditioned
    noise: SmoothNoise | None = None
    calibration: Calibration | None = None
    warp: Warp | None = None

    # -- fitting -----------------------------------------------------------------------------------

    # Thousands of steps on small arrays: shared among threads, they take twice as long.
    @classmethod
    @one_thread_each()
    def fit(
        cls,
        X: Tensor,
        y: Tensor,
        counts: Tensor | None,
        *,
        space: tuple[int, ...] = (0, 1),
        time: int | None = None,
        options: FieldOptions = FieldOptions(),
        validation: Validation | None = None,
        device: str = "cpu",
        stages: Stages | None = None,
    ) -> Self:
        """Fit to X (N, D) raw inputs, y (N,) standardised values, counts (N,) measurements behind each or None.

        Every kind of missing data is played through on the training rows. Trend, kernel, noise and count
        shift are those that predict them best; a regional surface from all places at once is there to lean on where
        the neighbours are few or odd; then the smooth noise learns what each kind of missing data is worth, from the
        rows left out and from validation rows where they are given, and those calibrate the intervals.

        Parameters
        ----------
        space : the two columns of X with projected coordinates, or the one along a line of places
        time : the column with time, or None; further columns are covariates
        validation : X, y, counts of rows that are never conditioned on: they show the smooth noise what it looks
            like to miss in the way this model will be used, and calibrate the intervals
        device : where the small dense systems are solved
        stages : what an earlier attempt has computed, and whom to tell of progress

        Notes
        -----
        O(N log N + (targets + steps · batch) · k³); independent of the order of the rows and of units.
        """
        stages = stages or Stages()
        X, y, n = canonical(X, y, counts, space, time)
        if (together := at_one_place(X, space)) is not X:
            X, y, n = canonical(together, y, n, space, time)
        season = season_of(X, y, typical_precision(n), space, time, options.season)
        frame = _frame(X, y, space, time, options, season)
        C = frame.coordinates(X)
        left_out = leave_out(C, frame, options, stages)
        has_counts = counts is not None and bool((n != n[0]).any())
        known = fit_conditioned(
            C,
            y,
            n,
            left_out,
            frame=frame,
            options=options,
            has_counts=has_counts,
            stages=stages,
            season=None if season is None else frame.season(season),
            device=device,
        )
        if validation is not None and len(validation[1]) < VALIDATE_FROM:
            validation = None
        if options.is_smooth(len(y)):
            again = leave_out_again(C, frame, options, stages)
            kinds = held_out_rows(known, [*left_out, *again], X, stages)
            if validation is None:
                return cls(known, *fit_noise_and_warp(known, kinds, stages))
            return cls(known, *fit_noise_and_calibration(known, kinds, validation, stages))
        field = cls(known)
        return field if validation is None else field.calibrated_on(*validation)

    def calibrated_on(self, X: Tensor, y: Tensor, counts: Tensor | None) -> Self:
        """With conformal factors from held-out rows X (M, D), y (M,), counts (M,), which stay unconditioned."""
        return replace(self, calibration=calibration_of(self.known, self.noise, (X, y, counts), self.warp))

    # -- predicting --------------------------------------------------------------------------------

    def moments(self, X: Tensor, counts: Tensor | None = None) -> FieldMoments:
        """Moments at X of an average of `counts` (N,) measurements (default 1). Rows do not interact.

        Notes
        -----
        O(N K² + G K³) for G cells and times that the places lie in, K rows each; see `geogp.field.predict.around`.
        """
        return self.moments_by_count(X, [counts])[0]

    def moments_by_count(self, X: Tensor, counts: Sequence[Tensor | None]) -> list[FieldMoments]:
        """`moments` at X for each of several (N,) counts, at about the cost of one."""
        n = [counted(each, len(X)) for each in counts]

        def told(rows: Tensor) -> list[FieldMoments]:
            said = moments_at(self.known, X[rows].double(), [each[rows] for each in n], noise)
            return [m.calibrated(self.calibration, group) for m, group in said]

        noise = self._noise_on_device
        return by_pieces(told, X[:, list(self.space)], self.known.device)

    @cached_property
    def _noise_on_device(self) -> SmoothNoise | None:
        """The noise where neighbourhoods are solved."""
        device = self.known.device
        return self.noise if self.noise is None or device == "cpu" else deepcopy(self.noise).to(device)

    def prior_variance(self, X: Tensor) -> Tensor:
        """Before neighbours, (N,): k(x, x) and what is uncertain of the drift."""
        with torch.no_grad():
            C = self.frame.coordinates(X.double())
            own = self._prior_factor() * self._mean_of_members(lambda kernel: kernel.prior_at(C))
            return own + self.known.drift.covariance_of(C, C, diagonal=True)

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        """Before neighbours, (N, M): k(x, x_ref) and what is uncertain of the drift."""
        with torch.no_grad():
            A, B = self.frame.coordinates(X.double()), self.frame.coordinates(X_ref.double())
            own = self._prior_factor() * self._mean_of_members(lambda kernel: kernel(A, B))
            return own + self.known.drift.covariance_of(A, B)

    def _mean_of_members(self, asked: Callable[[LocalKernel], Tensor]) -> Tensor:
        """Of what kernels say that the rows bear out, of many rows the one."""
        if self.known.averaged is None:
            return asked(self.gp.kernel)
        return torch.stack([w * asked(gp.kernel) for w, gp in self.known.averaged.of(self.gp)]).sum(0)

    def _prior_factor(self) -> float:
        return 1.0 if self.noise is None else self.noise.prior_factor()

    # -- joint distributions -------------------------------------------------------------------------

    def joint(self, X: Tensor, latent_variance: Tensor) -> FieldJoint:
        """The surface less its mean at X, jointly, its variances the (N,) that `moments` gave: covariances of
        weighted sums, and draws."""
        C = self.frame.coordinates(X.double())
        index = self.known.neighbours_of(C)
        made = self.known.predictors(C, index)
        common = self.known.common_factor(C, made.of(self.known.columns, index))
        return FieldJoint(
            self.gp.kernel,
            self.known.left,
            C,
            index,
            made,
            variance=latent_variance.double().numpy(),
            common=torch.cat([between(self.known, C), common], dim=1),
        )

    def correlation(self, before: Tensor, after: Tensor, variance: Tensor) -> Tensor:
        """Of the surface's errors at rows `before` and `after` (N, D), the same places at two times, whose latent
        variances (2, N) `moments` gave: (N,)."""
        C = [self.frame.coordinates(X.double()) for X in (before, after)]
        out = torch.zeros(len(before), dtype=torch.float64)
        for rows in near_each_other(before[:, list(self.space)].numpy(), PLACES_AT_ONCE):
            out[rows] = correlation(self.known, C[0][rows], C[1][rows], variance[:, rows].double())
        return out

    def posterior_covariance(self, X: Tensor, counts: Tensor | None = None) -> Tensor:
        """Covariance of the surface at X given the data: (N, N), its diagonal that of `moments` at these counts.

        Notes
        -----
        O((N + n)²) kernel values, see `FieldJoint`: for up to some thousand places.
        """
        return torch.from_numpy(self.joint(X, self.moments(X, counts).latent_variance).dense())

    # -- observations --------------------------------------------------------------------------------

    def observations(self, X: Tensor, y: Tensor, counts: Tensor | None) -> Observations:
        """Rows X (M, D), y (M,), counts (M,) as this field conditions on them: less trend and count shift."""
        n = counted(counts, len(y))
        C = self.frame.coordinates(X.double())
        return self.gp.observed(C, y.double() - self.known.level(C, n), n)

    def conditioned_on(self, seen: Observations) -> Self:
        """This field, all that it learned kept, that knows these observations instead of its own.

        The result does not depend on their order. Cost: one neighbour search over them.
        """
        seen = seen.at(canonical_order(self.frame.as_given(seen.X), seen.value, seen.counts))
        return replace(self, known=self.known.told(self.gp.observed(seen.X, seen.value, seen.counts)))

    def observed_times(self) -> NDArray[np.float64] | None:
        """The time of each observation, as X had it: (n,), or None without a time."""
        frame = self.frame
        if frame.time is None:
            return None
        return np.asarray(self.seen.X[:, 2] * frame.time_unit + frame.origin[frame.time])

    def observed_rows(self) -> NDArray[np.float64]:
        """The inputs of each observation, as X had them but for rounding: (n, D)."""
        return self.frame.inputs(self.seen.X)

    @property
    def knows_time(self) -> bool:
        """Whether its rows lay at more than one time, so that it can be told of others."""
        return self.frame.time is not None

    # -- state -----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-able facts from which `from_state` restores the field."""
        return state_of(self.known, self.noise, self.calibration, self.warp)

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any], *, device: str = "cpu") -> Self:
        """The field that `state` described."""
        return cls(*restored(tensors, facts, device=device))

    # -- parts of what is known ----------------------------------------------------------------------

    @property
    def frame(self) -> Frame:
        return self.known.frame

    @property
    def space(self) -> tuple[int, ...]:
        """The columns of X with the places."""
        return self.frame.space

    @property
    def gp(self) -> LocalGP:
        """Kernel, noise and count shift."""
        return self.known.gp

    @property
    def seen(self) -> Observations:
        """The observations, in the coordinates of `frame`."""
        return self.known.seen


def _frame(
    X: Tensor,
    y: Tensor,
    space: tuple[int, ...],
    time: int | None,
    options: FieldOptions,
    season: Season | None = None,
) -> Frame:
    """The frame in which values y (N,), less a plane, a line and waves over time, change alike in all directions and over time."""
    if not options.metric:
        return frame_of(X.numpy(), space, time)
    waves = X[:, :0] if season is None else season(X)
    trends = torch.cat([torch.ones(len(X), 1, dtype=X.dtype), X - X.mean(0), waves], dim=1)
    trends = trends / trends.abs().max(0).values.clamp_min(1e-300)
    left = y - trends @ torch.linalg.lstsq(trends, y[:, None], driver="gelsd").solution[:, 0]
    metric = ISOTROPIC if len(space) == 1 else learned_metric(X[:, list(space)], left, options.seed)
    frame = frame_of(X.numpy(), space, time, metric)
    if frame.time is None:
        return frame
    pace = learned_pace(frame.near(frame.coordinates(X)), left, options.seed)
    return replace(frame, time_unit=frame.time_unit * pace)
