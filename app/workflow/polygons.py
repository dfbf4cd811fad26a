"""Polygons that people bring: read from any vector file, carried to the plane of a run, and filled with points."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj.exceptions import ProjError
from shapely.geometry.base import BaseGeometry

from app.errors import InvalidInput
from app.workflow.grids import Box, usual_reach_m
from data_pipelines.intact import Damaged, check_intact
from data_pipelines.regions import unwound
from data_pipelines.words import many
from geogp.run import Run, Support
from geogp.targets import target
from maps.region import is_plain, plain_to_crs, polygon, to_crs

if TYPE_CHECKING:
    import geopandas
    import pandas as pd

Array = NDArray[np.float64]

#: Points of a mesh looked at for one polygon.
MOST_MESH = 4_000_000
#: Points of the meshes of several polygons looked at together.
MESHED = 1 << 18
#: Longest edge of a projected polygon before it is carried over.
DENSE_M = 5000.0
#: An area of whose ground less than this share lies in the region is no area of it.
SLIVER = 0.02
#: Names in a sentence.
NAMED = 3


def read_polygons(path: str | Path) -> "geopandas.GeoDataFrame":
    """The polygons of a GeoJSON, GeoPackage, GeoParquet or (zipped) shapefile, in its own CRS, a row each.

    Raises
    ------
    InvalidInput
        no such file, not a vector file, empty, without CRS, a row that is no valid polygon.
    """
    import geopandas

    path = Path(path)
    if not path.exists():
        raise InvalidInput(f"The file {path} does not exist.")
    try:
        check_intact(path)
        read = geopandas.read_parquet if path.suffix == ".parquet" else geopandas.read_file
        frame = read(path)
    except Damaged:
        raise
    except Exception as error:  # GDAL, GEOS and Arrow each have their own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(
            f"{path} cannot be read as a vector file ({reason.rstrip('.')}); give a GeoJSON, GeoPackage, GeoParquet or "
            "zipped shapefile."
        ) from None
    if not isinstance(frame, geopandas.GeoDataFrame) or not len(frame):
        raise InvalidInput(f"{path} holds no polygon; give a file of polygons.")
    if frame.crs is None:
        raise InvalidInput(f"{path} does not say its coordinate reference system; write the CRS into it.")
    for row, shape in enumerate(frame.geometry):
        words = _wrong(shape)
        if words:
            raise InvalidInput(
                f"Row {row} of {path} {words}; areas are valid polygons: repair or drop that row."
            )
    return frame


#: Columns that say which area a row is, where none is named: the first of them that names each row once.
KEYS = (
    "GEOID",
    "GEOID20",
    "GEOID10",
    "GISCO_ID",
    "LAU_ID",
    "LAU_CODE",
    "NUTS_ID",
    "FIPS",
    "key",
    "id",
    "code",
    "name",
)


def keys_of(frame: "geopandas.GeoDataFrame", key: str | None = None) -> tuple[str | None, list[str]]:
    """The column that names each row once, and what it says; None and the rows' numbers where no column does.

    Parameters
    ----------
    key : the column to take; default the first of `KEYS`, however written, else the first of distinct texts

    Raises
    ------
    InvalidInput
        no such column, or one that is empty somewhere or says something twice.
    """
    columns = [str(c) for c in frame.columns if c != frame.geometry.name]
    if key is not None:
        if key not in columns:
            raise InvalidInput(f"The areas have no column {key!r} for --key; they have {', '.join(columns)}.")
        values = frame[key]
        if wrong := _no_key(values):
            raise InvalidInput(f"--key {key} {wrong}; name a column that says which area each row is.")
        return key, [str(v) for v in values]
    named = _called_so(columns)
    texts = [c for c in columns if frame[c].map(lambda v: isinstance(v, str) and bool(v)).all()]
    for column in dict.fromkeys([*named, *texts]):
        if not _no_key(frame[column]):
            return column, [str(v) for v in frame[column]]
    return None, [str(i) for i in range(len(frame))]


def passed_over(frame: "geopandas.GeoDataFrame", column: str | None) -> tuple[str, ...]:
    """A note on the column that would have been the key before the one that is, or none.

    Parameters
    ----------
    column : what `keys_of` takes where none is named
    """
    first = next(iter(_called_so([str(c) for c in frame.columns if c != frame.geometry.name])), column)
    if first is None or first == column:
        return ()
    instead = f"column {column} names" if column else "their numbers name"
    return (f"column {first} {_no_key(frame[first])}, so {instead} the rows; --key takes another",)


def _called_so(columns: list[str]) -> list[str]:
    """Columns that are called like one of `KEYS`, in their order."""
    lower = {c.lower(): c for c in reversed(columns)}
    return [lower[k.lower()] for k in KEYS if k.lower() in lower]


def _no_key(values: "pd.Series[Any]") -> str:
    """What keeps a column from naming each row once, or nothing."""
    empty = values.isna() | values.eq("")
    if empty.any():
        return f"is empty in row {int(empty.to_numpy().argmax())}"
    return "" if values.is_unique else f"says {values[values.duplicated()].iloc[0]} twice"


def _wrong(shape: BaseGeometry | None) -> str:
    """What keeps a geometry from being an area, or nothing."""
    if shape is None or shape.is_empty:
        return "has no geometry"
    if shape.geom_type not in ("Polygon", "MultiPolygon"):
        return f"is a {shape.geom_type}"
    if not np.isfinite(shapely.get_coordinates(shape)).all():
        return "has coordinates that are not numbers"
    return "" if shape.is_valid else f"is not valid ({shapely.is_valid_reason(shape)})"


def in_plane(frame: "geopandas.GeoDataFrame", run: Run) -> list[BaseGeometry]:
    """The polygons of a frame in the plane of a run, metres.

    Raises
    ------
    InvalidInput
        coordinates that do not exist in their CRS or cannot be carried over.
    """
    crs = frame.crs
    shapes = frame.geometry
    if crs.is_projected:
        shapes = shapes.segmentize(DENSE_M / crs.axis_info[0].unit_conversion_factor)
    plane = run.crs.to_wkt()
    try:
        degrees = shapes.to_crs(4326)
    except ProjError as error:
        raise InvalidInput(
            f"The polygons' CRS ({crs.name}) leads to no place on Earth: {str(error).splitlines()[0]}."
        ) from None
    xy, owner = shapely.get_coordinates(degrees, return_index=True)
    bad = owner[~(np.isfinite(xy) & (np.abs(xy) <= (540.0, 90.0))).all(axis=1)]
    if len(bad):
        raise InvalidInput(
            f"Row {bad[0]} of the polygons has coordinates that do not exist in its CRS ({crs.name})."
        )
    # An edge that is still longer than half a turn means the long way: that of a box around the Earth.
    given = np.array(degrees.values)
    plain = is_plain(given)
    out = np.empty(len(given), object)
    out[plain] = plain_to_crs(shapely.segmentize(given[plain], 45.0), plane)
    for k in np.flatnonzero(~plain):
        whole = shapely.segmentize(unwound(given[k]), 45.0)
        out[k] = to_crs(polygon(shapely.geometry.mapping(whole)), plane)
    return list(out)


@dataclass(frozen=True, eq=False)
class Ground:
    """Where a run's map has values, in its plane: its boundary or, without one, the reach of its data.

    outline : polygon, or the box of the reach; support, reach_m : the training places, None with a boundary
    """

    outline: BaseGeometry
    support: Support | None = None
    reach_m: float = 0.0

    @classmethod
    def of(cls, run: Run) -> "Ground":
        """Of a run, as `grid_of` masks its maps."""
        if run.boundary is not None:
            return cls(to_crs(polygon(run.boundary), run.crs.to_wkt()))
        places, reach = run.support.positions_m, usual_reach_m(run)
        box = shapely.box(*(places.min(axis=0) - reach), *(places.max(axis=0) + reach))
        return cls(box, run.support, reach)

    def parts(self, shapes: Sequence[BaseGeometry]) -> list[BaseGeometry | None]:
        """What of each polygon lies within the outline, or None; those that lie in it whole are not cut."""
        given = np.array(shapes, dtype=object)
        shapely.prepare(self.outline)
        whole = shapely.contains_properly(self.outline, given)
        out: list[BaseGeometry | None] = [None] * len(given)
        if whole.any():
            pieces, owner = shapely.get_parts(given[whole], return_index=True)
            for k, shape in zip(np.flatnonzero(whole), shapely.multipolygons(pieces, indices=owner)):
                out[k] = shape
        for k in np.flatnonzero(~whole):
            out[k] = self.part(given[k])
        return out

    def part(self, shape: BaseGeometry) -> BaseGeometry | None:
        """What of a polygon lies within the outline, or None."""
        left, bottom, right, top = shape.bounds
        near = shapely.clip_by_rect(self.outline, left - 1.0, bottom - 1.0, right + 1.0, top + 1.0)
        cut = shapely.intersection(shape, near if near.is_valid else shapely.make_valid(near))
        parts = [p for p in shapely.get_parts(shapely.get_parts(cut)) if p.geom_type == "Polygon"]
        parts = [p for p in parts if p.area > 0]
        return shapely.MultiPolygon(parts) if parts else None

    def reached(self, P: Array) -> NDArray[np.bool_]:
        """Which points (n, 2) of the outline's inside have a value."""
        if self.support is None:
            return np.ones(len(P), dtype=bool)
        return np.isfinite(self.support.distances_m(P, self.reach_m))


