"""The parts a map is drawn from: ground, graticule, picture, labels, scale bar, north arrow, words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import shapely
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as MplPath
from numpy.typing import NDArray
from pyproj import Geod
from shapely.geometry.base import BaseGeometry

from maps.bands import Band, bands, subject
from maps.colours import FADED, NO_SUPPORT, Suppressing, paint, scales, suppressing
from maps.errors import InvalidInput
from maps.legends import HALO, INK, LINE, SEA, SOFT, STYLE, draw_legend
from maps.region import Lines, lines_of, places_of
from maps.sheet import FOOT, HEADING, UNDER, Caption, Sheet, caption_of
from maps.words import number

#: W, S, E, N in the units of the axes.
Box = tuple[float, float, float, float]
#: Towns named on a map.
MOST_TOWNS = 10


def title_of(ds: xr.Dataset) -> str:
    """The Dataset's own title."""
    return str(ds.attrs.get("title") or "Prediction")


def draw_map(
    figure: Figure,
    axes: Axes,
    ds: xr.Dataset,
    layer: str,
    sheet: Sheet,
    *,
    limits: Mapping[str, tuple[float, float]] | None,
    suppressed: Suppressing | None = None,
    places: Sequence[Mapping[str, Any]],
    point: tuple[float, float] | None,
    lines: Lines = (),
    caption: Caption | None = None,
) -> None:
    """One layer of a Dataset in memory: the picture on its ground, what tells where it is, legend and words; without a
    caption in fewer, as one of several or in axes of somebody's own."""
    band, heading = headed(ds, layer)
    compact = caption is None
    scale = scales(ds, [band], limits)[band.layer.quantity]
    faded = (suppressed or suppressing(ds, scale)) if layer == FADED else None
    if layer == FADED and faded is None:
        raise InvalidInput(
            "The layer 'faded' needs median, lower and upper; the prediction does not hold all three."
        )
    values = band.of(ds).values
    if faded is None:
        rgba = paint(values, scale, band.colours)
    else:
        rgba = faded.paint(values, ds["lower"].values, ds["upper"].values)
    _clear(axes, sheet)
    taken = _graticule(axes, sheet, compact)
    _picture(axes, sheet, rgba, None if sheet.shape is None else _land(figure, axes, sheet))
    _borders(axes, sheet, lines)
    taken += _scale_bar(axes, sheet, compact)
    if not compact:
        taken += _north(axes, sheet)
    _labels(axes, sheet, places, 7.0 if compact else 8.5, point, taken)
    if point is not None:
        x, y = sheet.from_lonlat.transform(*point)
        axes.plot([x], [y], marker="*", ms=15, mfc="white", mec=INK, mew=1.1, zorder=8)
    draw_legend(figure, axes, band, scale, faded, compact, _unsupported(values, sheet, ds))
    if caption is None:
        _heading(figure, axes, heading, band.short)
    else:
        _words(figure, axes, caption)


def headed(ds: xr.Dataset, layer: str) -> tuple[Band, str]:
    """The band of a layer, and the heading of its map."""
    band = bands(ds, ["median" if layer == FADED else layer])[0]
    heading = band.title[:1].upper() + band.title[1:]
    return band, f"{heading}, faded where its interval is wide" if layer == FADED else heading


def caption_for(
    ds: xr.Dataset,
    layer: str,
    sheet: Sheet,
    *,
    width: float,
    point: tuple[float, float] | None,
    credit: str,
) -> Caption:
    """The words around a layer's map in a figure `width` inches wide."""
    band, heading = headed(ds, layer)
    of = subject([band], faded=layer == FADED)
    return caption_of(ds, sheet, band, heading, of, width=width, point=point, credit=credit)


def _clear(axes: Axes, sheet: Sheet) -> None:
    """The empty sheet: sea and a thin frame."""
    _fit(axes, sheet)
    axes.set_facecolor(SEA)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(edgecolor=LINE, linewidth=0.8)


def _fit(axes: Axes, sheet: Sheet) -> None:
    west, south, east, north = sheet.bounds
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    axes.set_aspect(1 / sheet.squeeze)


def _land(figure: Figure, axes: Axes, sheet: Sheet) -> MplPath:
    """The region; a coast of 100,000 points is drawn no finer than a third of a dot at 150 dpi."""
    west, _, east, _ = sheet.bounds
    fine = (east - west) / (450 * axes.get_position().width * figure.get_figwidth())
    simple = shapely.simplify(sheet.shape, fine)
    return MplPath.make_compound_path(*_paths(sheet.shape if simple.is_empty else simple))


