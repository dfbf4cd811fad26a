"""Grids computed by aligned block, when they are read: memory stays bounded whatever the grid.

Nothing is computed until a variable is indexed; then the aligned 512 x 512 blocks under the window are computed
and kept (the most recent 256 MiB), so that the other variables of the window cost next to nothing.
"""

import functools
import hashlib
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import xarray as xr
from cachetools import LRUCache
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from torch import Tensor
from xarray.backends import BackendArray
from xarray.core import indexing

from geogp.data import Moments
from geogp.engines import Engine
from geogp.errors import InvalidInput
from geogp.estimator import GPRegressor
from geogp.targets import Target

Array = NDArray[np.float64]
Plane = NDArray[np.float32]

BLOCK = 512
CACHE_BYTES = 256 * 2**20

#: Window mask: (geobox of a window) -> boolean array, True where a prediction is wanted.
Where = Callable[[GeoBox], NDArray[np.bool_]]


class Places(Protocol):
    """Training places: distances (N,) to the nearest one, inf beyond `most`."""

    def distances_m(self, xy: Array, most: float = ...) -> Array: ...


class Mapped(Protocol):
    """What a grid asks of a run; see `geogp.run.Run`."""

    @property
    def model(self) -> GPRegressor: ...
    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def target(self) -> Target: ...
    @property
    def unit(self) -> str: ...
    @property
    def crs(self) -> CRS: ...
    @property
    def support(self) -> Places: ...
    @property
    def thresholds(self) -> tuple[float, ...]: ...
    def quarter(self, named: str | None = ...) -> str | None: ...
    def inputs(self, xy: Array, quarter: str | None = ..., *, gaps: bool = ...) -> Array: ...
    def from_degrees(self, lon: float, lat: float) -> Array: ...


class MomentsCache:
    """Moments at pixels that an engine was asked for before, by a hash of the inputs: the expensive half of a map.

    Level and threshold change only formulas on the moments, so a second layer, level or threshold of a quarter costs
    milliseconds. Hand one to `predict`, and to the next `predict`. Safe to call from several threads.

    Parameters
    ----------
    most_bytes : kept, the most recent ones
    fewest_rows : fewer (a click, a pointer) are not worth keeping
    """

    def __init__(self, most_bytes: int = 192 * 2**20, fewest_rows: int = 1000):
        self._kept: LRUCache[bytes, Moments] = LRUCache(most_bytes, getsizeof=_bytes)
        self._fewest, self._lock = fewest_rows, threading.Lock()
        self._numbers: weakref.WeakKeyDictionary[Engine, int] = weakref.WeakKeyDictionary()
        self._asked = itertools.count()

    def moments(self, engine: Engine, X: Tensor, counts: Tensor | None) -> Moments:
        """`engine.moments(X, counts)`, or what this very engine gave before."""
        if len(X) < self._fewest:
            return engine.moments(X, counts)
        with self._lock:
            number = self._numbers.setdefault(engine, next(self._asked))
        digest = hashlib.blake2b(X.contiguous().numpy().data, digest_size=16)
        digest.update(number.to_bytes(8, "little"))
        digest.update(b"-" if counts is None else counts.contiguous().numpy().data)
        key = digest.digest()
        with self._lock:
            known = self._kept.get(key)
        if known is not None:
            return known
        moments = engine.moments(X, counts)
        with self._lock:
            if _bytes(moments) <= self._kept.maxsize:
                self._kept[key] = moments
        return moments


def _bytes(moments: Moments) -> int:
    return sum(v.nbytes for v in vars(moments).values() if isinstance(v, Tensor))


