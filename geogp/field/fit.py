"""Trend, drift, kernel, noise and count shift of a local field, fitted to rows."""

import torch
from torch import Tensor

from geogp.field.choose import Trials, best_local_gp
from geogp.field.conditioned import Conditioned
from geogp.field.frame import Frame
from geogp.field.left_out import LeftOut, horizon_of
from geogp.field.likelihood.averaged import averaged
from geogp.field.mean.drift import PRIOR_SD, Drift, learned
from geogp.field.mean.season import Season
from geogp.field.mean.trend import fit_trend
from geogp.field.noise.rows import ToldNoise
from geogp.field.observations import typical_precision
from geogp.field.options import FieldOptions
from geogp.field.stages import Stages
from geogp.field.student import left_open
from geogp.field.variation.told import Told


def fit_conditioned(
    C: Tensor,
    y: Tensor,
    counts: Tensor,
    left_out: list[LeftOut],
    *,
    frame: Frame,
    options: FieldOptions,
    has_counts: bool,
    stages: Stages,
    season: Season | None = None,
    device: str = "cpu",
) -> Conditioned:
    """What is fitted to coordinates C (N, D), values y (N,) and counts (N,), conditioned on them.

    The local GP is fitted to what a first trend and a first plane leave over; the trend that is kept is fitted again,
    to values less the count shift, which is known only then: else a mean that moves with the count passes for one that
    moves with time, wherever counts do. The drift that is kept knows the field: see `geogp.field.mean.drift`. The waves
    of a season, in C, are the drift's; a trend is fitted to what they leave.
    """
    time = frame.times(C)
    weight = typical_precision(counts)  # of trend and first plane alone
    waves, n_waves = torch.zeros_like(y), 0
    if season is not None:
        waves, n_waves = season.fitted(C, y, weight), len(season.waves)
    first = fit_trend(time, y - waves, weight, n_waves)
    left = y - first(time, len(y))
    plane = Drift.over(C, frame.time_axis, n_space=len(frame.space), season=season)
    plane = plane.least_squares(C, left, weight)
    told = ToldNoise.over(C, left, counts) if options.row_noise and options.is_smooth(len(y)) else None
    value = left - plane(C)
    lengths = None if told is None or not options.following else Told.over(C, value, counts, told.noise)
    trials = Trials.of(
        C,
        value,
        counts,
        left_out,
        options,
        per_count=has_counts,
        stages=stages,
        device=device,
        near=frame.near(C),
        told=told,
        lengths=lengths,
    )
    gp = best_local_gp(trials, options.starting_kernel(frame))
    value = y - gp.b(counts)
    trend = fit_trend(time, value - waves, weight, n_waves)
    value = value - trend(time, len(y))
    apart = trials.distinct.cpu()
    beside = averaged(
        gp, gp.observed(C[apart], value[apart], counts[apart]), plane.columns(C[apart]), PRIOR_SD
    )
    if beside is not None:
        gp, beside = beside.centred(gp)
    elif trials.few:
        gp = gp.less_sure(left_open(len(y), plane.n_weights))
    seen = gp.observed(C, value, counts)
    drift = learned(plane, gp, seen, frame.near(C), options.seed).doubting_beyond()
    return Conditioned(
        options=options,
        frame=frame,
        has_counts=has_counts,
        trend=trend,
        drift=drift,
        gp=gp,
        seen=seen,
        horizon=horizon_of(left_out, C, frame),
        learned_until=frame.newest(C),
        device=device,
        lengths=None if gp.follows is None else lengths,
        averaged=beside,
    )
