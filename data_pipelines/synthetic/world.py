"""A made-up state whose speeds are known everywhere: the truth a map can be compared with.

Halcyon is an island of about 300 x 250 km in the empty Pacific, with cities, roads between them, and two
providers' territories that meet in sharp lines. For a place x and quarter q,

    log10 kbit/s of a tile average of n tests ~ Normal(median(x, q), τ²(x) + s²(x)/n)

- median: a smooth rural field (wavelengths 70-220 km), a plateau with a steep edge on each city, a halo about
  it, a ridge 2 km wide along roads, a step at each territory line, and a steady rise from quarter to quarter.
- τ, s: low in cities, high in the country, with a slow variation of their own.

The noise is Gaussian in log10, on purpose: nominal coverage of a correct model can then be checked. Real
tiles have heavier tails. Values are those at tile centres, rounded to whole kbit/s as published.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import shapely
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from shapely.geometry.base import BaseGeometry

from data_pipelines import quarters as calendar
from data_pipelines.errors import InvalidInput, check_seed
from data_pipelines.regions import local_crs

Array = NDArray[np.float64]

#: rows over all quarters: (fixed, mobile)
SIZES = {"demo": (16_000, 8_000), "small": (1_600, 800)}
QUARTERS = calendar.parse("2022Q1..2023Q4")
CITY_NAMES = ("Port Amity", "Linden Falls", "Carrow", "Eastmere", "Dunhollow", "Saltby", "Quill Harbor")
CITY_RADII_KM = (13.0, 9.5, 7.5, 6.5, 5.0, 4.0, 3.5)
#: log10 shifts of mobile against fixed, and the factor on its noise
MOBILE_SHIFT, MOBILE_NOISE = -0.2, 1.2
RISE_PER_QUARTER = 0.025
ROAD_STEP_KM = 0.1


@dataclass(frozen=True)
class City:
    """A city: where, how large, its wavy outline, and what it adds to log10 speed."""

    name: str
    x_km: float
    y_km: float
    radius_km: float
    lift: float
    waves: tuple[tuple[int, float, float], ...]

    def reach(self, x: Array, y: Array) -> Array:
        """Distance from the centre in units of the city's radius in that direction: 1 on the outline."""
        dx, dy = x - self.x_km, y - self.y_km
        return np.hypot(dx, dy) / self._radius(np.arctan2(dy, dx))

    def outline(self) -> Array:
        """(360, 2) points of the outline, km."""
        angle = np.linspace(0, 2 * np.pi, 360, endpoint=False)
        radius = self._radius(angle)
        return np.stack([self.x_km + radius * np.cos(angle), self.y_km + radius * np.sin(angle)], 1)

    def _radius(self, angle: Array) -> Array:
        return np.asarray(self.radius_km * (1 + sum(a * np.cos(k * angle + p) for k, a, p in self.waves)))


