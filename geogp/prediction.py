"""A run and a grid -> a Dataset whose pixels are computed when they are read.

Nothing is computed until a variable is indexed; then the aligned 512 x 512 blocks under the window are
predicted and their four moments kept (the most recent 256 MiB), so that the other variables of the window
cost next to nothing and memory stays bounded whatever the grid.
"""

import datetime
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from xarray.backends import BackendArray
from xarray.core import indexing

from geogp.data import Moments
from geogp.errors import InvalidInput
from geogp.predictive import Predictive
from geogp.storage import Run
from geogp.targets import Target, target

BLOCK = 512
CACHE_BYTES = 256 * 2**20

#: Window mask: (geobox of a window) -> boolean array, True where a prediction is wanted.
Where = Callable[[GeoBox], NDArray[np.bool_]]


def quarter_to_years(quarter: str) -> float:
    """The middle of a quarter, in years.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> quarter_to_years("2023Q4")
    2023.875
    """
    year, mark, q = quarter.upper().partition("Q")
    if not (mark and year.isdigit() and q in ("1", "2", "3", "4")):
        raise InvalidInput(f"a quarter is written 2023Q4; got {quarter!r}.")
    return int(year) + (int(q) - 0.5) / 4.0


@dataclass(frozen=True)
class Setting:
    """What a map is a map of: quarter, measurements behind a new average, level of the intervals."""

    quarter: str | None
    tests: float | None
    level: float


