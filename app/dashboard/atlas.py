"""A run as something to look at: layers as coloured pictures, worked out once and kept, and their legends.

Every value comes from `geogp.predict`. Pictures are computed strip by strip, each layer on its own, from moments
that are kept (`MomentsCache`): the first layer of a quarter costs a pass of the model, the others a formula.
"""

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import shapely
import xarray as xr
from affine import Affine
from numpy.typing import NDArray
from odc.geo.geobox import GeoBox
from scipy.ndimage import binary_opening

from app.dashboard.caches import DiskCache, MemoryCache
from app.dashboard.canvas import canvas_of, masked, pixels
from app.dashboard.pace import Pace, Progress, pace_of
from app.dashboard.pictures import empty_png, hatch_png, hexes, legend, paint_png, rgba_png
from app.dashboard.setting import Setting, choices_of
from app.dashboard.slices import Slices
from app.dashboard.words import percent, plain
from app.errors import InvalidInput
from geogp.blocks import MomentsCache
from geogp.run import FAR_M, Run
from geogp.storage import SUMS
from maps.bands import Band, bands, complete
from maps.colours import Scale, Suppressing, scales, suppressing, table
from maps.layers import LAYERS, listed
from maps.mercator import MERCATOR_HALF, mercator
from maps.words import subtitle

FADED = "faded"
FAR = "far"
MAP_BYTES = 192 * 2**20  # kept in memory: a plane takes up to 16 MB, a picture about 200 kB
DETAIL_BYTES = 8 * 2**20  # the same of squares, about 10 kB each, and of samples
DEEPEST = 16  # zoom: 1.2 m a place, far below a speed-test tile of 610 m
FORMAT = 2  # of the files in the cache: raise it when a formula or the grid changes


