"""A local field as named tensors and JSON-able facts, and back. The names are those of every run folder written."""

from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from geogp.calibrate import Calibration
from geogp.field.conditioned import Conditioned
from geogp.field.frame import Frame
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.averaged import Averaged
from geogp.field.local_gp import LocalGP
from geogp.field.mean.drift import N_SPACE, Drift
from geogp.field.mean.season import Season
from geogp.field.mean.trend import Trend
from geogp.field.noise.fit import SPREAD
from geogp.field.noise.rows import RowNoise
from geogp.field.noise.smooth import SmoothNoise, new_smooth_noise
from geogp.field.noise.times import NoiseOfTimes
from geogp.field.options import FieldOptions
from geogp.field.variation import Variation
from geogp.transforms import Warp

#: What trend and noise call by another name than run folders do.
STORED = {"intercept": "level"}
NOISE = "noise."


def state_of(
    known: Conditioned, noise: SmoothNoise | None, calibration: Calibration | None, warp: Warp | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and JSON-able facts from which `restored` makes the same again."""
    gp = known.gp
    tensors = {
        "kernel.log_lengthscale": gp.kernel.log_lengthscale,
        "kernel.log_variance": gp.kernel.log_variance,
        "shift": gp.count_shift,
        "seen.X": known.seen.X,
        "seen.value": known.seen.value,
        "seen.counts": known.seen.counts,
        "drift.axes": torch.tensor(known.drift.axes, dtype=torch.int64),
        "drift.center": known.drift.center,
        "drift.scale": known.drift.scale,
        "drift.weights": known.drift.weights,
        "drift.covariance": known.drift.covariance,
        "drift.slopes": known.drift.slopes,
    }
    if (bumps := gp.kernel.variation) is not None:
        tensors |= {
            "kernel.centres": bumps.centres,
            "kernel.width": bumps.width,
            "kernel.stretch": bumps.lengthscale,
            "kernel.amplitude": bumps.variance,
        }
        if bumps.noise is not None:
            tensors["kernel.noisier"] = bumps.noise
    if gp.rows is not None:
        tensors |= {
            "row_noise.center": gp.rows.center,
            "row_noise.scale": gp.rows.scale,
            "row_noise.coefficients": gp.rows.coefficients,
        }
    if gp.of_times is not None:
        tensors |= gp.of_times.tensors()
    if known.averaged is not None:
        tensors |= {"averaged.weight": known.averaged.weight, "averaged.times": known.averaged.times}
    if noise is not None:
        tensors |= {NOISE + STORED.get(name, name): value for name, value in noise.state_dict().items()}
    facts = {
        "options": asdict(known.options),
        "frame": asdict(known.frame),
        "season": None if known.drift.season is None else asdict(known.drift.season),
        "trend": {STORED.get(name, name): value for name, value in asdict(known.trend).items()},
        "has_counts": known.has_counts,
        "horizon": known.horizon,
        "learned_until": known.learned_until,
        "smoothness": list(gp.kernel.smoothness),
        "over_time": gp.kernel.over_time,
        "blended": gp.kernel.variation is not None and gp.kernel.variation.blended,
        "tau2": gp.tau2,
        "s2": gp.s2,
        "degrees_of_freedom": gp.degrees_of_freedom,
        "loss": list(gp.loss),
        "weighted": gp.weighted,
        "variances": gp.variances,
        "calibration": None if calibration is None else asdict(calibration),
        "warp": None if warp is None else warp.to_dict(),
    }
    return {name: value.detach().contiguous() for name, value in tensors.items()}, facts


def restored(
    tensors: dict[str, Tensor], facts: dict[str, Any], *, device: str = "cpu"
) -> tuple[Conditioned, SmoothNoise | None, Calibration | None, Warp | None]:
    """What `state_of` described."""
    options, frame = _options(facts["options"]), _frame(facts["frame"])
    gp = _gp(tensors, facts, frame)
    X, counts = tensors["seen.X"], tensors["seen.counts"]
    learned_until = facts.get("learned_until")  # absent before there were updates
    known = Conditioned(
        options=options,
        frame=frame,
        has_counts=facts["has_counts"],
        trend=Trend(**_named_as_here(facts["trend"])),
        drift=_drift(tensors, facts.get("season"), frame),
        gp=gp,
        seen=gp.observed(X, tensors["seen.value"], counts),
        horizon=facts["horizon"],
        learned_until=frame.newest(X) if learned_until is None else learned_until,
        device=device,
        averaged=_averaged(tensors),
    )
    bent = facts.get("warp")  # absent before there were any
    warp = None if bent is None else Warp.from_dict(bent)
    return known, _noise(tensors, options), _calibration(facts["calibration"]), warp


def _options(facts: dict[str, Any]) -> FieldOptions:
    given = {
        "regional": None,
        "metric": False,
        "testimony": False,
        "row_noise": False,
        "members": 1,
    } | facts  # absent before there were these
    if given["components"] is not None:
        given["components"] = tuple((str(n), float(a), float(b)) for n, a, b in given["components"])
    return FieldOptions(**given | {"block_sizes": tuple(given["block_sizes"])})


def _frame(facts: dict[str, Any]) -> Frame:
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
    frame = Frame(**given)
    columns = (*frame.space, *frame.others, *(() if frame.time is None else (frame.time,)))
    if len(frame.space) not in (1, 2) or any(type(column) is not int for column in columns):
        raise ValueError("its frame does not say which columns are places and times")
    return frame


def _drift(tensors: dict[str, Tensor], waves: dict[str, Any] | None, frame: Frame) -> Drift:
    if "drift.weights" not in tensors:  # before there was one
        X = tensors["seen.X"]
        none = Drift.over(X[:, :0], None)
        return replace(none, covariance=torch.zeros_like(none.covariance))
    axes = tuple(d for d in range(frame.n_axes) if d != frame.time_axis)
    if "drift.axes" in tensors:  # before, there were all
        axes = tuple(int(d) for d in tensors["drift.axes"])
    season, q = None, 1 + len(axes)
    if waves is not None:
        nested = {name: tuple(map(tuple, waves[name])) for name in ("waves", "doubt")}
        season = Season(**waves | nested)
    n_waves = 0 if season is None else len(season.waves)
    weights, slopes = tensors["drift.weights"], tensors.get("drift.slopes")
    drift = Drift(
        tensors["drift.center"], tensors["drift.scale"], axes, weights, tensors["drift.covariance"], season
    )
    if slopes is not None and len(slopes) in (0, len(axes)):
        drift = replace(drift, slopes=slopes)
    known = len(weights) - drift.n_beyond in (q + n_waves, q * (1 + n_waves))
    if not known or not set(axes) <= set(range(frame.n_axes)):
        raise ValueError("its drift has other weights than columns")
    if slopes is not None:
        return drift
    # Before, the doubt beyond the data was of covariates alone.
    return drift.doubting_beyond(drift.weights[1:q] * torch.tensor([float(d >= N_SPACE) for d in axes]))


def _gp(tensors: dict[str, Tensor], facts: dict[str, Any], frame: Frame) -> LocalGP:
    variation = None
    if "kernel.centres" in tensors:
        stretch, amplitude = tensors["kernel.stretch"], tensors["kernel.amplitude"]
        centres = tensors["kernel.centres"]
        # One width for all bumps in runs of before.
        width = (
            tensors["kernel.width"] if "kernel.width" in tensors else torch.full_like(stretch, facts["width"])
        )
        blended, noisier = facts.get("blended", False), tensors.get("kernel.noisier")
        variation = Variation(centres, width, stretch, amplitude, blended, noisier)
    kernel = LocalKernel(
        tensors["kernel.log_lengthscale"],
        tensors["kernel.log_variance"],
        tuple(facts["smoothness"]),
        frame.time_axis,
        variation,
        facts.get("over_time", "matern12"),  # absent before there was another
    )
    return LocalGP(
        kernel,
        facts["tau2"],
        facts["s2"],
        facts["degrees_of_freedom"],
        tensors["shift"],
        tuple(facts["loss"]),
        facts.get("weighted", False),  # absent before observations could be weighed as Student-t
        _row_noise(tensors),
        variances=facts.get("variances", False),  # absent before
        of_times=NoiseOfTimes.of(tensors),
    )


def _averaged(tensors: dict[str, Tensor]) -> Averaged | None:
    if "averaged.weight" not in tensors:
        return None
    return Averaged(tensors["averaged.weight"], tensors["averaged.times"])


def _row_noise(tensors: dict[str, Tensor]) -> RowNoise | None:
    start = "row_noise."
    own = {name.removeprefix(start): v for name, v in tensors.items() if name.startswith(start)}
    return RowNoise(**own) if own else None


def _noise(tensors: dict[str, Tensor], options: FieldOptions) -> SmoothNoise | None:
    own = {name.removeprefix(NOISE): v for name, v in tensors.items() if name.startswith(NOISE)}
    if not own:
        return None
    own = _named_as_here(own)
    n_outputs = len(own["intercept"])
    scales, peak = n_outputs == 5, n_outputs == 7  # the former as earlier runs have it
    if own["first.weight"].dim() == 2:  # before there were several members
        own = {name: _of_one_member(name, value) for name, value in own.items()}
    members = len(own["first.weight"])
    noise = new_smooth_noise(
        len(own["center"]),
        hidden=options.hidden,
        members=members,
        spread=SPREAD,
        scales_surface=scales,
        peak=peak,
    )
    own.setdefault("trust", noise.trust)
    own.setdefault("gaps", noise.gaps)
    own.setdefault("below", noise.below)
    noise.load_state_dict(own)
    return noise.eval()


def _of_one_member(name: str, value: Tensor) -> Tensor:
    if name.endswith(".weight"):
        return value.T[None]
    return value[None, None] if name.endswith(".bias") else value


def _calibration(facts: dict[str, Any] | None) -> Calibration | None:
    if facts is None:
        return None
    return Calibration(facts["pooled"], tuple(facts["factors"]), tuple(facts["rows"]), facts["level"])


def _named_as_here(stored: dict[str, Any]) -> dict[str, Any]:
    here = {there: name for name, there in STORED.items()}
    return {here.get(name, name): value for name, value in stored.items()}
