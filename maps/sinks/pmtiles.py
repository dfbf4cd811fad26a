"""PMTiles: each layer as coloured map tiles in one file, for MapLibre, Leaflet and any static web server."""

import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maps.bands import Band
from maps.colours import Scale, table
from maps.mercator import MERCATOR_HALF, MercatorGrid, mercator_grid
from maps.sinks.base import Job, Output
from maps.sinks.cog import PartsSink

SIDE = 256  # pixels of a tile
MOST = 1024  # pixels read of a window along a side
FINEST = 18
COLOURS = 255  # of a palette, beside the transparent one


class PmtilesSink(PartsSink):
    """One `<band>.pmtiles` per band: PNG tiles in the legend's colours, from one that holds all to the map's own pixels.

    Every pixel of a tile is a pixel of the map; the legend is in the file's metadata, with source and licence.
    """

    @classmethod
    def names(cls, bands: tuple[Band, ...]) -> list[str]:
        return [f"{band.name}.pmtiles" for band in bands]

    def files(self, job: Job) -> list[tuple[str, tuple[Band, ...]]]:
        return [(f"{b.name}.pmtiles", (b,)) for b in job.bands]

    def finish(self) -> list[Output]:
        import rasterio
        from pmtiles.writer import Writer
        from rasterio.enums import Resampling

        legends = self.thumb.scales(self.options.get("limits"))
        with ExitStack() as stack:
            opened = []
            for name, (band,), part, target in self._files:
                target.close()
                if factors := [2**k for k in range(1, 20) if max(self.job.shape) / 2**k > SIDE / 2]:
                    with rasterio.open(part, "r+") as whole:
                        whole.build_overviews(factors, Resampling.nearest)
                file = stack.enter_context((self.folder / name).open("wb"))
                levels = [{}, *({"overview_level": i} for i in range(len(factors)))]
                sources = [stack.enter_context(rasterio.open(part, **level)) for level in levels]
                opened.append((band, legends[band.layer.quantity], sources, Writer(file)))
            grid = mercator_grid(self.job.geobox)
            tiles, finest = _tiles(grid)
            written = dict.fromkeys((name for name, *_ in self._files), 0)
            for key, tile in tiles:
                where = _Where.of(grid, *tile)
                for (name, *_), (band, scale, sources, writer) in zip(self._files, opened):
                    values = where.read(sources)
                    if np.isfinite(values).any():
                        writer.write_tile(key, _png(values, scale, band.colours))
                        written[name] += 1
            for (name, *_), (band, scale, _, writer) in zip(self._files, opened):
                if not written[name]:  # the format has no file without a tile
                    writer.write_tile(0, _png(np.full((SIDE, SIDE), np.nan), scale, band.colours))
                    written[name] = 1
                writer.finalize(_header(grid, finest), self._about(band, scale))
        outputs = []
        for name, (band,), part, _ in self._files:
            part.unlink()
            _check(self.folder / name, written[name])
            outputs.append(Output(self.folder / name, "pmtiles", name, (band.name,)))
        return outputs

    def _about(self, band: Band, scale: Scale) -> dict[str, Any]:
        attrs = {k: v for k, v in self.job.attrs.items() if isinstance(v, str | int | float)}
        where = [str(attrs[key]) for key in ("source", "license") if key in attrs]
        return {
            "name": band.title,
            "description": band.about,
            "attribution": "; ".join(where),
            "type": "overlay",
            "geogp": {
                **attrs,
                "layer": band.name,
                "unit": band.unit,
                "legend": [{"value": scale.value(at), "label": words} for at, words in scale.labels(10)],
                "colours": band.colours,
            },
        }


