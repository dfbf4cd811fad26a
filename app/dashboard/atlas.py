"""A run as something to look at: layers as coloured pictures, computed once and kept, and its legends.

Every value comes from `geogp.predict`. Pictures are computed strip by strip, each layer on its own, from moments
that are remembered (`Remembering`): the first layer of a quarter costs a pass of the model, the others a formula.
"""

import hashlib
import io
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
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

from app.dashboard.cache import Cache
from app.dashboard.grid import FAR_M, Ground, mercator, pixels, survey
from app.dashboard.progress import Progress
from app.dashboard.remembering import Remembering
from app.dashboard.view import PRESETS, Choices, View
from app.errors import InvalidInput
from geogp import load, predict
from geogp.storage import SUMS, Run
from geogp.targets import target
from maps.colours import Scale, Suppressing, scales, suppressing, table
from maps.grid import Window
from maps.layers import Band, bands, number

ORDER = (
    "median",
    "pi_width",
    "exceedance",
    "lower",
    "upper",
    "explained",
    "latent_median",
    "latent_sd",
    "noise_sd",
    "mean",
)
BY_LEVEL = ("lower", "upper", "pi_width", "latent_lower", "latent_upper")
FADED = "faded"
KEPT_PLANES = 24  # float planes held in memory, 1.6 MB per 400,000 pixels of rectangle
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
            "ramp": ["#" + bytes(c.tolist()).hex() for c in ramp],
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
    inside : pixels inside the region; the default paints first in about 2 s on one core

    Raises
    ------
    InvalidInput
        the run cannot be put on a map, or its target is unknown.
    """

    def __init__(self, run: Run, cache: Cache, *, inside: int | None = None):
        self.run, self.cache = run, cache
        self.target = target(run.facts.get("target", ""))
        run.model.engine_ = Remembering(run.model.engine_)  # type: ignore[assignment]
        self.ground: Ground = survey(run) if inside is None else survey(run, inside=inside)
        self.progress = Progress()
        self._planes: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.RLock()  # one map is computed at a time; a second request for it then finds it

    @cached_property
    def id(self) -> str:
        """Names the run's content and the grid: what cached files and addresses of pictures start with."""
        lines = (self.run.path / SUMS).read_text("utf-8").splitlines()
        weights = [line for line in lines if not line.endswith("  run.json")]  # which holds the scores too
        grid = (FORMAT, self.target.name, self.ground.shape, tuple(self.ground.geobox.affine))
        return hashlib.blake2b(repr((weights, grid)).encode(), digest_size=10).hexdigest()

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
        """`geogp.predict` of a view on any grid."""
        return predict(
            self.run,
            geobox,
            quarter=view.quarter,
            tests=view.tests,
            level=view.level,
            thresholds=(view.threshold,),
            **options,
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
        inside = self.ground.inside[window.slices]
        box = self.ground.geobox[window.slices]
        top, left = round(box.affine.f, 3), round(box.affine.c, 3)

        def where(part: GeoBox) -> NDArray[np.bool_]:  # blocks of `predict`: parts of this strip
            r = round((top - part.affine.f) / -part.affine.e)
            c = round((part.affine.c - left) / part.affine.a)
            return inside[r : r + part.height, c : c + part.width]

        ds = self.dataset(box, view, where=where)
        values = ds[key].isel(threshold=0) if key == "exceedance" else ds[key]
        return np.asarray(values.values, dtype=np.float32)

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
        return out

    # -- legends -----------------------------------------------------------------------------------

    def bands(self, view: View) -> list[Band]:
        """The layers of a view with their titles in words, in the order of the list."""
        known = {band.key: band for band in bands(self.dataset(_pixel(0.0, 0.0), view))}
        return [known[key] for key in ORDER if key in known]

    @cached_property
    def legend(self) -> dict[str, Scale]:
        """One scale per quantity, the same for every quarter, level and threshold of the run."""
        path = self.cache.path(self.id, "legend.json")
        with suppress(OSError, ValueError, TypeError, KeyError):
            return {k: Scale(**v) for k, v in json.loads(path.read_text("utf-8")).items()}
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
        step = max(1, int(np.sqrt(self.ground.inside.sum() / 4000)))
        box = self.ground.geobox
        inside = self.ground.inside[step // 2 :: step, step // 2 :: step]
        if not inside.any():
            step, inside = 1, self.ground.inside
        thin = GeoBox(
            inside.shape, box.affine * Affine.translation(*_shift(step)) * Affine.scale(step), box.crs
        )

        def where(part: GeoBox) -> NDArray[np.bool_]:
            r = round((thin.affine.f - part.affine.f) / -part.affine.e)
            c = round((part.affine.c - thin.affine.c) / part.affine.a)
            return inside[r : r + part.height, c : c + part.width]

        self._samples[quarter, level] = self.dataset(thin, view, where=where)[[*ORDER, "latent_lower"]].load()
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
                band.layer.colours,
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
            "grid": [["#" + bytes(c).hex() for c in row] for row in self.palette.palette()],
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
        if layer == FADED and self.palette is not None:
            parts = [self.plane(key, view) for key in ("median", "lower", "upper")]
            return rgba_png(self.palette.paint(*parts))
        if layer == "far" and self.far is not None:
            return hatch_png(self.far)
        found = {band.key: band for band in self.bands(view)}.get(layer)
        if found is None:
            raise InvalidInput(
                f"There is no layer {layer[:40]!r} in this run; it has {', '.join((*ORDER, FADED))}."
            )
        return paint_png(self.plane(layer, view), self.legend[found.layer.quantity], found.layer.colours)

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
            "outline": outline,
            "far_km": FAR_M / 1000 if self.ground.support is not None else None,
            "unit": self.unit,
        }


def _pixel(lat: float, lon: float) -> GeoBox:
    """A grid of one pixel, 2 cm wide, whose centre is the place."""
    x, y = (float(v) for v in mercator(np.array(lon), np.array(lat)))
    return GeoBox((1, 1), Affine(0.02, 0, x - 0.01, 0, -0.02, y + 0.01), "EPSG:3857")


def _shift(step: int) -> tuple[float, float]:
    half = step // 2 + 0.5 - step / 2
    return half, half


def _file_name(key: str, view: View) -> str:
    """Only what the layer depends on, so that a threshold does not compute the median again."""
    parts = [key, view.quarter or "-", "-" if view.tests is None else f"{view.tests:.10g}"]
    if key in BY_LEVEL:
        parts.append(f"{view.level:g}")
    if key == "exceedance":
        parts.append(f"{view.threshold:.10g}")
    return "_".join(parts) + ".npy"


def paint_png(values: NDArray[Any], scale: Scale, colours: str) -> bytes:
    """Values as an indexed PNG: 255 colours of a map and a transparent one for NaN."""
    t = scale.fraction(values)
    known = np.isfinite(t)
    index = np.where(known, np.nan_to_num(t) * 254 + 1.5, 0).astype(np.uint8)
    steps = table(colours)[np.linspace(0, 255, 255).round().astype(int)]
    return _indexed(index, [(0, 0, 0), *steps.tolist()])


def hatch_png(marked: NDArray[np.bool_]) -> bytes:
    """Diagonal lines over the marked pixels, transparent elsewhere."""
    rows, cols = np.indices(marked.shape)
    return _indexed((marked & ((rows + cols) % 6 < 1)).astype(np.uint8), [(0, 0, 0), (30, 36, 48)])


def _indexed(index: NDArray[np.uint8], colours: Sequence[Sequence[int]]) -> bytes:
    from PIL import Image

    image = Image.fromarray(index, mode="P")
    image.putpalette([int(c) for colour in colours for c in colour])
    out = io.BytesIO()
    image.save(out, "PNG", transparency=0, compress_level=3)
    return out.getvalue()


def rgba_png(rgba: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(rgba, mode="RGBA").save(out, "PNG", compress_level=3)
    return out.getvalue()


def open_atlas(path: Path, **options: Any) -> Atlas:
    """The atlas of a run folder, its hashes checked.

    Raises
    ------
    InvalidInput (of geogp or of this package)
        no finished run there, a file altered, or a run that cannot be put on a map.
    """
    return Atlas(load(path), Cache(), **options)
