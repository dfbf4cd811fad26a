"""Where the surface lies above or below thresholds all at once: excursion sets of a run, as rasters."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from app.errors import InvalidInput
from app.workflow.grids import Box, Grid, grid_of, ground_words
from app.workflow.means import check_draws
from app.workflow.outputs import attribution, now, refuse_taken, surface_of, titled
from app.workflow.pixels import pixels_of
from app.workflow.polygons import about
from app.workflow.rasters.covariates import opened
from data_pipelines.words import many
from geogp.areas import excursion, surface
from geogp.blocks import grid_coordinates
from geogp.errors import check_level, check_threshold
from geogp.run import Run
from geogp.targets import target
from maps.raster import export as write_rasters
from maps.words import exact

#: Pixels where nothing is said: their joint draws take seconds.
USUAL = 10_000
DRAWS = 2000


@dataclass(frozen=True, eq=False)
class Excursions:
    """What was found and written: `facts` say of each threshold how much ground its set has."""

    folder: Path
    manifest: dict[str, Any]
    facts: dict[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What `geogp excursions --json` prints."""
        return {**self.manifest, "notes": list(self.notes)}

    @property
    def title(self) -> str:
        return f"{self.facts['title']}, {100 * self.facts['level']:g}% for each whole set"

    header = ("threshold", "in the set, km2", "of the ground", "one by one, km2")

    def rows(self) -> list[list[str]]:
        """A table for people: the set, and what a map of single pixels would mark."""
        return [
            [
                target(self.facts["target"]).with_unit(exact(row["threshold"]), self.facts["unit"]),
                ground_words(row["set_km2"]),
                f"{100 * row['set_share']:.1f}%",
                ground_words(row["single_km2"]),
            ]
            for row in self.facts["sets"]
        ]

    def summary(self) -> str:
        """One line for people."""
        return f"{self.folder}: {many(len(self.manifest['files']), 'file')}, {self.seconds:.1f} s"


