"""The page of a run: its grid, its planes quarter by quarter, its legend. The dashboard and `map.html` both ask here."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from affine import Affine
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox

from app.workflow import certifying
from app.workflow.certifying import certificate_of
from app.workflow.distributions import counts_of, distributions, places
from app.workflow.drawing import near
from app.workflow.grids import Grid, grid_of, window_in
from app.workflow.outputs import attribution, titled
from app.workflow.scoring import far_m_of
from geogp.areas import surface
from geogp.blocks import Where
from geogp.prediction import attributes, unit_of, values_at
from geogp.run import Run
from maps.atomic import replacing
from maps.bands import bands, complete
from maps.colours import Scale, Suppressing, factor, fitted, scales, suppressing
from maps.layers import LAYERS, MEASURED, WITHIN, listed
from maps.packing import STEPS, pack, packs_of
from maps.page_data import COMPUTED, as_it_is, of_distributions, picture_grid
from maps.region import Lines
from maps.words import subtitle

#: Pixels of a page that have a value, about; and of its rectangle.
INSIDE, WHOLE = 150_000, 4_000_000
#: Joint draws beside each other, and places of each.
DRAWS, DRAWN = 6, 12_000
#: Places that a legend is made from.
SAMPLE = 1000
#: Layers that no page shows: the mean is one by the bounds of the data alone.
UNSHOWN = ("mean",)


@dataclass(frozen=True, eq=False)
class PageGrid:
    """The pixels of a page: of the export's grid, thinned to what a page holds, around the data."""

    run: Run
    geobox: GeoBox
    boundary: dict[str, Any] | None
    max_distance_m: float | None
    note: str = ""
    mask: NDArray[np.bool_] | None = None

    @functools.cached_property
    def places(self) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Which pixels have values, (H, W), and the model's inputs there in the last quarter, (n, D)."""
        return places(self.run, self.geobox, self.run.quarter(None), **self.options)

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """Which pixels `predict` and `distributions` compute."""
        if self.mask is not None:
            return {"where": masked(self.geobox, self.mask)}
        inside = {} if self.boundary is None else {"where": Grid(self.geobox, self.boundary, None).where}
        return {**inside, "max_distance_m": self.max_distance_m}


def masked(geobox: GeoBox, inside: NDArray[np.bool_]) -> Where:
    """The mask of a grid as `geogp.predict` asks for it: by parts of that grid."""
    return lambda part: inside[window_in(geobox, part).slices]


def beside(page: PageGrid, other: Run) -> PageGrid:
    """The very pixels of a page, of another run."""
    return PageGrid(other, page.geobox, page.boundary, None, mask=page.places[0])


def page_grid(run: Run, grid: Grid, most_inside: int = INSIDE) -> PageGrid:
    """The pixels of a page of a run, from those of its maps: every k-th, so that each is one of the map's own.

    most_inside : of its pixels that have a value, about
    """
    boundary, (rows, columns), note = near(run, grid)
    box = grid.geobox[rows, columns]
    fill = min(1.0, grid.n_inside / (box.shape[0] * box.shape[1]))
    most = min(WHOLE, most_inside / max(fill, 1e-9))
    step = max(1, int(np.ceil(np.sqrt(box.shape[0] * box.shape[1] / most))))
    thin, _ = thinned(box, step)
    if step > 1:
        coarse = f"the page shows every {_nth(step)} pixel along a side; exported files have all"
        note = "; ".join(part for part in (note, coarse) if part)
    return PageGrid(run, thin, boundary, grid.max_distance_m, note)


