"""How a fit of the default grows with its rows: `python -m benchmarks.sizes [--rows 1e5,1e6,1e7]`; no data.

A made-up country of tiles of 600 m, each measured in eight quarters, with counts. Every size in a process of its own, whose
peak memory holds its rows, too. The last of the three sizes takes some six minutes of a core and 5 GB.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from benchmarks.tables import markdown

Array = NDArray[np.float64]
QUARTERS, TILE_M = 8, 600.0
#: Tiles of the square that the country lies in, for each that is measured.
THIN = 2.2


def country(n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """About n rows: X (n, 3) easting_m, northing_m and years, values (n,) and counts (n,), in no order."""
    rng = np.random.default_rng(seed)
    places = n // QUARTERS
    across = int(np.ceil((THIN * places) ** 0.5))
    tile = rng.choice(across * across, places, replace=False)
    at = np.column_stack([tile % across, tile // across]) * TILE_M
    level = np.sin(at[:, 0] / 9000.0) + np.cos(at[:, 1] / 21000.0) + 0.4 * np.sin(at.sum(1) / 2500.0)
    of = np.tile(np.arange(places), QUARTERS)
    years = np.repeat(np.arange(QUARTERS), places) / 4.0
    counts = rng.integers(1, 40, len(of)).astype(float)
    noise = np.sqrt(0.1 + 0.8 / counts) * rng.standard_normal(len(of))
    order = rng.permutation(len(of))
    values = level[of] + 0.1 * years + noise
    return np.column_stack([at[of], years])[order], values[order], counts[order]


def fit(n: int, device: str = "cpu") -> dict[str, float]:
    """Rows, seconds, processor seconds and the process' peak memory in MB, of a fit in this process."""
    from app.workflow.machine import peak_rss_mb
    from geogp.estimator import GPRegressor

    X, y, counts = country(n)
    made = peak_rss_mb()
    started, cpu = time.perf_counter(), time.process_time()
    model = GPRegressor(spatial=(0, 1), time=2, random_state=0, target_transform="identity", device=device)
    model.fit(X, y, counts=counts)
    return {
        "rows": len(y),
        "seconds": time.perf_counter() - started,
        "processor seconds": time.process_time() - cpu,
        "peak MB": peak_rss_mb(),
        "before the fit, MB": made,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a size could not be fitted, which is said."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sizes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", default="1e5,1e6,1e7", help="sizes, by commas")
    parser.add_argument(
        "--out", type=Path, default=None, help="fit the first size in this process, write JSON"
    )
    options = parser.parse_args(argv)
    sizes = [int(float(size)) for size in options.rows.split(",")]
    if options.out is not None:
        machine.write_text(options.out, json.dumps(fit(sizes[0])))
        return 0
    found = of_each(sizes)
    rows = [one for one in found if isinstance(one, dict)]
    if rows:
        print("\n".join(markdown(list(rows[0]), [[f"{v:,.0f}" for v in row.values()] for row in rows])))
    for n, one in zip(sizes, found):
        if isinstance(one, str):
            print(f"{n} rows: {one}", file=sys.stderr)
    return int(len(rows) < len(found))


def of_each(sizes: Sequence[int]) -> list[dict[str, float] | str]:
    """What `fit` says of each size in a process of its own, or why that ended without."""
    return [machine.in_fresh("benchmarks.sizes", "--rows", str(n)) for n in sizes]


def section(device: str, quick: bool) -> list[dict[str, float]]:
    """Of `benchmarks.speed`; only sizes that could be fitted."""
    found = of_each((800,) if quick else (100_000, 1_000_000, 10_000_000))
    return [one for one in found if isinstance(one, dict)]


if __name__ == "__main__":
    raise SystemExit(main())
