"""From collected rows to the table and its metadata document: place, label, sort, account."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import shapely
from numpy.typing import NDArray

from data_pipelines import zorder
from data_pipelines.arrow import numbers
from data_pipelines.errors import InvalidInput
from data_pipelines.labels import Labels
from data_pipelines.quadkey import centre
from data_pipelines.regions import Region
from data_pipelines.schema import (
    MEASURED,
    OPTIONAL_TILE_COLUMNS,
    POINT_COLUMNS,
    SCHEMA_VERSION,
    TILE_COLUMNS,
    arrow_schema,
    covariate,
)
from data_pipelines.sources.contract import Collected
from data_pipelines.words import causes

Degrees = NDArray[np.float64]

#: A quarter is thin below this share of the median quarter's rows, judged among at least so many.
THIN_SHARE, THIN_AMONG = 0.3, 4


@dataclass
class Assembly:
    """What a source collects becomes tables of `schema`, sorted by quarter and quadkey, and then a document of them all.

    Parameters
    ----------
    tiled : whether rows are averages over tiles
    place, place_record : region they lie in and the file that drew it; None for a table without a place,
        which gets a metric CRS about its own points
    urban : urban-area file or None
    about : first entries of the document (source, type)
    """

    tiled: bool
    place: Region | None
    place_record: dict[str, Any] | None
    urban: str | Path | None
    about: dict[str, Any]
    _seen: list[Collected] = field(default_factory=list)
    _flagged: Counter[str] = field(default_factory=Counter)
    _kept: int = 0
    _around: Region | None = None
    _labels: Labels | None = None

    def tables(self, parts: Iterable[Collected]) -> Iterator[pa.Table]:
        """The table of each part; parts are in the order of their quarters, or one.

        Raises
        ------
        InvalidInput
            No row is left when all have been seen.
        """
        for part in parts:
            table = self._table(part)
            self._kept += table.num_rows
            self._flagged.update(_flags(table))
            self._seen.append(replace(part, columns={}, at=(np.zeros(0), np.zeros(0))))
            yield table
        if not self._kept:
            raise self._none_left()

    def document(self) -> dict[str, Any]:
        """What is to be said of the tables, when all were taken."""
        assert self._around
        place, seen = self.place, self._seen
        dropped: Counter[str] = Counter()
        for part in seen:
            dropped.update(part.dropped)
        told: Counter[str] = Counter()
        for part in seen:
            told.update(part.flagged)
        # a column without a value has nothing odd
        flagged = dict(told) | {
            cause: n for cause, n in self._flagged.items() if (cause[:5], n) != ("null_", self._kept)
        }
        sources = [record for part in seen for record in part.sources]
        several = {"regions": [member.name for member in place.members]} if place and place.members else {}
        return {
            "schema_version": SCHEMA_VERSION,
            **self.about,
            **(seen[0].about if seen else {}),
            "region": place.name if place else None,
            **several,
            "crs": self._around.crs.to_wkt("WKT2_2019"),
            "boundary": place.boundary() if place else None,
            "bbox": list(place.bbox) if place and place.bbox else None,
            "boundary_source": self.place_record,
            "quarters": [quarter for part in seen for quarter in part.quarters],
            "missing_quarters": [quarter for part in seen for quarter in part.missing_quarters],
            "thin_quarters": _thin(sources),
            "rows_read": sum(part.rows_read for part in seen),
            "rows_kept": self._kept,
            "dropped": dict(dropped),
            "flagged": {cause: n for cause, n in flagged.items() if n},
            "urban": self._labels.record(self._kept) if self._labels else None,
            "sources": sources,
            "targets": [column.measures for column in TILE_COLUMNS if column.measures]
            if self.tiled
            else ["value"],
        }

    def _table(self, part: Collected) -> pa.Table:
        lon, lat = _degrees(part, self.tiled)
        if not len(lon) and not self.place:
            self._seen.append(part)
            raise self._none_left()
        if self._around is None:
            self._around = self.place or Region.from_polygon("", _around(lon, lat))
            self._labels = Labels.read(self.urban, self._around) if self.urban is not None else None
        columns = {**part.columns, **_placed(lon, lat, self._around)}
        codes = zorder.of_tiles(*part.at) if self.tiled else None
        if codes is not None:
            columns["quadkey"] = zorder.keys(codes)
        if self.place:
            columns["region"] = self.place.names(lon, lat, codes)
        if self._labels:
            columns |= self._labels.of(lon, lat, codes)
        return _table(columns, self.tiled, part.about.get("covariates") or ())

    def _none_left(self) -> InvalidInput:
        read, dropped = 0, Counter[str]()
        for part in self._seen:
            read += part.rows_read
            dropped.update(part.dropped)
        where = f"in {self.place}" if self.place else "usable"
        return InvalidInput(
            f"None of the {read:,} rows read is {where} (dropped: {causes(dropped)}); check the place and the source."
        )


def _degrees(collected: Collected, tiled: bool) -> tuple[Degrees, Degrees]:
    """Longitude and latitude of each row."""
    first, second = collected.at
    if not tiled:
        return np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.dtype.kind not in "iu" or second.dtype.kind not in "iu":
        raise TypeError(f"A tiled source gives tile indices, integers; got {first.dtype} and {second.dtype}.")
    return centre(first, second)


def _placed(lon: Degrees, lat: Degrees, around: Region) -> dict[str, NDArray[Any]]:
    """The columns that say where, in degrees and in metres."""
    to_metres = pyproj.Transformer.from_crs(4326, around.crs, always_xy=True)
    easting, northing = to_metres.transform(lon, lat)
    return {"lon": lon, "lat": lat, "easting_m": easting, "northing_m": northing}


def _table(columns: dict[str, NDArray[Any]], tiled: bool, covariates: Sequence[str]) -> pa.Table:
    """The columns that the schema wants, in its types and the file's order; those not given are null."""
    chosen = TILE_COLUMNS if tiled else POINT_COLUMNS
    if tiled:
        chosen += tuple(c for c in OPTIONAL_TILE_COLUMNS if c.name in columns)
    chosen += tuple(covariate(name) for name in covariates)
    schema = arrow_schema(chosen)
    order = _order(columns)
    return pa.table([_arrow(columns.get(f.name), f.type, order) for f in schema], schema=schema)


