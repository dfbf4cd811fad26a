"""Rasters that somebody else made: the value of the pixel a place lies in, as the mean of a fixed-mean GP or as covariates."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from pyproj import CRS, Transformer
from torch import Tensor

from geogp.errors import InvalidInput
from geogp.targets import target

Array = NDArray[np.float64]
#: Places (N, 2) to the values of some covariates there, (N, k).
Covariates: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Raster:
    """X (N, D) -> (N,) float64, NaN outside the raster and where it has no value.

    values : (H, W); first : centres of the first column and row; step : from one to the next (signed)
    columns : of X, with the raster's x and y once they are in its CRS
    from_crs, crs : of X and of the raster; None: X is in the raster's own coordinates
    scale : target whose score scale the values are taken to ("download": Mbit/s to log10 of kbit/s); "" as they are

    Examples
    --------
    >>> da = xr.DataArray([[1.0, 2.0], [3.0, 4.0]], coords={"y": [15.0, 5.0], "x": [5.0, 15.0]}, dims=("y", "x"))
    >>> Raster.of(da)(np.array([[9.9, 10.1], [10.0, 0.1], [20.1, 5.0]])).tolist()
    [1.0, 4.0, nan]
    """

    values: NDArray[np.floating]
    first: tuple[float, float]
    step: tuple[float, float]
    columns: tuple[int, int] = (0, 1)
    from_crs: str | None = None
    crs: str | None = None
    scale: str = ""

    @classmethod
    def of(
        cls,
        da: xr.DataArray,
        *,
        columns: tuple[int, int] = (0, 1),
        from_crs: str | None = None,
        scale: str = "",
    ) -> Self:
        """Of a DataArray with dims (y, x), evenly spaced coordinates and, in `spatial_ref`, perhaps a CRS.

        Raises
        ------
        InvalidInput
            other dims, uneven coordinates, no value at all, or `from_crs` without a CRS of the raster.
        """
        if da.ndim != 2 or set(da.dims) != {"y", "x"}:
            raise InvalidInput(
                f"a raster needs the dimensions (y, x); got {tuple(da.dims)}: select one band of it."
            )
        da = da.transpose("y", "x")
        values = np.asarray(da.values)
        values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
        if not np.isfinite(values).any():
            raise InvalidInput("the raster has no value in the area of the rows; take one that covers them.")
        reference = da.coords.get("spatial_ref")
        crs = None if reference is None else reference.attrs.get("crs_wkt")
        if from_crs is not None and crs is None:
            raise InvalidInput(
                "the raster has no CRS; give it one (spatial_ref with crs_wkt) to place it on the map."
            )
        (x, dx), (y, dy) = (_even(da, name) for name in ("x", "y"))
        return cls(values, (x, y), (dx, dy), columns, from_crs, crs if from_crs is not None else None, scale)

    def filled(self, pixels: float) -> Self:
        """The raster with its gaps filled by the nearest value, at most so many pixels away; its values stay."""
        gaps = ~np.isfinite(self.values)
        if not gaps.any():
            return self
        from scipy.ndimage import distance_transform_edt

        away, (i, j) = distance_transform_edt(gaps, return_indices=True)
        values = np.where(gaps & (away <= pixels), self.values[i, j], self.values)
        return replace(self, values=values)

    def __call__(self, X: Array) -> Array:
        """The values at the places of X (N, D): (N,)."""
        x, y = (np.asarray(X, dtype=np.float64)[:, d] for d in self.columns)
        if self.from_crs is not None and self.crs is not None:
            source, own = CRS.from_user_input(self.from_crs), CRS.from_user_input(self.crs)
            if source != own:
                x, y = Transformer.from_crs(source, own, always_xy=True).transform(x, y)
        j = np.floor((x - self.first[0]) / self.step[0] + 0.5)
        i = np.floor((y - self.first[1]) / self.step[1] + 0.5)
        height, width = self.values.shape
        inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
        out = np.full(len(x), np.nan)
        out[inside] = self.values[i[inside].astype(np.int64), j[inside].astype(np.int64)]
        out[~np.isfinite(out)] = np.nan
        if self.scale:
            known = np.isfinite(out)
            out[known] = target(self.scale).to_score(out[known])
        return out

    def state(self) -> tuple[dict[str, Tensor], dict]:
        """Tensors and JSON-able facts for `from_state`."""
        facts = {
            "first": list(self.first), "step": list(self.step), "columns": list(self.columns),
            "from_crs": self.from_crs, "crs": self.crs, "scale": self.scale,
        }  # fmt: skip
        return {"values": torch.from_numpy(np.ascontiguousarray(self.values))}, facts

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict) -> Self:
        """The raster that `state` described."""
        a, b, c = (facts[name] for name in ("first", "step", "columns"))
        return cls(
            tensors["values"].numpy(), (a[0], a[1]), (b[0], b[1]), (c[0], c[1]), facts["from_crs"], facts["crs"],
            facts["scale"],
        )  # fmt: skip


def _even(da: xr.DataArray, name: str) -> tuple[float, float]:
    """First coordinate and step along a dimension."""
    centres = np.asarray(da[name].values, dtype=np.float64)
    if len(centres) < 2:
        raise InvalidInput(f"a raster needs two or more pixels along {name}; got {len(centres)}.")
    step = (centres[-1] - centres[0]) / (len(centres) - 1)
    off = np.abs(centres - centres[0] - step * np.arange(len(centres))).max()
    if not (math.isfinite(step) and step != 0 and off <= 1e-3 * abs(step)):
        raise InvalidInput(f"the raster's {name} is not evenly spaced; bring it on a regular grid first.")
    return float(centres[0]), float(step)


def covariates_at(
    known: Covariates | None, names: Sequence[str], places: Array, of: str, *, gaps: bool = False
) -> Array:
    """What is known of the covariates called `names` at places (N, 2): (N, k), NaN in gaps where these are allowed.

    Raises
    ------
    InvalidInput
        nothing is known of them or, without `gaps`, not all at each place; `of` names whose they are.
    """
    if not names:
        return np.empty((len(places), 0))
    if known is None:
        each = ",".join(f"{name}=FILE.tif" for name in names)
        raise InvalidInput(
            f"{of} has learned by {', '.join(names)}, which nobody has said of these places; give rasters that cover "
            f"them, --covariates {each}, here or to `geogp fit`, which remembers them."
        )
    values = np.asarray(known(places), dtype=np.float64).reshape(len(places), len(names))
    lacking = ~np.isfinite(values)
    if not gaps and lacking.any():
        column = int(np.flatnonzero(lacking.any(axis=0))[0])
        raise InvalidInput(
            f"{names[column]}, by which {of} has learned, is not known at {int(lacking[:, column].sum()):,} of "
            f"{len(places):,} places; give a raster that covers them, its gaps filled."
        )
    return values