def _picture(axes: Axes, sheet: Sheet, rgba: NDArray[np.uint8], land: MplPath | None) -> None:
    """The painted pixels, cut at the region's line, over hatching that shows where there is no value."""
    left, right, bottom, top = sheet.extent
    hatched: dict[str, Any] = {"facecolor": "#f7f8fa", "edgecolor": NO_SUPPORT, "hatch": "/////"}
    ground: Artist
    if land is not None:
        ground = PathPatch(land, linewidth=0, zorder=2, **hatched)
    else:
        ground = Rectangle((left, bottom), right - left, top - bottom, lw=0, zorder=2, **hatched)
    axes.add_artist(ground)
    picture = axes.imshow(
        rgba, extent=sheet.extent, interpolation="nearest", zorder=3, aspect="auto", origin="upper"
    )
    _fit(axes, sheet)  # the picture has set limits of its own
    if land is not None:
        picture.set_clip_path(PathPatch(land, transform=axes.transData))
        axes.add_artist(PathPatch(land, facecolor="none", edgecolor=INK, linewidth=0.7, alpha=0.8, zorder=4))


def _say(figure: Figure, axes: Axes, y: float, text: str, size: float, **options: Any) -> None:
    """A line of words over or under the map, never read as mathtext."""
    figure.text(axes.get_position().x0, y, text, size=size, parse_math=False, **options)


def _heading(figure: Figure, axes: Axes, heading: str, short: str) -> None:
    """Over a small map: the title, or its short form where that is too long."""
    box = axes.get_position()
    inches = box.width * figure.get_figwidth()
    if len(heading) > inches * 72 / (0.6 * 9.5):
        heading = short
    most = int(inches * 72 / (0.56 * 9.5))
    heading = heading if len(heading) <= most else heading[: most - 1] + "…"
    y = box.y1 + 0.07 / figure.get_figheight()
    _say(figure, axes, y, heading, 9.5, weight="bold", va="bottom", **STYLE)


def _words(figure: Figure, axes: Axes, caption: Caption) -> None:
    """Heading, what it is a map of, how to read it, what is left out, and whose it is."""
    inch, y = 1 / figure.get_figheight(), 0.16
    for line in caption.heading:
        _say(figure, axes, 1 - y * inch, line, HEADING[0], weight="bold", va="top", **STYLE)
        y += HEADING[1]
    y += 0.07
    for line in caption.under:
        _say(figure, axes, 1 - y * inch, line, UNDER[0], color=SOFT, va="top")
        y += UNDER[1]
    for i, line in enumerate(caption.foot[::-1]):
        _say(figure, axes, (0.11 + FOOT[1] * i) * inch, line, FOOT[0], color=SOFT, va="bottom")


def _unsupported(values: NDArray[Any], sheet: Sheet, ds: xr.Dataset) -> bool:
    """Whether hatching shows: a pixel without value inside the region."""
    missing = np.isnan(values)
    if not missing.any() or sheet.shape is None:
        return bool(missing.any())
    rows, cols = np.nonzero(missing)
    keep = np.linspace(0, rows.size - 1, min(rows.size, 20_000)).astype(int)
    points = shapely.points(ds["x"].values[cols[keep]], ds["y"].values[rows[keep]])
    shapely.prepare(sheet.shape)
    return bool(shapely.contains(sheet.shape, points).any())


def _paths(shape: BaseGeometry | None) -> list[MplPath]:
    paths = []
    for part in shapely.get_parts(shape):
        if part.geom_type != "Polygon":
            continue
        for ring in (part.exterior, *part.interiors):
            paths.append(MplPath(shapely.get_coordinates(ring), closed=True))
    return paths


