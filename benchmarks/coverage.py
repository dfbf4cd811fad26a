"""What intervals hold of made-up worlds whose truth is known: of the surface itself, and of new observations.

    python -m benchmarks.coverage [--only WORLD[,WORLD]] [--methods a,b] [--rows 500,2000] [--seeds 0,1] [--out FILE]

Worlds take turns: each seed meets each world with two of the four kinds of rows, the next seed with the other two. Rows
are added to the results file as they come; what it already holds is not measured again, unless `--again`. A full run
takes hours on one core, so take it in parts. A run that writes the kept results also renews RESULTS.md.
"""

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import geogp
from benchmarks import machine, page
from benchmarks.machine import write_text
from benchmarks.tables import markdown
from benchmarks.worlds import WORLDS, Rows, sample
from geogp.errors import NotDistanceAware, seed_of
from geogp.estimator import GPRegressor

METHODS = ("geogp", "dbk-silu", "dbk-rbf", "sv-rbf", "sgpr", "softki", "vbll")
SIZES = (500, 2000, 20_000)
SEEDS = (0, 1, 2, 3, 4)
#: (with counts, with time)
STRATA = ((True, True), (True, False), (False, True), (False, False))
LEVELS = (0.5, 0.8, 0.95)
#: A 95% interval that holds less or more than this is marked.
HONEST = (0.90, 0.98)
Row = dict[str, Any]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coverage", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default=",".join(WORLDS), help="these worlds, by commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="these methods, by commas")
    parser.add_argument("--rows", type=whole, default=SIZES, help="these numbers of rows, by commas")
    parser.add_argument("--seeds", type=seeds, default=SEEDS, help="these seeds, by commas")
    parser.add_argument("--steps", type=int, default=None, help="so many steps of training: does it run?")
    parser.add_argument("--again", action="store_true", help="measure what the results file already holds")
    parser.add_argument("--out", type=Path, default=page.COVERAGE, help="results file")
    return parser


def whole(text: str) -> tuple[int, ...]:
    """Whole numbers, 0 or more, by commas."""
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"give whole numbers by commas, as 500,2000; got {text!r}")
    return tuple(map(int, words))