class Blocks:
    """Moments of a grid by aligned block, computed on demand and kept while they fit."""

    #: Numbers kept of each pixel.
    planes = Moments.PLANES

    def __init__(
        self, run: Run, geobox: GeoBox, setting: Setting, where: Where | None, max_distance_m: float | None
    ):
        self.run, self.geobox, self.setting, self.where = run, geobox, setting, where
        self._kept: OrderedDict[tuple[int, int], NDArray[np.float32]] = OrderedDict()
        self.computed = 0
        crs = run.facts["data"].get("crs")
        self._to_model: Transformer | None = None
        if crs is not None and geobox.crs is not None:
            source, model = CRS.from_user_input(str(geobox.crs)), CRS.from_user_input(crs)
            if source != model:
                self._to_model = Transformer.from_crs(source, model, always_xy=True)
        self._tree: Any = None
        self.max_distance_m = max_distance_m
        if max_distance_m is not None:
            from scipy.spatial import cKDTree

            self._tree = cKDTree(run.tensors("support")["positions_m"].numpy())

    def inputs(self, window: GeoBox) -> NDArray[np.float64]:
        """Model inputs of a window's pixel centres: (rows * columns, D)."""
        xs, ys = np.meshgrid(np.arange(window.width) + 0.5, np.arange(window.height) + 0.5)
        A = window.affine
        east, north = A.c + A.a * xs.ravel() + A.b * ys.ravel(), A.f + A.d * xs.ravel() + A.e * ys.ravel()
        if self._to_model is not None:
            east, north = self._to_model.transform(east, north)
        columns: list[NDArray[np.float64]] = [np.asarray(east), np.asarray(north)]
        if self.run.model.engine_.plan.shape.time is not None:
            if self.setting.quarter is None:
                raise InvalidInput("this run knows time; name the quarter to map, e.g. quarter='2023Q4'.")
            columns.append(np.full_like(east, quarter_to_years(self.setting.quarter)))
        return np.stack(columns, axis=1)

    def block(self, i: int, j: int) -> NDArray[np.float32]:
        """Stacked moments (`Moments.stack`) of block (i, j): (planes, rows, columns), NaN outside."""
        if (i, j) in self._kept:
            self._kept.move_to_end((i, j))
            return self._kept[i, j]
        H, W = self.geobox.shape
        window = self.geobox[i * BLOCK : min((i + 1) * BLOCK, H), j * BLOCK : min((j + 1) * BLOCK, W)]
        out = np.full((self.planes, *window.shape), np.nan, dtype=np.float32)
        wanted = np.ones(window.shape, bool) if self.where is None else np.asarray(self.where(window), bool)
        if wanted.any():
            X = self.inputs(window)
            flat = wanted.ravel() & np.isfinite(X).all(1)
            if self._tree is not None and flat.any():
                near = self._tree.query(X[flat, :2], distance_upper_bound=self.max_distance_m)[0]
                flat[np.flatnonzero(flat)[~np.isfinite(near)]] = False
            if flat.any():
                out.reshape(self.planes, -1)[:, flat] = self._moments(X[flat])
                self.computed += int(flat.sum())
        self._kept[i, j] = out
        while len(self._kept) > 1 and sum(b.nbytes for b in self._kept.values()) > CACHE_BYTES:
            self._kept.popitem(last=False)
        return out

    def _moments(self, X: NDArray[np.float64]) -> NDArray[np.float32]:
        model = self.run.model
        n = None
        if model.engine_.plan.shape.has_counts:
            n = torch.full((len(X),), float(self.setting.tests or model.typical_count_ or 1.0))
        return model.engine_.moments(torch.as_tensor(X), n).stack().numpy()

    def window(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Stacked moments of any window: (planes, rows, columns)."""
        r0, r1, _ = rows.indices(self.geobox.shape[0])
        c0, c1, _ = columns.indices(self.geobox.shape[1])
        out = np.empty((self.planes, max(r1 - r0, 0), max(c1 - c0, 0)), dtype=np.float32)
        for i in range(r0 // BLOCK, math.ceil(r1 / BLOCK)):
            for j in range(c0 // BLOCK, math.ceil(c1 / BLOCK)):
                a, b = max(r0, i * BLOCK), min(r1, (i + 1) * BLOCK)
                c, d = max(c0, j * BLOCK), min(c1, (j + 1) * BLOCK)
                part = self.block(i, j)[:, a - i * BLOCK : b - i * BLOCK, c - j * BLOCK : d - j * BLOCK]
                out[:, a - r0 : b - r0, c - c0 : d - c0] = part
        return out


Formula = Callable[[Run, Target, Moments, float], NDArray[np.float64]]


def _new(run: Run, m: Moments) -> Predictive:
    return run.model.distribution(m)


def _surface(run: Run, m: Moments) -> Predictive:
    return run.model.distribution(m, latent=True)


def _interval_end(which: int, latent: bool) -> Formula:
    def formula(run: Run, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
        predictive = run.model.distribution(m, latent=latent)
        return t.from_score(predictive.interval(level)[which])

    return formula


def _width(run: Run, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    lower, upper = _new(run, m).interval(level)
    return t.from_score(upper) - t.from_score(lower)


def _mean(run: Run, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    return _new(run, m).mean_of(t.from_score, bounds=run.model.target_range_)


def _latent_sd(run: Run, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    return run.model.target_sd_ * np.sqrt(m.latent_variance.double().numpy())


def _noise_sd(run: Run, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    # What a new observation varies beyond the surface; heavy tails belong to it, not to the surface.
    return run.model.target_sd_ * np.sqrt((m.new_variance() - m.latent_variance).double().numpy())


def _explained(run: Run, t: Target, m: Moments, level: float) -> NDArray[np.float64]:
    prior = m.prior_variance.double().numpy()
    return np.clip(1.0 - m.latent_variance.double().numpy() / np.maximum(prior, 1e-30), 0.0, 1.0)


#: variable -> (formula, unit: "target" or a literal, long name)
VARIABLES: dict[str, tuple[Formula, str, str]] = {
    "median": (
        lambda r, t, m, level: t.from_score(_new(r, m).median()),
        "target",
        "median of a new tile average",
    ),
    "mean": (_mean, "target", "mean of a new tile average"),
    "lower": (_interval_end(0, False), "target", "lower end of the prediction interval"),
    "upper": (_interval_end(1, False), "target", "upper end of the prediction interval"),
    "pi_width": (_width, "target", "width of the prediction interval"),
    "latent_median": (
        lambda r, t, m, level: t.from_score(_surface(r, m).median()),
        "target",
        "median of the surface",
    ),
    "latent_lower": (_interval_end(0, True), "target", "lower end of the credible interval of the surface"),
    "latent_upper": (_interval_end(1, True), "target", "upper end of the credible interval of the surface"),
    "latent_sd": (_latent_sd, "1", "sd of the surface"),
    "noise_sd": (_noise_sd, "1", "sd of the noise of a new tile average"),
    "explained": (_explained, "1", "share of the prior variance that the data explain"),
}


class _Lazy(BackendArray):
    """One variable of the Dataset; the leading axis of `exceedance` runs over thresholds."""

    def __init__(self, blocks: Blocks, name: str, thresholds: Sequence[float] | None = None):
        self.blocks, self.name, self.thresholds = blocks, name, thresholds
        shape = tuple(blocks.geobox.shape)
        self.shape = shape if thresholds is None else (len(thresholds), *shape)
        self.dtype = np.dtype("float32")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> NDArray[np.float32]:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple) -> NDArray[np.float32]:
        *lead, rows, columns = key
        # Integers become slices of one, steps are applied after reading, so that blocks see plain windows.
        read = [_as_slice(k, n) for k, n in zip((rows, columns), self.blocks.geobox.shape)]
        values = self.blocks.window(read[0][0], read[1][0])
        after = (read[0][1], read[1][1])
        if self.thresholds is None:
            return self._values(values, None)[after]
        chosen = np.asarray(self.thresholds, float)[lead[0]]
        if np.ndim(chosen) == 0:
            return self._values(values, float(chosen))[after]
        return (
            np.stack([self._values(values, float(c))[after] for c in chosen])
            if len(chosen)
            else np.empty((0, *values.shape[1:]), np.float32)
        )

    def _values(self, moments: NDArray[np.float32], threshold: float | None) -> NDArray[np.float32]:
        run, setting = self.blocks.run, self.blocks.setting
        goal = target(run.facts["target"])
        out = np.full(moments.shape[1:], np.nan, dtype=np.float32)
        inside = np.isfinite(moments[0])
        if inside.any():
            m = Moments.unstack(torch.from_numpy(moments[:, inside]))
            if threshold is None:
                out[inside] = VARIABLES[self.name][0](run, goal, m, setting.level)
            else:
                out[inside] = _new(run, m).exceedance(float(goal.to_score(threshold)))
        return out


def _as_slice(key: Any, n: int) -> tuple[slice, Any]:
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
    y_dim, x_dim = "y", "x"  # in any CRS: consumers know the axes by these names
    crs = CRS.from_user_input(str(geobox.crs))
    if crs.is_geographic:
        names = {
            y_dim: ("latitude", "latitude", "degrees_north"),
            x_dim: ("longitude", "longitude", "degrees_east"),
        }
    else:
        unit = crs.axis_info[0].unit_name.replace("metre", "m") if crs.axis_info else "m"
        names = {
            y_dim: ("projection_y_coordinate", "northing", unit),
            x_dim: ("projection_x_coordinate", "easting", unit),
        }
    A = geobox.affine
    if A.b or A.d:
        raise InvalidInput("the grid is rotated; give one whose axes follow its CRS.")
    H, W = geobox.shape
    centres = {y_dim: A.f + A.e * (np.arange(H) + 0.5), x_dim: A.c + A.a * (np.arange(W) + 0.5)}
    coords = {
        dim: xr.DataArray(
            values,
            dims=dim,
            attrs={
                "standard_name": names[dim][0],
                "long_name": names[dim][1],
                "units": names[dim][2],
                "axis": "Y" if dim == y_dim else "X",
            },
        )
        for dim, values in centres.items()
    }
    mapping = {**crs.to_cf(), "GeoTransform": " ".join(f"{v!r}" for v in A.to_gdal())}
    coords["spatial_ref"] = xr.DataArray(np.int32(crs.to_epsg() or 0), attrs=mapping)
    return coords


def predict(
    run: Run,
    geobox: GeoBox,
    *,
    quarter: str | None = None,
    tests: float | None = None,
    level: float = 0.95,
    thresholds: Sequence[float] = (25.0, 100.0),
    where: Where | None = None,
    max_distance_m: float | None = None,
) -> xr.Dataset:
    """A Dataset of every map variable on a grid, computed as it is read.

    Parameters
    ----------
    run : from `geogp.load`
    geobox : grid in any CRS; pixels are points at their centres
    quarter : e.g. "2023Q4"; default the run's last one
    tests : measurements behind the new tile average that the maps describe; default the training median
    level : of the intervals
    thresholds : of `exceedance`, in the target's unit
    where : mask by window; pixels outside are NaN and never computed
    max_distance_m : NaN farther than this from every training place

    Returns
    -------
    Dataset with dims (y, x), CF attributes and an int32 `spatial_ref`; see VARIABLES for units.

    Raises
    ------
    InvalidInput
        a malformed quarter, a level outside (0, 1), a grid without CRS.

    Notes
    -----
    A block of 512 x 512 pixels costs one prediction of as many rows; memory is bounded by 256 MiB of
    moments beside what the caller keeps.
    """
    if geobox.crs is None:
        raise InvalidInput(
            "the grid has no CRS; give the GeoBox one, e.g. GeoBox.from_bbox(..., crs='EPSG:4326')."
        )
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"level must lie between 0 and 1; got {level}: use 0.95 for a 95% interval.")
    goal = target(run.facts["target"])
    quarter = quarter or run.facts["data"].get("last_quarter")
    if quarter is not None:
        quarter_to_years(quarter)
    if tests is None:
        tests = run.model.typical_count_
    setting = Setting(quarter, tests, level)
    blocks = Blocks(run, geobox, setting, where, max_distance_m)
    unit = run.facts["data"].get("value_unit") or goal.unit if goal.name == "value" else goal.unit
    y_dim, x_dim = "y", "x"
    coords = grid_coordinates(geobox)
    variables: dict[str, xr.Variable] = {}

    def lazy(name: str, dims: tuple[str, ...], array: _Lazy, attrs: dict) -> None:
        chunks = dict(zip(dims[-2:], (BLOCK, BLOCK)))
        attrs = {**attrs, "grid_mapping": "spatial_ref"}
        variables[name] = xr.Variable(
            dims, indexing.LazilyIndexedArray(array), attrs, {"preferred_chunks": chunks}
        )

    dims = (y_dim, x_dim)
    about = f"{quarter or 'all times'}" + ("" if tests is None else f", {tests:g} measurements")
    for name, (_, own_unit, words) in VARIABLES.items():
        attrs = {"units": unit if own_unit == "target" else own_unit, "long_name": f"{words} ({about})"}
        if name in ("lower", "upper", "pi_width", "latent_lower", "latent_upper"):
            attrs["level"] = level
        lazy(name, dims, _Lazy(blocks, name), attrs)
    if len(thresholds):
        lazy(
            "exceedance",
            ("threshold", *dims),
            _Lazy(blocks, "exceedance", tuple(float(v) for v in thresholds)),
            {
                "units": "1",
                "long_name": f"probability that a new tile average exceeds the threshold ({about})",
            },
        )
        coords["threshold"] = xr.DataArray(
            np.asarray(thresholds, dtype=np.float64),
            dims="threshold",
            attrs={"units": unit, "long_name": f"threshold of {goal.words}"},
        )
    out = xr.Dataset(variables, coords=coords)
    out.attrs = {
        "Conventions": "CF-1.8",
        "title": f"{goal.words.capitalize()}: posterior median, prediction intervals and exceedance probability",
        "institution": "made with GeoGP",
        "source": f"GeoGP method {run.model.method}",
        "history": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ} geogp.predict",
        "comment": "Medians and intervals describe the measured average of a new tile, not the service on offer.",
        "method": run.model.method,
        "target": goal.name,
        "target_unit": unit,
        "quarter": quarter or "",
        "tests": float("nan") if tests is None else float(tests),
        "level": level,
    }
    if tests is None:
        del out.attrs["tests"]
    return out
