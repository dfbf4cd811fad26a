"""An export folder, opened again as the prediction Dataset it was made from: lazy, window by window."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from affine import Affine
from numpy.typing import NDArray
from pyproj import CRS
from xarray.backends import BackendArray
from xarray.core import indexing

from maps.atomic import sha256
from maps.errors import InvalidInput
from maps.grid import BLOCK, open_plain

#: Kinds of files that hold a whole export, in the order in which they are taken, and what of xarray reads each.
ENGINES = {"netcdf": "h5netcdf", "zarr": "zarr", "cog": None}
NUMBERS = {"level": float, "tests": float}  # attributes that a GeoTIFF tag turned into text


def open_export(folder: str | Path) -> xr.Dataset:
    """The Dataset of an export folder, from its NetCDF, Zarr or COGs, whichever `manifest.json` names first in that order.

    Values are read when asked for. Close it, or let it go, before overwriting the folder. What is opened is held to the SHA-256 of
    the manifest, which reads it once: a second or two a gigabyte.

    Raises
    ------
    InvalidInput : no manifest, or none of these formats in it, or a named file is missing, outside, altered or damaged

    Examples
    --------
    >>> manifest = ds.geogp.export("out")
    >>> with open_export("out") as again:
    ...     print(again.geogp.layers == ds.geogp.layers, again.attrs["quarter"])
    True 2023Q4
    """
    folder = Path(folder)
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise InvalidInput(f"{folder} holds no manifest.json; give the folder that `geogp export` wrote.")
    try:
        entries = json.loads(manifest.read_text("utf-8"))["files"]
        files = [(f["kind"], folder / f["path"]) for f in entries]
        sums = {folder / f["path"]: f.get("sha256") for f in entries}
        outside = [path for _, path in files if not path.resolve().is_relative_to(folder.resolve())]
        missing = [path for kind, path in files if kind in ENGINES and not path.exists()]
    except (
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        OSError,
    ):  # too deep, a link to itself, no name of a file
        raise InvalidInput(f"{manifest} is not a manifest of an export.") from None
    kinds = {kind: [path for k, path in files if k == kind] for kind in ENGINES}
    kind = next((kind for kind in ENGINES if kinds[kind]), None)
    if kind is None:
        raise InvalidInput(f"{folder} holds neither NetCDF nor Zarr nor COG; export one of them.")
    if outside:
        raise InvalidInput(
            f"{outside[0]} is named in {manifest.name} and leads out of the folder; export again."
        )
    if missing:
        raise InvalidInput(f"{missing[0]} is named in {manifest.name} but is not there; export again.")
    first = kinds[kind][0]
    for path in kinds[kind] if kind == "cog" else [first]:
        try:
            found = sha256(path)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read ({_line(error)}); export again.") from error
        if found != sums[path]:
            raise InvalidInput(
                f"{path} is not what {manifest.name} says it was (its SHA-256 differs); export again."
            )
    try:
        engine = ENGINES[kind]
        if engine is None:
            return open_cogs(kinds[kind])
        return xr.open_dataset(first, engine=engine, decode_times=False, cache=False)
    except InvalidInput:
        raise
    except Exception as error:  # HDF5, Zarr and GDAL raise of many kinds
        raise InvalidInput(f"{first} cannot be read ({_line(error)}); export again.") from error


#: Pixels of a band in memory: 3.2 GB of float64 and its mask.
MOST_PIXELS = 400_000_000


def open_raster(
    path: str | Path, *, band: int = 1, bounds: tuple[float, float, float, float] | None = None
) -> xr.DataArray:
    """One band of a raster file in memory: dims (y, x), pixel centres, CRS in `spatial_ref`, NaN where it has no value.

    Parameters
    ----------
    bounds : W, S, E, N in degrees; only the pixels of this box, and one more around it, are read

    Raises
    ------
    InvalidInput : not a raster, no such band, no CRS, a rotated grid, or bounds that miss it

    Notes
    -----
    `units` of the result is the band's own unit where the file says one.
    """
    try:
        values, A, unit, wkt = _read_band(path, band, bounds)
    except InvalidInput:
        raise
    except Exception as error:  # GDAL raises of many kinds, and of a damaged block while it is read
        raise InvalidInput(f"{path} cannot be read as a raster ({_line(error)}); give a GeoTIFF.") from error
    height, width = values.shape
    coords = {
        "y": A.f + A.e * (np.arange(height) + 0.5),
        "x": A.c + A.a * (np.arange(width) + 0.5),
        "spatial_ref": xr.DataArray(np.int32(0), attrs={"crs_wkt": wkt}),
    }
    return xr.DataArray(values, coords=coords, dims=("y", "x"), attrs={"units": unit} if unit else {})


def _read_band(
    path: str | Path, band: int, bounds: tuple[float, float, float, float] | None
) -> tuple[NDArray[Any], Affine, str, str]:
    """Pixels, transform, unit and CRS of the part of a band that bounds ask for."""
    from rasterio.warp import transform_bounds
    from rasterio.windows import Window as RasterioWindow
    from rasterio.windows import from_bounds

    with open_plain(path) as src:
        if not 1 <= band <= src.count:
            raise InvalidInput(f"{path} has {src.count} bands; there is no band {band}.")
        if src.crs is None:
            raise InvalidInput(f"{path} has no CRS; assign it one, with gdal_edit -a_srs for example.")
        if src.transform.b or src.transform.d:
            raise InvalidInput(f"{path} is rotated; warp it to a grid whose axes follow its CRS.")
        window = RasterioWindow(0, 0, src.width, src.height)
        if bounds is not None:
            box = from_bounds(*transform_bounds("EPSG:4326", src.crs, *bounds, densify_pts=41), src.transform)
            x0, y0 = max(0, int(box.col_off) - 1), max(0, int(box.row_off) - 1)
            x1 = min(src.width, int(box.col_off + box.width) + 2)
            y1 = min(src.height, int(box.row_off + box.height) + 2)
            if x1 <= x0 or y1 <= y0:
                raise InvalidInput(
                    f"{path} does not meet the area of the observations; take a raster of their region."
                )
            window = RasterioWindow(x0, y0, x1 - x0, y1 - y0)
        if (pixels := int(window.width) * int(window.height)) > MOST_PIXELS:
            raise InvalidInput(
                f"{path} has {pixels:.3g} pixels to read, more than the {MOST_PIXELS:.3g} that fit into the memory; cut it "
                "to the region, or make it coarser (gdalwarp -tr)."
            )
        masked = src.read(band, window=window, masked=True)
        values = masked.astype(np.float32 if masked.dtype == np.float32 else np.float64).filled(np.nan)
        A = src.window_transform(window)
        unit = src.units[band - 1] or ""
        wkt = src.crs.to_wkt()
    return values, A, unit, wkt


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def open_cogs(paths: list[Path]) -> xr.Dataset:
    """One Dataset from single-band COGs named after their layers, all on the same grid.

    Files that tell a `threshold` become one variable along it.
    """

    planes: dict[str, dict[float | None, _Raster]] = {}
    words: dict[str, dict[str, str]] = {}
    grid: tuple[Any, ...] | None = None
    attrs: dict[str, Any] = {}
    for path in sorted(paths):
        with open_plain(path) as src:
            here = (src.width, src.height, src.transform, src.crs.to_wkt())
            if grid is not None and here != grid:
                raise InvalidInput(f"{path} lies on another grid than the other layers of the folder.")
            grid, tags, band = here, src.tags(), src.tags(1)
            unit = src.units[0] or "1"
        name = band.get("layer", path.stem)
        threshold = float(band["threshold"]) if "threshold" in band else None
        key = name if threshold is None else name.rpartition("_")[0]
        words[key] = {"units": unit, "grid_mapping": "spatial_ref"}
        if threshold is None:  # the title of one threshold does not speak for all
            words[key]["long_name"] = band.get("long_name", name)
        attrs = {k: NUMBERS.get(k, str)(v) for k, v in tags.items() if k not in ("AREA_OR_POINT", "unit")}
        planes.setdefault(key, {})[threshold] = _Raster(path, (here[1], here[0]))
    if grid is None:
        raise InvalidInput("No COG was given.")
    coords = _coordinates(*grid)
    thresholds = sorted({t for rasters in planes.values() for t in rasters if t is not None})
    if thresholds:
        coords["threshold"] = ("threshold", thresholds, {"units": attrs.get("target_unit", "1")})
    variables: dict[str, xr.Variable] = {}
    for key, rasters in planes.items():
        if None in rasters:
            lazy = indexing.LazilyIndexedArray(rasters[None])
            variables[key] = xr.Variable(("y", "x"), lazy, words[key])
            continue
        stack = indexing.LazilyIndexedArray(_Stack([rasters.get(t) for t in thresholds], (grid[1], grid[0])))
        variables[key] = xr.Variable(("threshold", "y", "x"), stack, words[key])
    return xr.Dataset(variables, coords, attrs)


def _coordinates(width: int, height: int, a: Affine, wkt: str) -> dict[str, Any]:
    """Pixel centres and `spatial_ref` of a north-up grid."""
    mapping = CRS.from_wkt(wkt).to_cf() | {"GeoTransform": " ".join(repr(float(v)) for v in a.to_gdal())}
    return {
        "y": a.f + a.e * (np.arange(height) + 0.5),
        "x": a.c + a.a * (np.arange(width) + 0.5),
        "spatial_ref": ((), np.int32(0), mapping),
    }


class _Raster(BackendArray):
    """Band 1 of a file; a strided read goes through 512 rows at a time, so thinning a large map stays small."""

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        self.path, self.shape, self.dtype = path, shape, np.dtype("float32")
        self._local = threading.local()

    def __deepcopy__(self, memo: Any) -> "_Raster":
        return _Raster(self.path, self.shape)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self.read)

    def read(self, key: tuple[Any, ...]) -> NDArray[np.float32]:
        import rasterio

        if not hasattr(self._local, "source"):
            self._local.source = rasterio.open(self.path)
        rows, cols = (np.arange(n)[k] for n, k in zip(self.shape, key, strict=True))
        flat_rows, flat_cols = np.atleast_1d(rows), np.atleast_1d(cols)
        out = np.empty((flat_rows.size, flat_cols.size), np.float32)
        if out.size:
            x0, x1 = int(flat_cols.min()), int(flat_cols.max()) + 1
            for block in np.unique(flat_rows // BLOCK):
                here = np.flatnonzero(flat_rows // BLOCK == block)
                y0, y1 = int(flat_rows[here].min()), int(flat_rows[here].max()) + 1
                values = self._local.source.read(1, window=((y0, y1), (x0, x1)))
                out[here] = values[np.ix_(flat_rows[here] - y0, flat_cols - x0)]
        return out.reshape(np.shape(rows) + np.shape(cols))


class _Stack(BackendArray):
    """Several rasters as (threshold, y, x); NaN for a threshold that was not exported."""

    def __init__(self, rasters: list[_Raster | None], shape: tuple[int, int]) -> None:
        self.rasters, self.dtype = rasters, np.dtype("float32")
        self.shape = (len(rasters), *shape)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> NDArray[np.float32]:
        chosen = np.arange(self.shape[0])[key[0]]
        if np.ndim(chosen) == 0:
            return self._plane(int(chosen), key[1:])
        return np.stack([self._plane(int(i), key[1:]) for i in chosen])

    def _plane(self, i: int, key: tuple[Any, ...]) -> NDArray[np.float32]:
        raster = self.rasters[i]
        if raster is None:
            return np.broadcast_to(np.float32(np.nan), self.shape[1:])[key]
        return raster.read(key)
