"""Urban or rural: the Census labels of rows, each tile looked up once."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_pipelines import quadkey, zorder
from data_pipelines.census import UrbanAreas
from data_pipelines.regions import Region
from data_pipelines.remembered import Remembered

Degrees = NDArray[np.float64]


@dataclass
class Labels:
    """The columns urban, urban_vintage and urban_share of rows, and how many were urban."""

    areas: UrbanAreas
    place: Region
    _urban: int = field(default=0, repr=False)

    @classmethod
    def read(cls, urban: str | Path, place: Region) -> "Labels":
        """From a Census file of either vintage."""
        return cls(UrbanAreas.read(urban, place), place)

    def of(self, lon: Degrees, lat: Degrees, codes: NDArray[np.int64] | None) -> dict[str, NDArray[Any]]:
        """The labels of tiles, by their codes, or of points (N,): an area is urban by a tile's centre, and by its share."""
        labels: dict[str, NDArray[Any]] = {"urban_vintage": np.full(len(lon), self.areas.vintage)}
        if codes is None:  # a point has no area
            labels["urban"] = self.areas.hold(lon, lat)
        else:
            share = self._shares(codes)
            labels["urban"], labels["urban_share"] = share[:, 0] > 0, share[:, 1]
        self._urban += int(labels["urban"].sum())
        return labels

    def record(self, rows: int) -> dict[str, Any]:
        """What the document keeps, of so many rows."""
        return {
            "source": self.areas.source.url,
            "sha256": self.areas.source.sha256,
            "vintage": self.areas.vintage,
            "share_of_rows": self._urban / rows,
        }

    @cached_property
    def _shares(self) -> Remembered:
        """Whether the centre is urban, and the share of the area that is: (N, 2)."""

        def ask(codes: NDArray[np.int64]) -> NDArray[np.float64]:
            x, y = zorder.tiles(codes)
            centres = self.areas.hold(*quadkey.centre(x, y))
            return np.stack([centres, self.areas.share(self.place.tile_boxes(x, y))], axis=1).astype(
                np.float64
            )

        return Remembered(ask)
