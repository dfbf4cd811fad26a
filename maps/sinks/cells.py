"""H3 cells: one hexagon per cell whose centre has a value, as GeoParquet."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Geod, Transformer

from maps.grid import Window, continuous
from maps.sinks.base import Job
from maps.sinks.geoparquet import GeoparquetSink
from maps.sinks.rows import Columns

#: The finest cells of at least so many pixels' area: each then has a pixel of its own.
PIXELS = 2.0
FINEST = 15


class H3Sink(GeoparquetSink):
    """`h3.parquet`: `h3` (the cell's index as text), x, y, lon, lat of its centre, the bands, the hexagon (EPSG:4326).

    A cell has the values of the pixel that holds its centre: an average of intervals or of probabilities would be
    neither. The resolution is the finest whose cells are at least `PIXELS` pixels large.
    """

    kind, file = "h3", "h3.parquet"
    geometry_type = "Polygon"

    def begin(self, job: Job) -> None:
        super().begin(job)
        self._from_lonlat = Transformer.from_crs("EPSG:4326", CRS.from_wkt(job.crs_wkt), always_xy=True)
        self.resolution = _resolution(job, self._to_lonlat)

    @property
    def columns(self) -> Columns:
        return {"h3": np.empty(0, "U15")} | {k: v for k, v in super().columns.items() if k != "quadkey"}

    def rows(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], known: NDArray[np.bool_]
    ) -> Columns:
        import h3

        at, cols = np.nonzero(known)
        lon, lat = self._to_lonlat.transform(self._x[window.x0 + cols], self._y[window.y0 + at])
        places = zip(np.asarray(lat).tolist(), np.asarray(lon).tolist())
        near = {h3.latlng_to_cell(v, u, self.resolution) for v, u in places}
        cells = np.array(sorted({cell for centre in near for cell in h3.grid_disk(centre, 1)}))
        centre = np.array([h3.cell_to_latlng(cell) for cell in cells.tolist()])
        x, y = (np.asarray(v) for v in self._from_lonlat.transform(centre[:, 1], centre[:, 0]))
        inverse = ~self.job.geobox.affine
        with np.errstate(invalid="ignore"):
            col = np.floor(inverse.a * x + inverse.b * y + inverse.c) - window.x0
            row = np.floor(inverse.d * x + inverse.e * y + inverse.f) - window.y0
            held = (row >= 0) & (row < known.shape[0]) & (col >= 0) & (col < known.shape[1])
        row, col = (np.where(held, v, 0).astype(np.int64) for v in (row, col))
        held &= known[row, col]
        row, col = row[held], col[held]
        out = {"h3": cells[held], "x": x[held], "y": y[held], "lon": centre[held, 1], "lat": centre[held, 0]}
        return out | {band.name: planes[band.name][row, col] for band in self.job.bands}

    def shapes(self, columns: Columns) -> tuple[Any, NDArray[np.float64]]:
        import h3
        import pyarrow as pa
        import shapely

        rings = []
        for cell, lon in zip(columns["h3"].tolist(), columns["lon"]):
            edge = np.array(h3.cell_to_boundary(cell))[:, ::-1]
            edge[:, 0] = continuous(edge[:, 0], lon)  # a cell across 180 degrees stays in one piece
            rings.append(shapely.Polygon(edge))
        return pa.array(shapely.to_wkb(rings), pa.binary()), shapely.bounds(np.array(rings))


def _resolution(job: Job, to_lonlat: Transformer) -> int:
    """The finest H3 resolution whose cell at the middle of the grid has the area of `PIXELS` pixels."""
    import h3

    row, col = job.shape[0] // 2, job.shape[1] // 2
    corners = [job.geobox.affine * (col + dx, row + dy) for dx, dy in ((0, 0), (1, 0), (1, 1), (0, 1))]
    lon, lat = to_lonlat.transform([x for x, _ in corners], [y for _, y in corners])
    pixel_m2 = abs(Geod(ellps="WGS84").polygon_area_perimeter(lon, lat)[0])
    for resolution in range(FINEST, 0, -1):
        if h3.cell_area(h3.latlng_to_cell(lat[0], lon[0], resolution), "m^2") >= PIXELS * pixel_m2:
            return resolution
    return 0