@dataclass(frozen=True, eq=False)
class Inside:
    """What of the polygons of a file has numbers in a run.

    ground : of the run; parts : of each polygon what lies within its outline, or None
    whole_m2 : size (A,) of the polygons as they came; slivers : rows of which almost nothing lies there
    """

    path: str | Path
    ground: Ground
    parts: list[BaseGeometry | None]
    whole_m2: Array
    slivers: NDArray[np.int64]

    @classmethod
    def of(cls, path: str | Path, frame: "geopandas.GeoDataFrame", run: Run) -> "Inside":
        """Of a frame read from `path`.

        Raises
        ------
        InvalidInput
            as `in_plane`; no polygon that meets the region.
        """
        shapes, ground = in_plane(frame, run), Ground.of(run)
        parts, slivers = without_slivers(ground.parts(shapes), shapes)
        if all(part is None for part in parts):
            raise nothing_inside(path)
        return cls(path, ground, parts, np.array([shape.area for shape in shapes]), slivers)

    def notes(self, names: Sequence[str], inside: NDArray[np.int64]) -> list[str]:
        """Which rows have no numbers, in sentences; names : of all rows; inside : rows that have some."""
        out = [slivers_words(self.slivers, names)] if len(self.slivers) else []
        if outside := len(self.parts) - len(inside):
            out.append(outside_words(outside, len(self.parts)))
        return out


