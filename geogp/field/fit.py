"""Trend, kernel, constant noise and count shift of a local field, fitted to rows."""

from torch import Tensor

from geogp.field.choose import Trials, best_local_gp
from geogp.field.conditioned import Conditioned
from geogp.field.frame import Frame, newest, times
from geogp.field.left_out import LeftOut, horizon_of
from geogp.field.observations import Observations
from geogp.field.options import FieldOptions
from geogp.field.trend import fit_trend


def fit_conditioned(
    C: Tensor,
    y: Tensor,
    counts: Tensor,
    left_out: list[LeftOut],
    *,
    frame: Frame,
    options: FieldOptions,
    has_counts: bool,
    device: str = "cpu",
) -> Conditioned:
    """What is fitted to coordinates C (N, D), values y (N,) and counts (N,), conditioned on them.

    The local GP is fitted to what a first trend leaves over; the trend that is kept is fitted again, to values less
    the count shift, which is known only then: else a mean that moves with the count passes for one that moves with
    time, wherever counts do.
    """
    time = times(C)
    # Weights of a typical noise: a tenth of what n = 1 says stays at any n. Only the trend uses them.
    weight = 1.0 / (0.15 + 1.2 / counts)
    first = fit_trend(time, y, weight)
    trials = Trials.of(C, y - first(C), counts, left_out, options, per_count=has_counts, device=device)
    gp = best_local_gp(trials, options.starting_kernel(time is not None))
    trend = fit_trend(time, y - gp.b(counts), weight)
    return Conditioned(
        options=options,
        frame=frame,
        has_counts=has_counts,
        trend=trend,
        gp=gp,
        seen=Observations(C, y - trend(C) - gp.b(counts), counts, gp.noise_variance(counts)),
        horizon=horizon_of(left_out, C),
        learned_until=newest(C),
        device=device,
    )
