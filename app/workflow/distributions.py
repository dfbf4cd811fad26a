"""The distributions themselves on the pixels of a map, from which every layer, level, threshold and count follows.

`geogp.predict` gives a map's variables for one level, one number of tests, some thresholds; this gives what these are
computed from, so that a page can compute any of them without asking the model again.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from scipy.special import ndtri

from geogp.blocks import Blocks, Mapped, Where
from geogp.data import Moments
from geogp.prediction import attributes
from geogp.predictive import Peak
from geogp.transforms import Transform
from maps.packing import FIELDS, PEAK

Array = NDArray[np.float64]
#: Numbers of tests that a page offers, beside the usual one of the run.
COUNTS = (1.0, 3.0, 10.0, 30.0, 100.0)
#: Places taken through the model at once: between two of them a caller may stop it.
CHUNK = 2048
#: Rows of pixels looked through at once for those that are wanted.
STRIP = 64
#: Nodes of the table from the working scale to values, how many scales it goes beyond all locations, and what share of
#: new observations a second peak may have beyond its ends.
NODES, BEYOND, LOST = 1025, 8.0, 1e-4


def counts_of(run: Mapped, tests: float | None = None) -> tuple[float, ...]:
    """The numbers of tests that `distributions` tells: `COUNTS`, the run's usual one and `tests`; none of a run without
    counts.

    >>> from types import SimpleNamespace as Of
    >>> counts_of(Of(model=Of(has_counts=True, typical_count_=7.0)))
    (1.0, 3.0, 7.0, 10.0, 30.0, 100.0)
    """
    if not run.model.has_counts:
        return ()
    usual = float(run.model.typical_count_ or 1.0)
    return tuple(sorted({*COUNTS, usual, usual if tests is None else float(tests)}))


def distributions(
    run: Mapped,
    geobox: GeoBox,
    *,
    quarter: str | None = None,
    tests: float | None = None,
    where: Where | None = None,
    max_distance_m: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Distributions of new observations and of the surface at the pixels of a grid that have any.

    Parameters
    ----------
    run, geobox, quarter, where, max_distance_m : as for `geogp.predict`
    tests : told beside `COUNTS`; default the run's usual number
    progress : called with (places done, places); what it raises ends the work

    Returns
    -------
    Dataset, in memory, of `place`, the pixels that are True in `known` (y, x), row by row:

    location, scale, inverse_df, log_skewness, latent_sd (count, place)
        of `geogp.predictive.Predictive`, on the working scale; 1 / degrees of freedom, 0 for a Gaussian
    peak_share, peak_offset, peak_scale (count, place)
        of `geogp.predictive.Peak`, its location less that of the first; absent where no distribution has one
    surface, surface_sd, prior_sd (place)
        of the surface, at the run's reference count
    nearest_m (place)
        to the nearest training place; absent where the run does not record them
    working (node), value (node)
        the increasing way from the working scale to the target's unit, of the surface
    value_of_new (count, node)
        that of new observations, where the run bends it; else it is the surface's

    Notes
    -----
    One prediction of all places; 68 bytes a place and count beside it.
    """
    quarter = run.quarter(quarter)
    counts = counts_of(run, tests) or (None,)
    known, X = places(run, geobox, quarter, where, max_distance_m)
    reference = run.model.reference_count_
    asked = [*counts, reference]
    parts: list[NDArray[np.float32]] = []
    for start in range(0, len(X), CHUNK):
        rows = torch.as_tensor(X[start : start + CHUNK])
        n = [None if c is None else torch.full((len(rows),), c) for c in asked]
        if not run.model.has_counts:
            n = [None, None]
        parts.append(_parts(run, run.model.engine_.moments_by_count(rows, n)))
        if progress is not None:
            progress(min(start + CHUNK, len(X)), len(X))
    nothing = np.zeros((len(FIELDS + PEAK) * len(counts) + 3, 0), np.float32)
    whole = np.concatenate(parts, axis=-1) if parts else nothing
    new = by_name(whole[:-3].reshape(len(FIELDS + PEAK), len(counts), -1))
    variables: dict[str, Any] = {name: (("count", "place"), plane) for name, plane in new.items()}
    for name, plane in zip(("surface", "surface_sd", "prior_sd"), whole[-3:], strict=True):
        variables[name] = ("place", plane)
    if (away := _nearest(run, X)) is not None:
        variables["nearest_m"] = ("place", away.astype(np.float32))
    reaches = [(new["location"], BEYOND * new["scale"]), (whole[-3], BEYOND * whole[-2])]
    if "peak_share" in new:  # a small one may be wide
        sds = -ndtri(LOST / np.maximum(new["peak_share"], 2.0 * LOST))
        reaches.append((new["location"] + new["peak_offset"], sds * new["peak_scale"]))
    working = _nodes(*reaches)
    variables |= {
        "working": ("node", working),
        "value": ("node", _values(run, working, run.model.transform_)),
    }
    if run.model.engine_.warp is not None:
        scales = [run.model.scale_of_new(n) for n in counts]
        variables["value_of_new"] = (("count", "node"), np.stack([_values(run, working, s) for s in scales]))
    out = xr.Dataset(variables | {"known": (("y", "x"), known)})
    if run.model.has_counts:
        out = out.assign_coords(count=("count", np.array(counts, float)))
    out.attrs = attributes(run, quarter, run.model.typical_count_ if tests is None else tests, 0.95)
    least = run.model.engine_.least
    out.attrs["least"] = float(run.target.from_score(least)) if math.isfinite(least) else None
    return out


