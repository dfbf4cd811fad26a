"""Maps, areas, change and suggestions of a run: time, memory, and what a suggestion promised.

    python -m benchmarks.maps RUN [--only export,areas] [--pixels 3e6] [--quick] [--out maps.json]

Each row in a process of its own, whose peak memory is printed; `predict` is the same pixels without a file. The last two sections
need no run: on made-up worlds with a known surface, what `suggest_places` promises of the map's variance beside what
the map's squared error then does, and what as many places at random would have done; and what share of 95% intervals of
area means, of shares below the limits of two targets, and of ranks holds the truth.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.workflow.machine import peak_rss_mb
from benchmarks import page
from benchmarks.machine import describe, in_fresh, write_text
from benchmarks.tables import markdown

LAYERS = ("median", "lower", "upper", "pi_width", "latent_sd", "explained")
#: As many as the United States have counties; places offered to `suggest`, and how many it takes.
AREAS, CANDIDATES, TAKEN = 3220, 100_000, 20
#: Rows of the made-up worlds, places measured after, seeds; places that are judged, and as many that are offered.
ROWS, AFTER, SEEDS, PLACES = 600, 60, 3, 1000
#: Rows of the worlds whose areas are judged.
DECIDED_BY = 1000
MOST_MEMORY = 2 * 2**30
Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run; 0 when every row came."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maps", description=__doc__.split("\n")[0])
    parser.add_argument("run", nargs="?", default="demo/run", help="run folder; default: the demo's")
    parser.add_argument("--only", default="", help=f"sections, by commas: {', '.join(SECTIONS)}")
    parser.add_argument(
        "--pixels", type=float, default=3e6, help="of the larger map; the smaller has a tenth"
    )
    parser.add_argument("--quick", action="store_true", help="smallest sizes: does it run?")
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        help="keep the rows in this file; benchmarks/maps.json makes RESULTS.md",
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.one:
        name, *arguments = json.loads(asked.one)
        watch = Watch()
        row = WORK[name](Path(asked.run), *arguments)
        write_text(asked.out, json.dumps(watch.told() | {"peak_rss_mb": peak_rss_mb()} | row))
        return 0
    chosen = [name for name in asked.only.split(",") if name] or list(SECTIONS)
    if unknown := [name for name in chosen if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    about, rows, failed = describe(), [], 0
    print(
        f"{about['date']}, commit {about['commit']}: {about['processor']}, {about['cores']} cores, load {about['load']}\n"
    )
    for section in chosen:
        made = []
        for words, name, *arguments in SECTIONS[section](1e4 if asked.quick else asked.pixels, asked.quick):
            found = in_fresh("benchmarks.maps", asked.run, "--one", json.dumps([name, *arguments]))
            if isinstance(found, str):
                print(f"{section}, {words}: {found}", file=sys.stderr)
                failed += 1
                continue
            made.append({"section": section, "what": words, **found})
        if made:
            print("\n".join([*markdown(*_table(made)), ""]), flush=True)
        rows += made
    if asked.out:
        keep(asked.out, about, rows)
    return 1 if failed else 0


def keep(out: Path, about: Row, rows: list[Row]) -> None:
    """Rows into a results file, in the place of those of the same name; with the kept results, RESULTS.md is written anew."""
    names = {(row["section"], row["what"]) for row in rows}
    old = [row for row in page.read(out)["rows"] if (row["section"], row["what"]) not in names]
    document = {"schema": 1, "machine": about, "rows": [*old, *rows]}
    write_text(out, json.dumps(document, indent=1) + "\n")
    if out.resolve() == page.MAPS:
        page.write()


def report(document: Row) -> list[str]:
    """The kept rows as tables, one a section."""
    if not document["rows"]:
        return []
    m = document["machine"]
    lines = [
        "", "## Maps, areas, change and suggestions", "",
        f"By `make bench-maps` on a run of Hawaii's fixed downloads, 85,518 rows in 20 quarters: {m['processor']}, "
        f"{m['cores']} cores, commit {m['commit']}. Wall and processor seconds of the work, peak memory of the process.",
    ]  # fmt: skip
    for section in SECTIONS:
        if rows := [row for row in document["rows"] if row["section"] == section]:
            lines += ["", *markdown(*_table(rows))]
    return lines


def _table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    header = list(dict.fromkeys(key for row in rows for key in row if key != "section"))
    return header, [[_cell(row.get(key)) for key in header] for row in rows]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value or "")


class Watch:
    """Wall and processor time since it was made: of the work alone, when imports and the run are there."""

    def __init__(self) -> None:
        self.started, self.cpu = time.perf_counter(), time.process_time()

    def told(self) -> Row:
        return {"seconds": time.perf_counter() - self.started, "cpu_seconds": time.process_time() - self.cpu}


# -- one row each, in a process of its own ---------------------------------------------------------------


def _resolution(run: Any, pixels: float) -> float:
    """Metres at which about so many pixels have a value."""
    from app.workflow.steps.export import estimate

    coarse = estimate(run, resolution_m=2000.0, layers=["median"])
    return 2000.0 * float(np.sqrt(coarse.pixels_inside / pixels))


def exported(path: Path, pixels: float) -> Row:
    """Six layers as COGs."""
    from app.workflow.steps.export import export
    from geogp.run import opened

    run = opened(path)
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        out, side = Path(folder) / "maps", _resolution(run, pixels)
        watch = Watch()
        made = export(
            run,
            out,
            formats=["cog"],
            layers=LAYERS,
            resolution_m=side,
            max_memory=MOST_MEMORY,
        )
        size = sum(file["bytes"] for file in made.manifest["files"])
        return watch.told() | {"pixels": _inside(made.grid), "file_mb": size / 2**20}


def predicted(path: Path, pixels: float) -> Row:
    """The same values, window by window, kept nowhere."""
    from app.workflow.grids import grid_of
    from app.workflow.steps.export import prediction
    from geogp.run import opened
    from maps.render import render
    from maps.sinks.ranges import Ranges

    run = opened(path)
    grid = grid_of(run, resolution_m=_resolution(run, pixels))
    ds = prediction(run, grid)
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        watch = Watch()
        render(ds, [Ranges(Path(folder))], geometry=grid.boundary, layers=LAYERS, max_memory=MOST_MEMORY)
        timed = watch.told()
    return timed | {"pixels": _inside(grid)}


def _inside(grid: Any) -> int:
    return int(grid.n_inside if grid.boundary is not None else grid.n_pixels)


def averaged(path: Path, n: int) -> Row:
    """Means, shares, ranks and all covariances of n squares that cover the region."""
    import geopandas
    import shapely

    from app.workflow.polygons import Ground
    from app.workflow.steps.areas import areas
    from geogp.run import opened

    run = opened(path)
    outline = Ground.of(run).outline
    shapely.prepare(outline)
    side, boxes = float(np.sqrt(outline.area / n)), np.empty(0, object)
    while len(boxes) == 0 or len(boxes) > n:
        x0, y0, x1, y1 = outline.bounds
        x, y = (v.ravel() for v in np.meshgrid(np.arange(x0, x1, side), np.arange(y0, y1, side)))
        boxes = shapely.box(x, y, x + side, y + side)
        boxes, side = boxes[shapely.intersects(outline, boxes)], 1.02 * side
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        file = Path(folder) / "squares.parquet"
        frame = geopandas.GeoDataFrame(
            {"GEOID": [f"{k:05d}" for k in range(len(boxes))]}, geometry=boxes, crs=run.crs
        )
        frame.to_crs(4326).to_parquet(file)
        watch = Watch()
        made = areas(run, file, Path(folder) / "areas.parquet")
        return watch.told() | {"areas": len(made.table), "points": made.facts["n_points"]}


def changed(path: Path, pixels: float) -> Row:
    """Difference, interval and P(improved) from the first quarter to the last; 0 pixels: those of the run's usual map."""
    from app.workflow.steps.change import change
    from geogp.run import opened

    run = opened(path)
    quarters = run.quarters
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        side, watch = _resolution(run, pixels) if pixels else None, Watch()
        change(run, quarters[0], quarters[-1], Path(folder) / "change", resolution_m=side)
        timed = watch.told()
    return timed | {"quarters": f"{quarters[0]} to {quarters[-1]}"}


