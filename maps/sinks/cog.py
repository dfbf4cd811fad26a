"""Cloud-Optimized GeoTIFFs: windowed GeoTIFF first, then GDAL's COG driver.

GDAL's COG driver cannot be written to by window, and writers that hold the image in memory cannot write a state at
100 m. So each band goes to a sparse tiled GeoTIFF as its windows arrive, and the driver copies it with overviews.
"""

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.bands import Band
from maps.grid import BLOCK, Window
from maps.sinks.base import Job, Output, Sink
from maps.sinks.style import qml
from maps.sinks.thumbs import Thumb

UNITLESS_ERROR = 5e-4  # max_error for pure numbers: half a unit of the third decimal


class PartsSink(Sink):
    """Keeps each file's bands in a GeoTIFF `<name>.part.tif` that is written by window, and a small copy for legends."""

    def files(self, job: Job) -> list[tuple[str, tuple[Band, ...]]]:
        """(final name, bands) of each file."""
        return [(f"{b.name}.tif", (b,)) for b in job.bands]

    def begin(self, job: Job) -> None:
        import rasterio
        from rasterio.crs import CRS

        _quiet()
        self.job = job
        self.thumb = Thumb(job)
        self._files: list[tuple[str, tuple[Band, ...], Path, Any]] = []
        height, width = job.shape
        for name, bands in self.files(job):
            part = self.folder / f"{name}.part.tif"
            target = rasterio.open(
                part,
                "w",
                driver="GTiff",
                height=height,
                width=width,
                count=len(bands),
                dtype="float32",
                nodata=float("nan"),
                crs=CRS.from_wkt(job.crs_wkt),
                transform=job.geobox.affine,
                tiled=True,
                blockxsize=BLOCK,
                blockysize=BLOCK,
                interleave="band",
                compress="deflate",
                zlevel=1,
                sparse_ok=True,
                bigtiff="if_safer",
            )
            self._files.append((name, bands, part, target))
            target.update_tags(**_tags(job, bands))
            for i, band in enumerate(bands, 1):
                target.set_band_description(i, band.title)
                target.set_band_unit(i, band.unit)
                extra = {} if band.threshold is None else {"threshold": band.threshold}
                target.update_tags(i, layer=band.name, long_name=band.title, comment=band.about, **extra)

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        from rasterio.windows import Window as RasterioWindow

        self.thumb.write(window, planes)
        rows, cols = window.shape
        for _, bands, _, target in self._files:
            for i, band in enumerate(bands, 1):
                target.write(planes[band.name], i, window=RasterioWindow(window.x0, window.y0, cols, rows))

    def abort(self) -> None:
        for *_, target in getattr(self, "_files", []):
            target.close()


class CogSink(PartsSink):
    """One `<band>.tif` per band with statistics, overviews and beside it the style `<band>.qml`; or all bands in one file
    with `single="slice.tif"`, without style.

    Options: `max_error` (in the target's unit) stores with LERC, off by at most so much; pure numbers
    (probabilities, sd) then by at most 0.0005. None keeps every bit.
    """

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return [f"{band.name}{suffix}" for suffix in (".tif", ".qml") for band in bands]

    def files(self, job: Job) -> list[tuple[str, tuple[Band, ...]]]:
        single = self.options.get("single")
        return [(single, job.bands)] if single else super().files(job)

    def finish(self) -> list[Output]:
        import rasterio.shutil

        outputs = []
        for name, bands, part, target in self._files:
            target.close()
            path = self.folder / name
            rasterio.shutil.copy(part, path, driver="COG", **self._creation(bands))
            part.unlink()
            _check(path, self.job, bands)
            outputs.append(Output(path, "cog", name, tuple(b.name for b in bands)))
        if not self.options.get("single"):
            legends = self.thumb.scales(self.options.get("limits"))
            for band in self.job.bands:
                path = self.folder / f"{band.name}.qml"
                path.write_text(qml(band, legends[band.layer.quantity]), "utf-8")
                outputs.append(Output(path, "style", path.name, (band.name,)))
        return outputs

    def _creation(self, bands: tuple[Band, ...]) -> dict[str, Any]:
        options: dict[str, Any] = {
            "BLOCKSIZE": BLOCK,
            # Every pixel of an overview is a pixel of the map: the average of intervals is no interval.
            "OVERVIEW_RESAMPLING": "NEAREST",
            "BIGTIFF": "IF_SAFER",
            "SPARSE_OK": "TRUE",
            "STATISTICS": "YES",  # so that viewers stretch colours without reading it all
        }
        error = self.options.get("max_error")
        if error is None:
            return options | {"COMPRESS": "DEFLATE", "PREDICTOR": "YES"}
        pure = any(band.unit_text == "" for band in bands)
        limit = min(float(error), UNITLESS_ERROR) if pure else float(error)
        return options | {"COMPRESS": "LERC_ZSTD", "MAX_Z_ERROR": limit}


@cache
def _quiet() -> None:
    """libtiff writes no lines of its own to stderr, where its user reads one sentence: GDAL hears of its errors another way."""
    with suppress(OSError):  # no Linux
        loaded = {
            line.split(maxsplit=5)[5]
            for line in Path("/proc/self/maps").read_text().splitlines()
            if "tiff" in line
        }
        for library in sorted(loaded):
            with suppress(OSError, AttributeError):
                ctypes.CDLL(library.strip()).TIFFSetErrorHandler(None)


def _tags(job: Job, bands: tuple[Band, ...]) -> dict[str, Any]:
    """The Dataset's attributes as GeoTIFF tags; text only, `unit` beside `target_unit` for readers of one band."""
    tags = {k: v for k, v in job.attrs.items() if isinstance(v, str | int | float | np.number)}
    if len(bands) == 1:
        tags["unit"] = bands[0].unit
    return tags


def _check(path: Path, job: Job, bands: tuple[Band, ...]) -> None:
    """Re-open: the file is what was meant."""
    import rasterio

    with rasterio.open(path) as src:
        wrong = (src.height, src.width) != job.shape or src.count != len(bands) or src.crs is None
        if wrong or src.tags(ns="IMAGE_STRUCTURE").get("LAYOUT") != "COG":
            raise OSError(f"{path.name} was written but does not read back as a COG of {job.shape} pixels.")
        if max(job.shape) > BLOCK and not src.overviews(1):
            raise OSError(f"{path.name} was written without overviews.")
        src.read(1, window=((0, 1), (0, 1)))
