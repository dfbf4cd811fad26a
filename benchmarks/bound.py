"""How near the default comes to kriging that knows how a made-up field was drawn, in error and in what intervals hold.

    python -m benchmarks.bound [--only FIELD[,FIELD]] [--rows 60,200,600] [--seeds 0,1,2,3] [--again] [--out FILE] [--report]

`benchmarks/fields.py` says how each field is made. The bound is told the true covariance, the true noise and which columns
there are; the default is told nothing. Rows are added to the results file as they come; what it already holds is not
measured again, unless `--again`. A run that writes the kept results also renews RESULTS.md. Twenty minutes of one core in
all.
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
from scipy.stats import norm

from benchmarks import machine, page
from benchmarks.coverage import HONEST, LEVELS, percent, seeds, whole
from benchmarks.fields import FIELDS, Draw, best, draw
from benchmarks.machine import write_text
from benchmarks.tables import markdown
from geogp.estimator import GPRegressor

Array = NDArray[np.float64]
SIZES, SEEDS = (60, 200, 600), (0, 1, 2, 3)
#: An error more than so many times the bound's is marked.
FAR = 1.2
Row = dict[str, Any]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bound", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default=",".join(FIELDS), help="these fields, by commas")
    parser.add_argument("--rows", type=whole, default=SIZES, help="these numbers of rows, by commas")
    parser.add_argument("--seeds", type=seeds, default=SEEDS, help="these seeds, by commas")
    parser.add_argument("--again", action="store_true", help="measure what the results file already holds")
    parser.add_argument("--out", type=Path, default=page.BOUND, help="results file")
    parser.add_argument("--report", action="store_true", help="print what the file holds")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; 2 for a field that there is not."""
    options = arguments().parse_args(argv)
    names = options.only.split(",")
    for name in names:
        if name not in FIELDS:
            print(f"there is no field {name!r}; choose from {', '.join(FIELDS)}.", file=sys.stderr)
            return 2
    results = page.read(options.out)
    asked = itertools.product(options.rows, names, options.seeds) if not options.report else ()
    for n, name, seed in asked:
        key = {"field": name, "rows": n, "seed": seed}
        have = [row for row in results["rows"] if key.items() <= row.items()]
        if have and not options.again:
            continue
        row = {**key, **measure(**key), "commit": machine.commit()}
        results["rows"] = [kept for kept in results["rows"] if kept not in have] + [row]
        results["machine"] = machine.describe()
        write_text(options.out, json.dumps(results, indent=1) + "\n")
        said = f"error {row['ours']['rmse']:.3f} for {row['bound']['rmse']:.3f}"
        print(f"{name} {n} {seed}: {said}, {row['seconds']:.1f} s", file=sys.stderr)
    print("\n".join(report(results["rows"])))
    if options.out == page.BOUND and results["rows"] and not options.report:
        page.write()
    return 0


def measure(field: str, rows: int, seed: int) -> Row:
    """One draw, fitted and asked; `seconds` is processor time of fit and prediction."""
    about = FIELDS[field]
    drawn = draw(about, rows, seed)
    begun = time.process_time()
    model = GPRegressor(spatial=(0, 1), time=2 if about.time else None, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(drawn.X, drawn.y, drawn.counts)
        surface = model.predictive(drawn.asked, drawn.asked_counts, latent=True)
        new = model.predictive(drawn.asked, drawn.asked_counts)
        ours = judged(drawn, surface.mean(), [surface.interval(p) for p in LEVELS], new.interval(LEVELS[-1]))
    seconds = time.process_time() - begun
    mean, sd = best(about, drawn)
    both = np.hypot(sd, drawn.asked_noise_sd)
    bound = judged(drawn, mean, [ends(mean, sd, level) for level in LEVELS], ends(mean, both, LEVELS[-1]))
    return {"ours": ours, "bound": bound, "seconds": round(seconds, 2)}


def ends(mean: Array, sd: Array, level: float) -> tuple[Array, Array]:
    """Ends of a normal's interval."""
    reach = float(norm.ppf(0.5 + level / 2)) * sd
    return mean - reach, mean + reach


def judged(drawn: Draw, mean: Array, surface: Sequence[tuple[Array, Array]], new: tuple[Array, Array]) -> Row:
    """Root mean square error of the surface, shares within its intervals, their mean width at 95%, and of new values."""

    def held(value: Array, interval: tuple[Array, Array]) -> float:
        return float(((value >= interval[0]) & (value <= interval[1])).mean())

    low, high = surface[-1]
    return {
        "rmse": float(np.sqrt(((mean - drawn.surface) ** 2).mean())),
        "surface": [held(drawn.surface, interval) for interval in surface],
        "width": float((high - low).mean()),
        "new": held(drawn.asked_y, new),
    }


HEADER = (
    "field", "rows", "draws", "error", "bound", "ratio", "surface 50 / 80 / 95", "bound", "width", "bound", "new 95",
    "CPU s",
)  # fmt: skip


def report(rows: Sequence[Row]) -> list[str]:
    """Lines of markdown: a row a field and size, means over its draws."""
    if not rows:
        return []
    table = []
    for name, n in itertools.product(FIELDS, sorted({row["rows"] for row in rows})):
        mine = [row for row in rows if (row["field"], row["rows"]) == (name, n)]
        if not mine:
            continue
        ours, bound = ([row[who] for row in mine] for who in ("ours", "bound"))
        error, least = (float(np.sqrt(np.mean([r["rmse"] ** 2 for r in who]))) for who in (ours, bound))
        ratio = error / least
        table.append(
            [f"{name}: {FIELDS[name].title}", f"{n}", f"{len(mine)}", f"{error:.3f}", f"{least:.3f}",
             f"**{ratio:.2f}**" if ratio > FAR else f"{ratio:.2f}", shares(ours), shares(bound),
             *(f"{np.mean([r['width'] for r in who]):.2f}" for who in (ours, bound)),
             percent([r["new"] for r in ours], LEVELS[-1]), f"{np.mean([row['seconds'] for row in mine]):.1f}"]
        )  # fmt: skip
    words = (
        "By `python -m benchmarks.bound`, on Gaussian fields of sd 1 whose covariance and noise are known "
        "(`benchmarks/fields.py`): root mean square error of the surface at 400 places, beside the bound, kriging that is told "
        "covariance, noise and form of the mean; percent of the true surface within its intervals, their width at 95%, "
        f"percent of new values within theirs. Means over draws; **marked**: an error more than {FAR} times the bound's, a "
        f"95% interval that holds less than {HONEST[0]:.0%} or more than {HONEST[1]:.0%}."
    )
    return ["", "## How near one can come", "", words, "", *markdown(HEADER, table)]


def shares(rows: Sequence[Row]) -> str:
    """What intervals of 50, 80 and 95% hold, in percent."""
    return " / ".join(percent([r["surface"][at] for r in rows], level) for at, level in enumerate(LEVELS))


if __name__ == "__main__":
    sys.exit(main())