class Atlas:
    """The maps of one run.

    Parameters
    ----------
    run : from `geogp.load`
    disk : where maps' values stay between starts
    pace : how fine; the default suits the speed of the model (`pace_of`)

    Raises
    ------
    InvalidInput (of geogp or of this package)
        the run cannot be put on a map, or its target is unknown.
    """

    def __init__(self, run: Run, disk: DiskCache, *, pace: Pace | None = None):
        self.run, self.disk = run, disk
        self.target, self.choices = run.target, choices_of(run)
        self.pace = pace or pace_of(run, disk, self.weights_id)
        self.canvas = canvas_of(run, inside=self.pace.inside)
        self.slices = Slices(self.canvas, self.pace.slice)
        self.progress = Progress()
        self._moments = MomentsCache()
        self._maps, self._squares = MemoryCache(MAP_BYTES), MemoryCache(DETAIL_BYTES)
        self._samples = MemoryCache(
            DETAIL_BYTES
        )  # apart: a map waits for its legend, which waits for a sample

    @cached_property
    def weights_id(self) -> str:
        """Names the run's content: its files, and of run.json, which also holds the scores, what the model says (units
        and scale are not in the weights)."""
        lines = (self.run.path / SUMS).read_text("utf-8").splitlines()
        weights = [line for line in lines if not line.endswith("  run.json")]
        model = json.dumps(self.run.facts.get("model"), sort_keys=True)
        return _digest((FORMAT, self.target.name, weights, model))

    @cached_property
    def id(self) -> str:
        """Names the run's content and the grid: what kept files and addresses of pictures start with."""
        return _digest((self.weights_id, self.canvas.shape, tuple(self.canvas.geobox.affine)))

    @property
    def unit(self) -> str:
        """Of the maps, as people read it: nothing for a pure number."""
        return "" if self.run.unit == "1" else self.run.unit

    # -- predictions -------------------------------------------------------------------------------

    def dataset(
        self, geobox: GeoBox, setting: Setting, inside: NDArray[np.bool_] | None = None
    ) -> xr.Dataset:
        """`geogp.predict` of a setting on any grid, or on its pixels `inside`, with the layers that follow from it."""
        ds = self.run.predict(
            geobox,
            quarter=setting.quarter,
            tests=setting.tests,
            level=setting.level,
            thresholds=(setting.threshold,),
            where=None if inside is None else masked(geobox, inside),
            cache=self._moments,
        )
        return complete(ds)

    def at(self, lat: float, lon: float, setting: Setting) -> xr.Dataset:
        """Every variable at one place, from the model itself: exact whatever the pictures' resolution.

        A grid of one pixel whose centre is the place; about 10 ms.
        """
        return self.dataset(_pixel(lat, lon), setting)

    def plane(self, key: str, setting: Setting) -> NDArray[np.float32]:
        """A layer's values on the canvas, (H, W), NaN outside; computed, or as they were kept."""
        name = self._file_name(key, setting)
        return self._maps.get(name, lambda: self._kept_or_computed(name, key, setting))

    def _kept_or_computed(self, name: str, key: str, setting: Setting) -> NDArray[np.float32]:
        values = self.disk.read(self.id, name, self.canvas.shape)
        if values is None:
            values = self._computed(key, setting)
            self.disk.write(self.id, name, values)
        return values

    def _computed(self, key: str, setting: Setting) -> NDArray[np.float32]:
        out = np.full(self.canvas.shape, np.nan, np.float32)
        strips = list(self.canvas.strips())
        when = f" for {setting.quarter}" if setting.quarter else ""
        with self.progress.task(f"Computing the map{when}", len(strips)) as step:
            for strip in strips:
                box, inside = self.canvas.geobox[strip.slices], self.canvas.inside[strip.slices]
                out[strip.slices] = _values(self.dataset(box, setting, inside), key)
                step()
        return out

    def _file_name(self, key: str, setting: Setting) -> str:
        """Only what the layer depends on, so that a threshold does not compute the median again."""
        held = setting.tests is None or LAYERS[key].of_surface  # at the run's reference count
        parts = [key, setting.quarter or "-", "-" if held else f"{setting.tests:.10g}"]
        if LAYERS[key].by_level:
            parts.append(f"{setting.level:g}")
        if LAYERS[key].by_threshold:
            parts.append(f"{setting.threshold:.10g}")
        return "_".join(parts) + ".npy"

    @cached_property
    def far(self) -> NDArray[np.bool_] | None:
        """Pixels inside that lie far (`FAR_M`) from every training place; None when those are not known."""
        if self.canvas.support is None:
            return None
        out, inside = np.zeros(self.canvas.shape, bool), self.canvas.inside
        lon, lat = pixels(self.canvas.geobox)
        away = self.canvas.away_m(lon[inside.ravel()], lat[inside.ravel()], FAR_M)
        out[inside] = ~np.isfinite(away)
        return binary_opening(out, iterations=3)  # specks would look like dirt

    # -- legends -----------------------------------------------------------------------------------

    def bands(self, setting: Setting) -> list[Band]:
        """The layers of a setting with their titles in words, in the order of the list."""
        known = {band.key: band for band in bands(self.at(0.0, 0.0, setting))}
        return [known[key] for key in listed() if key in known]

    def subtitle(self, setting: Setting, key: str | None = None) -> str:
        """Quarter, tests and level in words: `2023 Q4 · new tile averages of 6 tests · 95% intervals`; of one layer only
        what it depends on."""
        ds = self.at(0.0, 0.0, setting)
        if key is None:
            return subtitle(ds)
        return subtitle(ds, intervals=LAYERS[key].by_level, new=not LAYERS[key].of_surface)

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """One scale per quantity, the same for every quarter, level and threshold of the run."""
        noted = self.disk.note(self.id, "legend.json")
        with suppress(AttributeError, TypeError):  # none yet, or no legend
            kept = {quantity: Scale(**scale) for quantity, scale in noted.items()}
            if kept.keys() >= {band.layer.quantity for band in self.bands(self.choices.default)}:
                return kept
        first, last = self._sample(0, 0.5), self._sample(-1, 0.95)
        both = xr.concat([first, last], dim="y", join="outer", compat="override", coords="minimal")
        found = scales(both, bands(both))
        self.disk.write_note(self.id, "legend.json", {name: asdict(scale) for name, scale in found.items()})
        return found

    @cached_property
    def palette(self) -> Suppressing | None:
        """The value-suppressing palette, the same for every quarter; None without an interval."""
        return suppressing(self._sample(-1, 0.95), self.scales["level"])

    def _sample(self, quarter: int, level: float) -> xr.Dataset:
        """A few thousand places of a quarter, in memory."""
        setting = replace(self.choices.default, level=level)
        if self.choices.quarters:
            setting = replace(setting, quarter=self.choices.quarters[quarter])
        thin, inside = self.canvas.thinned(self.pace.sample)
        return self._samples.get((quarter, level), lambda: self.dataset(thin, setting, inside).load())

    def layers(self, setting: Setting) -> list[dict[str, Any]]:
        """The list of layers with legends, JSON-able."""
        out = []
        for band in self.bands(setting):
            entry = {
                "id": band.key,
                "title": band.title,
                "short": band.short,
                "about": band.about,
                "of": self.subtitle(setting, band.key),
                "unit": band.unit_text,
                "group": band.layer.group,
                **legend(self.scales[band.layer.quantity], table(band.colours)),
            }
            out.append(entry)
            if band.key == "median" and self.palette is not None:
                out.append({**entry, **_faded_words(self.palette, setting), "of": self.subtitle(setting)})
        return out

    # -- pictures ----------------------------------------------------------------------------------

    def picture(self, layer: str, setting: Setting) -> bytes:
        """A layer as PNG on the canvas, transparent outside.

        Raises
        ------
        InvalidInput
            there is no such layer.
        """
        if layer == FAR:
            return self._maps.get(FAR, self._hatched)
        parts = self._parts(layer, setting)
        name = (layer, *(self._file_name(key, setting) for key in parts))
        return self._maps.get(
            name, lambda: self._painted(layer, setting, [self.plane(key, setting) for key in parts])
        )

    def _hatched(self) -> bytes:
        if self.far is None:
            raise InvalidInput("This run does not record its training places, so nothing is hatched.")
        return hatch_png(self.far)

    def tile(self, layer: str, setting: Setting, z: int, x: int, y: int) -> bytes:
        """A square of a layer in detail, from the model itself, where the picture's pixels would show.

        `x`, `y` number the 256-pixel squares of zoom `z`; 128 x 128 places are computed, fewer of a slow model.

        Raises
        ------
        InvalidInput
            there is no such layer or no such square.
        """
        if not (0 <= z <= DEEPEST and 0 <= x < 2**z and 0 <= y < 2**z):
            raise InvalidInput(f"There is no square {x}, {y} at zoom {z}; zoom goes from 0 to {DEEPEST}.")
        parts = self._parts(layer, setting)
        box = self.canvas.square(z, x, y, self.pace.tile)
        return self._squares.get((layer, setting, z, x, y), lambda: self._square(layer, parts, setting, box))

    def _square(self, layer: str, parts: list[str], setting: Setting, box: GeoBox) -> bytes:
        inside = self.canvas.mask(box)
        if not inside.any():
            return empty_png(self.pace.tile)
        ds = self.dataset(box, setting, inside)
        return self._painted(layer, setting, [_values(ds, key) for key in parts])

    def _parts(self, layer: str, setting: Setting) -> list[str]:
        """The variables that a layer is painted from."""
        if layer == FADED and self.palette is not None:
            return ["median", "lower", "upper"]
        if layer not in (known := [band.key for band in self.bands(setting)]):
            raise InvalidInput(f"There is no layer {layer[:40]!r} in this run; it has {', '.join(known)}.")
        return [layer]

    def _painted(self, layer: str, setting: Setting, planes: list[NDArray[np.float32]]) -> bytes:
        if layer == FADED:
            assert self.palette is not None
            return rgba_png(self.palette.paint(*planes))
        found = next(band for band in self.bands(setting) if band.key == layer)
        return paint_png(planes[0], self.scales[found.layer.quantity], found.colours)

    # -- words -------------------------------------------------------------------------------------

    def reading(self, lat: float, lon: float, setting: Setting) -> dict[str, Any]:
        """Everything the page says about a place, JSON-able, from the model itself.

        Returns
        -------
        lat, lon, inside, `nearest_km` to a training place; where `inside`: words ("90 Mbit/s; 95% prediction interval
        48 to 132; P(> 100) = 37%"), `values` and `texts` by variable
        """
        out: dict[str, Any] = {"lat": lat, "lon": lon, "inside": self.canvas.contains(lat, lon)}
        if self.canvas.support is not None:
            away = float(self.canvas.away_m(lon, lat)[0])
            out["nearest_km"] = round(away / 1000, 2) if math.isfinite(away) else None
        if not out["inside"]:
            return out
        ds = self.at(lat, lon, setting).load()
        values = {str(k): float(v.values.ravel()[0]) for k, v in ds.data_vars.items()}
        unit = f" {self.unit}" if self.unit else ""
        chance = percent(values["exceedance"])
        out["words"] = (
            f"{plain(values['median'])}{unit}; {100 * setting.level:g}% prediction interval "
            f"{plain(values['lower'])} to {plain(values['upper'])}; "
            f"P(> {setting.threshold:g}) {chance if chance[0] in '<>' else '= ' + chance}"
        )
        out["values"] = {k: v if math.isfinite(v) else None for k, v in values.items()}
        out["texts"] = {
            k: percent(v)
            if k in LAYERS and LAYERS[k].limits == (0.0, 1.0)
            else plain(v) + ("" if ds[k].units == "1" else unit)
            for k, v in values.items()
        }
        return out

    def about(self) -> dict[str, Any]:
        """What the page says about the run, JSON-able."""
        canvas = self.canvas
        west, _, east, _ = canvas.bounds
        outline = None
        if canvas.outline is not None:
            simple = shapely.simplify(canvas.outline, 0.4 * (east - west) / canvas.shape[1])
            outline = json.loads(shapely.to_geojson(shapely.set_precision(simple, 1e-5)))
        detail = math.log2(1.5 * 2 * MERCATOR_HALF / self.pace.tile / canvas.geobox.affine.a)
        return {
            "id": self.id,
            "bounds": list(canvas.bounds),
            "focus": list(canvas.focus),
            "outline": outline,
            "far_km": FAR_M / 1000 if canvas.support is not None else None,
            "unit": self.unit,
            "detail_from": max(0, math.ceil(detail)),
        }


