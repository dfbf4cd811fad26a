"""Files from a prediction Dataset: Cloud-Optimized GeoTIFF, CF NetCDF, Zarr, GeoParquet; atomic, in bounded memory."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xarray as xr

from maps.errors import InvalidInput
from maps.render import MAX_MEMORY, Progress, job_of, render
from maps.sinks import SINKS, sink_class
from maps.sinks.base import Output, Sink

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
) -> dict[str, Any]:
    """Write all layers in all formats in one pass, and `manifest.json` last.

    Parameters
    ----------
    ds : prediction Dataset, lazy or in memory
    folder : made if missing
    formats : of "cog" (`<layer>.tif`), "netcdf" (`prediction.nc`), "zarr", "geoparquet"
    layers : names such as "median" or "exceedance_25"; None for all in `ds`
    geometry : GeoJSON polygon in EPSG:4326; pixels whose centre is outside are NaN
    all_touched : take every pixel the region touches instead
    max_error : store COGs with LERC, off by at most this many units of the target (pure numbers: 0.0005)
    max_memory : bytes to stay below
    overwrite : replace existing files; otherwise they are refused before anything is computed
    progress : called with (windows done, windows in all)
    extra : more entries for the manifest

    Returns
    -------
    the manifest: {"schema": 1, "title", .., "files": [{"path", "kind", "layers", "bytes", "sha256"}, ..]};
    paths are relative to `folder`; the sha256 of a Zarr folder is that of its `sha256  path` lines

    Raises
    ------
    InvalidInput : unknown format or layer, unusable region, existing output without `overwrite`

    Notes
    -----
    Files appear under their names only when all are complete: they are written in a hidden folder beside, flushed,
    re-opened and checked, then renamed; an interruption leaves what was there before.

    Examples
    --------
    >>> manifest = export(ds, "out", ["cog"], layers=["median"])
    >>> [f["path"] for f in manifest["files"]]
    ['median.tif']
    """
    formats = list(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    if not formats:
        raise InvalidInput(f"No format was named; choose at least one of {', '.join(SINKS)}.")
    return _write(
        ds,
        Path(folder),
        [(name, {"max_error": _positive(max_error)}) for name in formats],
        layers=layers,
        geometry=geometry,
        all_touched=all_touched,
        max_memory=max_memory,
        overwrite=overwrite,
        progress=progress,
        extra=extra or {},
        manifest=True,
    )


def write_cogs(
    ds: xr.Dataset, folder: str | Path, *, max_error: float | None = None, **options: Any
) -> list[Path]:
    """One Cloud-Optimized GeoTIFF per layer, `<layer>.tif`; exceedance one per threshold. Options as `export`."""
    folder = Path(folder)
    manifest = _write(ds, folder, [("cog", {"max_error": _positive(max_error)})], **options)
    return [folder / entry["path"] for entry in manifest["files"]]


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
        names.append("manifest.json")
    existing = [str(folder / name) for name in names if (folder / name).exists()]
    if existing and not overwrite:
        more = f" (and {len(existing) - 1} more)" if len(existing) > 1 else ""
        raise InvalidInput(
            f"{existing[0]}{more} exists; pass overwrite=True (--overwrite) or another folder."
        )
    with workplace(folder) as work:
        sinks: list[Sink] = [sink_class(kind)(work, **options) for kind, options in formats]
        outputs = render(
            ds,
            sinks,
            geometry=geometry,
            layers=layers,
            all_touched=all_touched,
            max_memory=max_memory,
            progress=progress,
        )
        document = _document(job.attrs, outputs) | dict(extra or {})
        if manifest:
            path = work / "manifest.json"
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n", "utf-8")
            json.loads(path.read_text("utf-8"))
            outputs = [*outputs, Output(path, "manifest", "manifest.json", ())]
        _publish(folder, outputs)
    return document


def _positive(max_error: float | None) -> float | None:
    if max_error is not None and not 0 < max_error < float("inf"):
        raise InvalidInput(f"max_error must be a positive number in the target's unit; got {max_error!r}.")
    return max_error


@contextmanager
def workplace(folder: Path) -> Any:
    """A hidden folder inside `folder` (same file system, so renaming is atomic), removed whatever happens."""
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".geogp-", dir=folder))
    except OSError as error:
        raise InvalidInput(f"Cannot write in {folder}: {error.strerror or error}.") from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        for parent in made:  # a failed first export leaves no empty folder behind
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _sha256(path: Path) -> str:
    """Of a file; of a folder, that of its sorted `sha256  path` lines."""
    if path.is_dir():
        lines = "".join(f"{_sha256(p)}  {p.relative_to(path).as_posix()}\n" for p in _files(path))
        return hashlib.sha256(lines.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
            "bytes": sum(p.stat().st_size for p in _files(o.path)),
            "sha256": _sha256(o.path),
        }
        for o in outputs
    ]
    return {"schema": 1, **head, "files": files}


def _publish(folder: Path, outputs: Sequence[Output]) -> None:
    """Flush everything, then rename; the manifest goes first and comes back last, so it never describes a mixture."""
    for output in outputs:
        for path in _files(output.path):
            with path.open("rb") as file:
                os.fsync(file.fileno())
    if outputs and outputs[-1].kind == "manifest":
        (folder / "manifest.json").unlink(missing_ok=True)
    for output in outputs:
        target = folder / output.name
        if target.is_dir() and not target.is_symlink():
            target.rename(output.path.with_name(f"{output.name}.old"))  # goes with the hidden folder
        os.replace(output.path, target)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