def _graticule(axes: Axes, sheet: Sheet, compact: bool) -> list[Box]:
    """Meridians and parallels at round degrees, labelled along the top and the left edge; where their labels stand."""
    taken: list[Box] = []
    wide, high = _dots(axes, sheet)
    size = 6 if compact else 7
    west, south, east, north = sheet.bounds
    xs, ys = np.meshgrid(np.linspace(west, east, 60), np.linspace(south, north, 60))
    lon, lat = (np.asarray(v) for v in sheet.to_lonlat.transform(xs, ys))
    good = np.isfinite(lon) & np.isfinite(lat)
    if not good.any():
        return taken
    centre = lon[30, 30] if np.isfinite(lon[30, 30]) else lon[good][0]
    lon = (lon - centre + 180) % 360 - 180 + centre
    span = max(np.ptp(lon[good]), np.ptp(lat[good]))
    most = 3 if compact else 5
    step = next((s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30) if span / s <= most), 45)
    digits = max(0, int(np.ceil(-np.log10(step) - 1e-9)))
    for plane, suffix in ((lon, "EW"), (lat, "NS")):
        first, last = np.ceil(np.nanmin(plane[good]) / step), np.floor(np.nanmax(plane[good]) / step)
        lines = np.arange(first, last + 1) * step
        if lines.size == 0:
            continue
        axes.contour(xs, ys, plane, levels=lines, colors=[LINE], linewidths=0.6, linestyles="solid", zorder=1)
        edge, along = (plane[-1, :], xs[0, :]) if suffix == "EW" else (plane[:, 0], ys[:, 0])
        for line in lines:
            crossing = np.flatnonzero(np.diff(np.sign(edge - line)) != 0)
            share = (along[crossing[0]] - along[0]) / (along[-1] - along[0]) if crossing.size else 1.0
            if share > 0.87:  # the label would leave the map or meet the north arrow
                continue
            at = along[crossing[0]]
            shown = (line + 180) % 360 - 180 if suffix == "EW" else line
            said = f"{abs(shown):.{digits}f}°" + (
                "" if abs(shown) in (0, 180) else f" {suffix[int(shown < 0)]}"
            )
            x, y, up = (at, north, -9) if suffix == "EW" else (west, at, 3)
            long = (3 + 0.65 * size * len(said)) * wide
            taken.append((x, y + (up - 2) * high, x + long, y + (up + size) * high))
            axes.annotate(
                said,
                (x, y),
                (3, up),
                textcoords="offset points",
                size=size,
                color="#66727f",
                path_effects=HALO,
                zorder=5,
            )
    return taken


def _dots(axes: Axes, sheet: Sheet) -> tuple[float, float]:
    """A dot of 1/72 inch in the units of the axes, across and up."""
    west, _, east, _ = sheet.bounds
    figure = axes.get_figure(root=True)
    assert figure is not None
    wide = (east - west) / (72 * axes.get_position().width * figure.get_figwidth())
    return wide, wide * sheet.squeeze


def _borders(axes: Axes, sheet: Sheet, lines: Lines) -> None:
    """Lines of counties, thinner than the region's own, within it."""
    paths = []
    for line in lines_of(lines):
        x, y = sheet.from_lonlat.transform(*np.asarray(line).T)
        paths.append(np.column_stack([x, y]))
    drawn = LineCollection(paths, colors=INK, linewidths=0.5, alpha=0.55, zorder=3.5)
    axes.add_collection(drawn, autolim=False)
    if sheet.shape is not None:
        drawn.set_clip_path(
            PathPatch(MplPath.make_compound_path(*_paths(sheet.shape)), transform=axes.transData)
        )


def _labels(
    axes: Axes,
    sheet: Sheet,
    places: Sequence[Mapping[str, Any]],
    size: float,
    point: tuple[float, float] | None,
    there: Sequence[Box],
) -> None:
    """Names that do not stand in each other's way, nor in that of what is `there`: the first `MOST_TOWNS` towns, then areas
    that are wide enough."""
    west, south, east, north = sheet.bounds
    wide, high = _dots(axes, sheet)
    taken = list(there)

    def free(own: Box) -> bool:
        inside = west < own[0] and own[2] < east and south < own[1] and own[3] < north
        if not inside or any(_meet(own, other) for other in taken):
            return False
        taken.append(own)
        return True

    drawn = 0
    areas = [place for place in places if place.get("kind") == "area"]
    for name, lon, lat in places_of(place for place in places if place.get("kind") != "area"):
        x, y = sheet.from_lonlat.transform(lon, lat)
        right, long = x < west + 0.8 * (east - west), (5 + 0.6 * size * len(name)) * wide
        low, top = y - 0.6 * size * high, y + 0.6 * size * high
        own = (x - 3 * wide, low, x + long, top) if right else (x - long, low, x + 3 * wide, top)
        if drawn < MOST_TOWNS and free(own):
            drawn += 1
            _town(axes, sheet, name, (x, y), size, point)
    for place, (name, lon, lat) in zip(areas, places_of(areas), strict=True):
        x, y = sheet.from_lonlat.transform(lon, lat)
        half, tall = 0.28 * (size - 1) * len(name) * wide, 0.6 * size * high
        w, _, e, _ = place.get("bounds") or (lon, lat, lon, lat)
        (x0, x1), _ = sheet.from_lonlat.transform([w, e], [lat, lat])
        if x1 - x0 > 1.2 * half and free((x - half, y - tall, x + half, y + tall)):
            axes.text(x, y, name, size=size - 1, style="italic", ha="center", va="center", path_effects=HALO,
                      parse_math=False, zorder=6.5, **STYLE)  # fmt: skip


