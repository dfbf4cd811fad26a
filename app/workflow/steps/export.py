"""A run becomes files to look at: rasters, tables, figures, a page."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import shapely
from pyproj import CRS, Transformer

import maps  # noqa: F401 - registers ds.geogp for callers
from app.choices import check_formats, export_formats
from app.cluster import Cluster, processes_of, workers
from app.console import Report
from app.errors import Interrupted, InvalidInput
from app.workflow import certifying
from app.workflow.certifying import certificate_of
from app.workflow.evidence import doubts_of
from app.workflow.grids import Grid
from app.workflow.machine import resident
from app.workflow.outputs import now, refuse_taken, surface_of
from app.workflow.page import legend_of, page_grid, usual_page, write_page
from app.workflow.rasters.covariates import files_of, opened
from app.workflow.rasters.mapped import MapOptions, elsewhere_by, prediction, prepare
from app.workflow.sampling import FILE as SAMPLES
from app.workflow.sampling import check_samples, write_samples
from app.workflow.together import together
from data_pipelines.words import many
from geogp import __version__
from geogp.blocks import BLOCK, CACHE_BYTES
from geogp.run import Run
from maps.bands import bands
from maps.raster import export as write_rasters
from maps.sinks import SINKS
from maps.sinks.base import Output
from maps.sinks.journal import FEWEST
from maps.words import number

#: What `--format` takes: the raster and table formats of maps, and two for people.
FORMATS = export_formats()
#: Formats that have colours with them.
COLOURED = {"cog", "pmtiles"}
MAX_MEMORY = 2 * 2**30
#: Towns that a figure may name, the largest: those that have room.
FIGURE_NAMES = 60
#: Pixels looked at for an estimate; of them so many are the middle of a window, of so many pixels a side, that is timed, until
#: so many seconds are spent.
PROBE, WINDOWS, WINDOW, PROBE_SECONDS = 4096, 12, 128, 2.0
#: Bytes of a pixel and layer in the file, measured on state maps: float32, deflate with predictor.
BYTES = {
    "cog": 3.2, "netcdf": 2.6, "zarr": 3.5, "geoparquet": 6.0, "h3": 2.0, "gpkg": 32.0, "csv": 15.0, "pmtiles": 1.5,
    "figures": 0.3, "html": 1.5,
}  # fmt: skip
#: Bytes that an export holds beside the process as it stands: moments of blocks, twice where `--tests` are others.
HELD = CACHE_BYTES


@dataclass(frozen=True)
class Export:
    """What an export wrote: `manifest` is the content of `manifest.json`; `notes` say what was decided."""

    folder: Path
    manifest: dict[str, Any]
    seconds: float
    grid: Grid
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        return [self.folder / entry["path"] for entry in self.manifest["files"]]

    def summary(self) -> str:
        """One line for people."""
        total = sum(entry["bytes"] for entry in self.manifest["files"])
        height, width = self.grid.shape
        return (
            f"{self.folder}: {many(len(self.manifest['files']), 'file')}, {total / 2**20:.1f} MiB, "
            f"{width} x {height} pixels of {self.grid.pixel_words}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Estimate:
    """What an export would take: nothing is written."""

    width: int
    height: int
    pixels: int
    pixels_inside: int
    layers: tuple[str, ...]
    formats: tuple[str, ...]
    bytes: int
    memory: int
    seconds: float

    def document(self) -> dict[str, Any]:
        return {"schema": 1, "dry_run": True, **self.__dict__}

    def summary(self) -> str:
        return (
            f"{self.width} x {self.height} pixels, {self.pixels_inside:,} of them inside; {many(len(self.layers), 'layer')}; "
            f"about {self.bytes / 2**20:.1f} MiB ({', '.join(self.formats)}) in about {self.seconds:.0f} s and "
            f"{self.memory / 2**20:.0f} MiB of memory"
        )


def export(
    run: str | Path | Run,
    folder: str | Path,
    *,
    formats: Sequence[str] = ("cog", "netcdf"),
    max_error: float | None = None,
    max_memory: int = MAX_MEMORY,
    samples: int | None = None,
    beside: str | Path | Run | None = None,
    either: tuple[float | None, float | None] = (None, None),
    places: Sequence[dict[str, Any]] = (),
    names: str | Path | None = None,
    scheduler: str | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
    **options: Unpack[MapOptions],
) -> Export:
    """Write the maps of one quarter.

    Parameters
    ----------
    run : folder, or what `geogp.load` gives
    folder : made if missing
    formats : of FORMATS; "figures" is a PNG a layer, "html" one self-contained page
    max_error : see `maps.raster.export`
    max_memory : bytes to stay below; less than the process takes is refused
    samples : so many coherent maps, joint draws of the surface, in `samples.nc`
    beside, either : a run of another target of the same tiles, and the limits of both: the layer `either_missed`
    places : {"name", "lon", "lat"} labels on figures and page; none for the towns and counties of the region
    names : a file of names and lines beside those, see `app.workflow.naming.brought`
    scheduler : whose workers compute the windows, see `app.cluster.workers`; the files are the same to the byte
    overwrite : replace existing files
    progress : called with (windows done, windows, words)
    options : which map, see `MapOptions`

    Returns
    -------
    Export

    Raises
    ------
    InvalidInput
        unknown format, layer, quarter; an output that exists; a grid that misses the region.
    """
    started = time.perf_counter()
    folder, formats = Path(folder), check_formats(formats)
    run = opened(run)
    pair = None if beside is None else together(run, beside, either)
    run, grid, ds = prepare(run, pair, **options)
    layers = options.get("layers")
    check_samples(samples, max_memory, grid)
    here = processes_of(scheduler)
    if (needed := _memory(grid, len(bands(ds, layers))) * (1 + here)) > max_memory:
        by, fewer = (f" by {1 + here} processes", ", or take fewer workers") if here else ("", "")
        raise InvalidInput(
            f"This export{by} takes about {needed / 2**20:.0f} MiB, and --max-memory is {max_memory / 2**20:.0f} MiB; "
            f"allow more{fewer}."
        )
    drawn = [band.name for band in bands(ds, layers)]
    pictures = drawn if "figures" in formats else []
    page = "html" in formats
    for name in (
        *(f"{p}.png" for p in pictures),
        *(["map.html"] if page else []),
        *([SAMPLES] if samples else []),
        "manifest.json",
    ):
        refuse_taken(folder / name, overwrite)
    notes = [
        *(words.rstrip(".") for words in doubts_of(run)),
        grid.note,
        *([pair.note()] if pair is not None else []),
    ]
    if ds.attrs.get("tests") != ds.attrs.get("reference_count"):
        notes.append(f"layers of the surface are those of {surface_of(run)}, whatever --tests")

    legend = legend_of(usual_page(run)) if pictures or page or COLOURED & set(formats) else None

    def further(work: Path) -> list[Output]:
        from app.workflow import naming
        from app.workflow.drawing import draw, picture_of

        outputs = []
        if samples:
            outputs.append(write_samples(run, grid, work, samples, ds.attrs, quarter=options.get("quarter")))
        if legend is None or not (pictures or page):
            return outputs
        pixels = page_grid(run, grid)
        picture = picture_of(run, ds, grid)
        read = [] if names is None else [naming.brought(names)]
        here = naming.Names([_town(place) for place in places], []) if places else naming.named(pixels, read)
        notes.append(picture.note)
        named = page and layers is not None  # a page of named layers holds those; else whatever one chooses
        made = []
        if pictures or named:
            made = draw(
                picture,
                work,
                pictures=pictures,
                page=named,
                layers=layers,
                places=here.figure(FIGURE_NAMES),
                lines=here.lines,
                limits=legend.limits,
                suppressed=legend.faded,
                credit=here.credit,
            )
        if page and not named:
            path = write_page(
                run,
                grid,
                work / "map.html",
                legend,
                quarter=options.get("quarter"),
                tests=options.get("tests"),
                level=options.get("level", 0.95),
                thresholds=options.get("thresholds"),
                places=here.places,
                lines=here.lines,
                credit=here.credit,
            )
            made.append((path, "html", []))
        return [
            *outputs,
            *(Output(path, kind, path.name, tuple(names or drawn)) for path, kind, names in made),
        ]

    reached = ""
    crew: list[Cluster | None] = []

    def told(done: int, total: int) -> None:
        nonlocal reached
        reached = f"the same command goes on after {done} of {total} windows" if total >= FEWEST else ""
        if progress is not None:
            progress(done, total, f"mapping, {crew[0].words}" if crew and crew[0] is not None else "")

    others = [] if pair is None else [pair.other.weights_sha256, either]
    try:
        with workers(scheduler, memory=max_memory // (1 + here)) as cluster:
            crew.append(cluster)
            there = None
            if cluster is not None:
                there = elsewhere_by(cluster, run, pair, grid, ds, max_memory=max_memory, **options)
            manifest = write_rasters(
                ds,
                folder,
                [name for name in formats if name in SINKS],
                layers=layers,
                geometry=grid.boundary,
                max_error=max_error,
                max_memory=max_memory,
                overwrite=overwrite,
                progress=told,
                extra=_about(run) | (pair.facts() if pair is not None else {}),
                beside=further if pictures or page or samples else None,
                decided_by={
                    "geogp": __version__,
                    "weights": run.weights_sha256,
                    "others": others,
                    "max_distance_m": grid.max_distance_m,
                    "covariates": files_of(run),
                },
                elsewhere=there,
                limits=legend.limits if legend is not None else None,
            )
    except Interrupted as stop:
        raise Interrupted(reached, terminated=stop.terminated) from None
    notes.append(beyond_words(run, manifest.get("ranges", {}).get("median")))
    return Export(folder, manifest, time.perf_counter() - started, grid, tuple(n for n in notes if n))


def _town(place: Mapping[str, Any]) -> dict[str, Any]:
    """A label that somebody gave, with what a page asks of one."""
    return {"kind": "town", "about": "", "also": [], **place}


def beyond_words(run: Run, median: Sequence[float] | None) -> str:
    """That medians (least, greatest of a map, in the run's unit) leave the range of what was measured; "" where none does.

    A trend goes on into a gap, and beyond the data.
    """
    low, high = run.target.from_score(np.array(run.model.target_range_))
    slack = 1e-4 * max(
        abs(low), abs(high)
    )  # as far as the words below tell numbers apart, and float32 keeps them
    if median is None or (low - slack <= median[0] and median[1] <= high + slack):
        return ""
    reached = run.target.with_unit(" to ".join(number(v, 4) for v in median), run.unit)
    return (
        f"medians reach from {reached}, measured was {number(low, 4)} to {number(high, 4)}: beyond that the trend goes on far from data; "
        "`explained` shows where, --max-distance leaves it out"
    )


def _about(run: Run) -> dict[str, Any]:
    """What a manifest says of the run."""
    about: dict[str, Any] = {
        "run": run.path.name,
        "created": now(),
        "observations_sha256": run.data["sha256"],
        "weights_sha256": run.weights_sha256,
    }
    if (document := certificate_of(run)) is not None:
        about["certificate"] = certifying.short(document)
    return about


def estimate(
    run: str | Path | Run,
    *,
    formats: Sequence[str] = ("cog", "netcdf"),
    **options: Unpack[MapOptions],
) -> Estimate:
    """Pixels, bytes and seconds of an `export` with the same arguments; some windows of its pixels are timed."""
    formats = check_formats(formats)
    run, grid, ds = prepare(run, **options)
    names = tuple(band.name for band in bands(ds, options.get("layers")))
    inside, column, row = _inside(run, grid)
    a_pixel = _seconds_a_pixel(run, grid, np.column_stack([column, row])[:WINDOWS], options)
    # Formula and file of a layer cost about 0.4 microseconds a pixel; opening files about 2 s in all.
    seconds = 2.0 + inside * (a_pixel + 4e-7 * len(names) * len(formats))
    size = sum(BYTES[f] for f in formats) * inside * len(names)
    height, width = grid.shape
    memory = _memory(grid, len(names))
    return Estimate(
        width, height, grid.n_pixels, inside, names, tuple(formats), int(size), memory, round(seconds, 1)
    )


def _seconds_a_pixel(run: Run, grid: Grid, centres: Any, options: MapOptions) -> float:
    """What the prediction of one takes: of windows about some pixels, since those that lie together share their work.

    centres : (M, 2) column and row; as many as `PROBE_SECONDS` allow
    """
    height, width = grid.shape
    asked: dict[str, Any] = {name: options.get(name) for name in ("quarter", "tests")}
    values, spent = 0, 0.0
    if not len(centres):
        centres = np.array([[width // 2, height // 2]])
    # The first call pays for lazy set-up.
    for k, (column, row) in enumerate([*centres[:1], *centres]):
        side = WINDOW if k else 8
        top, left = max(0, int(row) - side // 2), max(0, int(column) - side // 2)
        part = grid.geobox[top : min(top + side, height), left : min(left + side, width)]
        ds = prediction(run, replace(grid, geobox=part), **asked)
        started = time.perf_counter()
        found = int(np.isfinite(ds["median"].to_numpy()).sum())
        if k:
            spent += time.perf_counter() - started
            values += found or part.shape[0] * part.shape[1]
        if spent > PROBE_SECONDS:
            break
    return spent / max(values, 1)


def _inside(run: Run, grid: Grid) -> tuple[int, Any, Any]:
    """How many pixels get a value, and columns and rows of some that do: of those of the region, some thousand tell how many lie
    near enough to data."""
    rng = np.random.default_rng(0)
    column, row = np.floor(rng.random((2, PROBE)) * np.array(grid.shape)[::-1, None])
    A = grid.geobox.affine
    x, y = A.c + A.a * (column + 0.5), A.f + A.e * (row + 0.5)
    kept = np.ones(PROBE, dtype=bool)
    if grid.boundary is not None:
        kept = shapely.contains_xy(grid.mask.shape, x, y)
    if grid.max_distance_m is None or not kept.any():
        return grid.n_inside, column[kept], row[kept]
    x, y, column, row = x[kept], y[kept], column[kept], row[kept]
    if CRS.from_wkt(grid.wkt) != run.crs:
        x, y = Transformer.from_crs(grid.wkt, run.crs, always_xy=True).transform(x, y)
    near = np.isfinite(run.support.distances_m(np.column_stack([x, y]), grid.max_distance_m))
    return max(1, round(grid.n_inside * float(near.mean()))), column[near], row[near]


def _memory(grid: Grid, n_layers: int) -> int:
    """Bytes that an export takes at its peak, about: the process now, the moments kept, a window in four copies."""
    now = resident("VmRSS") or 500 * 2**20  # without /proc what a fresh process takes
    held = min(HELD, grid.n_pixels * 64)
    return now + held + 4 * 4 * n_layers * min(BLOCK**2, grid.n_pixels)
