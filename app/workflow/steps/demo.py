"""The whole way on a made-up world whose truth is known: files, table, run, scores, maps, and how close they came."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Transformer

from app.errors import InvalidInput
from app.workflow.outputs import file_entry, now
from app.workflow.steps.evaluate import evaluate
from app.workflow.steps.export import Export, export
from app.workflow.steps.fit import fit
from app.workflow.steps.slice import slice_of
from data_pipelines.observations import ingest
from data_pipelines.synthetic import World, write_world
from data_pipelines.words import many
from geogp import storage
from geogp.methods import DEFAULT, METHODS
from geogp.run import Run
from geogp.targets import TARGETS

#: What the demo must reach.
COVERAGE95, CORRELATION = (0.93, 0.97), 0.8
STEPS = {"demo": 1500, "small": 300}
RESOLUTION_M = {"demo": 2000.0, "small": 3000.0}
MARK = ".unfinished-demo"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """What the demo made and found: `manifest` is the content of `manifest.json`."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def path(self) -> Path:
        return (self.folder / "manifest.json").resolve()

    @property
    def counties(self) -> Path:
        """The polygons of the made-up state's counties, as the Census publishes them."""
        return World().counties_file(self.folder / "world")

    @property
    def problems(self) -> list[str]:
        """A sentence for each check that failed."""
        return [check["words"] for check in self.manifest["checks"].values() if not check["passed"]]

    header = ("what", "value", "must be")

    def rows(self) -> list[list[str]]:
        """A table for people."""
        scores, truth, strata = (self.manifest[k] for k in ("scores", "truth", "strata"))
        low, high = COVERAGE95
        rows = [["held-out rows", f"{self.manifest['n_test']:,}", ""]]
        rows += [
            [f"{n.upper()} (standardised log10 speed)", f"{scores[n]:.3f}", ""]
            for n in ("nll", "crps", "mae")
        ]
        rows.append(["coverage of 95% prediction intervals", f"{scores['coverage95']:.3f}", f"{low}-{high}"])
        for name, s in strata.items():
            if s["n"]:
                band = "-".join(f"{v:.2f}" for v in s["coverage95_band"])
                rows.append([f"  {name}, {s['n']:,} rows", f"{s['coverage95']:.3f}", f"({band} by chance)"])
        rows += [
            [
                "median map and truth: correlation",
                f"{truth['median_correlation']:.3f}",
                f"at least {CORRELATION}",
            ],
            ["median map and truth: RMSE (log10)", f"{truth['median_rmse_log10']:.3f}", ""],
            ["  half the pixels within", f"{100 * truth['median_typical_share']:.0f}% of the true speed", ""],
        ]
        for key, words in (("noise_sd", "noise sd"), ("predictive_sd", "predictive sd (surface and noise)")):
            rows += [
                [f"{words} and true noise sd: correlation", f"{truth[f'{key}_correlation']:.3f}", ""],
                ["  RMSE (log10)", f"{truth[f'{key}_rmse_log10']:.3f}", ""],
                ["  mean predicted / mean true", f"{truth[f'{key}_ratio']:.2f}", ""],
            ]
        return rows