def thinned(box: GeoBox, step: int) -> tuple[GeoBox, slice]:
    """A grid of every `step`-th pixel of a grid along a side, whose centres are theirs; and which those are, along either."""
    first = min(step // 2, min(box.shape) - 1)
    height, width = (-(-(n - first) // step) for n in box.shape)
    shift = first + 0.5 - step / 2
    affine = box.affine * Affine.translation(shift, shift) * Affine.scale(step)
    return GeoBox((height, width), affine, box.crs), slice(first, None, step)


def quarter_packs(
    page: PageGrid,
    quarter: str | None,
    progress: Callable[[int, int], None] | None = None,
    *,
    tests: float | None = None,
    about: Mapping[str, Any] | None = None,
) -> tuple[bytes, bytes | None]:
    """The planes of a quarter, packed: at the usual number of tests, or that of `tests`, and at the others.

    about : what else the header says, JSON-able

    What `progress` raises ends the work.
    """
    parts = distributions(
        page.run, page.geobox, quarter=quarter, tests=tests, progress=progress, **page.options
    )
    return packs_of(parts, _added(page, quarter, parts["known"].values), about)


def _nth(n: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st.

    >>> [_nth(n) for n in (2, 3, 4, 12, 21)]
    ['2nd', '3rd', '4th', '12th', '21st']
    """
    end = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{end}"


def draws_pack(page: PageGrid, quarter: str | None, n: int = DRAWS) -> bytes:
    """Joint draws of the surface on fewer pixels of a page, in the target's unit, packed; the header tells their grid.

    Notes
    -----
    One joint posterior of `DRAWN` places and n draws of it.
    """
    run = page.run
    step = max(1, int(np.ceil(np.sqrt(page.places[0].sum() / DRAWN))))
    box, those = thinned(page.geobox, step)
    known, X = places(run, box, run.quarter(quarter), where=masked(box, page.places[0][those, those]))
    draws = [run.target.from_score(t) for t in surface(run.model, X).batches(n, 0)]
    planes = np.concatenate(draws, axis=1).T
    return pack(
        known,
        {f"draw_{k + 1}": (plane, "linear", STEPS, None) for k, plane in enumerate(planes)},
        picture_grid(box),
    )


def _added(page: PageGrid, quarter: str | None, known: NDArray[np.bool_]) -> dict[str, Any]:
    """Planes of listed layers that the page's script does not compute itself: those that somebody has added."""
    if not (names := _others()):
        return {}
    run = page.run
    ds = run.predict(page.geobox, quarter=quarter, thresholds=run.thresholds[-1:], **page.options)
    out = {}
    for band in bands(complete(ds), names):
        ends = band.layer.limits if band.layer.steps else None
        out[band.key] = (band.of(ds).values[known], band.layer.scale, band.layer.steps or STEPS, ends)
    return out


def _others() -> list[str]:
    return [key for key in listed() if key not in (*COMPUTED, *UNSHOWN)]


# -- legend ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Legend:
    """The scales of a run's maps by quantity, the palette that fades where the median is unsure, and the entries of
    layers that somebody has added."""

    scales: dict[str, Scale]
    faded: Suppressing | None
    added: list[dict[str, Any]]

    @property
    def limits(self) -> dict[str, tuple[float, float]]:
        """For figures: quantity -> (low, high)."""
        known = {layer.quantity for layer in LAYERS.values() if layer.limits is None}
        return {k: (s.low, s.high) for k, s in self.scales.items() if k in known}

    def document(self) -> dict[str, Any]:
        """JSON-able; `from_document` reads it."""
        faded = None if self.faded is None else {"edges": self.faded.edges, "ratio": self.faded.ratio}
        scales = {name: asdict(scale) for name, scale in self.scales.items()}
        return {"scales": scales, "faded": faded, "name": self.faded and self.faded.name, "added": self.added}

    @classmethod
    def from_document(cls, document: Any) -> "Legend":
        """What `document` made; KeyError, TypeError or AttributeError of anything else."""
        scales = {name: Scale(**scale) for name, scale in document["scales"].items()}
        faded = document["faded"]
        if faded is not None:
            a, b, c = (float(e) for e in faded["edges"])
            faded = Suppressing(scales["level"], (a, b, c), bool(faded["ratio"]), str(document["name"]))
        if {layer["id"] for layer in document["added"]} != set(_others()):
            raise KeyError("layers were added or taken away since")
        return cls(scales, faded, list(document["added"]))


def usual_page(run: Run) -> PageGrid:
    """The page of a run where nothing else is asked for: the dashboard's, and what a legend is made from."""
    return page_grid(run, grid_of(run))


def legend_of(page: PageGrid) -> Legend:
    """The legend of a run, the same for all its quarters, levels and outputs: fitted to its last quarter; what lies beyond
    its ends in others is marked there.

    page : the run's usual one, whatever the grid of the output

    Notes
    -----
    One prediction of a thousand places.
    """
    run, (_, X) = page.run, page.places
    step = max(1, len(X) // SAMPLE)
    xy = np.asarray(X[step // 2 :: step, :2], np.float64)
    found = values_at(run, xy, thresholds=run.thresholds[-1:])
    values = {k.split("_")[0] if k.startswith("exceedance") else k: v for k, v in found.items()}
    sampled = {k: v[None, :] for k, v in values.items()}
    chance = sampled.pop("exceedance")[None]
    attrs = attributes(run, run.quarter(None), run.model.typical_count_, 0.95)
    ds = xr.Dataset({k: (("y", "x"), v, {"units": unit_of(run, k)}) for k, v in sampled.items()}, attrs=attrs)
    ds["exceedance"] = (("threshold", "y", "x"), chance, {"units": "1"})
    ds = complete(ds.assign_coords(threshold=[float(run.thresholds[-1])]))
    planes = bands(ds)
    own = scales(ds, planes)
    if len(run.quarters) > 1:  # others lie lower and higher
        own = {
            k: replace(v, below=True, above=True) if k in ("level", "ends", "width") else v
            for k, v in own.items()
        }
    if run.target.log10 and (sampled["lower"] > 0).all():
        ends = factor(sampled["median"], sampled["lower"], sampled["upper"])
        own[WITHIN.quantity] = fitted(ends.ravel(), "log")
    if run.has_support:
        own[MEASURED.quantity] = fitted(np.maximum(run.support.distances_m(xy) / 1000, 0.2), "log")
    others = [band for band in planes if band.key in _others()]
    added = [as_it_is(band, own[band.layer.quantity], subtitle(ds)) for band in others]
    return Legend(own, suppressing(ds, own["level"]), added)


# -- the page ----------------------------------------------------------------------------------------------


def spec_of(
    page: PageGrid,
    legend: Legend,
    *,
    quarter: str | None = None,
    quarters: Sequence[str] = (),
    places: Sequence[Mapping[str, Any]] = (),
    lines: Lines = (),
    credit: str = "",
    tests: float | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
) -> dict[str, Any]:
    """What the page's script needs beside the planes.

    Parameters
    ----------
    quarters : that one can choose from
    quarter, tests, level, thresholds : what it shows first
    """
    run = page.run
    usual = run.model.typical_count_ if tests is None else tests
    ds = xr.Dataset(attrs=attributes(run, run.quarter(quarter), usual, level))
    ds.attrs |= {"title": titled(run), **attribution(run)}
    document = certificate_of(run)
    if document is not None:
        ds.attrs["calibration"] = certifying.words(document)
    spec = of_distributions(
        ds,
        page.geobox,
        page.places[0],
        legend=legend.scales,
        faded=legend.faded,
        quarters=quarters,
        counts=counts_of(run, tests),
        thresholds=run.thresholds if thresholds is None else thresholds,
        geometry=page.boundary,
        places=places,
        lines=lines,
        credit=credit,
        note=page.note,
        added=legend.added,
    )
    far_m = far_m_of(run.data.get("source"), run.support) if run.has_support else None
    spec["far_km"] = None if far_m is None else round(far_m / 1000, 3)
    spec["coverage"] = None if document is None else _coverage(document)
    return spec


def _coverage(document: Mapping[str, Any]) -> dict[str, Any]:
    """What intervals held by group, for the card of a place; `counts` are the groups by number of tests."""
    keep = ("n", "judged", "achieved")
    groups = {name: {k: group[k] for k in keep} for name, group in document["groups"].items()}
    counts = []
    for name in groups:
        if found := re.fullmatch(r"\w+ (\d+)(\+|-(\d+))?", name):
            last = found[3] or (1e12 if found[2] else found[1])
            counts.append((name, float(found[1]), float(last)))
    return {
        "levels": document["levels"],
        "groups": groups,
        "counts": counts,
        "far_km": round(document["far_m"] / 1000, 3),
    }


def write_page(
    run: Run,
    grid: Grid,
    path: Path,
    legend: Legend | None = None,
    *,
    quarter: str | None = None,
    tests: float | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] | None = None,
    places: Sequence[Mapping[str, Any]] = (),
    lines: Lines = (),
    credit: str = "",
) -> Path:
    """One HTML file with a quarter's planes inside: the map of the dashboard, without a server."""
    page = page_grid(run, grid)
    packs = quarter_packs(page, quarter, tests=tests)
    spec = spec_of(
        page,
        legend or legend_of(usual_page(run)),
        quarter=quarter,
        tests=tests,
        level=level,
        thresholds=thresholds,
        places=places,
        lines=lines,
        credit=credit,
    )
    from maps.web import page_of  # folium takes a second, and the dashboard listens without it

    text = page_of(spec, [pack for pack in packs if pack is not None]).get_root().render()
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
    return path