def nothing_inside(path: str | Path) -> InvalidInput:
    """What is said of a file whose polygons all lie elsewhere."""
    return InvalidInput(f"No polygon of {path} meets the region of the run.")


def without_slivers(
    parts: Sequence[BaseGeometry | None], shapes: Sequence[BaseGeometry]
) -> tuple[list[BaseGeometry | None], NDArray[np.int64]]:
    """The parts of polygons that lie in a region, without those of which almost nothing does; and which these are.

    Two files rarely agree about a border: the counties of the next state keep a strip of some hundred metres, and its mean
    would be ranked beside whole counties. A part is a strip beside its polygon and beside the largest part: a county around a small
    region is none, and where nothing but strips was asked for, they stay.

    Examples
    --------
    >>> from shapely import box
    >>> parts, slivers = without_slivers([box(0, 0, 1, 1), box(1, 0, 1.001, 1)], [box(0, 0, 1, 1), box(1, 0, 2, 1)])
    >>> parts[1], slivers.tolist()
    (None, [1])
    >>> without_slivers([box(0, 0, 1, 1), box(0, 0, 1, 0.1)], [box(0, 0, 10, 10), box(0, 0, 1, 0.1)])[1].tolist()
    []
    """
    area = np.array([0.0 if part is None else part.area for part in parts])
    share = area / np.maximum(shapely.area(np.asarray(shapes)), 1e-9)
    slight = np.flatnonzero((share > 0) & (share < SLIVER) & (area < SLIVER * area.max(initial=0.0)))
    left = set(slight.tolist())
    return [None if i in left else part for i, part in enumerate(parts)], slight


def slivers_words(slivers: NDArray[np.int64], names: Sequence[str]) -> str:
    """Which areas were left out, in a sentence; names: of all rows."""
    first = ", ".join(names[i] for i in slivers[:NAMED])
    more = ", .." if len(slivers) > NAMED else ""
    return f"less than {SLIVER:.0%} of {many(len(slivers), 'polygon')} ({first}{more}) lies in the region of the run: taken for outside it"


def outside_words(outside: int, n: int) -> str:
    """How many of n polygons have no numbers, in a sentence."""
    lies, has = ("lies", "has") if outside == 1 else ("lie", "have")
    return f"{outside:,} of {many(n, 'polygon')} {lies} outside the region of the run and {has} no numbers"


def points_in(shape: BaseGeometry, wanted: int) -> Array:
    """About `wanted` points of a square mesh inside a polygon: (n, 2), at least one."""
    shapely.prepare(shape)
    side = math.sqrt(shape.area / max(wanted, 1))
    best = np.empty((0, 2))
    for _ in range(5):  # a thin polygon misses most of the mesh: take a closer one
        best = mesh(shape.bounds, side)
        best = best[shapely.contains_xy(shape, best[:, 0], best[:, 1])]
        if 2 * len(best) >= wanted:
            return best
        side *= 0.7
    return best if len(best) else shapely.get_coordinates(shape.representative_point())


