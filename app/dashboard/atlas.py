"""A run as something to look at: its page, the planes of its quarters, and what is asked of single places.

The browser computes every layer from the planes; they are made once a quarter and kept on disk. Places, quarters of a
place and kernel slices come from the model itself, at the centre of the map's own pixel, so that all say the same.
"""

import copy
import hashlib
import json
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from affine import Affine
from odc.geo.geobox import GeoBox

from app.caches import AnswerCache, DiskCache
from app.dashboard.detail import Details, Exported
from app.dashboard.gazetteer import Gazetteer
from app.dashboard.making import Making
from app.dashboard.paths import pages
from app.dashboard.setting import Setting, choices_of
from app.dashboard.slices import Slices
from app.dashboard.windows import MARK, Pixels, Windows
from app.dashboard.words import percent, plain
from app.errors import InvalidInput
from app.workflow import naming
from app.workflow.distributions import by_name, counts_of, through_time
from app.workflow.grids import finest_of, grid_of
from app.workflow.page import Legend, beside, draws_pack, legend_of, page_grid, quarter_packs, spec_of
from app.workflow.together import together
from geogp.run import Run
from geogp.storage import SUMS
from maps.bands import complete
from maps.layers import LAYERS
from maps.mercator import mercator_grid
from maps.page_data import EITHER, SIMILAR
from maps.words import exact

FORMAT = 7  # of the files in the cache: raise it when a formula, the grid or what places are called changes
#: Places whose quarters are remembered: people look at the same towns.
PLACES = 1000
#: What was said or drawn of a place in a setting, remembered likewise: some kilobytes each.
ANSWERS = 1000
T = TypeVar("T")
Packs = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Wanted:
    """Planes that are asked for: of a quarter, of this run or of another one on its pixels, or joint draws."""

    quarter: str | None
    other: "Atlas | None" = None
    draws: bool = False

    @property
    def name(self) -> str:
        """Of the file that keeps them."""
        kind = "_draws" if self.draws else "" if self.other is None else f"_{self.other.id}"
        return f"{self.quarter or 'all'}{kind}"


