"""The kernel slice of a place: how the model thinks the surface elsewhere goes with the surface here."""

import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Geod

from app.caches import MemoryCache
from app.dashboard.words import plain
from app.workflow.page import PageGrid, masked
from geogp.slices import kernel_slice
from maps.colours import Scale, paint
from maps.layers import LAYERS
from maps.packing import STEPS, pack
from maps.words import number

KEPT_BYTES = 32 * 2**20
TENTH = 0.1  # share of the region called most similar
RINGS = 40


@dataclass(frozen=True)
class Slice:
    """Correlation of the surface, before data, with the surface at a place.

    correlation : (h, w) on the pixels of the page, NaN outside
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
        if self.alike < 0.05:
            return (
                f"To the model, hardly any place goes with this one: even of the most similar tenth of the region "
                f"({plain(area)} km²) most have next to no correlation with it."
            )
        similar = f"the tenth of the region most similar to here goes with it at a correlation above {self.alike:.2f}"
        return f"To the model, {similar} ({plain(area)} km²); half of that lies within {plain(self.alike_km)} km."

    @cached_property
    def scale(self) -> Scale:
        """From the least similar places, 0 or below -1 .. 1 when some go the other way, to 1."""
        low = float(np.nanpercentile(self.correlation, 1))
        if low < -0.05:
            return Scale(-1.0, 1.0)
        return Scale(min(max(np.floor(low * 10) / 10, 0.0), 0.9), 1.0)

    def legend(self) -> dict[str, Any]:
        """Scale, ticks and the first colour (of 256) of this slice's legend, JSON-able."""
        marks = [(round(float(self.scale.fraction(np.array(t))), 4), number(t)) for t in self.scale.ticks(6)]
        scale = {"low": self.scale.low, "high": self.scale.high, "kind": self.scale.kind}
        if self.scale.low >= 0:  # the picture's own colours run from the middle of the map to its end
            scale["low"] = 2 * self.scale.low - self.scale.high
        return {"scale": scale, "ticks": marks, "half": 128 if self.scale.low >= 0 else 0}

    def pack(self) -> bytes:
        """The correlation on the page's pixels, with words and legend, for the page's script."""
        known = np.isfinite(self.correlation)
        plane = (self.correlation[known], "linear", STEPS, (-1.0, 1.0))
        return pack(known, {"correlation": plane}, {"words": self.words, "legend": self.legend()})

    def picture(self) -> bytes:
        """PNG with a red dot at the place, on white."""
        from PIL import Image

        told = self.legend()["scale"]
        rgba = paint(self.correlation, Scale(told["low"], told["high"]), LAYERS["correlation"].colours)
        rgba[rgba[..., 3] == 0] = 255
        rows, cols = np.indices(self.correlation.shape)
        at = np.unravel_index(np.nanargmin(self.distance_km), self.correlation.shape)
        away = np.hypot(rows - at[0], cols - at[1]) / max(self.correlation.shape)
        rgba[away < 0.014] = 255
        rgba[away < 0.009] = (179, 38, 30, 255)
        out = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(rgba[..., :3])).save(out, "PNG", compress_level=3)
        return out.getvalue()


class Slices:
    """Slices on the pixels of a page, the latest kept."""

    def __init__(self, page: PageGrid):
        self.page = page
        self._kept = MemoryCache(KEPT_BYTES)

    @cached_property
    def _places(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Longitude and latitude of the pixels that have values, (n,) each."""
        rows, columns = np.nonzero(self.page.places[0])
        a = self.page.geobox.affine
        return self.page.run.to_degrees(
            np.column_stack([a.c + a.a * (columns + 0.5), a.f + a.e * (rows + 0.5)])
        )

    def of(self, lat: float, lon: float, quarter: str | None) -> Slice:
        """The slice of a place in a quarter; about 0.2 s, nothing when asked again."""
        key = (round(lat, 6), round(lon, 6), quarter)
        return self._kept.get(key, lambda: self._computed(lat, lon, quarter))

    def _computed(self, lat: float, lon: float, quarter: str | None) -> Slice:
        lons, lats = self._places
        known, a = self.page.places[0], self.page.geobox.affine
        where = masked(self.page.geobox, known)
        ds = kernel_slice(self.page.run, self.page.geobox, (lon, lat), quarter=quarter, where=where)
        correlation = np.asarray(ds["correlation"].values, np.float32)
        away = np.full(known.shape, np.nan, np.float32)
        n = len(lons)
        away[known] = Geod(ellps="WGS84").inv(np.full(n, lon), np.full(n, lat), lons, lats)[2] / 1000
        area = np.where(known, np.float32(abs(a.a * a.e) / 1e6), np.float32(np.nan))
        return Slice(lat, lon, correlation, away, area)
