"""The kernel slice of a place: how the model thinks the surface elsewhere goes with the surface here."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from app.dashboard.atlas import Atlas, paint_png
from app.dashboard.grid import pixels
from app.dashboard.point import inputs
from app.dashboard.view import View
from maps.colours import Scale
from maps.layers import LAYERS

PIXELS = 100_000  # inside the region: a slice in about 0.3 s
KEPT = 8
SIMILAR = 0.5  # correlation from which a place counts as similar
BINS = 30


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

    @cached_property
    def reach_km(self) -> float | None:
        """The distance within which the median correlation stays above one half; None if nowhere below."""
        km, middle, _, _ = self.profile
        below = np.flatnonzero(middle < SIMILAR)
        return float(km[below[0]]) if len(below) else None

    @cached_property
    def similar_km2(self) -> float:
        """Area with a correlation above one half."""
        return float(self.area_km2[np.nan_to_num(self.correlation, nan=-1.0) > SIMILAR].sum())

    @cached_property
    def profile(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Correlation by distance: km, median, 10th and 90th percentile in rings of equally many pixels."""
        known = np.isfinite(self.correlation)
        km, r = self.distance_km[known], self.correlation[known]
        order = np.argsort(km)
        rings = [ring for ring in np.array_split(order, BINS) if len(ring)]
        rows = [(km[ring].mean(), *np.percentile(r[ring], (50, 10, 90))) for ring in rings]
        table = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        return table[0], table[1], table[2], table[3]

    @property
    def words(self) -> str:
        """One sentence for people."""
        area = f"{self.similar_km2:,.0f} km²" if self.similar_km2 >= 1 else "less than 1 km²"
        if self.reach_km is None:
            reach = "everywhere in the region"
        else:
            reach = (
                f"within about {self.reach_km:.2g} km"
                if self.reach_km < 10
                else f"within about {self.reach_km:.0f} km"
            )
        return (
            f"The model treats {area} as similar to here (correlation above {SIMILAR:g}); "
            f"around here that typically holds {reach}."
        )

    def picture(self) -> bytes:
        """PNG on the map's rectangle, -1 to 1."""
        return paint_png(self.correlation, SCALE, LAYERS["correlation"].colours)


SCALE = Scale(-1.0, 1.0)


class Slices:
    """Slices of one atlas, the latest kept."""

    def __init__(self, atlas: Atlas, most_pixels: int = PIXELS):
        self.atlas = atlas
        ground = atlas.ground
        self.step = max(1, round(float(np.sqrt(ground.inside.sum() / most_pixels))))
        half = self.step // 2
        self._at = (slice(half, None, self.step), slice(half, None, self.step))
        self._kept: OrderedDict[tuple[float, float, str | None], Slice] = OrderedDict()
        self._lock = threading.Lock()

    @cached_property
    def _pixels(self) -> tuple[NDArray[np.bool_], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Of the thinned grid: inside (h, w), and easting, northing, latitude of the pixels inside."""
        ground = self.atlas.ground
        inside = ground.inside[self._at]
        lon, lat = (v.reshape(ground.shape)[self._at][inside] for v in pixels(ground.geobox))
        from pyproj import Transformer

        to = Transformer.from_crs("EPSG:4326", self.atlas.data["crs"], always_xy=True)
        east, north = to.transform((lon + 180) % 360 - 180, lat)
        return inside, np.asarray(east), np.asarray(north), np.asarray(lat)

    def of(self, lat: float, lon: float, view: View) -> Slice:
        """The slice of a place in a quarter; about 0.3 s, nothing when asked again."""
        key = (round(lat, 6), round(lon, 6), view.quarter)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            found = self._compute(lat, lon, view)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found

    def _compute(self, lat: float, lon: float, view: View) -> Slice:
        inside, east, north, row_lat = self._pixels
        reference = inputs(self.atlas, lat, lon, view)
        columns = [east, north]
        if view.quarter is not None:
            columns.append(np.full_like(east, reference[0, 2]))
        X = np.stack(columns, axis=1)
        model = self.atlas.run.model
        covariance = model.kernel_slice(X, reference[0]) / model.target_sd_**2
        prior = model.moments(X).prior_variance.double().numpy()
        own = float(model.engine_.prior_covariance(*(torch.as_tensor(reference),) * 2)[0, 0])
        with np.errstate(divide="ignore", invalid="ignore"):
            r = covariance / np.sqrt(np.maximum(prior * own, 1e-30))
        pixel_km2 = (self.step * self.atlas.ground.geobox.affine.a / 1000) ** 2

        def plane(values: NDArray[Any]) -> NDArray[np.float32]:
            out = np.full(inside.shape, np.nan, np.float32)
            out[inside] = values
            return out

        return Slice(
            lat,
            lon,
            plane(np.clip(r, -1, 1)),
            plane(np.hypot(east - reference[0, 0], north - reference[0, 1]) / 1000),
            plane(
                pixel_km2 * np.cos(np.radians(row_lat)) ** 2
            ),  # Web Mercator stretches by 1 / cos(latitude)
        )
