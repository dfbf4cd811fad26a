"""A run and a grid -> a Dataset whose pixels are computed when they are read.

The moments of a pixel are computed once (`geogp.blocks`); every variable is a formula on them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox

from geogp.blocks import (
    CACHE_BYTES,
    Array,
    Blocks,
    LazyPlane,
    LazyStack,
    Mapped,
    MomentsCache,
    Plane,
    Where,
    grid_coordinates,
    moments_of,
)
from geogp.data import Moments
from geogp.errors import InvalidInput, check_count, check_level, check_metres, check_threshold
from geogp.predictive import Predictive
from geogp.storage.clock import now
from geogp.targets import Target, digits
from geogp.transforms import Identity

Formula = Callable[[Mapped, Target, Moments, float], NDArray[np.float64]]


def _new(run: Mapped, m: Moments) -> Predictive:
    return run.model.distribution(m)


def _surface(run: Mapped, m: Moments) -> Predictive:
    return run.model.distribution(m, latent=True)


def _interval_end(which: int, latent: bool) -> Formula:
    def formula(run: Mapped, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
        predictive = run.model.distribution(m, latent=latent)
        return t.from_score(predictive.interval(level)[which])

    return formula


def _width(run: Mapped, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    lower, upper = _new(run, m).interval(level)
    return t.from_score(upper) - t.from_score(lower)


def _mean(run: Mapped, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    return _new(run, m).mean_of(t.from_score, bounds=run.model.target_range_)


def _latent_sd(run: Mapped, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    return run.model.target_sd_ * np.sqrt(m.latent_variance.double().numpy())


def _noise_sd(run: Mapped, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    # What a new observation varies beyond the surface; heavy tails belong to it, not to the surface.
    return run.model.target_sd_ * np.sqrt((m.new_variance() - m.latent_variance).double().numpy())


def _explained(run: Mapped, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    prior = m.prior_variance.double().numpy()
    return np.clip(1.0 - m.latent_variance.double().numpy() / np.maximum(prior, 1e-30), 0.0, 1.0)


#: variable -> (formula, unit: "target", "model" (of its scale) or a literal, long name with {noun} and {scale})
VARIABLES: dict[str, tuple[Formula, str, str]] = {
    "median": (
        lambda r, t, m, level: t.from_score(_new(r, m).median()),
        "target",
        "median of new {noun}",
    ),
    "mean": (_mean, "target", "mean of new {noun}, held within the range of the training data"),
    "lower": (_interval_end(0, False), "target", "lower end of the prediction interval"),
    "upper": (_interval_end(1, False), "target", "upper end of the prediction interval"),
    "pi_width": (_width, "target", "width of the prediction interval"),
    "latent_median": (
        lambda r, t, m, level: t.from_score(_surface(r, m).median()),
        "target",
        "median of the surface",
    ),
    "latent_lower": (_interval_end(0, True), "target", "lower end of the credible interval of the surface"),
    "latent_upper": (_interval_end(1, True), "target", "upper end of the credible interval of the surface"),
    "latent_sd": (_latent_sd, "model", "sd of the surface, on the scale of the model: {scale}"),
    "noise_sd": (_noise_sd, "model", "sd of the noise of new {noun}, on the scale of the model: {scale}"),
    "explained": (_explained, "1", "share of the prior variance that the data explain"),
}

#: Variables of the surface itself: at the run's reference count, whatever new tile averages are described.
SURFACE = ("latent_median", "latent_lower", "latent_upper", "latent_sd", "explained")
#: Variables that change with the level of the intervals.
BY_LEVEL = ("lower", "upper", "pi_width", "latent_lower", "latent_upper")


def predict(
    run: Mapped,
    geobox: GeoBox,
    *,
    quarter: str | Sequence[str] | None = None,
    tests: float | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
    where: Where | None = None,
    max_distance_m: float | None = None,
    cache: MomentsCache | None = None,
) -> xr.Dataset:
    """A Dataset of every map variable on a grid, computed as it is read.

    Parameters
    ----------
    run : from `geogp.load`
    geobox : grid in any CRS; pixels are points at their centres
    quarter : e.g. "2023Q4"; default the run's last one. Several, ["2019Q4", "2023Q4"], become a leading dimension
        `quarter`; draw or export one of them as `ds.sel(quarter="2019Q4")`
    tests : measurements behind the new tile average that the maps describe; default the training median. The
        surface (`SURFACE`) is that of the run's reference count all the same
    level : of the intervals
    thresholds : of `exceedance`, in the target's unit; default the run's own
    where : mask by window; pixels outside are NaN and never computed
    max_distance_m : NaN farther than this from every training place
    cache : moments that were computed before, for several Datasets of the same pixels

    Returns
    -------
    Dataset with dims (y, x), or (quarter, y, x), CF attributes and an int32 `spatial_ref`; see VARIABLES for units;
    what a map of the target says and looks like is in the attributes `target_*`.

    Raises
    ------
    InvalidInput
        a malformed quarter, a level outside (0, 1), tests below 1, a threshold or distance that is none, a grid
        without CRS.

    Notes
    -----
    A block of 512 x 512 pixels costs one prediction of as many rows, and another one where the surface is read and
    `tests` are not its own; memory is bounded by 256 MiB of moments beside what the caller keeps.
    """
    chosen = tuple(dict.fromkeys(float(v) for v in (run.thresholds if thresholds is None else thresholds)))
    check_level(level)
    check_count(tests, "tests")
    check_metres(max_distance_m, "max_distance_m")
    for threshold in chosen:
        check_threshold(threshold)
        run.target.to_score(threshold)  # refuses one that its scale does not reach
    several = quarter is not None and not isinstance(quarter, str)
    quarters = [
        run.quarter(q) for q in ([quarter] if quarter is None or isinstance(quarter, str) else quarter)
    ]
    if not quarters or len(set(quarters)) < len(quarters):
        raise InvalidInput(f"name one quarter or several, each once; got {quarter!r}.")
    tests = run.model.typical_count_ if tests is None else float(tests)
    reference = run.model.reference_count_
    same = reference == tests or not run.model.has_counts

    def of(count: float | None, when: str | None) -> Blocks:
        def planes(X: Array) -> Plane:
            return moments_of(run.model, X, count, cache).stack().numpy()

        return Blocks(
            run,
            geobox,
            planes,
            Moments.PLANES,
            quarter=when,
            where=where,
            max_distance_m=max_distance_m,
            most_bytes=CACHE_BYTES // (len(quarters) * (1 if same else 2)),
        )

    blocks = [of(tests, q) for q in quarters]
    surface = blocks if same else [of(reference, q) for q in quarters]

    def variable(
        on: list[Blocks],
        formula: Callable[[Plane, float | None], Plane],
        attrs: dict[str, Any],
        thresholds: tuple[float, ...] | None = None,
    ) -> xr.Variable:
        planes = [LazyPlane(b, formula, thresholds) for b in on]
        dims = ("y", "x") if thresholds is None else ("threshold", "y", "x")
        return (
            LazyStack(planes).variable(("quarter", *dims), attrs)
            if several
            else planes[0].variable(dims, attrs)
        )

    when = "several quarters" if several else quarters[0] or "all times"
    about = when + ("" if tests is None else f", {tests:g} measurements")
    about_surface = when + ("" if reference is None else f", reference count of {reference:g} measurements")
    of_what = run.target.words
    variables: dict[str, xr.Variable] = {}
    for name, (formula, _, words) in VARIABLES.items():
        own = name in SURFACE
        attrs: dict[str, Any] = {
            "units": unit_of(run, name),
            "long_name": f"{of_what}: {words.format(noun=run.target.noun, scale=model_scale(run))} ({about_surface if own else about})",
        }
        if name in BY_LEVEL:
            attrs["level"] = level
        variables[name] = variable(surface if own else blocks, _on_planes(run, formula, level), attrs)
    coords = grid_coordinates(geobox)
    if chosen:
        words = f"{of_what}: probability that new {run.target.noun} exceed the threshold ({about})"
        said = {"units": "1", "long_name": words}
        variables["exceedance"] = variable(blocks, _exceedance_on_planes(run), said, chosen)
        coords["threshold"] = xr.DataArray(
            np.asarray(chosen, dtype=np.float64),
            dims="threshold",
            attrs={"units": run.unit, "long_name": f"threshold of {run.target.words}"},
        )
    if several:
        coords["quarter"] = xr.DataArray(np.array(quarters), dims="quarter", attrs={"long_name": "quarter"})
    out = xr.Dataset(variables, coords=coords)
    out.attrs = attributes(run, None if several else quarters[0], tests, level)
    return out


def values_at(
    run: Mapped,
    xy: NDArray[np.float64],
    *,
    quarter: str | None = None,
    tests: float | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """What maps say at places xy (N, 2) in the run's CRS: each variable (N,) by name, as `predict` has it at a pixel.

    Parameters
    ----------
    quarter, tests, level, thresholds : as for `predict`; P(> 25) is `exceedance_25`
    names : of VARIABLES; default all

    Raises
    ------
    InvalidInput
        as `predict`, and for a name that is none.

    Notes
    -----
    One prediction of N rows, and another where the surface is asked for and `tests` are not its own.
    """
    chosen = tuple(dict.fromkeys(float(v) for v in (run.thresholds if thresholds is None else thresholds)))
    wanted = list(VARIABLES) if names is None else list(names)
    check_level(level)
    check_count(tests, "tests")
    for name in wanted:
        if name not in VARIABLES:
            raise InvalidInput(f"there is no variable {name!r}; choose from {', '.join(VARIABLES)}.")
    for threshold in chosen:
        check_threshold(threshold)
    scores = {c: float(run.target.to_score(c)) for c in chosen}
    X = run.inputs(xy, quarter)
    new = moments_of(run.model, X, tests)
    own = tests is None or tests == run.model.reference_count_ or not run.model.has_counts
    surface = new if own and run.model.reference_count_ == run.model.typical_count_ else None
    if surface is None and any(name in SURFACE for name in wanted):
        surface = moments_of(run.model, X, run.model.reference_count_)
    out = {}
    for name in wanted:
        of = surface if name in SURFACE and surface is not None else new
        out[name] = VARIABLES[name][0](run, run.target, of, level)
    return out | {f"exceedance_{digits(c)}": _new(run, new).exceedance(score) for c, score in scores.items()}


def _on_planes(run: Mapped, formula: Formula, level: float) -> Callable[[Plane, float | None], Plane]:
    """A formula on moments as one on the planes that hold them, NaN where these are."""

    def values(planes: Plane, _: float | None) -> Plane:
        return _where_finite(planes, lambda m: formula(run, run.target, m, level))

    return values


def _exceedance_on_planes(run: Mapped) -> Callable[[Plane, float | None], Plane]:
    def values(planes: Plane, threshold: float | None) -> Plane:
        assert threshold is not None
        score = float(run.target.to_score(threshold))
        return _where_finite(planes, lambda m: _new(run, m).exceedance(score))

    return values


def _where_finite(planes: Plane, formula: Callable[[Moments], NDArray[np.float64]]) -> Plane:
    out = np.full(planes.shape[1:], np.nan, dtype=np.float32)
    inside = np.isfinite(planes[0])
    if inside.any():
        out[inside] = formula(Moments.unstack(torch.from_numpy(planes[:, inside])))
    return out


def model_scale(run: Mapped) -> str:
    """What the surface is modelled on, in words: where the target's own scale was bent, by what."""
    flat = isinstance(run.model.transform_, Identity)
    of = run.target.scale_words
    return of if flat else run.model.transform_.words(of.removesuffix(" itself"))


