"""Detail beyond the planes: exported COGs of the run that lie beside it, read by window where the map is zoomed in.

An export is this run's if its manifest names the same weights, data, target and unit. Its pixels are shown where all that
is chosen (quarter, tests, level, threshold) is what it was made of; else the planes are, as without any.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from odc.geo.geobox import GeoBox
from pyproj import Transformer

from app.dashboard.setting import Box, Setting, window
from app.errors import InvalidInput
from app.workflow.page import picture_grid, thinned
from geogp.run import Run
from geogp.targets import digits
from maps.atomic import sha256
from maps.grid import geobox_like, geobox_of, pixel_of, wkt_of
from maps.layers import LAYERS
from maps.mercator import mercator, mercator_grid
from maps.packing import FINE, pack
from maps.reader import open_raster
from maps.words import exact

#: What a read-out is made of: an export without one of these is not shown.
NEEDED = ("median", "lower", "upper")
#: What a read-out tells beside them and beside the chance, where the export has it.
TOLD = ("explained",)
#: Pixels of a window that are read, those of its answer, and folders that are looked at.
MOST_READ, MOST_SHOWN, MOST_FOLDERS = 4_000_000, 400_000, 200
#: Bytes of a manifest; the largest that are written have some hundred files.
MOST_BYTES = 4 * 2**20
#: Pixels count as finer from this share of the planes' side on.
FINER = 0.8


@dataclass(frozen=True, eq=False)
class Exported:
    """One export of a run.

    name : of its folder, by which addresses speak of it
    tests, quarter : None where the run has none
    files : band ("median", "exceedance_100") -> (path, sha256)
    """

    name: str
    quarter: str | None
    tests: float | None
    level: float
    files: dict[str, tuple[Path, str]]

    @cached_property
    def geobox(self) -> GeoBox:
        return geobox_like(self.files["median"][0])

    @cached_property
    def side_m(self) -> float:
        """Of a pixel, in Mercator metres, on average."""
        return mercator_grid(self.geobox).pixel_m

    @property
    def thresholds(self) -> list[float]:
        return sorted(float(name.split("_")[1]) for name in self.files if name.startswith("exceedance_"))

    def document(self) -> dict[str, Any]:
        """What the page's script needs to know, JSON-able."""
        return {
            "name": self.name,
            "quarter": self.quarter,
            "tests": self.tests,
            "level": self.level,
            "thresholds": self.thresholds,
            "layers": sorted({_layer(name) for name in self.files}),
            "side_m": self.side_m,
        }

    def words(self) -> str:
        """What of the page it is behind, for people."""
        quarter = "" if self.quarter is None else self.quarter.replace("Q", " Q") + ", "
        tests = (
            "" if self.tests is None else f"averages of {exact(self.tests)} test{'s' * (self.tests != 1)}, "
        )
        over = " or ".join(exact(t) for t in self.thresholds)
        return (
            f"every pixel of {self.name}/: {quarter}{tests}{100 * self.level:g}% intervals, more than {over}"
        )

    def fits(self, setting: Setting) -> bool:
        """Whether it was made of what is chosen."""
        same = self.tests is None or setting.tests is None or abs(self.tests - setting.tests) < 1e-9
        return (
            self.quarter == setting.quarter
            and same
            and abs(self.level - setting.level) < 1e-9
            and setting.threshold in self.thresholds
        )

    def centre(self, lat: float, lon: float) -> tuple[float, float] | None:
        """Longitude and latitude of the middle of the pixel that holds a place; None outside."""
        try:
            row, column = pixel_of(self.geobox, lon, lat)
        except InvalidInput:
            return None
        x, y = self.geobox.affine * (column + 0.5, row + 0.5)
        found = Transformer.from_crs(wkt_of(self.geobox), "EPSG:4326", always_xy=True).transform(x, y)
        return float(found[0]), float(found[1])

    def pack(self, layer: str, threshold: float, box: Box) -> bytes | None:
        """The pixels of a window, packed: every k-th along a side where it holds too many to show; None where it holds
        too many to read, or none.

        Raises
        ------
        InvalidInput
            a file was altered since, or cannot be read.

        Notes
        -----
        Of 4 million pixels and four layers about half a second.
        """
        (west, east), (south, north) = mercator([box[0], box[2]], [box[1], box[3]])
        if (east - west) * (north - south) > MOST_READ * self.side_m**2:
            return None
        chance = f"exceedance_{digits(threshold)}"
        names = {_layer(n): n for n in (*NEEDED, *TOLD, layer, chance) if n in self.files}
        rasters = {key: open_raster(self._whole(name), bounds=box) for key, name in names.items()}
        grid = geobox_of(rasters["median"].to_dataset(name="median"))
        inside = int(np.isfinite(rasters["median"].values).sum())
        if not inside:
            return None
        step = max(1, math.ceil(math.sqrt(inside / MOST_SHOWN)))
        thin, those = thinned(grid, step)
        planes = {key: raster.values[those, those] for key, raster in rasters.items()}
        known = np.isfinite(planes["median"])
        packed = {key: (v[known], LAYERS[key].scale, FINE, None) for key, v in planes.items()}
        return pack(known, packed, {**picture_grid(thin), "step": step, "box": box})

    def _whole(self, name: str) -> Path:
        """A file, if it is what the manifest says; looked through once for as long as nobody writes it."""
        path, said = self.files[name]
        try:
            now = path.stat()
            if (mark := (path, now.st_mtime_ns, now.st_size, now.st_ino)) not in _sums:
                _sums[mark] = sha256(path)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read ({error.strerror or error}); export again.") from None
        if _sums[mark] != said:
            raise InvalidInput(f"{path} is not what its manifest says; export again.")
        return path