class Blocks:
    """Planes of a grid by aligned block, computed on demand and kept while they fit.

    Parameters
    ----------
    of : inputs (N, D) of a run's model -> planes (P, N)
    n_planes : P
    quarter : whose inputs
    where, max_distance_m : pixels outside, or farther from all training places, are NaN and never computed
    most_bytes : of planes kept; default 256 MiB
    """

    def __init__(
        self,
        run: Mapped,
        geobox: GeoBox,
        of: Callable[[Array], Plane],
        n_planes: int,
        *,
        quarter: str | None,
        where: Where | None = None,
        max_distance_m: float | None = None,
        most_bytes: int | None = None,
    ):
        if geobox.crs is None:
            raise InvalidInput(
                "the grid has no CRS; give the GeoBox one, e.g. GeoBox.from_bbox(..., crs='EPSG:4326')."
            )
        self.run, self.geobox, self.of, self.n_planes = run, geobox, of, n_planes
        self.quarter, self.where, self.max_distance_m = quarter, where, max_distance_m
        self.computed = 0
        self._kept: LRUCache[tuple[int, int], Plane] = LRUCache(
            CACHE_BYTES if most_bytes is None else most_bytes, getsizeof=lambda b: b.nbytes
        )
        self._lock = threading.Lock()
        self._to_model: Transformer | None = None
        if run.data.get("crs") and (own := CRS.from_user_input(str(geobox.crs))) != run.crs:
            self._to_model = Transformer.from_crs(own, run.crs, always_xy=True)

    def inputs(self, window: GeoBox) -> Array:
        """Model inputs of a window's pixel centres: (rows * columns, D)."""
        xs, ys = np.meshgrid(np.arange(window.width) + 0.5, np.arange(window.height) + 0.5)
        A = window.affine
        east, north = A.c + A.a * xs.ravel() + A.b * ys.ravel(), A.f + A.d * xs.ravel() + A.e * ys.ravel()
        if self._to_model is not None:
            east, north = self._to_model.transform(east, north)
        return self.run.inputs(np.stack([east, north], axis=1), self.quarter, gaps=True)

    def block(self, i: int, j: int) -> Plane:
        """Block (i, j): (n_planes, rows, columns), NaN outside."""
        with self._lock:
            known = self._kept.get((i, j))
        if known is not None:
            return known
        H, W = self.geobox.shape
        window = self.geobox[i * BLOCK : min((i + 1) * BLOCK, H), j * BLOCK : min((j + 1) * BLOCK, W)]
        out = np.full((self.n_planes, *window.shape), np.nan, dtype=np.float32)
        wanted = np.ones(window.shape, bool) if self.where is None else np.asarray(self.where(window), bool)
        if wanted.any():
            X = self.inputs(window)
            flat = wanted.ravel() & np.isfinite(X).all(1)
            if self.max_distance_m is not None and flat.any():
                near = self.run.support.distances_m(X[flat, :2], self.max_distance_m)
                flat[np.flatnonzero(flat)[~np.isfinite(near)]] = False
            if flat.any():
                out.reshape(self.n_planes, -1)[:, flat] = self.of(X[flat])
                self.computed += int(flat.sum())
        with self._lock:
            if out.nbytes <= self._kept.maxsize:
                self._kept[i, j] = out
        return out

    def window(self, rows: slice, columns: slice) -> Plane:
        """Any window: (n_planes, rows, columns)."""
        r0, r1, _ = rows.indices(self.geobox.shape[0])
        c0, c1, _ = columns.indices(self.geobox.shape[1])
        out = np.empty((self.n_planes, max(r1 - r0, 0), max(c1 - c0, 0)), dtype=np.float32)
        for i in range(r0 // BLOCK, math.ceil(r1 / BLOCK)):
            for j in range(c0 // BLOCK, math.ceil(c1 / BLOCK)):
                a, b = max(r0, i * BLOCK), min(r1, (i + 1) * BLOCK)
                c, d = max(c0, j * BLOCK), min(c1, (j + 1) * BLOCK)
                part = self.block(i, j)[:, a - i * BLOCK : b - i * BLOCK, c - j * BLOCK : d - j * BLOCK]
                out[:, a - r0 : b - r0, c - c0 : d - c0] = part
        return out


class _Lazy(BackendArray):
    """An array of a grid that is computed when it is read."""

    shape: tuple[int, ...]

    def variable(self, dims: tuple[str, ...], attrs: dict[str, Any]) -> xr.Variable:
        """The variable of a Dataset that reads itself from here, by blocks."""
        attrs = {**attrs, "grid_mapping": "spatial_ref"}
        chunks = dict.fromkeys(dims[-2:], BLOCK)
        return xr.Variable(dims, indexing.LazilyIndexedArray(self), attrs, {"preferred_chunks": chunks})

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Plane:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> Plane:
        raise NotImplementedError


class LazyPlane(_Lazy):
    """One variable of a grid, a formula on the planes of its blocks; with `leading` values the first axis runs over
    them, and the formula is told which.

    Parameters
    ----------
    formula : (planes (P, rows, columns), leading value or None) -> (rows, columns)
    """

    def __init__(
        self,
        blocks: Blocks,
        formula: Callable[[Plane, float | None], Plane],
        leading: tuple[float, ...] | None = None,
    ):
        self.blocks, self.formula, self.leading = blocks, formula, leading
        shape = tuple(blocks.geobox.shape)
        self.shape = shape if leading is None else (len(leading), *shape)
        self.dtype = np.dtype("float32")

    def _read(self, key: tuple[Any, ...]) -> Plane:
        *lead, rows, columns = key
        # Integers become slices of one, steps are applied after reading, so that blocks see plain windows.
        read = [_as_slice(k, n) for k, n in zip((rows, columns), self.blocks.geobox.shape)]
        values = self.blocks.window(read[0][0], read[1][0])
        after = (read[0][1], read[1][1])
        if self.leading is None:
            return self.formula(values, None)[after]
        chosen = np.asarray(self.leading, float)[lead[0]]
        if np.ndim(chosen) == 0:
            return self.formula(values, float(chosen))[after]
        empty = np.empty((0, *values.shape[1:]), np.float32)
        return np.stack([self.formula(values, float(c))[after] for c in chosen]) if len(chosen) else empty


class LazyStack(_Lazy):
    """Variables of one shape and formula on several grids of moments, along a new first axis."""

    def __init__(self, parts: Sequence[LazyPlane]):
        self.parts = parts
        self.shape, self.dtype = (len(parts), *parts[0].shape), parts[0].dtype

    def _read(self, key: tuple[Any, ...]) -> Plane:
        first, rest = key[0], indexing.BasicIndexer(key[1:])
        if isinstance(first, int | np.integer):
            return self.parts[int(first)][rest]
        read = [part[rest] for part in self.parts[first]]
        return np.stack(read) if read else np.empty((0, *self.parts[0][rest].shape), self.dtype)


def _as_slice(key: Any, n: int) -> tuple[slice, Any]:
    """What to read along an axis of n, and what to take of it."""
    if isinstance(key, int | np.integer):
        k = int(key) % n
        return slice(k, k + 1), 0
    start, stop, step = key.indices(n)
    if step == 1:
        return slice(start, stop), slice(None)
    if step < 0:
        low = stop + 1 if stop >= 0 else 0
        return slice(low, start + 1), slice(None, None, step)
    return slice(start, stop), slice(None, None, step)


def grid_coordinates(geobox: GeoBox) -> dict[str, xr.DataArray]:
    """CF coordinates of a grid: pixel centres along both axes and the int32 grid mapping `spatial_ref`.

    (odc-geo makes the same in its xarray module, which cannot be imported without dask.)
    """
    crs = CRS.from_user_input(str(geobox.crs))
    if crs.is_geographic:
        names = {
            "y": ("latitude", "latitude", "degrees_north"),
            "x": ("longitude", "longitude", "degrees_east"),
        }
    else:
        unit = crs.axis_info[0].unit_name.replace("metre", "m") if crs.axis_info else "m"
        names = {
            "y": ("projection_y_coordinate", "northing", unit),
            "x": ("projection_x_coordinate", "easting", unit),
        }
    A = geobox.affine
    if A.b or A.d:
        raise InvalidInput("the grid is rotated; give one whose axes follow its CRS.")
    H, W = geobox.shape
    centres = {"y": A.f + A.e * (np.arange(H) + 0.5), "x": A.c + A.a * (np.arange(W) + 0.5)}
    coords = {
        dim: xr.DataArray(
            values,
            dims=dim,
            attrs={
                "standard_name": names[dim][0],
                "long_name": names[dim][1],
                "units": names[dim][2],
                "axis": dim.upper(),
            },
        )
        for dim, values in centres.items()
    }
    cf, epsg = _grid_mapping(str(geobox.crs))
    mapping = {**cf, "GeoTransform": " ".join(f"{v!r}" for v in A.to_gdal())}
    coords["spatial_ref"] = xr.DataArray(np.int32(epsg), attrs=mapping)
    return coords


@functools.lru_cache(maxsize=64)
def _grid_mapping(crs: str) -> tuple[dict[str, Any], int]:
    """What CF says of a CRS, and its EPSG code, 0 for none: looking it up takes 0.2 s."""
    known = CRS.from_user_input(crs)
    return known.to_cf(), known.to_epsg() or 0


def moments_of(
    model: GPRegressor, X: Array, tests: float | None, cache: MomentsCache | None = None
) -> Moments:
    """Moments of averages of `tests` measurements (default the usual number) at rows X, on the working scale."""
    n = None
    if model.has_counts:
        n = torch.full((len(X),), float(tests or model.typical_count_ or 1.0))
    engine, inputs = model.engine_, torch.as_tensor(X)
    return engine.moments(inputs, n) if cache is None else cache.moments(engine, inputs, n)