def model_unit(run: Mapped) -> str:
    """The unit of an sd on the model's scale: the target's where nothing bends it, a pure number else."""
    flat = isinstance(run.model.transform_, Identity) and run.target.scale_words.startswith("the value")
    return run.unit if flat else "1"


def unit_of(run: Mapped, name: str) -> str:
    """The unit of one of `VARIABLES`."""
    unit = VARIABLES[name][1]
    return {"target": run.unit, "model": model_unit(run)}.get(unit, unit)


def attributes(run: Mapped, quarter: str | None, tests: float | None, level: float) -> dict[str, Any]:
    """What the Dataset says of itself: CF, and what maps need of the target."""
    goal, method = run.target, run.model.method
    return {
        "Conventions": "CF-1.8",
        "title": f"{goal.heading}: posterior median, prediction intervals and exceedance probability",
        "institution": "made with GeoGP",
        "source": f"GeoGP method {method}",
        "history": f"{now():%Y-%m-%dT%H:%M:%SZ} geogp.predict",
        "comment": f"Medians and intervals describe new {goal.noun}"
        + (", as measured, not the service on offer." if goal.of_averages else "."),
        "method": method,
        "center": run.model.center,
        **goal.attributes(run.unit),
        "model_scale": model_scale(run),
        "quarter": quarter or "",
        **({} if tests is None else {"tests": float(tests)}),
        **({} if run.model.reference_count_ is None else {"reference_count": run.model.reference_count_}),
        "level": level,
    }