def _meet(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether two boxes, W, S, E, N, overlap."""
    return a[0] < b[2] and a[2] > b[0] and a[1] < b[3] and a[3] > b[1]


def _town(
    axes: Axes,
    sheet: Sheet,
    name: str,
    at: tuple[float, float],
    size: float,
    point: tuple[float, float] | None,
) -> None:
    """A dot and a name; beside the marked point only the name, clear of its star."""
    x, y = at
    west, _, east, _ = sheet.bounds
    gap = 5
    if point is not None and np.hypot(*np.subtract(sheet.from_lonlat.transform(*point), (x, y))) < 0.02 * (
        east - west
    ):
        gap = 11
    else:
        axes.plot([x], [y], "o", ms=3.5, mfc="white", mec=INK, mew=0.9, zorder=6)
    right = x < west + 0.8 * (east - west)
    axes.annotate(
        name,
        (x, y),
        (gap if right else -gap, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        size=size,
        color=INK,
        path_effects=HALO,
        parse_math=False,
        zorder=7,
    )


def _metres_per_unit(sheet: Sheet) -> float:
    """Metres on the ground for one CRS unit eastwards at the middle of the map (geodesic)."""
    west, south, east, north = sheet.bounds
    x, y, d = (west + east) / 2, (south + north) / 2, (east - west) / 100
    lon0, lat0 = sheet.to_lonlat.transform(x - d, y)
    lon1, lat1 = sheet.to_lonlat.transform(x + d, y)
    return float(Geod(ellps="WGS84").inv(lon0, lat0, lon1, lat1)[2]) / (2 * d)


def _scale_bar(axes: Axes, sheet: Sheet, compact: bool) -> list[Box]:
    """The bar with its length, and where they stand."""
    west, south, east, north = sheet.bounds
    per_unit = _metres_per_unit(sheet)
    most = (east - west) * per_unit * 0.25
    if not np.isfinite(most) or most <= 0:
        return []
    decade = 10 ** np.floor(np.log10(most))
    metres = next(s for s in (5, 2, 1) if s * decade <= most) * decade
    length = metres / per_unit
    x1 = east - 0.025 * (east - west)
    y = south + 0.035 * (north - south)
    cap = 0.010 * (north - south)
    axes.plot(
        [x1 - length, x1 - length, x1, x1],
        [y + cap, y, y, y + cap],
        color=INK,
        lw=1.2,
        zorder=7,
        solid_joinstyle="miter",
    )
    text = f"{number(metres / 1000)} km" if metres >= 1000 else f"{number(metres)} m"
    axes.annotate(
        text,
        (x1 - length / 2, y),
        (0, 3),
        textcoords="offset points",
        ha="center",
        size=6.5 if compact else 7.5,
        color=INK,
        path_effects=HALO,
        zorder=7,
    )
    _, high = _dots(axes, sheet)
    return [(x1 - length, y, x1, y + cap + 11 * high)]


def _north(axes: Axes, sheet: Sheet) -> list[Box]:
    """An arrow to true north at the map's upper right corner, and where it stands."""
    west, south, east, north = sheet.bounds
    x, y = east - 0.045 * (east - west), north - 0.05 * (north - south)
    lon, lat = sheet.to_lonlat.transform(x, y)
    u, v = sheet.from_lonlat.transform(lon, lat + 0.01)
    direction = np.array([(u - x) * sheet.squeeze, v - y])
    if not np.isfinite(direction).all() or np.hypot(*direction) == 0:
        return []
    direction /= np.hypot(*direction)
    tip = 20 * direction
    arrow = {
        "arrowstyle": "-|>,head_width=.22,head_length=.5",
        "color": INK,
        "lw": 1.1,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", (x, y), tuple(-tip), textcoords="offset points", arrowprops=arrow, zorder=7)
    axes.annotate(
        "N",
        (x, y),
        tuple(-1.45 * tip),
        textcoords="offset points",
        ha="center",
        va="center",
        size=8,
        weight="bold",
        color=INK,
        zorder=7,
    )
    wide, high = _dots(axes, sheet)
    return [(x - 12 * wide, y - 34 * high, x + 12 * wide, y + 2 * high)]