def suggested(path: Path, n: int, taken: int) -> Row:
    """The best of n places of a table."""
    from app.workflow.polygons import Ground
    from app.workflow.steps.suggest import suggest
    from geogp.run import opened

    run, rng = opened(path), np.random.default_rng(0)
    x0, y0, x1, y1 = Ground.of(run).outline.bounds
    lon, lat = run.to_degrees(rng.uniform([x0, y0], [x1, y1], (n, 2)))
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        table = Path(folder) / "places.csv"
        np.savetxt(
            table, np.column_stack([lon, lat]), delimiter=",", header="lon,lat", comments="", fmt="%.6f"
        )
        watch = Watch()
        made = suggest(run, taken, Path(folder) / "next.geojson", candidates_file=table)
        timed = watch.told()
    return timed | {"offered": n, "taken": taken, "cell_m": made.facts["cell_m"]}


def kept_promises(_: Path, world: str, seed: int, rows: int, after: int) -> Row:
    """What measuring `after` suggested places does to the squared error of a known surface, beside the promise."""
    from benchmarks.worlds import CONSTANT_COUNT, WORLDS
    from geogp.estimator import GPRegressor
    from geogp.suggest import suggest_places

    truth, rng = WORLDS[world](seed), np.random.default_rng([seed, 7])
    # A third of the country has three quarters of the rows: there is somewhere to go.
    pool = truth.places(rng, 8 * rows)
    dense = pool[:, 0] < np.quantile(pool[:, 0], 1 / 3)
    picked = np.concatenate([pool[dense][: 3 * rows // 4], pool[~dense][: rows - 3 * rows // 4]])
    places = truth.places(rng, PLACES)
    offered = truth.places(rng, PLACES)

    def surface(P: NDArray[np.float64]) -> NDArray[np.float64]:
        return truth.surface(P, np.full(len(P), 2022.0))

    def measured(P: NDArray[np.float64]) -> NDArray[np.float64]:
        return surface(P) + truth.noise_sd(P, np.full(len(P), CONSTANT_COUNT)) * rng.standard_normal(len(P))

    y = measured(picked)
    model = GPRegressor(random_state=seed, target_transform="identity").fit(picked, y)

    def error(of: GPRegressor) -> float:
        return float(np.mean((of.predict(places) - surface(places)) ** 2))

    found = suggest_places(model, offered, after, places=places)
    random = rng.choice(len(offered), after, replace=False)
    before, outcome = error(model), {}
    for name, chosen in (("suggested", found.chosen), ("random", random)):
        new = offered[chosen]
        more = GPRegressor(random_state=seed, target_transform="identity")
        more.fit(np.concatenate([picked, new]), np.concatenate([y, measured(new)]))
        outcome[name] = 1 - error(more) / before
    promised = 1 - float(found.average_after[-1]) / float(found.average_before[0])
    said = float(found.average_before[0]) * model.target_sd_**2
    return {
        "rows": rows, "measured": after, "mse_before": before, "variance_said": said,
        "promised": promised, "achieved": outcome["suggested"], "at_random": outcome["random"],
    }  # fmt: skip


def decided(_: Path, world: str, seed: int, rows: int, steps: int | None) -> Row:
    """Means, joint shares and ranks of squares of a made-up world: how many intervals hold the truth."""
    from benchmarks import decisions

    return decisions.decided(world, seed, rows, None if steps is None else {"steps": steps})


WORK: dict[str, Callable[..., Row]] = {
    f.__name__: f for f in (exported, predicted, averaged, changed, suggested, kept_promises, decided)
}


# -- what each section measures --------------------------------------------------------------------------


def _export(pixels: float, quick: bool) -> list[tuple[Any, ...]]:
    few = pixels / 10
    return [
        ("predict, a tenth", "predicted", few), ("6 layers to COG, a tenth", "exported", few),
        ("predict", "predicted", pixels), ("6 layers to COG", "exported", pixels),
    ]  # fmt: skip


def _areas(pixels: float, quick: bool) -> list[tuple[Any, ...]]:
    return [("areas with covariances", "averaged", 60 if quick else AREAS)]


def _change(pixels: float, quick: bool) -> list[tuple[Any, ...]]:
    return [("change map", "changed", 2e3 if quick else 0.0)]


def _suggest(pixels: float, quick: bool) -> list[tuple[Any, ...]]:
    return [("where to measure", "suggested", 2000 if quick else CANDIDATES, 3 if quick else TAKEN)]


def _promises(pixels: float, quick: bool) -> list[tuple[Any, ...]]:
    sizes = (150, 10) if quick else (ROWS, AFTER)
    seeds = range(1 if quick else SEEDS)
    return [(f"{w}, seed {k}", "kept_promises", w, k, *sizes) for w in ("matern", "halcyon") for k in seeds]


def _decisions(pixels: float, quick: bool) -> list[tuple[Any, ...]]:
    if quick:
        return [("matern, seed 0", "decided", "matern", 0, 200, 5)]
    return [
        (f"{w}, seed {k}", "decided", w, k, DECIDED_BY, None) for w in ("matern", "halcyon") for k in range(5)
    ]


SECTIONS: dict[str, Callable[[float, bool], list[tuple[Any, ...]]]] = {
    "export": _export, "areas": _areas, "change": _change, "suggest": _suggest, "promises": _promises,
    "decisions": _decisions,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