def demo(
    folder: str | Path,
    *,
    seed: int = 0,
    size: str = "demo",
    method: str = DEFAULT,
    overwrite: bool = False,
    say: Say = lambda text: None,
) -> Demo:
    """Make a world, read it as if it were published, model it, map it, and compare with its truth.

    Parameters
    ----------
    folder : for everything that is made
    seed : of the world, the split and the training
    size : "demo", or "small" for tests
    method : a row of the method table
    overwrite : replace an earlier demo there
    say : told of each step

    Returns
    -------
    Demo
        whose `problems` is empty when coverage and map are as good as they must be

    Raises
    ------
    InvalidInput
        a folder in use, without `overwrite`.
    """
    folder = Path(folder)
    mark = _claimed(folder, overwrite)
    clock = _Clock(say)
    world = write_world(folder / "world", seed=seed, size=size, overwrite=overwrite)
    clock("made a world in the published formats")
    table = folder / "observations.parquet"
    report = ingest(
        source="synthetic", root=folder / "world", seed=seed, size=size, output=table, overwrite=True
    )
    clock(
        f"ingested it: {many(report.rows_kept, 'row')} of {many(len(report.metadata['quarters']), 'quarter')}"
    )
    fitted = fit(
        table,
        output=folder / "run",
        method=method,
        split="random",
        seed=seed,
        model={} if METHODS[method].engine == "local" else {"steps": STEPS[size]},
        overwrite=True,
    )
    clock(f"fitted {method} on {fitted.facts['rows']['fitted']:,} rows")
    scores = evaluate(fitted.run).document
    clock("scored it on the rows held out")
    places = _places(world)
    maps = export(
        fitted.run,
        folder / "maps",
        formats=("cog", "netcdf", "figures", "html"),
        resolution_m=RESOLUTION_M[size],
        places=places,
        overwrite=True,
    )
    clock(f"mapped it: {many(len(maps.files), 'file')}")
    extra = _pictures(fitted.run, maps, places)
    truth = _against_truth(maps.folder / "prediction.nc", world)
    clock("drew it and compared it with the truth")

    manifest = {
        "schema": 1,
        "title": f"GeoGP demo: the made-up state of {world.name}, seed {seed}",
        "created": now(),
        "seed": seed,
        "method": method,
        **{k: scores[k] for k in ("n_train", "n_test", "scores", "scores_mbps", "strata")},
        "truth": truth,
        "checks": _checks(scores, truth),
        "seconds": clock.seconds,
        "files": _files(folder, maps, extra),
    }
    storage.write_text(folder / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    mark.unlink()
    return Demo(folder, manifest)


def _claimed(folder: Path, overwrite: bool) -> Path:
    """The folder made, without an earlier manifest; the file in it that says the demo is not finished."""
    mark = folder / MARK
    if folder.exists() and not overwrite and not mark.exists() and any(folder.iterdir()):
        raise InvalidInput(
            f"The folder {folder} is not empty; give another --out, or --overwrite to replace a demo."
        )
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
    (folder / "manifest.json").unlink(missing_ok=True)
    return mark


def _places(world: World) -> list[dict[str, Any]]:
    """The world's cities, as labels on maps."""
    out = []
    for city in world.cities:
        lon, lat = world.to_degrees(city.x_km, city.y_km)
        out.append({"name": city.name, "lon": float(lon), "lat": float(lat)})
    return out


class _Clock:
    """Tells each step with its seconds."""

    def __init__(self, say: Say):
        self.say, self.started, self.last = say, time.perf_counter(), time.perf_counter()
        self.seconds: dict[str, float] = {}

    def __call__(self, words: str) -> None:
        now_ = time.perf_counter()
        self.seconds[words.split(":")[0]] = round(now_ - self.last, 2)
        self.say(f"{now_ - self.started:6.1f} s  {words}")
        self.last = now_


def _pictures(run: Run, maps: Export, places: list[dict[str, Any]]) -> list[tuple[Path, str]]:
    """The overview figure, and the kernel slice of the largest city as raster and figure."""
    import xarray as xr

    from maps.figures import maps_figure, slice_figure, write_png
    from maps.raster import write_cog

    at = (places[0]["lon"], places[0]["lat"])
    lazy, grid = slice_of(run, at, resolution_m=maps.grid.resolution)
    ds = lazy.load()
    raster = write_cog(ds, maps.folder / "slice.tif", geometry=grid.boundary, overwrite=True)
    figure = slice_figure(ds, geometry=grid.boundary, places=places)
    made = [(raster, "cog"), (write_png(figure, maps.folder / "slice.png", overwrite=True), "figure")]
    with xr.open_dataset(maps.folder / "prediction.nc", engine="h5netcdf") as prediction:
        three = ("median", "pi_width", "exceedance")
        overview = maps_figure(prediction, three, geometry=grid.boundary, places=places)
    made.append((write_png(overview, maps.folder / "overview.png", overwrite=True), "figure"))
    return made


def _against_truth(path: Path, world: World) -> dict[str, float]:
    """How close the maps came, over the pixels on land."""
    import xarray as xr

    with xr.open_dataset(path, engine="h5netcdf") as ds:
        median, noise, latent = (
            ds[name].values.astype(float) for name in ("median", "noise_sd", "latent_sd")
        )
        x, y = np.meshgrid(ds["x"].values, ds["y"].values)
        quarter, tests = str(ds.attrs["quarter"]), float(ds.attrs.get("tests", 1.0))
        crs = ds["spatial_ref"].attrs["crs_wkt"]
    land = np.isfinite(median)
    lon, lat = Transformer.from_crs(crs, 4326, always_xy=True).transform(x[land], y[land])
    found, true = TARGETS["download"].to_score(median[land]), world.median_log10_kbps(lon, lat, quarter)
    sd, true_sd = noise[land], world.noise_sd(lon, lat, tests)
    # Some methods tell noise apart only by count and let the latent sd vary over the map: compare the sum too.
    whole = np.hypot(sd, latent[land])
    return {
        "pixels": int(land.sum()),
        "median_correlation": _correlation(found, true),
        "median_rmse_log10": float(np.sqrt(np.square(found - true).mean())),
        "median_bias_log10": float((found - true).mean()),
        "median_typical_share": float(10 ** np.median(np.abs(found - true)) - 1),
        "noise_sd_correlation": _correlation(sd, true_sd),
        "noise_sd_rmse_log10": float(np.sqrt(np.square(sd - true_sd).mean())),
        "noise_sd_ratio": float(sd.mean() / true_sd.mean()),
        "predictive_sd_correlation": _correlation(whole, true_sd),
        "predictive_sd_rmse_log10": float(np.sqrt(np.square(whole - true_sd).mean())),
        "predictive_sd_ratio": float(whole.mean() / true_sd.mean()),
    }


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Pearson's; 0 for a constant, whose spread is the rounding of float32."""
    if min(np.ptp(v) / max(float(np.abs(v).max()), 1e-30) for v in (a, b)) < 1e-5:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _checks(scores: dict[str, Any], truth: dict[str, float]) -> dict[str, dict[str, Any]]:
    coverage, r = scores["scores"]["coverage95"], truth["median_correlation"]
    low, high = COVERAGE95
    return {
        "coverage95": {
            "passed": low <= coverage <= high,
            "value": coverage,
            "words": f"the 95% prediction intervals hold {100 * coverage:.1f}% of the held-out rows, "
            f"which is not within {100 * low:.0f}-{100 * high:.0f}%",
        },
        "median_correlation": {
            "passed": r >= CORRELATION,
            "value": r,
            "words": f"the map of the median correlates {r:.2f} with the truth, which is below {CORRELATION}",
        },
    }


def _files(folder: Path, maps: Export, extra: list[tuple[Path, str]]) -> list[dict[str, Any]]:
    """Everything made, relative to the demo's folder."""
    files = [file_entry(folder, folder / "observations.parquet", "geoparquet")]
    files += [file_entry(folder, p, "run") for p in sorted((folder / "run").rglob("*")) if p.is_file()]
    files += [{**entry, "path": f"{maps.folder.name}/{entry['path']}"} for entry in maps.manifest["files"]]
    files += [file_entry(folder, path, kind) for path, kind in extra]
    files += [file_entry(folder, p, "world") for p in sorted((folder / "world").rglob("*")) if p.is_file()]
    return files