def _digest(what: Any) -> str:
    return hashlib.blake2b(repr(what).encode(), digest_size=10).hexdigest()


def _values(ds: xr.Dataset, key: str) -> NDArray[np.float32]:
    """The plane of a layer, (H, W); of one with thresholds the first."""
    band = next(band for band in bands(ds) if band.key == key)
    return np.asarray(band.of(ds).values, dtype=np.float32)


def _pixel(lat: float, lon: float) -> GeoBox:
    """A grid of one pixel, 2 cm wide, whose centre is the place."""
    x, y = (float(v) for v in mercator(lon, lat))
    return GeoBox((1, 1), Affine(0.02, 0, x - 0.01, 0, -0.02, y + 0.01), "EPSG:3857")


def _faded_words(palette: Suppressing, setting: Setting) -> dict[str, Any]:
    """What the faded median says of itself in the list of layers, beside what the median says."""
    texts = palette.edge_texts()
    how = "upper end / lower end" if palette.ratio else "upper end - lower end"
    return {
        "id": FADED,
        "short": "Median, faded where unsure",
        "about": f"fewer, paler colours where the {100 * setting.level:g}% prediction interval ({how}) is wide",
        "grid": [hexes(np.array(row, np.uint8)) for row in palette.palette()],
        "words": [f"< {texts[0]}", f"< {texts[1]}", f"< {texts[2]}", f"≥ {texts[2]}"],
    }
