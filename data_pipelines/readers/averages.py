"""Single measurements become averages over tiles and quarters, with their counts: what Ookla publishes of its tests."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_pipelines import quadkey, zorder
from data_pipelines.errors import InvalidInput
from data_pipelines.sources.contract import Collected

Array = NDArray[np.float64]


def centred(lon: Array, lat: Array, usable: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The centres of the tiles that hold places (n,), of those that can be used: where their averages will lie.

    Raises
    ------
    InvalidInput
        A place nearer to a pole than tiles are.
    """
    beyond = np.flatnonzero(usable & (np.abs(lat) > quadkey.MAX_LATITUDE))
    if beyond.size:
        raise InvalidInput(
            f"Row {beyond[0] + 1} lies at latitude {lat[beyond[0]]:g}, and tiles end at {quadkey.MAX_LATITUDE:.2f}; average such "
            "rows yourself."
        )
    lon, lat = lon.copy(), lat.copy()
    lon[usable], lat[usable] = quadkey.centre(*quadkey.tile_of(lon[usable], lat[usable]))
    return lon, lat


def averaged(collected: Collected) -> Collected:
    """Points as the mean of each zoom-16 tile (some 600 m) and quarter, at its centre; `tests` is how many they are.

    Rows that stand for several measurements weigh, and count, as many; a count that is missing or below one is one. A
    covariate is the mean of the rows that have it.

    Notes
    -----
    O(n log n).

    Examples
    --------
    >>> columns = {"value": np.array([1.0, 3.0, 10.0]), "tests": np.array([1.0, 3.0, np.nan])}
    >>> at = np.array([-157.85, -157.8501, -155.0]), np.array([21.3, 21.3001, 19.7])
    >>> made = averaged(Collected(columns, at, rows_read=3, dropped={}, sources=[]))
    >>> made.columns["value"].tolist(), made.columns["tests"].tolist()
    ([2.5, 10.0], [4.0, 1.0])
    """
    given, n = collected.columns, len(collected.at[0])
    tile = zorder.of_tiles(*quadkey.tile_of(*collected.at))
    quarters, when = np.unique(given.get("quarter", np.full(n, "")), return_inverse=True)
    keys, group = np.unique(tile * len(quarters) + when.ravel(), return_inverse=True)
    tiles, told = np.divmod(keys, len(quarters))
    counts = np.nan_to_num(np.asarray(given.get("tests", np.ones(n)), np.float64), nan=1.0)
    weight = np.maximum(counts, 1.0)

    def mean(values: NDArray[Any]) -> Array:
        there = ~np.isnan(values)
        total = np.bincount(group, np.where(there, weight, 0.0), minlength=len(tiles))
        sums = np.bincount(group, np.where(there, values, 0.0) * weight, minlength=len(tiles))
        return np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)

    columns: dict[str, NDArray[Any]] = {
        name: mean(v) for name, v in given.items() if name not in ("quarter", "tests")
    }
    columns["tests"] = np.bincount(group, weight, minlength=len(tiles))
    if "quarter" in given:
        columns["quarter"] = quarters[told]
    at = quadkey.centre(*zorder.tiles(tiles))
    return replace(collected, columns=columns, at=at, about={**collected.about, "averaged_rows": n})
