"""Row 9 of the table of faults: what 95% intervals of new observations hold of made-up worlds, stratum by stratum.

    python -m benchmarks.strata [--methods a,b] [--residual R] [--seeds 20] [--rows 600] [--only WORLD[,WORLD]] [--out FILE]

Both worlds, counts told, one quarter; each seed is another world. A stratum is a kind of place or a bin of counts. Nearest
neighbours are given the same rows, for the CRPS. Rows are added to the results file as they come, and what it holds is
not measured again: a command that was stopped goes on. A fit of the default takes a quarter of a minute of one core, all of
a method some ten minutes. `--report` prints what the file holds.
"""

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

import geogp
from app.peers import peer
from benchmarks import coverage, machine, page
from benchmarks.machine import write_text
from benchmarks.tables import markdown
from benchmarks.worlds import WORLDS, Rows, Sample, sample
from geogp.calibrate import COUNT_EDGES, FAR_SPACINGS
from geogp.errors import NotDistanceAware
from geogp.estimator import GPRegressor
from geogp.methods import DEFAULT, METHODS

RESULTS = page.FOLDER / "strata.json"
#: The default, what stands in for it where there are many rows and no places, and what people choose instead.
CHOICES = tuple(
    dict.fromkeys((DEFAULT, METHODS[METHODS[DEFAULT].without_position].beyond, *coverage.METHODS))
)
#: Who is to be no better in CRPS.
NEAREST = ("knn", "knn-counts")
LEVEL, WITHIN = 0.95, 0.015
#: Of fewer rows, all fits together, nothing is said.
FEWEST = 500
#: In the order of the table.
STRATA = ("inside", "near data", "in gaps", "1 test", "2 to 4", "5 to 19", "20 or more", "corner")
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is not there yet and print the table; 2 for a world or method that there is not."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.strata", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--methods", default=",".join(CHOICES), help="these methods, by commas")
    parser.add_argument("--residual", default=None, help="of all methods, in place of their own")
    parser.add_argument("--only", default=",".join(WORLDS), help="these worlds, by commas")
    parser.add_argument("--seeds", type=int, default=20, help="so many, from 0")
    parser.add_argument("--rows", type=int, default=600, help="to fit to")
    parser.add_argument("--steps", type=int, default=None, help="so many steps of training: does it run?")
    parser.add_argument("--out", type=Path, default=RESULTS, help="results file")
    parser.add_argument(
        "--report", action="store_true", help="print what the file holds, and measure nothing"
    )
    asked = parser.parse_args(argv)
    methods, worlds = asked.methods.split(","), asked.only.split(",")
    for kind, names, known in (("method", methods, geogp.METHODS), ("world", worlds, WORLDS)):
        for name in names:
            if name not in known:
                print(f"there is no {kind} {name!r}; choose from {', '.join(known)}.", file=sys.stderr)
                return 2
    if (asked.steps is not None or asked.residual) and asked.out == RESULTS:
        parser.error(
            "fits of a few steps, or of another residual, are trials: name a file of their own with --out."
        )
    if asked.seeds < 1:
        parser.error(f"--seeds says how many, 1 or more; got {asked.seeds}.")
    results = page.read(asked.out)
    everyone = () if asked.report else (*NEAREST, *methods)
    for method, seed, world in itertools.product(everyone, range(asked.seeds), worlds):
        key = {"world": world, "method": method, "rows": asked.rows, "seed": seed}
        if any(key.items() <= row.items() for row in results["rows"]):
            continue
        row = {
            **key,
            **measure(**key, steps=asked.steps, residual=asked.residual),
            "commit": machine.commit(),
        }
        results["rows"].append(row)
        results["machine"] = machine.describe()
        write_text(asked.out, json.dumps(results, indent=1) + "\n")
        share = row["strata"]["inside"]["inside"] / row["strata"]["inside"]["n"]
        print(f"{' '.join(map(str, key.values()))}: {share:.3f}, {row['seconds']:.0f} s", file=sys.stderr)
    print("\n".join(report(results["rows"])))
    return 0


def measure(
    world: str, method: str, rows: int, seed: int, *, steps: int | None = None, residual: str | None = None
) -> Row:
    """One fit: of each stratum how many new observations there are, how many lie in their interval, their mean CRPS."""
    drawn = sample(world, rows, seed, counts=True, time=False)
    begun = time.process_time()
    train = (drawn.train.X, drawn.train.y, drawn.train.counts)
    model: Any
    if method in NEAREST:
        model = peer(method).fit(*train, seed=seed)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotDistanceAware)
            model = GPRegressor(
                method, residual=residual, spatial=(0, 1), random_state=seed, steps=steps
            ).fit(*train)
    seconds = round(time.process_time() - begun, 2)
    new = joined(drawn.inside, drawn.corner)
    predictive = model.predictive(new.X, new.counts)
    low, high = predictive.interval(LEVEL)
    inside, crps = (new.y >= low) & (new.y <= high), predictive.crps(new.y)
    told = {
        name: {
            "n": int(member.sum()),
            "inside": int(inside[member].sum()),
            "crps": float(crps[member].mean()),
        }
        for name, member in strata_of(drawn, new).items()
        if member.any()
    }
    return {"strata": told, "seconds": seconds, "quick": steps is not None}


