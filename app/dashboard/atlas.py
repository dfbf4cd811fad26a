"""A run as something to look at: layers as coloured pictures, computed once and kept, and its legends.

Every value comes from `geogp.predict`. Pictures are computed strip by strip, each layer on its own, from moments
that are remembered (`Remembering`): the first layer of a quarter costs a pass of the model, the others a formula.
"""

import hashlib
import json
import math
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import shapely
import xarray as xr
from affine import Affine
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from scipy.ndimage import binary_opening

from app.dashboard.cache import Cache
from app.dashboard.grid import FAR_M, Ground, Where, mercator, pixels, survey
from app.dashboard.pace import Pace, pace_of
from app.dashboard.pictures import empty_png, hatch_png, hexes, paint_png, rgba_png
from app.dashboard.progress import Progress
from app.dashboard.remembering import Remembering
from app.dashboard.view import PRESETS, Choices, View
from app.errors import InvalidInput
from geogp import load, predict
from geogp.run import Run, quarter_to_years
from geogp.storage import SUMS
from geogp.targets import target
from maps.bands import Band, bands, complete
from maps.colours import Scale, Suppressing, scales, suppressing, table
from maps.grid import Window
from maps.layers import LAYERS, listed
from maps.mercator import MERCATOR_HALF
from maps.words import number, subtitle

FADED = "faded"
FAR = "far"
KEPT_PLANES = 12  # float planes held in memory, up to 16 MB each
KEPT_PICTURES = 64  # of about 200 kB
KEPT_TILES = 512  # pictures of about 10 kB
DEEPEST = 16  # zoom: 1.2 m a place, far below a speed-test tile of 610 m
FORMAT = 1  # of the files in the cache: raise it when a formula or the grid changes


@dataclass(frozen=True)
class Layer:
    """A layer in the list: what it is called and how its colours are read."""

    id: str
    title: str
    short: str
    about: str
    unit: str
    group: str
    scale: Scale
    colours: str

    def to_json(self) -> dict[str, Any]:
        ramp = table(self.colours)[np.linspace(0, 255, 33).round().astype(int)]
        return {
            "id": self.id,
            "title": self.title,
            "short": self.short,
            "about": self.about,
            "unit": self.unit,
            "group": self.group,
            "ramp": hexes(ramp),
            "ticks": [
                [round(float(self.scale.fraction(np.array(t))), 4), number(t)] for t in self.scale.ticks(6)
            ],
        }