def _order(columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Row order of the file: quarter, then quadkey; where both are missing, the order given."""
    keys = [columns[name] for name in ("quadkey", "quarter") if name in columns]
    return np.lexsort(keys) if keys else np.arange(len(columns["lon"]))


def _arrow(values: NDArray[Any] | None, type_: pa.DataType, order: NDArray[np.int64]) -> pa.Array:
    """An Arrow column: NaN becomes null, a missing column all nulls."""
    if values is None:
        return pa.nulls(len(order), type_)
    values = values[order]
    if values.dtype.kind == "f":
        return pa.array(values, pa.float64(), from_pandas=True).cast(type_)
    if values.dtype.kind == "S":
        return pa.array(values).cast(type_)
    return pa.array(values, type_)


def _flags(table: pa.Table) -> dict[str, int]:
    """Counts of odd values among the rows kept."""
    counts = {}
    for column in MEASURED:
        name, what = column.name, column.measures
        if column.positive and name in table.column_names:
            values = numbers(table.column(name))
            finite = values[np.isfinite(values)]
            counts[f"null_{what}"] = int(np.isnan(values).sum())
            counts[f"infinite_{what}"] = int(np.isinf(values).sum())
            counts[f"nonpositive_{what}"] = int((finite <= 0).sum())
            counts[f"absurd_{what}"] = int((finite > column.absurd).sum())
    devices, tests = (numbers(table.column(name)) for name in ("devices", "tests"))
    counts["more_devices_than_tests"] = int((devices > tests).sum())
    return counts


def _thin(sources: list[dict[str, Any]]) -> list[str]:
    """Quarters with far fewer rows than the others: probably published, or mirrored, in part."""
    rows = {source["quarter"]: source["rows_kept"] for source in sources if "quarter" in source}
    if len(rows) < THIN_AMONG:
        return []
    usual = float(np.median(list(rows.values())))
    return [quarter for quarter, n in rows.items() if n < THIN_SHARE * usual]


def _around(lon: Degrees, lat: Degrees) -> shapely.Polygon:
    """A box about points that came without a region; on whichever side of 180 degrees it is narrower."""
    turned = lon % 360
    if np.ptp(turned) < np.ptp(lon):
        lon = turned
    south, north = max(lat.min() - 1e-3, -90.0), min(lat.max() + 1e-3, 90.0)
    east = min(lon.max() + 1e-3, lon.min() - 1e-3 + 360.0)
    box = shapely.box(lon.min() - 1e-3, south, east, north)
    return shapely.segmentize(box, 45.0)  # edges that can go one way round only
