"""The kernel slice of a place: how the model thinks the surface elsewhere goes with the surface here."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import Geod

from app.dashboard.caches import MemoryCache
from app.dashboard.canvas import Canvas, masked, pixels
from app.dashboard.pictures import colour_index, indexed_png, legend
from app.dashboard.words import plain
from geogp.slices import kernel_slice
from maps.colours import Scale, table
from maps.layers import LAYERS

KEPT_BYTES = 32 * 2**20
TENTH = 0.1  # share of the region called most similar
RINGS = 40


@dataclass(frozen=True)
class Slice:
    """Correlation of the surface, before data, with the surface at a place.

    correlation : (h, w) on every `step`-th pixel of the map, NaN outside
    distance_km : (h, w) from the place
    area_km2 : of one pixel, (h, w)
    """

    lat: float
    lon: float
    correlation: NDArray[np.float32]
    distance_km: NDArray[np.float32]
    area_km2: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        return self.correlation.nbytes + self.distance_km.nbytes + self.area_km2.nbytes

    @cached_property
    def alike(self) -> float:
        """The correlation that the most similar tenth of the region reaches (by area)."""
        known = np.isfinite(self.correlation)
        r, area = self.correlation[known], self.area_km2[known]
        order = np.argsort(-r)
        tenth = np.searchsorted(np.cumsum(area[order]), TENTH * area.sum())
        return float(r[order][min(int(tenth), len(r) - 1)])

    @cached_property
    def alike_km(self) -> float:
        """The distance within which half of that tenth lies."""
        return float(np.median(self.distance_km[np.nan_to_num(self.correlation, nan=-2.0) >= self.alike]))

    @cached_property
    def profile(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Correlation by distance, in rings of equal width: km, median, 10th and 90th percentile."""
        known = np.isfinite(self.correlation)
        km, r = self.distance_km[known], self.correlation[known]
        ring = np.minimum((km / max(float(km.max()), 1e-9) * RINGS).astype(int), RINGS - 1)
        found = [ring == k for k in range(RINGS) if (ring == k).any()]
        rows = [(km[part].mean(), *np.percentile(r[part], (50, 10, 90))) for part in found]
        table = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        return table[0], table[1], table[2], table[3]

    @property
    def words(self) -> str:
        """One sentence for people."""
        known = np.isfinite(self.correlation)
        area = TENTH * float(self.area_km2[known].sum())
        return (
            f"To the model, the tenth of the region most similar to here ({plain(area)} km²) has a correlation of "
            f"{self.alike:.2f} or more with it, and half of that lies within {plain(self.alike_km)} km; "
            f"the median place has {float(np.median(self.correlation[known])):.2f}."
        )

    @cached_property
    def scale(self) -> Scale:
        """From the least similar places, 0 or below -1 .. 1 when some go the other way, to 1."""
        low = float(np.nanpercentile(self.correlation, 1))
        if low < -0.05:
            return Scale(-1.0, 1.0)
        return Scale(min(max(np.floor(low * 10) / 10, 0.0), 0.9), 1.0)

    def colours(self) -> NDArray[np.uint8]:
        """The colours of `scale`: red is similar; blue goes the other way."""
        whole = table(LAYERS["correlation"].colours)
        return whole if self.scale.low < 0 else whole[128:]

    def legend(self) -> dict[str, Any]:
        """Legend of this slice, JSON-able."""
        return legend(self.scale, self.colours())

    def picture(self, marked: bool = False) -> bytes:
        """PNG on the map's rectangle; `marked` with a dot at the place, on white."""
        index = colour_index(self.correlation, self.scale)
        steps = self.colours()
        colours = steps[np.linspace(0, len(steps) - 1, 255).round().astype(int)].tolist()
        if marked:
            rows, cols = np.indices(index.shape)
            at = np.unravel_index(np.nanargmin(self.distance_km), index.shape)
            away = np.hypot(rows - at[0], cols - at[1]) / max(index.shape)
            index[index == 1] = 2  # the first colour becomes the dot's
            index[away < 0.014] = 0
            index[away < 0.009] = 1
            return indexed_png(index, [(255, 255, 255), (179, 38, 30), *colours[1:]])
        return indexed_png(index, [(0, 0, 0), *colours])


class Slices:
    """Slices of one canvas, the latest kept.

    Parameters
    ----------
    places : pixels inside of a slice, about
    """

    def __init__(self, canvas: Canvas, places: int):
        self.canvas, self._places = canvas, places
        self._kept = MemoryCache(KEPT_BYTES)

    @cached_property
    def _grid(self) -> tuple[GeoBox, NDArray[np.bool_], NDArray[Any], NDArray[Any]]:
        """A thinned grid, which of its pixels are inside, and longitude and latitude (h, w) of all."""
        geobox, inside = self.canvas.thinned(self._places)
        lon, lat = (v.reshape(inside.shape) for v in pixels(geobox))
        return geobox, inside, (lon + 180) % 360 - 180, lat

    def of(self, lat: float, lon: float, quarter: str | None) -> Slice:
        """The slice of a place in a quarter; about 0.5 s, nothing when asked again."""
        key = (round(lat, 6), round(lon, 6), quarter)
        return self._kept.get(key, lambda: self._computed(lat, lon, quarter))

    def _computed(self, lat: float, lon: float, quarter: str | None) -> Slice:
        geobox, inside, lons, lats = self._grid
        where = masked(geobox, inside)
        ds = kernel_slice(self.canvas.run, geobox, (lon, lat), quarter=quarter, where=where)
        correlation = np.asarray(ds["correlation"].values, np.float32)
        away = Geod(ellps="WGS84").inv(np.full(lons.shape, lon), np.full(lats.shape, lat), lons, lats)[2]
        # Web Mercator stretches lengths by 1 / cos(latitude).
        area = (geobox.affine.a / 1000) ** 2 * np.cos(np.radians(lats)) ** 2
        nan = np.float32(np.nan)
        return Slice(
            lat,
            lon,
            correlation,
            np.where(inside, away / 1000, nan).astype(np.float32),
            np.where(inside, area, nan).astype(np.float32),
        )
