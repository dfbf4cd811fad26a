"""Files from a prediction Dataset: rasters, tables, tiles and the STAC Item of them all; atomic, in bounded memory."""

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xarray as xr

from maps.atomic import files_below, sha256
from maps.errors import InvalidInput
from maps.grid import windows
from maps.render import MAX_MEMORY, Elsewhere, Progress, job_of, render
from maps.sinks import SINKS, sink_class
from maps.sinks.base import Job, Output, Sink
from maps.sinks.journal import journal
from maps.sinks.ranges import Ranges
from maps.stac import NAME as ITEM
from maps.stac import item
from maps.staging import filled, no_room, publish_file, publish_files, renames_whole, room_for, staged, sweep

#: Bytes of a pixel and band, about: twice while a COG is made of its parts.
PIXEL_BYTES = {
    "cog": 6.4, "netcdf": 2.6, "zarr": 3.5, "geoparquet": 6.0, "h3": 8.0, "gpkg": 40.0, "csv": 20.0, "pmtiles": 6.0,
}  # fmt: skip
Geometry = Mapping[str, Any] | None


def export(
    ds: xr.Dataset,
    folder: str | Path,
    formats: Sequence[str] = ("cog", "netcdf"),
    *,
    layers: Iterable[str] | None = None,
    geometry: Geometry = None,
    all_touched: bool = False,
    max_error: float | None = None,
    max_memory: int = MAX_MEMORY,
    overwrite: bool = False,
    progress: Progress | None = None,
    extra: Mapping[str, Any] | None = None,
    beside: Callable[[Path], Sequence[Output]] | None = None,
    decided_by: Mapping[str, Any] | None = None,
    elsewhere: Elsewhere | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Write all layers in all formats in one pass; the folder shows the old files or the new ones, never some of each.

    Parameters
    ----------
    ds : prediction Dataset, lazy or in memory
    folder : made if missing
    formats : of `maps.sinks.SINKS`: "cog" (`<layer>.tif`, its QGIS style `<layer>.qml`), "netcdf" (`prediction.nc`), "zarr",
        "geoparquet", "h3", "gpkg", "csv", "pmtiles" (`<layer>.pmtiles`)
    layers : names such as "median" or "exceedance_25"; None for all in `ds`
    geometry : GeoJSON polygon in EPSG:4326; pixels whose centre is outside are NaN
    all_touched : take every pixel the region touches instead
    max_error : store COGs with LERC, off by at most this many units of the target (pure numbers: 0.0005)
    max_memory : bytes to stay below
    overwrite : replace existing files; otherwise they are refused before anything is computed
    progress : called with (windows done, windows in all)
    extra : more entries for the manifest
    beside : called with the folder where all is made, after the rasters; the further files it makes there, such as
        pictures, belong to the export
    decided_by : all that decides the values, JSON-able. With it an export that is stopped or killed keeps the windows it has
        rendered, in a hidden folder beside `folder`, and the next one that is decided by the same goes on from there
    elsewhere : who computes the windows, see `maps.render.render`; the files are the same
    limits : quantity -> (low, high) of the colours of styles and tiles; default fitted to the map

    Returns
    -------
    the manifest: {"schema": 1, "title", .., "files": [{"path", "kind", "layers", "bytes", "sha256"}, ..], "ranges": {layer:
    [least, greatest]}};
    paths are relative to `folder`; `item.json` is the STAC Item of the others; the sha256 of a Zarr folder is that of its `sha256  path` lines

    Raises
    ------
    InvalidInput : unknown format or layer, unusable region, existing output without `overwrite`
    NoRoom : the disk is full; the folder is as it was

    Notes
    -----
    All is written in a hidden folder beside, flushed, re-opened and checked. Where the folder holds nothing but an
    earlier export, the two change places in one rename; else the files are renamed one by one, `manifest.json` gone
    first and back last, and a kill between is made good by the next export. What an earlier manifest lists and this
    one does not is removed.

    Examples
    --------
    >>> manifest = export(ds, "out", ["cog"], layers=["median"])
    >>> [f["path"] for f in manifest["files"]]
    ['median.tif', 'median.qml', 'item.json']
    """
    formats = list(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    if not formats and beside is None:
        raise InvalidInput(f"No format was named; choose at least one of {', '.join(SINKS)}.")
    return _write(
        ds,
        Path(folder),
        [(name, {"max_error": _positive(max_error), "limits": limits}) for name in formats],
        layers=layers,
        geometry=geometry,
        all_touched=all_touched,
        max_memory=max_memory,
        overwrite=overwrite,
        progress=progress,
        extra=extra or {},
        beside=beside,
        decided_by=decided_by,
        elsewhere=elsewhere,
        manifest=True,
    )


def write_cogs(
    ds: xr.Dataset, folder: str | Path, *, max_error: float | None = None, **options: Any
) -> list[Path]:
    """One Cloud-Optimized GeoTIFF per layer, `<layer>.tif`; exceedance one per threshold. Options as `export`."""
    folder = Path(folder)
    manifest = _write(ds, folder, [("cog", {"max_error": _positive(max_error)})], **options)
    return [folder / entry["path"] for entry in manifest["files"] if entry["kind"] == "cog"]


def write_cog(
    ds: xr.Dataset, path: str | Path, *, layers: Iterable[str] | None = None, **options: Any
) -> Path:
    """All layers as the bands of one Cloud-Optimized GeoTIFF, as for a kernel slice. Options as `write_cogs`."""
    path = Path(path)
    sink_options = {"single": path.name, "max_error": _positive(options.pop("max_error", None))}
    _write(ds, path.parent, [("cog", sink_options)], layers=layers, **options)
    return path


def write_netcdf(
    ds: xr.Dataset, path: str | Path, *, layers: Iterable[str] | None = None, **options: Any
) -> Path:
    """A CF-1.8 NetCDF-4 file, streamed by window. Options `geometry`, `all_touched`, `max_memory`, `overwrite`,
    `progress` as in `export`."""
    path = Path(path)
    _write(ds, path.parent, [("netcdf", {"single": path.name})], layers=layers, **options)
    return path


def _write(
    ds: xr.Dataset,
    folder: Path,
    formats: Sequence[tuple[str, dict[str, Any]]],
    *,
    layers: Iterable[str] | None = None,
    geometry: Geometry = None,
    all_touched: bool = False,
    max_memory: int = MAX_MEMORY,
    overwrite: bool = False,
    progress: Progress | None = None,
    extra: Mapping[str, Any] | None = None,
    beside: Callable[[Path], Sequence[Output]] | None = None,
    decided_by: Mapping[str, Any] | None = None,
    elsewhere: Elsewhere | None = None,
    manifest: bool = False,
) -> dict[str, Any]:
    layers = None if layers is None else [layers] if isinstance(layers, str) else list(layers)
    job = job_of(ds, layers, max_memory)
    names = [
        name
        for kind, options in formats
        for name in ([options["single"]] if options.get("single") else sink_class(kind).names(job.bands))
    ]
    if manifest:
        names += [ITEM, "manifest.json"]
    sweep(folder)  # finishes what was killed while it was being published
    existing = [str(folder / name) for name in names if (folder / name).exists()]
    if existing and not overwrite:
        more = f" (and {len(existing) - 1} more)" if len(existing) > 1 else ""
        raise InvalidInput(
            f"{existing[0]}{more} exists; pass overwrite=True (--overwrite) or another folder."
        )
    facts = None if decided_by is None else _facts(job, geometry, all_touched, decided_by)
    with (
        workplace(folder, whole=manifest) as work,
        _room(job, folder, work, formats),
        journal(folder, facts, len(list(windows(job.shape, job.side)))) as kept,
    ):
        sinks: list[Sink] = [sink_class(kind)(work, **options) for kind, options in formats]
        ranges = Ranges(work)
        outputs = (
            render(
                ds,
                [*sinks, ranges],
                geometry=geometry,
                layers=layers,
                all_touched=all_touched,
                max_memory=max_memory,
                progress=progress,
                journal=kept,
                elsewhere=elsewhere,
            )
            if sinks
            else []
        )
        outputs = [*outputs, *(beside(work) if beside is not None else ())]
        if manifest:
            path = work / ITEM
            path.write_text(json.dumps(item(job, outputs), indent=1, ensure_ascii=False) + "\n", "utf-8")
            outputs.append(Output(path, "stac", ITEM, ()))
        seen = {"ranges": {name: list(ends) for name, ends in ranges.found.items()}} if sinks else {}
        document = _document(job.attrs, outputs) | seen | dict(extra or {})
        if manifest:
            path = work / "manifest.json"
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n", "utf-8")
            json.loads(path.read_text("utf-8"))
            publish_files(work, folder, drop=_listed(folder))
        else:
            for output in outputs:
                publish_file(output.path, folder / output.name)
    return document


def _facts(job: Job, geometry: Geometry, all_touched: bool, decided_by: Mapping[str, Any]) -> dict[str, Any]:
    """All that decides the pixels of an export."""
    names = [band.name for band in job.bands]
    grid = [job.shape, job.side, tuple(job.geobox.affine), job.crs_wkt]
    return {
        "by": decided_by,
        "attrs": job.attrs,
        "grid": grid,
        "bands": names,
        "region": [geometry, all_touched],
    }


def _positive(max_error: float | None) -> float | None:
    if max_error is not None and not 0 < max_error < float("inf"):
        raise InvalidInput(f"max_error must be a positive number in the target's unit; got {max_error!r}.")
    return max_error


@contextmanager
def workplace(folder: Path, *, whole: bool = True) -> Iterator[Path]:
    """A hidden folder on the same file system, removed whatever happens: beside `folder` where the two can change
    places (`whole`), else in it."""
    folder = folder.resolve()
    beside = whole and renames_whole(folder) and _only_listed(folder)
    made = [p for p in (folder.parent if beside else folder, *folder.parents) if not p.exists()]
    try:
        try:
            (folder.parent if beside else folder).mkdir(parents=True, exist_ok=True)
            with staged(folder, inside=not beside) as work:
                work.mkdir()
                yield work
        finally:
            for parent in made:  # a failed first export leaves no empty folder behind
                if parent.is_dir() and not any(parent.iterdir()):
                    parent.rmdir()
    except OSError as error:
        refused = isinstance(error, PermissionError | NotADirectoryError | FileExistsError)
        if not refused and error.errno != errno.EROFS:
            raise
        raise InvalidInput(
            f"Cannot write in {folder}: {error.strerror or error}; name another place."
        ) from None


@contextmanager
def _room(
    job: Job, folder: Path, work: Path, formats: Sequence[tuple[str, dict[str, Any]]]
) -> Iterator[None]:
    """A full disk is NoRoom, whatever the writers say of it: GDAL says "write failed"."""
    height, width = job.shape
    needed = int(sum(PIXEL_BYTES.get(kind, 4.0) for kind, _ in formats) * height * width * len(job.bands))
    single = [options["single"] for _, options in formats if options.get("single")]
    named = folder / single[0] if single else folder
    try:
        with room_for(named, needed):
            yield
    except InvalidInput:
        raise
    except Exception as error:
        if not filled(folder, files_below(work) if work.exists() else []):
            raise
        raise no_room(named, needed) from error


def _listed(folder: Path) -> list[str]:
    """What the manifest of an earlier export says lies in a folder: plain names alone."""
    try:
        entries = json.loads((folder / "manifest.json").read_text("utf-8"))["files"]
        names = {str(entry["path"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return sorted(n for n in names if n == Path(n).name and not n.startswith("."))


def _only_listed(folder: Path) -> bool:
    """Whether a folder, if it is there, holds an earlier export and nothing else."""
    return not folder.exists() or {p.name for p in folder.iterdir()} <= {*_listed(folder), "manifest.json"}


def manifest_head(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says of the map, from the Dataset's attributes."""
    known = ("title", "method", "target", "target_unit", "quarter", "tests", "level")
    return {k: attrs[k].item() if hasattr(attrs[k], "item") else attrs[k] for k in known if k in attrs}


def _document(attrs: Mapping[str, Any], outputs: Sequence[Output]) -> dict[str, Any]:
    head = manifest_head(attrs)
    files = [
        {
            "path": o.name,
            "kind": o.kind,
            "layers": list(o.layers),
            "bytes": sum(p.stat().st_size for p in files_below(o.path)),
            "sha256": sha256(o.path),
        }
        for o in outputs
    ]
    return {"schema": 1, **head, "files": files}