def through_time(run: Mapped, xy: Array, quarters: Sequence[str]) -> NDArray[np.float32]:
    """`FIELDS` and `PEAK` of new observations at one place xy (2,) in metres, by number of tests, in each quarter: (8, counts,
    quarters), from one prediction of as many rows."""
    counts: Sequence[float | None] = counts_of(run) or (None,)
    X = torch.as_tensor(np.concatenate([run.inputs(xy[None, :], quarter) for quarter in quarters]))
    n = [None if c is None else torch.full((len(X),), c) for c in (*counts, counts[0])]
    planes = _parts(run, run.model.engine_.moments_by_count(X, n))
    return planes[:-3].reshape(len(FIELDS + PEAK), len(counts), len(quarters))


def by_name(planes: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Planes (8, ...) by their names: `FIELDS`, and `PEAK` where any share is above 0.

    >>> list(by_name(np.zeros((8, 2), np.float32)))
    ['location', 'scale', 'inverse_df', 'log_skewness', 'latent_sd']
    """
    n = len(FIELDS)
    peak = zip(PEAK, planes[n:], strict=True) if planes[n].any() else ()
    return dict(zip(FIELDS, planes[:n], strict=True)) | dict(peak)


def places(
    run: Mapped,
    geobox: GeoBox,
    quarter: str | None = None,
    where: Where | None = None,
    max_distance_m: float | None = None,
) -> tuple[NDArray[np.bool_], Array]:
    """Which pixels `distributions` tells of, (y, x), and the model's inputs there, (places, D), row by row."""
    known, found = np.zeros(geobox.shape, bool), []
    grid = Blocks(
        run, geobox, np.asarray, 1, quarter=quarter, most_bytes=0
    )  # for its way to the model's inputs
    for top in range(0, geobox.shape[0], STRIP):
        rows = slice(top, min(top + STRIP, geobox.shape[0]))
        window = geobox[rows, :]
        wanted = np.ones(window.shape, bool) if where is None else np.asarray(where(window), bool)
        if not wanted.any():
            continue
        X = grid.inputs(window)
        flat = wanted.ravel() & np.isfinite(X).all(1)
        if max_distance_m is not None and flat.any():
            near = run.support.distances_m(X[flat, :2], max_distance_m)
            flat[np.flatnonzero(flat)[~np.isfinite(near)]] = False
        known[rows] = flat.reshape(window.shape)
        found.append(X[flat])
    return known, np.concatenate(found) if found else np.zeros((0, 2))


def _parts(run: Mapped, moments: Sequence[Moments]) -> NDArray[np.float32]:
    """(8 x counts + 3, places): of each count, and of the last moments the surface."""
    *new, reference = moments
    rows: list[list[Array]] = [[] for _ in FIELDS + PEAK]
    sd = run.model.target_sd_
    for m in new:
        p = run.model.distribution(m)
        nothing = np.zeros(len(p))
        df, skew = p.degrees_of_freedom, p.log_skewness
        latent = sd * np.sqrt(m.latent_variance.double().numpy())
        peak = p.peak or Peak(nothing, p.location, p.scale)
        there = peak.share > 0.0  # elsewhere it may be anywhere
        given = (
            p.location,
            p.scale,
            nothing if df is None else 1.0 / df,
            nothing if skew is None else skew,
            latent,
            peak.share,
            np.where(there, peak.location - p.location, 0.0),
            np.where(there, peak.scale, p.scale),
        )
        for row, values in zip(rows, given, strict=True):
            row.append(values)
    surface = run.model.distribution(reference, latent=True)
    prior = sd * np.sqrt(reference.prior_variance.double().numpy())
    flat = [values for row in rows for values in row]
    return np.stack([*flat, surface.location, surface.scale, prior]).astype(np.float32)


def _nearest(run: Mapped, X: Array) -> Array | None:
    """Metres to the nearest training place, (places,)."""
    try:
        return run.support.distances_m(X[:, :2])
    except (OSError, KeyError, ValueError):
        return None


def _nodes(*reaches: tuple[Any, Any]) -> Array:
    """Nodes of the working scale, increasing: as far about locations as each reaches."""
    if not reaches[0][0].size:
        return np.array([0.0, 1.0])
    low = min(float((location - reach).min()) for location, reach in reaches)
    high = max(float((location + reach).max()) for location, reach in reaches)
    return np.linspace(low, high, NODES)


def _values(run: Mapped, working: Array, transform: Transform) -> Array:
    """The values of nodes of the working scale, in the target's unit."""
    y = np.maximum(transform.inverse(working), run.model.engine_.least)
    return np.asarray(run.target.from_score(y), np.float64)
