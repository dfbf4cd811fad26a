"""Covariates of places by raster files, a pixel each: beside the rows of a fit, and on the map of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Transformer

from app.errors import InvalidInput, Usage
from geogp.rasters import Raster
from geogp.run import Run
from geogp.run import opened as any_run
from geogp.storage import sha256
from maps.reader import open_raster
from maps.region import polygon

Array = NDArray[np.float64]

#: How far beyond the observations a raster is kept, as a share of their extent: maps reach the region's edge.
MARGIN = 0.1
#: Places on a coast often lie in a pixel that a raster of the land leaves empty: so many pixels on there is one.
FILL_PIXELS = 3.0


def covariate_raster(
    path: str | Path, crs: str, places: Array, boundary: Mapping[str, Any] | None = None
) -> Raster:
    """The first band of a raster around places (N, 2) in a run's plane and its region, its smallest gaps filled.

    Raises
    ------
    InvalidInput
        no raster, or none of these places.
    """
    own = CRS.from_user_input(crs)
    box = box_around(places[np.isfinite(places).all(axis=1)], own)
    if boundary is not None:
        outline = polygon(dict(boundary)).bounds
        box = (
            min(box[0], outline[0]),
            min(box[1], outline[1]),
            max(box[2], outline[2]),
            max(box[3], outline[3]),
        )
    return Raster.of(open_raster(path, bounds=box), from_crs=own.to_wkt()).filled(FILL_PIXELS)


@dataclass(frozen=True)
class Covered:
    """Covariates of places (N, 2) by a raster each: (N, k); files : theirs, with SHA-256."""

    rasters: tuple[Raster, ...]
    files: Mapping[str, Mapping[str, str]]

    def __call__(self, xy: Array) -> Array:
        return np.column_stack([raster(xy) for raster in self.rasters])


def opened(run: str | Path | Run, covariates: str | None = None) -> Run:
    """A run, given as itself or as its folder, that knows the covariates of places, where it has learned by some.

    Parameters
    ----------
    covariates : "elevation=dem.tif,dist=dist.tif", a raster each; those that `fit` was told need not be said again

    Raises
    ------
    InvalidInput
        a name that the run has not learned by, or a raster that cannot be used.
    """
    run = any_run(run)
    names = [str(name) for name in run.facts.get("covariates") or ()]
    said = {} if covariates is None else covariates_of(covariates)
    for name, file in said.items():
        if name not in names:
            by = f"by {', '.join(names)}" if names else "without covariates"
            raise InvalidInput(f"{run.path} was fitted {by}; there is no {name} to give.")
        if file is None:
            raise InvalidInput(f"--covariates of a map are rasters, {name}=FILE.tif; got {name} alone.")
    remembered = run.facts.get("covariate_rasters") or {}
    files = {name: said.get(name) or _kept(remembered.get(name), run) for name in names}
    if (run.covariates is not None and not said) or not names or None in files.values():
        return run
    places = run.support.positions_m
    rasters = [covariate_raster(str(file), run.crs.to_wkt(), places, run.boundary) for file in files.values()]
    told = {name: file_of(str(file)) for name, file in files.items()}
    return replace(run, covariates=Covered(tuple(rasters), told))


def files_of(run: Run) -> dict[str, str]:
    """SHA-256 of the rasters that a run takes its covariates from, by name; empty without any."""
    known = run.covariates
    return {name: file["sha256"] for name, file in known.files.items()} if isinstance(known, Covered) else {}


def covariates_of(text: str) -> dict[str, str | None]:
    """`elevation,dist=dist.tif`: name -> raster, None where it is a column.

    Examples
    --------
    >>> covariates_of("elevation, dist=dist.tif")
    {'elevation': None, 'dist': 'dist.tif'}
    """
    out: dict[str, str | None] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, equals, file = (word.strip() for word in part.partition("="))
        if not name or bool(equals) != bool(file):
            raise Usage(f"--covariates is a list such as elevation,dist=dist.tif; got {part!r}.")
        if name in out:
            raise Usage(f"--covariates names {name} twice.")
        out[name] = file or None
    return out


def _kept(told: Mapping[str, str] | None, run: Run) -> str | None:
    """The raster that a run was fitted with, if it lies where it lay; refuses another in its place."""
    if told is None or not Path(told["path"]).is_file():
        return None
    if file_of(told["path"]) != told:
        raise InvalidInput(
            f"{told['path']} is not the raster that {run.path} was fitted with (its SHA-256 differs); name one with "
            "--covariates."
        )
    return told["path"]


def file_of(path: str | Path) -> dict[str, str]:
    """What a run keeps of a further file that it was fitted with."""
    return {"path": str(Path(path).resolve()), "sha256": sha256(Path(path))}


def box_around(xy: Array, own: CRS) -> tuple[float, float, float, float]:
    """A box around places with a margin: W, S, E, N."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    reach = np.maximum(MARGIN * (high - low), 5000.0)
    to_degrees = Transformer.from_crs(own, 4326, always_xy=True)
    (left, bottom), (right, top) = low - reach, high + reach
    west, south, east, north = to_degrees.transform_bounds(left, bottom, right, top, densify_pts=41)
    return (west, south, east, north)
