"""The parts a map is drawn from: view, graticule, hatching, picture, labels, scale bar, north arrow, legends."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import shapely
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as MplPath
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Geod, Transformer
from shapely.geometry.base import BaseGeometry

from maps.colours import NO_SUPPORT, Suppressing, paint, scales, suppressing
from maps.errors import InvalidInput
from maps.grid import geobox_of
from maps.layers import LAYERS, Band, bands, number, subtitle
from maps.legends import HALO, INK, LINE, SEA, SOFT, STYLE, draw_legend
from maps.region import around, places_of, polygon, to_crs
from maps.render import bleed, frame, in_memory


class View:
    """The rectangle shown, in the grid's CRS: the region (or all) with a margin."""

    def __init__(self, ds: xr.Dataset, shape: BaseGeometry | None, shown: NDArray[np.bool_]) -> None:
        self.box: GeoBox = geobox_of(ds)
        self.shape = shape
        a, (rows, cols) = self.box.affine, self.box.shape
        xs, ys = tuple(sorted((a.c, a.c + cols * a.a))), tuple(sorted((a.f, a.f + rows * a.e)))
        self.extent = (a.c, a.c + cols * a.a, a.f + rows * a.e, a.f)  # of the picture, for imshow
        window, self.outlying = frame(shown)
        west, east = sorted((a.c + window.x0 * a.a, a.c + window.x1 * a.a))
        south, north = sorted((a.f + window.y0 * a.e, a.f + window.y1 * a.e))
        margin = 0.04 * max(east - west, north - south)
        if (west, east, south, north) == (*xs, *ys):
            margin = 0.0
        self.geographic = bool(self.box.crs is not None and self.box.crs.geographic)
        # In degrees a step east is shorter than a step north by the cosine of the latitude.
        self.squeeze = float(np.cos(np.radians((south + north) / 2))) if self.geographic else 1.0
        self.bounds = [west - margin, south - margin, east + margin, north + margin]
        wide, high = (east - west) * self.squeeze + 2 * margin, north - south + 2 * margin
        if wide / high > 2.6:  # a strip of islands still deserves a readable map
            extra = wide / 2.6 - high
            self.bounds[1], self.bounds[3] = self.bounds[1] - extra / 2, self.bounds[3] + extra / 2
        if wide / high < 0.7:
            extra = (high * 0.7 - wide) / self.squeeze
            self.bounds[0], self.bounds[2] = self.bounds[0] - extra / 2, self.bounds[2] + extra / 2
        crs = CRS.from_wkt(str(self.box.crs.wkt))  # type: ignore[union-attr]
        self.to_lonlat = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
        self.from_lonlat = Transformer.from_crs("EPSG:4326", crs, always_xy=True)

    @property
    def aspect(self) -> float:
        west, south, east, north = self.bounds
        return (east - west) * self.squeeze / (north - south)


def prepare(
    ds: xr.Dataset, layers: Sequence[str], geometry: Mapping[str, Any] | None, max_pixels: int
) -> tuple[xr.Dataset, View]:
    """The layers (and those that share their legends) thinned into memory, and the view of them."""
    chosen = [band for name in layers for band in bands(ds, ["median" if name == "faded" else name])]
    quantities = {band.layer.quantity for band in chosen}
    keys = [key for key, layer in LAYERS.items() if layer.quantity in quantities and key in ds.data_vars]
    small, inside = in_memory(ds, geometry=geometry, layers=keys, max_pixels=max_pixels)
    if geometry is None:
        return small, View(small, None, _known(small))
    box = geobox_of(small)
    shape = to_crs(polygon(geometry), str(box.crs.wkt))  # type: ignore[union-attr]
    if box.crs is not None and box.crs.geographic:
        shape = around(shape, box.extent.boundingbox.left)
    return bleed(small, inside), View(small, shape, inside)


def _known(ds: xr.Dataset) -> NDArray[np.bool_]:
    """Pixels with a value in any layer."""
    return np.any([np.isfinite(band.of(ds).values) for band in bands(ds)], axis=0)


LEGEND_INCHES, TOP_INCHES, EDGE_INCHES, FOOT_INCHES = 1.25, 0.85, 0.3, 0.54


def height_inches(view: View, width: float) -> float:
    return (width - 2 * EDGE_INCHES - LEGEND_INCHES) / view.aspect + TOP_INCHES + FOOT_INCHES


def map_box(view: View, width: float) -> tuple[float, float, float, float]:
    inner = width - 2 * EDGE_INCHES - LEGEND_INCHES
    height = height_inches(view, width)
    return EDGE_INCHES / width, FOOT_INCHES / height, inner / width, inner / view.aspect / height


def title_of(ds: xr.Dataset) -> str:
    return str(ds.attrs.get("title") or "Prediction")