@dataclass(frozen=True)
class World:
    """The made-up state of one seed: regenerated exactly by `World(seed, size)`.

    Parameters
    ----------
    seed : 0, 1, ... another coast, other cities, another field
    size : "demo" (16,000 fixed rows) or "small" (1,600); the truth does not depend on it

    Examples
    --------
    >>> world = World(seed=0)
    >>> city = world.cities[0]
    >>> lon, lat = world.to_degrees(city.x_km, city.y_km)
    >>> bool(world.median_log10_kbps(lon, lat, "2023Q4") > 5)
    True
    """

    seed: int = 0
    size: str = "demo"
    name: str = "Halcyon"
    state_code: str = "HY"
    centre_lon: float = -143.0
    centre_lat: float = 34.0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.size not in SIZES:
            raise InvalidInput(
                f"Unknown size {self.size!r} of a synthetic world; it is {' or '.join(SIZES)}."
            )

    @property
    def quarters(self) -> list[str]:
        """The quarters the world publishes."""
        return list(QUARTERS)

    @cached_property
    def crs(self) -> pyproj.CRS:
        """Equal-area CRS about the island's centre; the km of this class are thousandths of its metres."""
        return local_crs(self.centre_lon, self.centre_lat)

    def to_km(self, lon: ArrayLike, lat: ArrayLike) -> tuple[Array, Array]:
        """Kilometres east and north of the centre."""
        x, y = self._metres.transform(np.asarray(lon, np.float64), np.asarray(lat, np.float64))
        return np.asarray(x) / 1000, np.asarray(y) / 1000

    def to_degrees(self, x_km: ArrayLike, y_km: ArrayLike) -> tuple[Array, Array]:
        """Longitude and latitude, WGS84."""
        x, y = np.asarray(x_km, np.float64) * 1000, np.asarray(y_km, np.float64) * 1000
        lon, lat = self._metres.transform(x, y, direction="INVERSE")
        return np.asarray(lon), np.asarray(lat)

    def median_log10_kbps(
        self, lon: ArrayLike, lat: ArrayLike, quarter: str | ArrayLike, type: str = "fixed"
    ) -> Array:
        """Median of log10 download speed in kbit/s: the surface a map should find.

        Parameters
        ----------
        lon, lat : (...,) degrees
        quarter : one quarter, or (...,) of them; quarters beyond the published ones continue the rise
        type : "fixed" or "mobile"
        """
        x, y = self.to_km(lon, lat)
        quarter = np.asarray(quarter, "U6")
        age = ((calendar.years(quarter.ravel()) - calendar.years(QUARTERS[:1])) * 4).reshape(quarter.shape)
        shift = MOBILE_SHIFT if type == "mobile" else 0.0
        return self._surface(x, y) + RISE_PER_QUARTER * age + shift

    def noise_sd(self, lon: ArrayLike, lat: ArrayLike, tests: ArrayLike = 1, type: str = "fixed") -> Array:
        """Sd of log10 speed of a tile average of `tests` measurements about the median surface."""
        tau, s = self.noise_parts(lon, lat, type)
        return np.sqrt(tau**2 + s**2 / np.asarray(tests, np.float64))

    def noise_parts(self, lon: ArrayLike, lat: ArrayLike, type: str = "fixed") -> tuple[Array, Array]:
        """τ(x), what remains however many tests, and s(x), the sd of one test."""
        x, y = self.to_km(lon, lat)
        country, slow = 1 - self.urbanness(x, y), self._field(x, y, "noise")
        factor = MOBILE_NOISE if type == "mobile" else 1.0
        return factor * (0.07 + 0.09 * country + 0.02 * slow), factor * (0.24 + 0.14 * country + 0.04 * slow)

    def urbanness(self, x_km: Array, y_km: Array) -> Array:
        """1 inside a city, 0 in the country, with an edge a tenth of the city's radius wide."""
        # σ((1 - reach)/0.05): half way on the outline
        inside = [_sigmoid((1 - city.reach(x_km, y_km)) / 0.05) for city in self.cities]
        return np.max(inside, axis=0)

    def land(self) -> BaseGeometry:
        """The island in degrees of WGS84."""
        return shapely.Polygon(np.stack(self.to_degrees(*self._coast_km.T), 1))

    def islet(self) -> BaseGeometry:
        """A second, tiny state off the coast: its tiles are outside Halcyon."""
        x, y = self._coast_km[:, 0].max() + 25, 0.0
        angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
        lon, lat = self.to_degrees(x + 5 * np.cos(angle), y + 4 * np.sin(angle))
        return shapely.Polygon(np.stack([lon, lat], 1))

    def urban_areas(self) -> list[tuple[str, BaseGeometry]]:
        """Name and outline of each city, degrees, on land only."""
        land = self.land()
        found = []
        for city in self.cities:
            outline = shapely.Polygon(np.stack(self.to_degrees(*city.outline().T), 1))
            found.append((city.name, shapely.intersection(outline, land)))
        return found

    def road_distance_km(self, x_km: Array, y_km: Array) -> Array:
        """Distance to the nearest road."""
        points = np.stack([np.ravel(x_km), np.ravel(y_km)], 1)
        distance, _ = self._road_tree.query(points)
        return np.reshape(distance, np.shape(x_km))

    @cached_property
    def cities(self) -> list[City]:
        """Cities on land, well apart, the largest first."""
        rng = np.random.default_rng([self.seed, 2])
        inner = shapely.Polygon(self._coast_km).buffer(-12)
        shapely.prepare(inner)
        found: list[City] = []
        apart = 70.0
        while len(found) < len(CITY_NAMES):
            x, y = rng.uniform(-150, 150), rng.uniform(-125, 125)
            apart *= 0.999  # give way slowly, so that an odd coast cannot stop the search
            if not shapely.contains_xy(inner, x, y) or any(
                np.hypot(x - c.x_km, y - c.y_km) < apart for c in found
            ):
                continue
            radius = CITY_RADII_KM[len(found)]
            waves = tuple((k, float(rng.normal(0, 0.2 / k)), float(rng.uniform(0, 6.28))) for k in (2, 3, 4))
            lift = 0.42 + 0.02 * radius + float(rng.uniform(-0.05, 0.05))
            found.append(City(CITY_NAMES[len(found)], float(x), float(y), radius, lift, waves))
        return found

    @cached_property
    def roads(self) -> list[Array]:
        """Winding lines between cities, each (K, 2) km: a tree that joins all, and two short cuts."""
        rng = np.random.default_rng([self.seed, 3])
        places = np.array([[c.x_km, c.y_km] for c in self.cities])
        distance = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
        joined, edges = {0}, []
        while len(joined) < len(places):
            a, b = min(
                ((i, j) for i in joined for j in range(len(places)) if j not in joined),
                key=lambda e: distance[e],
            )
            joined.add(b)
            edges.append((a, b))
        others = [
            (i, j)
            for i in range(len(places))
            for j in range(i)
            if (i, j) not in edges and (j, i) not in edges
        ]
        edges += sorted(others, key=lambda e: distance[e])[:2]
        return [_winding(places[a], places[b], rng) for a, b in edges]

    @cached_property
    def _metres(self) -> pyproj.Transformer:
        return pyproj.Transformer.from_crs(4326, self.crs, always_xy=True)

    @cached_property
    def _coast_km(self) -> Array:
        """(720, 2): an ellipse of 150 by 125 km with bays of all sizes."""
        rng = np.random.default_rng([self.seed, 1])
        angle = np.linspace(0, 2 * np.pi, 720, endpoint=False)
        wave = sum(
            rng.normal(0, 0.28) / k**1.25 * np.cos(k * angle + rng.uniform(0, 2 * np.pi))
            for k in range(2, 45)
        )
        radius = 1 / np.hypot(np.cos(angle) / 150, np.sin(angle) / 125) * np.clip(1 + wave, 0.6, 1.3)
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)

    @cached_property
    def _road_tree(self) -> cKDTree:
        dense = []
        for road in self.roads:
            along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(road, axis=0).T))])
            at = np.arange(0, along[-1], ROAD_STEP_KM)
            dense.append(np.stack([np.interp(at, along, road[:, 0]), np.interp(at, along, road[:, 1])], 1))
        return cKDTree(np.concatenate(dense))

    def _surface(self, x: Array, y: Array) -> Array:
        """The median of the first quarter, log10 kbit/s."""
        rural = 4.45 + 0.16 * self._field(x, y, "rural")
        plateau = sum(c.lift * _sigmoid((1 - c.reach(x, y)) / 0.05) for c in self.cities)
        halo = sum(0.22 * np.exp(-np.square(c.reach(x, y) / 2.2)) for c in self.cities)
        road = 0.25 * np.exp(-0.5 * np.square(self.road_distance_km(x, y) / 2.0)) * (1 - self.urbanness(x, y))
        steps = sum(size * (_line(x, y, *line) > 0) for size, line in self._territories)
        return rural + plateau + halo + road + steps

    @cached_property
    def _territories(self) -> list[tuple[float, tuple[float, float, float]]]:
        """Steps of log10 speed and the lines they follow: angle, offset (km), phase of the line's wave."""
        rng = np.random.default_rng([self.seed, 4])
        angle = rng.uniform(0, 2 * np.pi)
        turns = (angle, angle + 1.9)
        return [
            (size, (float(a), float(rng.uniform(-40, 40)), float(rng.uniform(0, 6.28))))
            for size, a in zip((0.18, -0.14), turns, strict=True)
        ]

    def _field(self, x: Array, y: Array, name: str) -> Array:
        """A smooth random field of variance about 1: a sum of 24 plane waves."""
        rng = np.random.default_rng([self.seed, {"rural": 5, "noise": 6}[name]])
        wavelength, direction = rng.uniform(70, 220, 24), rng.uniform(0, 2 * np.pi, 24)
        phase, size = rng.uniform(0, 2 * np.pi, 24), np.sqrt(2 / 24)
        out = np.zeros(np.shape(x))
        for w, d, p in zip(wavelength, direction, phase, strict=True):
            out += size * np.cos(2 * np.pi / w * (np.cos(d) * x + np.sin(d) * y) + p)
        return np.clip(out, -2.5, 2.5)

    def states_file(self, folder: str | Path) -> Path:
        """Where a written world keeps its Census-style states file."""
        return Path(folder) / "census" / "cb_halcyon_state_500k.zip"

    def counties_file(self, folder: str | Path) -> Path:
        """Where a written world keeps its Census-style counties."""
        return Path(folder) / "census" / "cb_halcyon_county_500k.zip"

    def urban_file(self, folder: str | Path) -> Path:
        """Where a written world keeps its Census-style urban areas (2020 criteria)."""
        return Path(folder) / "census" / "tl_halcyon_uac20.zip"

    def to_json(self) -> dict[str, Any]:
        """What regenerates the world, and what it is made of, for readers without this package."""
        return {
            "schema": 1,
            "seed": self.seed,
            "size": self.size,
            "name": self.name,
            "state_code": self.state_code,
            "quarters": self.quarters,
            "crs": self.crs.to_wkt("WKT2_2019"),
            "rise_per_quarter_log10": RISE_PER_QUARTER,
            "noise": "Gaussian in log10 kbit/s, variance tau^2(x) + s^2(x) / tests",
            "cities": [
                {
                    "name": c.name,
                    "lon": float(lon),
                    "lat": float(lat),
                    "radius_km": c.radius_km,
                    "lift_log10": c.lift,
                }
                for c in self.cities
                for lon, lat in [self.to_degrees(c.x_km, c.y_km)]
            ],
        }


def _sigmoid(v: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * v))


def _line(x: Array, y: Array, angle: float, offset: float, phase: float) -> Array:
    """Signed distance-like height above a wavy line across the island."""
    along, across = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y
    return across - offset - 8 * np.sin(2 * np.pi * along / 90 + phase)


def _winding(a: Array, b: Array, rng: np.random.Generator) -> Array:
    """A road from a to b by midpoint displacement, five times halved."""
    line = np.stack([a, b])
    spread = 0.10 * float(np.hypot(*(b - a)))
    for _ in range(5):
        middle = (line[1:] + line[:-1]) / 2 + rng.normal(0, spread, (len(line) - 1, 2)) * 0.6
        spread /= 2
        merged = np.empty((2 * len(line) - 1, 2))
        merged[::2], merged[1::2] = line, middle
        line = merged
    return line
