"""A synthetic prediction: 150 x 200 pixels off Hawaii in a Lambert azimuthal equal-area, in memory or lazy."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import xarray as xr
from pyproj import CRS, Transformer
from scipy.special import ndtr
from xarray.backends import BackendArray
from xarray.core import indexing

VARIABLES = {
    "median": ("Mbit/s", "median of a new tile average"),
    "mean": ("Mbit/s", "mean of a new tile average"),
    "lower": ("Mbit/s", "lower end of the 95% prediction interval"),
    "upper": ("Mbit/s", "upper end of the 95% prediction interval"),
    "pi_width": ("Mbit/s", "width of the 95% prediction interval"),
    "latent_median": ("Mbit/s", "median of the surface"),
    "latent_lower": ("Mbit/s", "lower end of the credible interval"),
    "latent_upper": ("Mbit/s", "upper end of the credible interval"),
    "latent_sd": ("1", "sd of log10 of the surface"),
    "noise_sd": ("1", "sd of log10 of the noise"),
    "explained": ("1", "1 - latent variance / prior variance"),
    "exceedance": ("1", "probability that a new tile average exceeds the threshold"),
}
THRESHOLDS = np.array([25.0, 100.0])


def field_at(x: np.ndarray, y: np.ndarray, extent: float) -> dict[str, np.ndarray]:
    """The synthetic surface at metres x (columns) and y (rows): two towns, rural noise."""
    u, v = x[None, :] / extent, y[:, None] / extent
    towns = np.exp(-(((u - 0.3) ** 2 + (v + 0.1) ** 2) / 0.02)) + 0.7 * np.exp(
        -(((u + 0.4) ** 2 + (v - 0.2) ** 2) / 0.01)
    )
    level = 1.4 + 0.9 * towns + 0.15 * np.sin(6 * u) * np.cos(7 * v)
    latent = 0.05 + 0.35 * (1 - np.minimum(1, 2 * towns))
    noise = 0.18 + 0.1 * np.abs(u) + 0 * v
    total = np.hypot(latent, noise)
    out = {
        "median": 10**level,
        "mean": 10 ** (level + 0.5 * np.log(10) * total**2),
        "lower": 10 ** (level - 1.96 * total),
        "upper": 10 ** (level + 1.96 * total),
        "latent_median": 10**level,
        "latent_lower": 10 ** (level - 1.96 * latent),
        "latent_upper": 10 ** (level + 1.96 * latent),
        "latent_sd": latent,
        "noise_sd": noise,
        "explained": 1 - (latent / 0.41) ** 2,
        "exceedance": np.stack([ndtr((level - np.log10(t)) / total) for t in THRESHOLDS]),
    }
    out["pi_width"] = out["upper"] - out["lower"]
    return {k: v.astype(np.float32) for k, v in out.items()}


@dataclass
class Counter:
    """What a lazy prediction was asked for."""

    pixels: int = 0
    windows: list[tuple[int, int, int, int]] = field(default_factory=list)
    largest: int = 0
    fail_after: int | None = None


class _Lazy(BackendArray):
    def __init__(
        self, name: str, x: np.ndarray, y: np.ndarray, extent: float, counter: Counter, cache: dict[Any, Any]
    ):
        self.name, self.x, self.y, self.extent, self.counter, self.cache = name, x, y, extent, counter, cache
        self.shape = ((len(THRESHOLDS),) if name == "exceedance" else ()) + (y.size, x.size)
        self.dtype = np.dtype("float32")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        rows, cols = (np.arange(n)[k] for n, k in zip(self.shape[-2:], key[-2:], strict=True))
        at = (rows[0], rows[-1] + 1, cols[0], cols[-1] + 1)
        if at not in self.cache:  # all variables of one window are computed together, once
            self.cache.clear()
            self.cache[at] = field_at(self.x[cols], self.y[rows], self.extent)
            self.counter.windows.append(tuple(int(v) for v in at))
            self.counter.pixels += rows.size * cols.size
            self.counter.largest = max(self.counter.largest, rows.size * cols.size)
            if self.counter.fail_after is not None and len(self.counter.windows) > self.counter.fail_after:
                raise KeyboardInterrupt
        plane = self.cache[at][self.name]
        return plane[key[0]] if plane.ndim == 3 else plane


def make(
    shape: tuple[int, int] = (150, 200),
    pixel_m: float = 1000.0,
    centre: tuple[float, float] = (-157.3, 20.6),
    counter: Counter | None = None,
    **attrs: Any,
) -> xr.Dataset:
    """A prediction Dataset; lazy and counted when `counter` is given."""
    height, width = shape
    x = (np.arange(width) - width / 2 + 0.5) * pixel_m
    y = (height / 2 - 0.5 - np.arange(height)) * pixel_m
    crs = CRS.from_dict(
        {"proj": "laea", "lon_0": centre[0], "lat_0": centre[1], "datum": "WGS84", "units": "m"}
    )
    extent = max(height, width) * pixel_m / 2
    cache: dict[Any, Any] = {}
    data = None if counter is not None else field_at(x, y, extent)
    variables = {}
    for name, (units, long_name) in VARIABLES.items():
        dims = ("threshold", "y", "x") if name == "exceedance" else ("y", "x")
        values: Any = (
            indexing.LazilyIndexedArray(_Lazy(name, x, y, extent, counter, cache))
            if data is None
            else data[name]
        )
        variables[name] = xr.Variable(
            dims, values, {"units": units, "long_name": long_name, "grid_mapping": "spatial_ref"}
        )
    transform = f"{x[0] - pixel_m / 2} {pixel_m} 0 {y[0] + pixel_m / 2} 0 {-pixel_m}"
    return xr.Dataset(
        variables,
        {
            "y": ("y", y, {"units": "m", "standard_name": "projection_y_coordinate", "axis": "Y"}),
            "x": ("x", x, {"units": "m", "standard_name": "projection_x_coordinate", "axis": "X"}),
            "threshold": ("threshold", THRESHOLDS, {"units": "Mbit/s", "long_name": "threshold"}),
            "spatial_ref": ((), np.int32(0), {**crs.to_cf(), "GeoTransform": transform}),
        },
        {
            "Conventions": "CF-1.8",
            "title": "Download speed, synthetic islands",
            "method": "dbk-rbf",
            "target": "download",
            "target_unit": "Mbit/s",
            "target_title": "download speed",
            "target_noun": "tile averages",
            "target_better": "higher",
            "target_colours": "batlow",
            "quarter": "2023Q4",
            "tests": 5,
            "level": 0.95,
            "history": "made for a test",
            "institution": "none",
            "source": "synthetic",
            "references": "none",
            "comment": "none",
            **attrs,
        },
    )


def islands(ds: xr.Dataset) -> dict[str, Any]:
    """Two island-like polygons in longitude and latitude inside the grid of `ds`."""
    x, y = ds["x"].values, ds["y"].values
    half_x, half_y = (x[-1] - x[0]) / 2, (y[0] - y[-1]) / 2
    back = Transformer.from_crs(ds["spatial_ref"].attrs["crs_wkt"], "EPSG:4326", always_xy=True)
    angle = np.linspace(0, 2 * np.pi, 121)
    rings = []
    for cx, cy, rx, ry in ((0.3, -0.15, 0.5, 0.6), (-0.55, 0.35, 0.25, 0.35)):
        wobble = 1 + 0.08 * np.sin(5 * angle) + 0.05 * np.cos(9 * angle)
        lon, lat = back.transform(
            (cx + rx * np.cos(angle) * wobble) * half_x, (cy + ry * np.sin(angle) * wobble) * half_y
        )
        ring = np.column_stack([lon, lat])
        ring[-1] = ring[0]
        rings.append([ring.tolist()])
    return {"type": "MultiPolygon", "coordinates": rings}


@pytest.fixture(name="make", scope="session")
def _make() -> Callable[..., xr.Dataset]:
    return make


@pytest.fixture(name="islands", scope="session")
def _islands() -> Callable[[xr.Dataset], dict[str, Any]]:
    return islands


@pytest.fixture(name="Counter", scope="session")
def _counter() -> type[Counter]:
    return Counter


@pytest.fixture
def ds() -> xr.Dataset:
    return make()


@pytest.fixture
def region(ds: xr.Dataset) -> dict[str, Any]:
    return islands(ds)