def draw_map(
    figure: Figure,
    axes: Axes,
    ds: xr.Dataset,
    layer: str,
    view: View,
    *,
    limits: Mapping[str, tuple[float, float]] | None,
    places: Sequence[Mapping[str, Any]],
    point: tuple[float, float] | None,
    compact: bool = False,
) -> None:
    band = bands(ds, ["median" if layer == "faded" else layer])[0]
    scale = scales(ds, [band], limits)[band.layer.quantity]
    faded = suppressing(ds, scale) if layer == "faded" else None
    if layer == "faded" and faded is None:
        raise InvalidInput(
            "The layer 'faded' needs median, lower and upper; the prediction does not hold all three."
        )
    values = band.of(ds).values
    if faded is None:
        rgba = paint(values, scale, band.layer.colours)
    else:
        rgba = faded.paint(values, ds["lower"].values, ds["upper"].values)
    west, south, east, north = view.bounds
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    axes.set_aspect(1 / view.squeeze)
    axes.set_facecolor(SEA)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(edgecolor=LINE, linewidth=0.8)
    _graticule(axes, view, compact)
    land = None
    if view.shape is not None:
        # A coast of 100,000 points is drawn no finer than a third of a dot at 150 dpi.
        fine = (east - west) / (450 * axes.get_position().width * figure.get_figwidth())
        simple = shapely.simplify(view.shape, fine)
        land = MplPath.make_compound_path(*_rings(view.shape if simple.is_empty else simple))
    ground: Any
    if land is not None:
        ground = PathPatch(
            land, facecolor="#f7f8fa", edgecolor=NO_SUPPORT, hatch="/////", linewidth=0, zorder=2
        )
    else:
        left, right, bottom, top = view.extent
        ground = Rectangle(
            (left, bottom),
            right - left,
            top - bottom,
            facecolor="#f7f8fa",
            edgecolor=NO_SUPPORT,
            hatch="/////",
            lw=0,
            zorder=2,
        )
    axes.add_artist(ground)
    picture = axes.imshow(
        rgba, extent=view.extent, interpolation="nearest", zorder=3, aspect="auto", origin="upper"
    )
    axes.set_aspect(1 / view.squeeze)
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    if land is not None:
        clip = PathPatch(land, transform=axes.transData)
        picture.set_clip_path(clip)
        axes.add_artist(PathPatch(land, facecolor="none", edgecolor=INK, linewidth=0.7, alpha=0.8, zorder=4))
    for place in places_of(places):
        _place(axes, view, place, 7 if compact else 8.5, point)
    if point is not None:
        x, y = view.from_lonlat.transform(*point)
        axes.plot([x], [y], marker="*", ms=15, mfc="white", mec=INK, mew=1.1, zorder=8)
    _scale_bar(axes, view, compact)
    if not compact:
        _north(axes, view)
    unsupported = _unsupported(values, view, ds)
    draw_legend(figure, axes, band, scale, faded, compact, unsupported)
    _words(figure, axes, ds, view, band, faded, point, compact)


def _words(
    figure: Figure,
    axes: Axes,
    ds: xr.Dataset,
    view: View,
    band: Band,
    faded: Suppressing | None,
    point: tuple[float, float] | None,
    compact: bool,
) -> None:
    """Heading, what it is a map of, and the credit line; never read as mathtext."""
    box, inch = axes.get_position(), 1 / figure.get_figheight()

    def say(y: float, text: str, size: float, **options: Any) -> None:
        most = int(box.width * figure.get_figwidth() * 72 / (0.56 * size) * (1.0 if compact else 1.14))
        figure.text(box.x0, y, _short(text, most), size=size, parse_math=False, **options)

    heading = band.title[:1].upper() + band.title[1:]
    if faded is not None:
        heading += ", faded where its interval is wide"
    if compact:
        if len(heading) > box.width * figure.get_figwidth() * 72 / (0.6 * 9.5):
            heading = band.short
        say(box.y1 + 0.07 * inch, heading, 9.5, weight="bold", va="bottom", **STYLE)
        return
    say(1 - 0.16 * inch, heading, 14, weight="bold", va="top", **STYLE)
    lines = [subtitle(ds), title_of(ds)]  # a long title may be cut, what the map is of may not
    if point is not None:
        lon, lat = point
        lines.insert(
            0, f"★ {abs(lat):.3f}° {'N' if lat >= 0 else 'S'}, {abs(lon):.3f}° {'E' if lon >= 0 else 'W'}"
        )
    say(1 - 0.47 * inch, "  |  ".join(dict.fromkeys(lines)), 9, color=SOFT, va="top")
    about = band.about if band.about[1:2] == "(" else band.about[:1].upper() + band.about[1:]
    if view.outlying > 0:
        about += f" (outlying parts, {100 * view.outlying:.1g}% of the area, are not shown)"
    credit = [
        f"{word}: {ds.attrs[key]}."
        for word, key in (("Model", "method"), ("Source", "source"))
        if ds.attrs.get(key)
    ]
    say(0.27 * inch, f"{about}.", 7.5, color=SOFT, va="bottom")
    say(0.11 * inch, " ".join(credit), 7.5, color=SOFT, va="bottom")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _unsupported(values: NDArray[Any], view: View, ds: xr.Dataset) -> bool:
    """Whether hatching shows: a pixel without value inside the region."""
    missing = np.isnan(values)
    if not missing.any() or view.shape is None:
        return bool(missing.any())
    rows, cols = np.nonzero(missing)
    keep = np.linspace(0, rows.size - 1, min(rows.size, 20_000)).astype(int)
    points = shapely.points(ds["x"].values[cols[keep]], ds["y"].values[rows[keep]])
    shapely.prepare(view.shape)
    return bool(shapely.contains(view.shape, points).any())