def excursions(
    run: str | Path | Run,
    folder: str | Path,
    *,
    thresholds: Sequence[float] | None = None,
    above: bool = True,
    level: float = 0.95,
    quarter: str | None = None,
    formats: Sequence[str] = ("cog",),
    resolution_m: float | None = None,
    bounds: Box | None = None,
    crs: str | None = None,
    max_distance_m: float | None = None,
    n_samples: int = DRAWS,
    seed: int = 0,
    overwrite: bool = False,
) -> Excursions:
    """Map where the surface exceeds thresholds (or falls below them) with one probability for the whole set.

    Layers: `excursion_100`, the excursion function, and `excursion_set_100`, 1 where it is at least `level`.

    Parameters
    ----------
    folder : made if missing
    thresholds : in the target's unit; default the run's own
    above : whether above or below
    level : joint probability of a set
    quarter, formats, resolution_m, bounds, crs, max_distance_m : as for `export`; by default some 10,000 pixels
    n_samples : joint draws

    Raises
    ------
    InvalidInput
        too many pixels, an output that exists, a malformed option.
    """
    started = time.perf_counter()
    run, folder = opened(run), Path(folder)
    check_level(level, "--level")
    check_draws(n_samples)
    if n_samples < 100:
        raise InvalidInput(f"An excursion set needs at least 100 --samples; got {n_samples}.")
    chosen = run.thresholds if thresholds is None else tuple(float(c) for c in thresholds)
    for c in chosen:
        check_threshold(c, "--above" if above else "--below")
        run.target.to_score(c)
    refuse_taken(folder / "manifest.json", overwrite)
    where: dict[str, Any] = {"bounds": bounds, "max_distance_m": max_distance_m}
    grid, note = _grid(run, resolution_m, crs, where)
    pixels = pixels_of(run, grid, "excursion sets")
    when = run.quarter(quarter)
    found = surface(run.model, run.inputs(pixels.xy, when))
    laws = [
        excursion(found, float(run.target.to_score(c)), above=above, n_samples=n_samples, random_state=seed)
        for c in chosen
    ]
    side = "above" if above else "below"
    km2 = _pixel_m2(run, grid, pixels.xy) / 1e6
    facts: dict[str, Any] = {
        **about(run, when), "title": f"Where {run.target.words} lies {side} a threshold all at once",
        "unit": run.unit, "level": level, "side": side, "n_samples": n_samples, **attribution(run),
        "sets": [
            {
                "threshold": c,
                "set_km2": float(law.inside(level).sum() * km2),
                "set_share": float(law.inside(level).mean()),
                "single_km2": float((law.marginal >= level).sum() * km2),
            }
            for c, law in zip(chosen, laws)
        ],
    }  # fmt: skip
    functions = np.stack([pixels.plane(law.function) for law in laws])
    sets = np.stack([pixels.plane(law.inside(level).astype(np.float64)) for law in laws])
    words = f"the surface of {run.target.words} lies {side} the threshold"
    dims = ("threshold", "y", "x")
    attrs = {"units": "1", "grid_mapping": "spatial_ref"}
    ds = xr.Dataset(
        {
            "excursion": (dims, functions, attrs | {"long_name": f"probability that in the smallest such set {words} everywhere"}),
            "excursion_set": (dims, sets, attrs | {"long_name": f"1 where with probability {level:g} everywhere {words}"}),
        },
        {**grid_coordinates(grid.geobox), "threshold": ("threshold", np.array(chosen), {"units": run.unit})},
        {
            "Conventions": "CF-1.8", "title": f"{titled(run)}: {side} thresholds all at once",
            "institution": "made with GeoGP", "method": run.model.method, **run.target.attributes(run.unit),
            "quarter": when or "", "level": level, "excursion_side": side,
            **({} if run.model.reference_count_ is None else {"reference_count": run.model.reference_count_}),
            **attribution(run),
        },
    )  # fmt: skip
    manifest = write_rasters(
        ds,
        folder,
        list(formats),
        geometry=grid.boundary,
        overwrite=overwrite,
        extra={"created": now(), **facts},
    )
    notes = [note, grid.note, f"of the surface, the level of {surface_of(run)}" if surface_of(run) else ""]
    return Excursions(folder, manifest, facts, time.perf_counter() - started, tuple(n for n in notes if n))


def _grid(run: Run, resolution_m: float | None, crs: str | None, where: dict[str, Any]) -> tuple[Grid, str]:
    """The grid, of some `USUAL` pixels where nothing is said, and that in words."""
    if resolution_m is not None:
        return grid_of(run, resolution_m=resolution_m, crs=crs, **where), ""
    plain = grid_of(run, **where)
    side = plain.resolution * run.crs.axis_info[0].unit_conversion_factor
    side *= max(1, math.ceil(math.sqrt(plain.n_inside / USUAL)))
    return grid_of(run, resolution_m=side, crs=crs, **where), f"pixels of {side:g} m"


def _pixel_m2(run: Run, grid: Grid, xy: Any) -> float:
    """Ground of a pixel, square metres: in the run's plane, at the middle of the map."""
    from pyproj import CRS, Transformer

    a = grid.geobox.affine
    own = CRS.from_wkt(grid.wkt)
    if own == run.crs:
        return abs(float(a.determinant)) * run.crs.axis_info[0].unit_conversion_factor ** 2
    to_own = Transformer.from_crs(run.crs, own, always_xy=True)
    to_run = Transformer.from_crs(own, run.crs, always_xy=True)
    x, y = to_own.transform(*np.median(xy, axis=0))
    u = np.array([to_run.transform(x + dx, y + dy) for dx, dy in ((0, 0), (a.a, a.d), (a.b, a.e))])
    (p, q), (r, s) = u[1] - u[0], u[2] - u[0]
    return abs(float(p * s - q * r))