class Atlas:
    """The maps of one run.

    Parameters
    ----------
    run : from `geogp.load`
    disk : where planes stay between starts
    name : that addresses give the run by
    places : names and lines beside those of the region, see `app.workflow.naming`

    Raises
    ------
    InvalidInput (of geogp or of this package)
        the run cannot be put on a map, or its target is unknown.
    """

    def __init__(self, run: Run, disk: DiskCache, *, places: Sequence[naming.Brought] = (), name: str = ""):
        self.run, self.disk, self.brought, self.name = run, disk, list(places), name
        self.target, self.choices = run.target, choices_of(run)
        grid = grid_of(run)
        self.page = page_grid(run, grid)
        self.windows = Windows(self.page, finest_of(run, grid))
        self.gazetteer = Gazetteer(self.page, self.brought)
        self.slices = Slices(self.page)
        self.details = Details(run, mercator_grid(self.page.geobox).pixel_m)
        self._finer: Exported | Pixels | None = None
        self._through = lru_cache(PLACES)(partial(_through_time, run, self.choices.quarters))
        self._answers = AnswerCache(ANSWERS)
        self._html: dict[object, str] = {}
        self._rendering = threading.Lock()
        self._pairs: dict[str, dict[str, Any]] = {}
        self._pairing = threading.Lock()
        self.making: Making[Packs] = Making(self._made)

    @cached_property
    def id(self) -> str:
        """Names the run's content and the grid: its files, of run.json, which also holds the scores, what the model says
        (units and scale are not in the weights), and where the pixels lie."""
        lines = (self.run.path / SUMS).read_text("utf-8").splitlines()
        weights = [line for line in lines if not line.endswith("  run.json")]
        model = json.dumps(self.run.facts.get("model"), sort_keys=True)
        box = self.page.geobox
        return _digest(
            (FORMAT, self.target.name, weights, model, tuple(box.shape), tuple(box.affine), sorted(LAYERS))
        )

    @property
    def unit(self) -> str:
        """Of the maps, as people read it: nothing for a pure number."""
        return "" if self.run.unit == "1" else self.run.unit

    @property
    def of_what(self) -> str:
        """What limits and counts in an address are of: those of other values mean nothing here."""
        return f"{self.target.words} {self.unit}".strip()

    # -- the page ----------------------------------------------------------------------------------

    @cached_property
    def legend(self) -> Legend:
        """The same for every quarter, level and threshold, here and in exported files."""
        with suppress(KeyError, AttributeError, TypeError, ValueError):  # none yet, or no legend
            return Legend.from_document(self.disk.note(self.id, "legend.json"))
        found = legend_of(self.page)
        self.disk.write_note(self.id, "legend.json", found.document())
        return found

    @cached_property
    def towns(self) -> list[dict[str, Any]]:
        """Of the region, the largest first."""
        known = self.disk.note(self.id, "towns.json")
        if isinstance(known, list) and all(isinstance(town, dict) and "name" in town for town in known):
            return known
        found = naming.towns(self.page)
        self.disk.write_note(self.id, "towns.json", found)
        return found

    @cached_property
    def names(self) -> naming.Names:
        """And lines, of the region and of what was brought; without that kept on disk: a nation has 3,000 counties."""
        if self.brought:
            return naming.named(self.page, self.brought, self.towns)
        with suppress(KeyError, TypeError, ValueError):  # none yet, or no names
            return naming.Names.from_document(self.disk.note(self.id, "names.json"))
        found = naming.named(self.page, [], self.towns)
        self.disk.write_note(self.id, "names.json", found.document())
        return found

    @cached_property
    def focus(self) -> list[list[float]]:
        """[[south, west], [north, east]] that the map opens on."""
        found: list[list[float]] = self.spec()["focus"]
        return found

    def spec(self) -> dict[str, Any]:
        """What the page's script is given."""
        spec = spec_of(
            self.page,
            self.legend,
            quarters=self.choices.quarters,
            places=self.names.places,
            lines=self.names.lines,
            credit=self.names.credit,
        )
        plain = {"of": "", "by_level": False, "fades": False, "factor": False, "timeless": False}
        spec["layers"] += [{**SIMILAR, **plain}, {**EITHER, **plain}]
        spec["target"] = self.target.name
        spec["of"] = self.of_what
        spec["unlearned"] = self._unlearned()
        finer = self.details.found()
        spec["facts"] = [*spec["facts"], *(("Zoomed in", export.words()) for export in finer)]
        if spec["note"] and (finer or self.windows.document()):
            of = f"all those of {finer[0].name}/ are shown" if finer else "all are worked out where one looks"
            spec["note"] += f"; zoomed in, {of}"
        return spec | {
            "server": "/geogp/",
            "id": self.id,
            "run": self.name,
            "pages": pages(),
            "details": "/pages/place",
            "finer": [export.document() for export in finer],
            "window": self.windows.document(),
            "closer": self.gazetteer.has_more(self.names.places),
            "area": self._area(),
        }

    def _area(self) -> str:
        """What a place lies in that has a name: "county", or "area" of those that were brought; "" where none has."""
        kinds = {p["about"] for p in self.names.places if p["kind"] == "area"} - {"island"}
        return "" if not kinds else "county" if kinds == {"county"} else "area"

    def _unlearned(self) -> dict[str, Any] | None:
        """Quarters that one can choose though all their rows were held out, and what is said of them rests on."""
        learned = self.run.learned
        held_out = [quarter for quarter in self.choices.quarters if quarter not in learned]
        if not held_out:
            return None
        first, last = (quarter.replace("Q", " Q") for quarter in (learned[0], learned[-1]))
        return {"quarters": held_out, "rests": first if first == last else f"{first} to {last}"}

    def html(self, runs: tuple[str, ...] = ()) -> str:
        """The page; its planes are asked for when it is open.

        runs : names of those that one can choose from
        """
        key = runs, self.details.found()
        with self._rendering:  # who comes while it is made waits for it
            if key not in self._html:
                from maps.web import page_of  # folium takes a second, and the dashboard listens without it

                self._html = {key: str(page_of(self.spec() | {"runs": list(runs)}).get_root().render())}
            return self._html[key]

    def kept(self, wanted: Wanted) -> Packs | None:
        """Planes, if they were made before."""
        run = self.run if wanted.other is None else wanted.other.run
        first = self.disk.read(self.id, f"{wanted.name}.pack")
        others = self.disk.read(self.id, f"{wanted.name}_counts.pack")
        if first is None or (others is None and not wanted.draws and len(counts_of(run)) > 1):
            return None
        return first, others

    def _made(self, wanted: Wanted, progress: Any) -> Packs:
        if (known := self.kept(wanted)) is not None:
            return known
        if wanted.draws:
            first, others = draws_pack(self.page, wanted.quarter), None
        elif wanted.other is not None:
            first, others = quarter_packs(beside(self.page, wanted.other.run), wanted.quarter, progress)
        else:
            first, others = quarter_packs(self.page, wanted.quarter, progress)
        self.disk.write(self.id, f"{wanted.name}.pack", first)
        if others is not None:
            self.disk.write(self.id, f"{wanted.name}_counts.pack", others)
        return first, others

    # -- another run -------------------------------------------------------------------------------

    def pair(self, other: "Atlas") -> dict[str, Any]:
        """What the page's script needs of another run beside this one: its layers and, where both were fitted from the
        same tiles, how the errors of their surfaces go together."""
        with self._pairing:
            if other.id not in self._pairs:
                self._pairs[other.id] = other.spec() | {"pair": self._paired(other)}
            return self._pairs[other.id]

    def apart(self, other: "Atlas") -> str:
        """Why nothing can tell how the errors of two runs go together, as far as one sees it without reading their rows; ""
        where it may be told."""
        if not (self.run.has_support and other.run.has_support):
            return ""
        lon, lat = other.run.to_degrees(other.run.support.positions_m)
        with np.errstate(invalid="ignore"):
            column, row = ~self.page.geobox.affine * tuple(self.run.from_degrees(lon, lat).T)
            height, width = self.page.geobox.shape
            within = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        return "" if within.any() else f"no place in common with {other.name}"

    def _paired(self, other: "Atlas") -> dict[str, Any]:
        usual = tuple(atlas.run.thresholds for atlas in (self, other))
        try:
            both = together(self.run, other.run, (usual[0][-1], usual[1][-1]))
        except ValueError as error:
            return {"problem": str(error)}
        return {
            "correlation": both.correlation.surface,
            "said": both.note(),
            "words": [run.target.words for run in (self.run, other.run)],
            "higher": [run.target.better != "lower" for run in (self.run, other.run)],
            "limits": list(zip(*usual)),
        }

    # -- places --------------------------------------------------------------------------------------

    def pixel(self, lat: float, lon: float) -> tuple[int, int] | None:
        """(row, column) of the page's pixel at a place; at the coast that beside it; None outside."""
        known = self.page.places[0]
        x, y = self.run.from_degrees(lon, lat)[0]
        if not (math.isfinite(x) and math.isfinite(y)):
            return None
        column, row = (math.floor(v) for v in ~self.page.geobox.affine * (x, y))
        around = [(row + a, column + b) for a in (0, -1, 1) for b in (0, -1, 1)]
        for r, c in sorted(around, key=lambda rc: abs(rc[0] - row) + abs(rc[1] - column)):
            if 0 <= r < known.shape[0] and 0 <= c < known.shape[1] and known[r, c]:
                return r, c
        return None

    def of(self, export: str | None) -> "Atlas":
        """The same maps, of places told at the pixels of an export that lies beside the run (its folder's name), or at those of
        a window, where there are any."""
        if not export:
            return self
        known = self.windows if export.startswith(MARK) else self.details
        if (found := known.named(export)) is None:
            return self
        finer = copy.copy(self)
        finer._finer = found
        return finer

    def contains(self, lat: float, lon: float) -> bool:
        """Whether the map has a value at a place."""
        return self.once(("contains", lat, lon), lambda: self.pixel(lat, lon) is not None)

    def centre(self, lat: float, lon: float) -> tuple[float, float]:
        """Latitude and longitude of the middle of the pixel at a place: what all that is said of it is said of.

        Raises
        ------
        InvalidInput
            the place lies outside.
        """

        def middle() -> tuple[float, float]:
            a = self._box(lat, lon).affine
            longitude, latitude = self.run.to_degrees([a * (0.5, 0.5)])
            return float(latitude[0]), float(longitude[0])

        return self.once(("centre", lat, lon, self._finer and self._finer.name), middle)

    def _box(self, lat: float, lon: float) -> Any:
        found = self.pixel(lat, lon)
        if found is None:
            raise InvalidInput(f"{lat:.4f}, {lon:.4f} lies outside the mapped region.")
        row, column = found
        box = self.page.geobox[row : row + 1, column : column + 1]
        if self._finer is not None and (middle := self._finer.centre(lat, lon)) is not None:
            x, y = ~box.affine * tuple(self.run.from_degrees(*middle)[0])
            return GeoBox((1, 1), box.affine * Affine.translation(x - 0.5, y - 0.5), box.crs)
        return box

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once for a key: it is shared by all who look, so nobody may change it."""
        return self._answers.get(key, make)

    def at(self, lat: float, lon: float, setting: Setting) -> xr.Dataset:
        """Every variable at the pixel of a place, (1, 1), from the model itself; about 10 ms.

        Raises
        ------
        InvalidInput
            the place lies outside.
        """
        ds = self.run.predict(
            self._box(lat, lon),
            quarter=setting.quarter,
            tests=setting.tests,
            level=setting.level,
            thresholds=(setting.threshold,),
        )
        return complete(ds)

    def values(self, lat: float, lon: float, setting: Setting) -> dict[str, float]:
        """Every variable at the pixel of a place as a number, by name; asked of the model once."""

        def told() -> dict[str, float]:
            ds = self.at(lat, lon, setting).load()
            return {str(k): float(v.values.ravel()[0]) for k, v in ds.data_vars.items()}

        return dict(self.once(("values", self.centre(lat, lon), setting), told))

    def reading(self, lat: float, lon: float, setting: Setting) -> dict[str, Any]:
        """`words` of a place ("90 Mbit/s; 95% prediction interval 48 to 132; P(> 100) = 37%") and `values` by variable."""
        values = self.values(lat, lon, setting)
        unit = f" {self.unit}" if self.unit else ""
        chance = percent(values["exceedance"])
        words = (
            f"{plain(values['median'])}{unit}; {100 * setting.level:g}% prediction interval "
            f"{plain(values['lower'])} to {plain(values['upper'])}; "
            f"P(> {exact(setting.threshold)}) {chance if chance[0] in '<>' else '= ' + chance}"
        )
        return {"words": words, "values": values}

    def history(self, lat: float, lon: float) -> list[dict[str, Any]]:
        """The distribution at the pixel of a place in each quarter, by number of tests, JSON-able."""
        quarters = self.choices.quarters
        if not quarters:
            return []
        centre = np.array(self._box(lat, lon).affine * (0.5, 0.5))
        found = self._through(*map(float, centre))
        names = [f"{n:.10g}" for n in counts_of(self.run)] or [""]
        return [
            {
                "quarter": quarter,
                "counts": {
                    name: {field: float(v) for field, v in by_name(found[:, i, k]).items()}
                    for i, name in enumerate(names)
                },
            }
            for k, quarter in enumerate(quarters)
        ]


def _through_time(run: Run, quarters: Sequence[str], x: float, y: float) -> np.ndarray:
    return through_time(run, np.array([x, y]), quarters)


def _digest(what: Any) -> str:
    return hashlib.blake2b(repr(what).encode(), digest_size=10).hexdigest()