def joined(a: Rows, b: Rows) -> Rows:
    """Both, one after the other; of worlds whose counts are told."""
    assert a.counts is not None and b.counts is not None
    pairs = ((a.X, b.X), (a.surface, b.surface), (a.noise_sd, b.noise_sd), (a.y, b.y), (a.counts, b.counts))
    return Rows(*(np.concatenate(pair) for pair in pairs))


def strata_of(drawn: Sample, new: Rows) -> dict[str, NDArray[np.bool_]]:
    """Name -> (n,) which of the new rows, those inside first, belong to it."""
    assert new.counts is not None
    places = cKDTree(drawn.train.X)
    spacing = np.median(places.query(drawn.train.X, k=2)[0][:, 1])
    far = places.query(new.X)[0] > FAR_SPACINGS * spacing
    corner = np.arange(len(new.y)) >= len(drawn.inside.y)
    bin_of = np.searchsorted(COUNT_EDGES, new.counts)
    by_count = [~corner & (bin_of == k) for k in range(len(COUNT_EDGES) + 1)]
    return dict(zip(STRATA, [~corner, ~corner & ~far, ~corner & far, *by_count, corner], strict=True))


def report(rows: Sequence[Row]) -> list[str]:
    """Lines of markdown: coverage by method and stratum with its standard error between seeds, and CRPS."""
    if not rows:
        return []
    quick = " **Some are trials of a few steps; not a result.**" if any(r["quick"] for r in rows) else ""
    sizes = sorted({r["rows"] for r in rows})
    lines = [
        "",
        "## Intervals by stratum",
        "",
        f"By `python -m benchmarks.strata`: percent of new observations of made-up worlds (`benchmarks/worlds.py`) inside their "
        f"95% interval after fits to {' or '.join(f'{n:,}' for n in sizes)} rows, with the standard error between fits. What "
        f"misses 95 by more than {100 * WITHIN:g} and by more than two standard errors is **marked**; strata of fewer than "
        f"{FEWEST} rows are left out. In gaps is farther than {FAR_SPACINGS} spacings of the rows from the nearest; nobody measured in "
        "the corner, which the others leave out. CRPS is the mean over that of nearest neighbours, the better kind, on "
        "the same rows, inside and in the corner." + quick,
        "",
    ]
    table = []
    for world in dict.fromkeys(r["world"] for r in rows):
        for name in dict.fromkeys(r["method"] for r in rows):
            mine = _of(rows, world, name)
            if mine:
                beside = [
                    ratio(mine, [_of(rows, world, n) for n in NEAREST], s) for s in ("inside", "corner")
                ]
                table.append([world, name, str(len(mine)), *(covered(mine, s) for s in STRATA), *beside])
    return lines + markdown(("world", "method", "fits", *STRATA, "CRPS", "in the corner"), table)


def _of(rows: Sequence[Row], world: str, method: str) -> list[Row]:
    return [r for r in rows if (r["world"], r["method"]) == (world, method)]


def covered(rows: Sequence[Row], stratum: str) -> str:
    """Percent inside and its standard error, rows of a fit sharing their luck; marked where it is not what it says."""
    told = [r["strata"][stratum] for r in rows if stratum in r["strata"]]
    n, inside = (np.array([t[key] for t in told], dtype=float) for key in ("n", "inside"))
    if n.sum() < FEWEST:
        return ""
    share = inside.sum() / n.sum()
    between = float(np.sqrt(np.square(inside - share * n).sum())) / n.sum()
    error = max(between, float(np.sqrt(share * (1 - share) / n.sum())))
    words = f"{100 * share:.1f} ± {100 * error:.1f}"
    return f"**{words}**" if abs(share - LEVEL) > max(WITHIN, 2 * error) else words


def ratio(rows: Sequence[Row], others: Sequence[Sequence[Row]], stratum: str) -> str:
    """Mean CRPS over that of the best of the others, on the samples that all have seen; empty without any."""
    seen = [{(r["rows"], r["seed"]): r["strata"][stratum]["crps"] for r in many} for many in (rows, *others)]
    shared = set.intersection(*map(set, seen))
    if not shared:
        return ""
    own, *best = (float(np.mean([found[key] for key in shared])) for found in seen)
    return f"{own / min(best):.2f}"


if __name__ == "__main__":
    sys.exit(main())
