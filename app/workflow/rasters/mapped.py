"""Which map of a run, and its lazy Dataset: here, and in whoever computes windows of it elsewhere."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import xarray as xr

from app.cluster import Cluster
from app.errors import InvalidInput
from app.workflow import certifying
from app.workflow.certifying import certificate_of
from app.workflow.grids import Box, Grid, grid_of
from app.workflow.outputs import attribution, titled
from app.workflow.rasters.covariates import opened
from app.workflow.rasters.elsewhere import Place, on
from app.workflow.together import Together, with_layer
from geogp.errors import check_count, check_level, check_threshold
from geogp.prediction import predict
from geogp.run import Run
from maps.bands import bands
from maps.render import Elsewhere


class MapOptions(TypedDict, total=False):
    """Which map of a run: the keywords that `export` and `estimate` share.

    layers : such as "median" or "exceedance_100"; None for all
    quarter : default the run's last
    thresholds : of `exceedance`, in the target's unit
    level, tests : of the intervals; measurements behind the new tile average that the maps describe
    resolution_m, like, bounds, crs, max_distance_m : see `grid_of`
    """

    layers: Sequence[str] | None
    quarter: str | None
    thresholds: Sequence[float] | None
    level: float
    tests: float | None
    resolution_m: float | None
    like: str | Path | None
    bounds: Box | None
    crs: str | None
    max_distance_m: float | None


def prediction(
    run: Run,
    grid: Grid,
    *,
    quarter: str | None = None,
    thresholds: Sequence[float] | None = None,
    level: float = 0.95,
    tests: float | None = None,
) -> xr.Dataset:
    """The lazy prediction Dataset of a run on a grid, masked by region or support, with a title of its own."""
    ds = predict(
        run,
        grid.geobox,
        quarter=quarter,
        tests=tests,
        level=level,
        thresholds=thresholds,
        where=grid.where if grid.boundary is not None else None,
        max_distance_m=grid.max_distance_m,
    )
    ds.attrs |= {"title": titled(run), **attribution(run)}
    if run.weights_sha256 is not None:
        ds.attrs["weights_sha256"] = run.weights_sha256
    if (document := certificate_of(run)) is not None:
        ds.attrs["calibration"] = certifying.words(document)
        ds.attrs["certificate"] = json.dumps(certifying.short(document), separators=(",", ":"))
    return ds


def prepare(
    run: str | Path | Run,
    pair: Together | None = None,
    *,
    layers: Sequence[str] | None = None,
    quarter: str | None = None,
    thresholds: Sequence[float] | None = None,
    level: float = 0.95,
    tests: float | None = None,
    **where: Any,
) -> tuple[Run, Grid, xr.Dataset]:
    """Load, choose the pixels, make the lazy Dataset; everything that can be refused is refused here."""
    run = opened(run)
    check_count(tests, "--tests")
    check_level(level, "--level")
    for threshold in thresholds or ():
        check_threshold(threshold, "--thresholds")
    wanted = [name for name in layers or () if name.startswith("exceedance_")]
    if thresholds is None and wanted:  # exceedance_50 asks for its threshold by name
        thresholds = [_threshold(name) for name in wanted]
    grid = grid_of(run, **where)
    ds = prediction(run, grid, quarter=quarter, thresholds=thresholds, level=level, tests=tests)
    if pair is not None:
        ds = with_layer(pair, ds, grid, quarter)
    bands(ds, layers)  # refuses unknown layers before any pixel is computed
    return run, grid, ds


def elsewhere_by(
    cluster: Cluster,
    run: Run,
    pair: Together | None,
    grid: Grid,
    ds: xr.Dataset,
    *,
    max_memory: int,
    **options: Unpack[MapOptions],
) -> Elsewhere:
    """Workers that compute windows of `ds`, which `prepare` made of the same options."""
    asked: dict[str, Any] = {name: options[name] for name in ("quarter", "level", "tests") if name in options}
    asked["thresholds"] = tuple(float(v) for v in ds["threshold"].values) if "threshold" in ds.coords else ()
    beside = None
    if pair is not None:
        beside = Place.of(pair.other), pair.limits, pair.correlation, pair.learned_from
    return on(
        cluster,
        drawn,
        Place.of(run),
        replace(grid),  # without what it has worked out for itself
        asked,
        beside,
        layers=options.get("layers"),
        max_memory=max_memory,
    )


def drawn(place: Place, grid: Grid, asked: dict[str, Any], beside: tuple[Any, ...] | None) -> xr.Dataset:
    """In a worker: the Dataset that `prepare` made."""
    run = place.run()
    ds = prediction(run, grid, **asked)
    if beside is not None:
        other, *facts = beside
        ds = with_layer(Together(run, other.run(), *facts), ds, grid, asked.get("quarter"))
    return ds


def _threshold(name: str) -> float:
    try:
        return float(name.removeprefix("exceedance_"))
    except ValueError:
        raise InvalidInput(f"There is no layer {name!r}; write exceedance_25 for P(> 25).") from None