def _rings(shape: BaseGeometry | None) -> list[MplPath]:
    paths = []
    for part in shapely.get_parts(shape):
        if part.geom_type != "Polygon":
            continue
        for ring in (part.exterior, *part.interiors):
            paths.append(MplPath(shapely.get_coordinates(ring), closed=True))
    return paths


def _graticule(axes: Axes, view: View, compact: bool) -> None:
    """Meridians and parallels at round degrees, labelled along the top and the left edge."""
    west, south, east, north = view.bounds
    xs, ys = np.meshgrid(np.linspace(west, east, 60), np.linspace(south, north, 60))
    lon, lat = (np.asarray(v) for v in view.to_lonlat.transform(xs, ys))
    good = np.isfinite(lon) & np.isfinite(lat)
    if not good.any():
        return
    centre = lon[30, 30] if np.isfinite(lon[30, 30]) else lon[good][0]
    lon = (lon - centre + 180) % 360 - 180 + centre
    span = max(np.ptp(lon[good]), np.ptp(lat[good]))
    most = 3 if compact else 5
    step = next((s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30) if span / s <= most), 45)
    digits = max(0, int(np.ceil(-np.log10(step) - 1e-9)))
    for plane, suffix in ((lon, "EW"), (lat, "NS")):
        first, last = np.ceil(np.nanmin(plane[good]) / step), np.floor(np.nanmax(plane[good]) / step)
        levels = np.arange(first, last + 1) * step
        if levels.size == 0:
            continue
        axes.contour(
            xs, ys, plane, levels=levels, colors=[LINE], linewidths=0.6, linestyles="solid", zorder=1
        )
        edge, along = (plane[-1, :], xs[0, :]) if suffix == "EW" else (plane[:, 0], ys[:, 0])
        for level in levels:
            crossing = np.flatnonzero(np.diff(np.sign(edge - level)) != 0)
            share = (along[crossing[0]] - along[0]) / (along[-1] - along[0]) if crossing.size else 1.0
            if share > 0.87:  # the label would leave the map or meet the north arrow
                continue
            at = along[crossing[0]]
            shown = (level + 180) % 360 - 180 if suffix == "EW" else level
            axes.annotate(
                f"{abs(shown):.{digits}f}°"
                + ("" if abs(shown) in (0, 180) else f" {suffix[int(shown < 0)]}"),
                (at, north) if suffix == "EW" else (west, at),
                (3, -9) if suffix == "EW" else (3, 3),
                textcoords="offset points",
                size=6 if compact else 7,
                color="#66727f",
                path_effects=HALO,
                zorder=5,
            )


def _place(
    axes: Axes, view: View, place: tuple[str, float, float], size: float, point: tuple[float, float] | None
) -> None:
    """A dot and a name; beside the marked point only the name, clear of its star."""
    name, lon, lat = place
    x, y = view.from_lonlat.transform(lon, lat)
    west, south, east, north = view.bounds
    if not (west < x < east and south < y < north):
        return
    gap = 5
    if point is not None and np.hypot(*np.subtract(view.from_lonlat.transform(*point), (x, y))) < 0.02 * (
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


def _metres_per_unit(view: View) -> float:
    """Metres on the ground for one CRS unit eastwards at the middle of the map (geodesic)."""
    west, south, east, north = view.bounds
    x, y, d = (west + east) / 2, (south + north) / 2, (east - west) / 100
    lon0, lat0 = view.to_lonlat.transform(x - d, y)
    lon1, lat1 = view.to_lonlat.transform(x + d, y)
    return float(Geod(ellps="WGS84").inv(lon0, lat0, lon1, lat1)[2]) / (2 * d)


def _scale_bar(axes: Axes, view: View, compact: bool) -> None:
    west, south, east, north = view.bounds
    per_unit = _metres_per_unit(view)
    most = (east - west) * per_unit * 0.25
    if not np.isfinite(most) or most <= 0:
        return
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


def _north(axes: Axes, view: View) -> None:
    """An arrow to true north at the map's upper right corner."""
    west, south, east, north = view.bounds
    x, y = east - 0.045 * (east - west), north - 0.05 * (north - south)
    lon, lat = view.to_lonlat.transform(x, y)
    u, v = view.from_lonlat.transform(lon, lat + 0.01)
    direction = np.array([(u - x) * view.squeeze, v - y])
    if not np.isfinite(direction).all() or np.hypot(*direction) == 0:
        return
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