class Atlas:
    """The maps of one run.

    Parameters
    ----------
    run : fitted; its engine is wrapped so that moments of whole maps are remembered
    cache : where pictures' values stay between starts
    pace : how fine; the default suits the speed of the model (`pace_of`)

    Raises
    ------
    InvalidInput
        the run cannot be put on a map, or its target is unknown.
    """

    def __init__(self, run: Run, cache: Cache, *, pace: Pace | None = None):
        self.run, self.cache = run, cache
        self.target = target(run.facts.get("target", ""))
        run.model.engine_ = Remembering(run.model.engine_)  # type: ignore[assignment]
        self.pace = pace or pace_of(run, cache, self.weights_id)
        self.ground: Ground = survey(run, inside=self.pace.inside)
        self.progress = Progress()
        self._planes: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._pictures: OrderedDict[str, bytes] = OrderedDict()
        self._tiles: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._tile_lock = threading.Lock()
        self._lock = threading.RLock()  # one map is computed at a time; a second request for it then finds it

    @cached_property
    def weights_id(self) -> str:
        """Names the run's content: all of it but run.json, which also holds the scores."""
        lines = (self.run.path / SUMS).read_text("utf-8").splitlines()
        weights = [line for line in lines if not line.endswith("  run.json")]
        return _digest((FORMAT, self.target.name, weights))

    @cached_property
    def id(self) -> str:
        """Names the run's content and the grid: what cached files and addresses of pictures start with."""
        return _digest((self.weights_id, self.ground.shape, tuple(self.ground.geobox.affine)))

    # -- what can be chosen ------------------------------------------------------------------------

    @property
    def data(self) -> dict[str, Any]:
        return self.run.facts.get("data") or {}

    @cached_property
    def choices(self) -> Choices:
        shape = self.run.model.engine_.plan.shape
        quarters: tuple[str, ...] = ()
        if shape.time is not None:
            listed = self.data.get("quarters") or [self.data.get("last_quarter")]
            quarters = tuple(sorted(q for q in listed if isinstance(q, str)))
            if not quarters:
                raise InvalidInput(
                    f"{self.run.path} knows time but names no quarter; fit it with `geogp fit`."
                )
            for quarter in quarters:
                quarter_to_years(quarter)  # refuses what is no quarter
        tests = float(self.run.model.typical_count_ or 1.0) if shape.has_counts else None
        return Choices(quarters, tests, self.presets[-1], self.target.log10)

    @cached_property
    def presets(self) -> tuple[float, ...]:
        """Thresholds offered: of the target, else round values in the middle of its range."""
        if self.target.name in PRESETS:
            return PRESETS[self.target.name]
        low, high = (float(v) for v in self.target.from_score(np.array(self.run.model.target_range_)))
        spread = Scale(low, high if high > low else low + 1.0)
        inner = [t for t in spread.ticks(5) if low < t < high] or [low]
        return tuple(inner[len(inner) // 3 : len(inner) // 3 + 2])

    @cached_property
    def unit(self) -> str:
        own = self.data.get("value_unit") if self.target.name == "value" else None
        unit = str(own or self.target.unit)
        return "" if unit == "1" else unit

    # -- predictions -------------------------------------------------------------------------------

    def dataset(self, geobox: GeoBox, view: View, **options: Any) -> xr.Dataset:
        """`geogp.predict` of a view on any grid, with the layers that follow from its variables."""
        return complete(
            predict(
                self.run,
                geobox,
                quarter=view.quarter,
                tests=view.tests,
                level=view.level,
                thresholds=(view.threshold,),
                **options,
            )
        )

    def at(self, lat: float, lon: float, view: View) -> xr.Dataset:
        """Every variable at one place, from the model itself: exact whatever the pictures' resolution.

        A grid of one pixel whose centre is the place; about 10 ms.
        """
        return self.dataset(_pixel(lat, lon), view)

    def plane(self, key: str, view: View) -> NDArray[np.float32]:
        """A layer's values on the grid, (H, W), NaN outside; computed, or from the cache."""
        name = _file_name(key, view)
        with self._lock:
            if name in self._planes:
                self._planes.move_to_end(name)
                return self._planes[name]
            path = self.cache.path(self.id, name)
            values = self.cache.read(path, self.ground.shape)
            if values is None:
                values = self._compute(key, view)
                self.cache.write(path, values)
            self._planes[name] = values
            while len(self._planes) > KEPT_PLANES:
                self._planes.popitem(last=False)
            return values

    def _compute(self, key: str, view: View) -> NDArray[np.float32]:
        out = np.full(self.ground.shape, np.nan, np.float32)
        windows = list(self.ground.strips())
        when = f" for {view.quarter}" if view.quarter else ""
        with self.progress.task(f"Computing the map{when}", len(windows)) as step:
            for window in windows:
                out[window.slices] = self._strip(key, view, window)
                step()
        return out

    def _strip(self, key: str, view: View, window: Window) -> NDArray[np.float32]:
        box = self.ground.geobox[window.slices]
        where = Where(box, self.ground.inside[window.slices])

        return _values(self.dataset(box, view, where=where), key)

    @cached_property
    def far(self) -> NDArray[np.bool_] | None:
        """Pixels inside that lie farther than 5 km from any training place; None when that is not known."""
        if self.ground.support is None:
            return None
        out = np.zeros(self.ground.shape, bool)
        lon, lat = pixels(self.ground.geobox)
        inside = self.ground.inside.ravel()
        away = self.ground.support.distances_m(lon[inside], lat[inside], FAR_M)
        out.ravel()[inside] = ~np.isfinite(away)
        return binary_opening(out, iterations=3)  # specks would look like dirt

    # -- legends -----------------------------------------------------------------------------------

    def bands(self, view: View) -> list[Band]:
        """The layers of a view with their titles in words, in the order of the list."""
        known = {band.key: band for band in bands(self.dataset(_pixel(0.0, 0.0), view))}
        return [known[key] for key in listed() if key in known]

    def subtitle(self, view: View) -> str:
        """Quarter, tests and level in words: `2023 Q4 · new tile averages of 6 tests · 95% intervals`."""
        return subtitle(self.dataset(_pixel(0.0, 0.0), view))

    @cached_property
    def legend(self) -> dict[str, Scale]:
        """One scale per quantity, the same for every quarter, level and threshold of the run."""
        path = self.cache.path(self.id, "legend.json")
        with suppress(OSError, ValueError, TypeError, KeyError):
            kept = {k: Scale(**v) for k, v in json.loads(path.read_text("utf-8")).items()}
            if kept.keys() >= {band.layer.quantity for band in self.bands(self.choices.default)}:
                return kept
        first, last = self._sample(0, 0.5), self._sample(-1, 0.95)
        both = xr.concat([first, last], dim="y", join="outer", compat="override", coords="minimal")
        found = scales(both, bands(both))
        self.cache.write_text(
            path, json.dumps({name: asdict(scale) for name, scale in found.items()}, default=float)
        )
        return found

    @cached_property
    def palette(self) -> Suppressing | None:
        """The value-suppressing palette, the same for every quarter; None without an interval."""
        return suppressing(self._sample(-1, 0.95), self.legend["level"])

    def _sample(self, quarter: int, level: float) -> xr.Dataset:
        """A few thousand places of a quarter as a Dataset of one column."""
        view = replace(
            self.choices.default,
            quarter=self.choices.quarters[quarter] if self.choices.quarters else None,
            level=level,
        )
        kept = self._samples.get((quarter, level))
        if kept is not None:
            return kept
        thin, inside = self.ground.thinned(self.pace.sample)
        ds = self.dataset(thin, view, where=Where(thin, inside))
        shown = [key for key in (*listed(), "latent_lower") if key in ds]
        self._samples[quarter, level] = ds[shown].load()
        return self._samples[quarter, level]

    @cached_property
    def _samples(self) -> dict[tuple[int, float], xr.Dataset]:
        return {}

    def layers(self, view: View) -> list[dict[str, Any]]:
        """The list of layers with legends, JSON-able."""
        out = []
        for band in self.bands(view):
            layer = Layer(
                band.key,
                band.title,
                band.short,
                band.about,
                band.unit_text,
                band.layer.group,
                self.legend[band.layer.quantity],
                band.colours,
            )
            out.append(layer.to_json())
            if band.key == "median" and self.palette is not None:
                out.append({**out[0], **self._faded_words(view)})
        return out

    def _faded_words(self, view: View) -> dict[str, Any]:
        assert self.palette is not None
        texts = self.palette.edge_texts()
        how = "upper end / lower end" if self.palette.ratio else "upper end - lower end"
        return {
            "id": FADED,
            "short": "Median, faded where unsure",
            "about": f"fewer, paler colours where the {100 * view.level:g}% prediction interval ({how}) is wide",
            "grid": [hexes(np.array(row, np.uint8)) for row in self.palette.palette()],
            "words": [f"< {texts[0]}", f"< {texts[1]}", f"< {texts[2]}", f"≥ {texts[2]}"],
        }

    # -- pictures ----------------------------------------------------------------------------------

    def picture(self, layer: str, view: View) -> bytes:
        """A layer as PNG on the Web Mercator grid, transparent outside.

        Raises
        ------
        InvalidInput
            there is no such layer.
        """
        parts = [] if layer == FAR else self._parts(layer, view)
        name = layer + "|" + "|".join(_file_name(key, view) for key in parts)
        with self._lock:
            if name not in self._pictures:
                planes = [self.plane(key, view) for key in parts]
                self._pictures[name] = self._paint(layer, view, planes) if parts else self._hatch()
                while len(self._pictures) > KEPT_PICTURES:
                    self._pictures.popitem(last=False)
            self._pictures.move_to_end(name)
            return self._pictures[name]

    def _hatch(self) -> bytes:
        if self.far is None:
            raise InvalidInput("This run does not record its training places, so nothing is hatched.")
        return hatch_png(self.far)

    def tile(self, layer: str, view: View, z: int, x: int, y: int) -> bytes:
        """A square of a layer in detail, from the model itself, where the picture's pixels would show.

        `x`, `y` number the 256-pixel squares of zoom `z`; 128 x 128 places are computed, fewer of a slow model.

        Raises
        ------
        InvalidInput
            there is no such layer or no such square.
        """
        if not (0 <= z <= DEEPEST and 0 <= x < 2**z and 0 <= y < 2**z):
            raise InvalidInput(f"There is no square {x}, {y} at zoom {z}; zoom goes from 0 to {DEEPEST}.")
        parts = self._parts(layer, view)
        name = (layer, view, z, x, y)
        with self._tile_lock:  # one at a time, so that a pointer's question is answered in between
            if name not in self._tiles:
                self._tiles[name] = self._tile(layer, parts, view, self._square(z, x, y))
                while len(self._tiles) > KEPT_TILES:
                    self._tiles.popitem(last=False)
            return self._tiles[name]

    def _square(self, z: int, x: int, y: int) -> GeoBox:
        side = 2 * MERCATOR_HALF / 2**z
        left = -MERCATOR_HALF + x * side
        middle = self.ground.geobox.extent.centroid.coords[0][0]
        left += 2 * MERCATOR_HALF * round((middle - left - side / 2) / (2 * MERCATOR_HALF))
        n = self.pace.tile
        pixel = side / n
        return GeoBox((n, n), Affine(pixel, 0, left, 0, -pixel, MERCATOR_HALF - y * side), "EPSG:3857")

    def _tile(self, layer: str, parts: list[str], view: View, box: GeoBox) -> bytes:
        inside = self.ground.mask(box)
        if not inside.any():
            return empty_png(self.pace.tile)
        ds = self.dataset(box, view, where=Where(box, inside))
        return self._paint(layer, view, [_values(ds, key) for key in parts])

    def _parts(self, layer: str, view: View) -> list[str]:
        """The variables that a layer is painted from."""
        if layer == FADED and self.palette is not None:
            return ["median", "lower", "upper"]
        if layer not in (known := [band.key for band in self.bands(view)]):
            raise InvalidInput(f"There is no layer {layer[:40]!r} in this run; it has {', '.join(known)}.")
        return [layer]

    def _paint(self, layer: str, view: View, planes: list[NDArray[np.float32]]) -> bytes:
        if layer == FADED:
            assert self.palette is not None
            return rgba_png(self.palette.paint(*planes))
        found = next(band for band in self.bands(view) if band.key == layer)
        return paint_png(planes[0], self.legend[found.layer.quantity], found.colours)

    # -- words -------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What the page says about the run, JSON-able."""
        west, south, east, north = self.ground.bounds
        outline = None
        if self.ground.outline is not None:
            fine = 0.4 * (east - west) / self.ground.shape[1]
            simple = shapely.simplify(self.ground.outline, fine)
            outline = json.loads(shapely.to_geojson(shapely.set_precision(simple, 1e-5)))
        return {
            "id": self.id,
            "bounds": [west, south, east, north],
            "focus": list(self.ground.focus),
            "outline": outline,
            "far_km": FAR_M / 1000 if self.ground.support is not None else None,
            "unit": self.unit,
            "detail_from": max(
                0,
                math.ceil(math.log2(1.5 * 2 * MERCATOR_HALF / self.pace.tile / self.ground.geobox.affine.a)),
            ),
        }


def _digest(what: Any) -> str:
    return hashlib.blake2b(repr(what).encode(), digest_size=10).hexdigest()


def _values(ds: xr.Dataset, key: str) -> NDArray[np.float32]:
    plane = ds[key].isel(threshold=0) if LAYERS[key].by_threshold else ds[key]
    return np.asarray(plane.values, dtype=np.float32)


def _pixel(lat: float, lon: float) -> GeoBox:
    """A grid of one pixel, 2 cm wide, whose centre is the place."""
    x, y = (float(v) for v in mercator(np.array(lon), np.array(lat)))
    return GeoBox((1, 1), Affine(0.02, 0, x - 0.01, 0, -0.02, y + 0.01), "EPSG:3857")


def _file_name(key: str, view: View) -> str:
    """Only what the layer depends on, so that a threshold does not compute the median again."""
    parts = [key, view.quarter or "-", "-" if view.tests is None else f"{view.tests:.10g}"]
    if LAYERS[key].by_level:
        parts.append(f"{view.level:g}")
    if LAYERS[key].by_threshold:
        parts.append(f"{view.threshold:.10g}")
    return "_".join(parts) + ".npy"


def open_atlas(path: Path, **options: Any) -> Atlas:
    """The atlas of a run folder, its hashes checked.

    Raises
    ------
    InvalidInput (of geogp or of this package)
        no finished run there, a file altered, or a run that cannot be put on a map.
    """
    return Atlas(load(path), Cache(), **options)