def points_in_each(
    parts: Sequence[BaseGeometry | None], wanted: Sequence[int] | NDArray[np.int64]
) -> tuple[Array, NDArray[np.int64]]:
    """`points_in` of each polygon that there is: (n, 2), and the polygon of each point (n,)."""
    points, owner = [np.empty((0, 2))], [np.empty(0, dtype=np.int64)]
    there = np.array([i for i, part in enumerate(parts) if part is not None], dtype=np.int64)
    shapes = np.array([parts[i] for i in there], dtype=object)
    number = np.asarray(wanted, dtype=np.int64)[there]
    shapely.prepare(shapes)
    meshes = _Meshes.of(shapely.bounds(shapes), np.sqrt(shapely.area(shapes) / np.maximum(number, 1)))
    for some in meshes.together():
        P, at = meshes.points(some)
        inside = shapely.contains_xy(shapes[at], P[:, 0], P[:, 1])
        P, at = P[inside], at[inside]
        few = some[2 * np.bincount(at - some[0], minlength=len(some)) < number[some]]
        if len(few):  # thin ones, which take a closer mesh
            kept = ~np.isin(at, few)
            closer = [points_in(shapes[k], int(number[k])) for k in few]
            at = np.concatenate([at[kept], np.repeat(few, [len(Q) for Q in closer])])
            order = np.argsort(at, kind="stable")
            P, at = np.concatenate([P[kept], *closer])[order], at[order]
        points.append(P)
        owner.append(there[at])
    return np.concatenate(points), np.concatenate(owner)


def mesh(bounds: Box, side: float) -> Array:
    """Centres of the cells of a square mesh within bounds, its lines at multiples of its side: (n, 2)."""
    one = _Meshes.of(np.array([bounds]), np.array([side]))
    x, y = ((one.first[0, k] + np.arange(one.cells[0, k]) + 0.5) * one.side[0] for k in (0, 1))
    out = np.empty((len(y), len(x), 2))
    out[..., 0], out[..., 1] = x, y[:, None]
    return out.reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class _Meshes:
    """Square meshes within boxes, each with lines at multiples of its side.

    side : (n,) of each; first : (n, 2) its lowest column and row; cells : (n, 2) how many columns and rows it has
    """

    side: Array
    first: NDArray[np.int64]
    cells: NDArray[np.int64]

    @classmethod
    def of(cls, bounds: Array, side: Array) -> "_Meshes":
        """Within bounds (n, 4), left, bottom, right, top; coarser where a box would hold too many cells."""
        low, high = bounds[:, :2], bounds[:, 2:]
        side = np.maximum(side, np.sqrt((high - low).prod(axis=1) / MOST_MESH))
        first = np.floor(low / side[:, None]).astype(np.int64)
        return cls(side, first, np.ceil(high / side[:, None]).astype(np.int64) - first)

    def together(self) -> Iterator[NDArray[np.int64]]:
        """Numbers of meshes that lie together and have about `MESHED` cells."""
        group = np.cumsum(self.cells.prod(axis=1)) // MESHED
        if len(group):
            yield from np.split(np.arange(len(group)), np.flatnonzero(np.diff(group)) + 1)

    def points(self, some: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
        """Centres (n, 2) of the cells of some meshes, row by row, and the mesh of each (n,)."""
        size = self.cells[some].prod(axis=1)
        at = np.repeat(some, size)
        row, column = np.divmod(
            np.arange(len(at)) - np.repeat(np.cumsum(size) - size, size), self.cells[at, 0]
        )
        return (self.first[at] + np.column_stack([column, row]) + 0.5) * self.side[at, None], at


def unit_words(facts: Mapping[str, Any]) -> str:
    """The unit of results, as people read it: nothing where they have none.

    Parameters
    ----------
    facts : of them: `target` and `unit`
    """
    return target(facts["target"]).unit_words(facts["unit"])


def about(run: Run, quarter: str | None) -> dict[str, Any]:
    """What results on the surface say of the run they come from; no paths but the folder's own name."""
    return {
        "run": run.path.resolve().name,
        "method": run.facts["method"],
        "target": run.target.name,
        "target_title": run.target.words,
        "quarter": quarter,
        "reference_count": run.model.reference_count_,
        "observations_sha256": run.data["sha256"],
        "weights_sha256": run.weights_sha256,
    }