def seeds(text: str) -> tuple[int, ...]:
    """Seeds, by commas."""
    try:
        return tuple(seed_of(seed, "each seed") for seed in whole(text))
    except geogp.InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(argv: list[str] | None = None) -> int:
    """Run; 0 when everything asked for was measured, 2 for a world or method that there is not."""
    options = arguments().parse_args(argv)
    worlds, methods = options.only.split(","), options.methods.split(",")
    known: dict[str, Iterable[str]] = {"world": WORLDS, "method": geogp.METHODS}
    for kind, names in (("world", worlds), ("method", methods)):
        for name in names:
            if name not in known[kind]:
                print(f"there is no {kind} {name!r}; choose from {', '.join(known[kind])}.", file=sys.stderr)
                return 2
    if options.steps is not None and options.out == page.COVERAGE:
        arguments().error("fits of a few steps are trials: name a file of their own with --out.")
    results = page.read(options.out)
    begun, measured, failed = time.perf_counter(), 0, 0
    # The quick ones of every method first, so that a run that is stopped leaves a table.
    for n, seed, (at, (counts, has_time)), method in itertools.product(
        options.rows, options.seeds, enumerate(STRATA), methods
    ):
        world = worlds[(seed + at) % len(worlds)]
        key = {"world": world, "method": method, "rows": n, "counts": counts, "time": has_time, "seed": seed}
        have = [row for row in results["rows"] if key.items() <= row.items()]
        if have and not options.again:
            continue
        try:
            row = {**key, **measure(**key, steps=options.steps)}
        except (ArithmeticError, ValueError, RuntimeError) as error:
            failed += 1
            print(f"{' '.join(map(str, key.values()))}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        row["commit"] = machine.commit()
        results["rows"] = [kept for kept in results["rows"] if kept not in have] + [row]
        results["machine"] = machine.describe()
        write_text(options.out, json.dumps(results, indent=1) + "\n")
        measured += 1
        said = f"surface {row['inside']['surface']['0.95']:.3f}, new {row['inside']['new']['0.95']:.3f}"
        print(f"{' '.join(map(str, key.values()))}: {said}, {row['seconds']:.0f} s", file=sys.stderr)
    print("\n".join(report(results["rows"])))
    spent = (time.perf_counter() - begun) / 60
    print(f"{measured} fits in {spent:.1f} minutes, {failed} failed", file=sys.stderr)
    if options.out == page.COVERAGE and results["rows"]:
        page.write()
    return 1 if failed else 0


def measure(
    world: str, method: str, rows: int, counts: bool, time: bool, seed: int, *, steps: int | None = None
) -> Row:
    """Fit to one sample and compare with its truth: shares of 1,000 places inside and of 300 in the corner."""
    drawn = sample(world, rows, seed, counts=counts, time=time)
    begun = clock()
    model = GPRegressor(method, spatial=(0, 1), time=2 if time else None, random_state=seed, steps=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotDistanceAware)
        model.fit(drawn.train.X, drawn.train.y, drawn.train.counts)
    seconds = clock() - begun
    return {
        "inside": judged(model, drawn.inside),
        "corner": judged(model, drawn.corner),
        "seconds": round(seconds, 2),
        "quick": steps is not None,
    }


def clock() -> float:
    """Processor seconds; of its own because a parameter is called `time`."""
    return time.process_time()


def judged(model: GPRegressor, truth: Rows) -> Row:
    """Shares of the true surface and of new observations within their intervals, and how the noise sd compares.

    noise_correlation : of the predicted noise sd with the true one, None where either is the same everywhere
    noise_ratio : mean of predicted over true
    """
    out: Row = {"surface": {}, "new": {}}
    new = model.predictive(truth.X, truth.counts)
    for kind, predictive, value in (
        ("surface", model.predictive(truth.X, truth.counts, latent=True), truth.surface),
        ("new", new, truth.y),
    ):
        for level in LEVELS:
            low, high = predictive.interval(level)
            out[kind][str(level)] = float(((value >= low) & (value <= high)).mean())
    sd = model.target_sd_ * np.sqrt(model.moments(truth.X, truth.counts).noise_variance.double().numpy())
    nu = new.degrees_of_freedom
    if nu is not None:  # of a Student-t the noise variance is the squared scale
        sd = sd * np.sqrt(nu / (nu - 2.0))
    varied = min(np.ptp(sd) / sd.mean(), np.ptp(truth.noise_sd) / truth.noise_sd.mean()) > 1e-6
    out["noise_correlation"] = float(np.corrcoef(sd, truth.noise_sd)[0, 1]) if varied else None
    out["noise_ratio"] = float((sd / truth.noise_sd).mean())
    return out


# -- tables ---------------------------------------------------------------------------------------------

HEADER = (
    "world", "rows", "method", "fits", "surface 50 / 80 / 95", "in the corner", "new 50 / 80 / 95", "in the corner",
    "noise sd: corr.", "ratio", "fit, CPU s",
)  # fmt: skip
WORDS = {
    (True, True): "counts, time",
    (True, False): "counts",
    (False, True): "time",
    (False, False): "neither",
}


def report(rows: Sequence[Row]) -> list[str]:
    """Lines of markdown: one row a method, world and size, then the 95% intervals by stratum."""
    if not rows:
        return []
    quick = " **Some are trials of a few steps; not a result.**" if any(r["quick"] for r in rows) else ""
    groups = sorted({(r["world"], r["rows"], place_of(r["method"]), r["method"]) for r in rows})
    lines = [
        "",
        "## Coverage of known truths",
        "",
        "By `python -m benchmarks.coverage`, on worlds whose surface and noise are known (`benchmarks/worlds.py`): percent "
        "of the true surface at 1,000 new places inside its intervals of 50, 80 and 95%, of new observations there, and "
        "of both in a corner where nobody measured (300 places). Mean over all fits: seeds, with and without counts "
        "and time; a 95% interval that holds less than 90% or more than 98% is **marked**. Noise sd: correlation with the "
        "true one, where it varies, and mean of their ratio." + quick,
        "",
    ]
    table, strata = [], []
    for world, n, _, method in groups:
        mine = [r for r in rows if (r["world"], r["rows"], r["method"]) == (world, n, method)]
        shares = [
            " / ".join(percent([r[where][kind][str(level)] for r in mine], level) for level in LEVELS)
            for kind in ("surface", "new")
            for where in ("inside", "corner")
        ]
        known = [c for r in mine for c in [r["inside"]["noise_correlation"]] if c is not None]
        table.append(
            [world, f"{n:,}", method, str(len(mine)), *shares,
             f"{np.mean(known):.2f}" if known else "", f"{np.mean([r['inside']['noise_ratio'] for r in mine]):.2f}",
             f"{np.mean([r['seconds'] for r in mine]):.0f}"]
        )  # fmt: skip
        by = {s: [r for r in mine if (r["counts"], r["time"]) == s] for s in STRATA}
        strata.append([world, f"{n:,}", method, *(four(by[s]) for s in STRATA)])
    lines += markdown(HEADER, table)
    lines += [
        "",
        "The 95% intervals alone: surface inside, in the corner; new observations inside, in the corner.",
        "",
    ]
    return lines + markdown(("world", "rows", "method", *(WORDS[s] for s in STRATA)), strata)


def place_of(method: str) -> int:
    """Ours first, in the order of `METHODS`; others after them."""
    return METHODS.index(method) if method in METHODS else len(METHODS)


def percent(shares: Sequence[float], level: float) -> str:
    """Mean of shares in percent, marked where a 95% interval is not what it says."""
    mean = float(np.mean(shares))
    marked = level == LEVELS[-1] and not HONEST[0] <= mean <= HONEST[1]
    return f"**{100 * mean:.0f}**" if marked else f"{100 * mean:.0f}"


def four(rows: Sequence[Row]) -> str:
    """The four coverages at 95% of some rows; empty without rows."""
    if not rows:
        return ""
    pairs = [(where, kind) for kind in ("surface", "new") for where in ("inside", "corner")]
    return ", ".join(percent([r[where][kind]["0.95"] for r in rows], 0.95) for where, kind in pairs)


if __name__ == "__main__":
    sys.exit(main())