@dataclass(frozen=True, eq=False)
class _Where:
    """Which pixels of a source lie under those of a Web Mercator tile.

    inside : (256, 256), where there are such; row, col : (n,) of them, every 2^level-th; corner : the least of both
    """

    inside: NDArray[np.bool_]
    row: NDArray[np.int64]
    col: NDArray[np.int64]
    corner: tuple[int, int]
    level: int

    @classmethod
    def of(cls, grid: MercatorGrid, zoom: int, x: int, y: int) -> "_Where":
        size = 2 * MERCATOR_HALF / 2**zoom
        at = (np.arange(SIDE) + 0.5) / SIDE * size
        across, down = np.meshgrid(x * size - MERCATOR_HALF + at, MERCATOR_HALF - y * size - at)
        col, row = grid.to_source(across, down)
        height, width = grid.source.shape
        with np.errstate(invalid="ignore"):
            inside = (col >= 0) & (col < width) & (row >= 0) & (row < height)
        row, col = (v[inside].astype(np.int64) for v in (row, col))
        if not len(row):
            return cls(inside, row, col, (0, 0), 0)
        level = max(0, int(np.ceil(np.log2(max(int(np.ptp(row)), int(np.ptp(col)), 1) / MOST))))
        row, col = row >> level, col >> level
        corner = int(row.min()), int(col.min())
        return cls(inside, row - corner[0], col - corner[1], corner, level)

    def read(self, sources: Sequence[Any]) -> NDArray[np.float32]:
        """The tile's values (256, 256), NaN where there is none; sources are a raster and its overviews."""
        from rasterio.windows import Window

        out = np.full((SIDE, SIDE), np.nan, dtype=np.float32)
        if len(self.row):
            (r, c), source = self.corner, sources[min(self.level, len(sources) - 1)]
            height, width = min(MOST + 2, source.height - r), min(MOST + 2, source.width - c)
            wanted = min(int(self.row.max()) + 1, height), min(int(self.col.max()) + 1, width)
            part = source.read(1, window=Window(c, r, wanted[1], wanted[0]))
            out[self.inside] = part[np.minimum(self.row, wanted[0] - 1), np.minimum(self.col, wanted[1] - 1)]
        return out


def _tiles(grid: MercatorGrid) -> tuple[list[tuple[int, tuple[int, int, int]]], int]:
    """(id, (zoom, x, y)) of the tiles that meet a grid, in the order of the file, and the finest zoom: the first whose
    pixels are no larger than the grid's."""
    from pmtiles.tile import zxy_to_tileid

    finest = int(np.clip(np.ceil(np.log2(2 * MERCATOR_HALF / (SIDE * grid.pixel_m)) - 1e-9), 0, FINEST))
    right, bottom = grid.left + grid.pixel_m * grid.shape[1], grid.top - grid.pixel_m * grid.shape[0]
    found = {}
    for zoom in range(finest + 1):
        size, n = 2 * MERCATOR_HALF / 2**zoom, 2**zoom
        first, last = (int((v + MERCATOR_HALF) // size) for v in (grid.left, right - 1e-6))
        above, below = (int((MERCATOR_HALF - v) // size) for v in (grid.top - 1e-6, bottom + 1e-6))
        for y in range(max(0, above), min(n - 1, below) + 1):
            for x in range(first, last + 1):
                found[zxy_to_tileid(zoom, x % n, y)] = (zoom, x % n, y)
    return sorted(found.items()), finest


def _header(grid: MercatorGrid, finest: int) -> dict[str, Any]:
    from pmtiles.tile import Compression, TileType

    west, south, east, north = grid.bounds_lonlat
    wrapped = east > 180 or west < -180
    return {
        "tile_type": TileType.PNG,
        "tile_compression": Compression.NONE,
        "min_zoom": 0,
        "max_zoom": finest,
        "min_lon_e7": int((-180 if wrapped else west) * 1e7),
        "min_lat_e7": int(south * 1e7),
        "max_lon_e7": int((180 if wrapped else east) * 1e7),
        "max_lat_e7": int(north * 1e7),
        "center_zoom": max(0, finest - 3),
        "center_lon_e7": int((((west + east) / 2 + 180) % 360 - 180) * 1e7),
        "center_lat_e7": int((south + north) / 2 * 1e7),
    }


def _png(values: NDArray[np.floating], scale: Scale, name: str) -> bytes:
    """A tile's values as a PNG with a palette: nothing, which is transparent, then 255 of the map's 256 colours."""
    from PIL import Image

    t = scale.fraction(values)
    index = np.where(np.isfinite(t), t * (COLOURS - 1) + 1.5, 0).astype(np.uint8)
    image = Image.fromarray(index)
    image.putpalette(_palette(name))
    out = io.BytesIO()
    image.save(out, "PNG", transparency=0, compress_level=1)
    return out.getvalue()


@cache
def _palette(name: str) -> bytes:
    shown = table(name)[np.round(np.linspace(0, 255, COLOURS)).astype(int)]
    return bytes(3) + shown.tobytes()


def _check(path: Path, n: int) -> None:
    """Re-open: the file lists as many tiles as were written."""
    from pmtiles.reader import MmapSource, Reader

    with path.open("rb") as file:
        found = Reader(MmapSource(file)).header()["addressed_tiles_count"]
    if found != n:
        raise OSError(f"{path.name} was written but does not read back whole ({found} of {n} tiles).")