_sums: dict[object, str] = {}


class Details:
    """The exports of a run that lie in the folder where the run does, of pixels finer than the page's, the finest first.

    Parameters
    ----------
    run : from `geogp.load`
    side_m : of the page's pixels, in Mercator metres
    """

    def __init__(self, run: Run, side_m: float):
        self._run, self._side_m = run, side_m
        self._seen: object = None
        self._found: tuple[Exported, ...] = ()

    def found(self) -> tuple[Exported, ...]:
        """What is there now: looked for again when a manifest is written or goes."""
        manifests = self._manifests()
        if manifests != self._seen:
            exports = [found for path, _ in manifests if (found := _exported(path, self._run))]
            finer = [export for export in exports if export.side_m < FINER * self._side_m]
            self._found = tuple(sorted(finer, key=lambda export: export.side_m))
            self._seen = manifests
        return self._found

    def named(self, name: str) -> Exported | None:
        """An export that an address speaks of, if there is one of that name."""
        return next((export for export in self.found() if export.name == name), None)

    def read(self, params: Mapping[str, str], setting: Setting) -> bytes | None:
        """The pixels that an address asks for: `of` an export, its `layer`, `box` W,S,E,N; None where there are none.

        Raises
        ------
        InvalidInput
            a window that is none, or a file that cannot be read.
        """
        export = self.named(params.get("of", ""))
        if export is None or not export.fits(setting):
            return None
        return export.pack(params.get("layer", "median"), setting.threshold, window(params))

    def _manifests(self) -> tuple[tuple[Path, int], ...]:
        try:
            folders = sorted(p for p in self._run.path.resolve().parent.iterdir() if p.is_dir())
        except OSError:
            return ()
        found = []
        for folder in folders[:MOST_FOLDERS]:
            path = folder / "manifest.json"
            try:
                found.append((path, path.stat().st_mtime_ns))
            except OSError:  # no export
                continue
        return tuple(found)


def _layer(name: str) -> str:
    return "exceedance" if name.startswith("exceedance_") else name


def _exported(manifest: Path, run: Run) -> Exported | None:
    """The export of a manifest, if it is one of this run and has what a read-out needs."""
    try:
        if manifest.stat().st_size > MOST_BYTES:
            return None
        told = json.loads(manifest.read_text("utf-8"))
        of_run = (run.weights_sha256, run.data["sha256"], run.target.name, run.unit)
        named = tuple(told[k] for k in ("weights_sha256", "observations_sha256", "target", "target_unit"))
        if None in of_run or named != of_run:
            return None
        files = {
            str(name): (manifest.parent / file["path"], str(file["sha256"]))
            for file in told["files"]
            if file["kind"] == "cog" and file["path"] == Path(file["path"]).name
            for name in file["layers"]
            if _layer(name) in LAYERS
        }
        tests, quarter = told.get("tests"), told.get("quarter")
        export = Exported(
            manifest.parent.name,
            None if quarter is None else str(quarter),
            None if tests is None else float(tests),
            float(told["level"]),
            files,
        )
        whole = export.thresholds and all(name in files for name in NEEDED) and export.side_m > 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # some other folder's manifest
        return None
    return export if whole else None
