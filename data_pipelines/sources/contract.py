"""What a source is asked and what it gives back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_pipelines.download import Progress
from data_pipelines.regions import Region


@dataclass(frozen=True)
class Request:
    """What to read: which fields count depends on the source."""

    region: Region | None
    progress: Progress | None = None
    root: str | Path | None = None
    type: str = "fixed"
    quarters: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    crs: Any = None


@dataclass(frozen=True)
class Collected:
    """Rows inside the region, as columns of equal length, and the account of those left out.

    `columns` has `quadkey` and `quarter` (strings, or None) and the measured columns of `schema`; the
    places of tiles follow from `x`, `y` (tile indices), those of points from `lon`, `lat` (WGS84).
    """

    columns: dict[str, NDArray[Any] | None]
    quarters: list[str]
    missing_quarters: list[str]
    rows_read: int
    dropped: dict[str, int]
    sources: list[dict[str, Any]]
    x: NDArray[np.int64] | None = None
    y: NDArray[np.int64] | None = None
    lon: NDArray[np.float64] | None = None
    lat: NDArray[np.float64] | None = None
    flagged: dict[str, int] = field(default_factory=dict)
