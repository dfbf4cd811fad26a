"""Learned kernels on real data: correlation with an urban, a rural and a wild place, and a non-stationarity index.

    python -m benchmarks.slices [--methods dbk-rbf,dbk-silu,sv-rbf] [--split random] [--out slices.png]

Fits each method on Hawaii's fixed downloads and draws the prior correlation with three places over 60 km: the
urban tile with the most tests, the rural tile of the median distance to urban ones, and a place ten kilometres from
any measurement. The index (`geogp.diagnostics.non_stationarity`) is 0 for a stationary kernel. Data: GEOGP_DATA.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.spatial import cKDTree

import geogp  # before torch: sets how OpenMP waits
from benchmarks.cases import CASES, Absent, observations
from benchmarks.tables import markdown
from geogp.diagnostics import non_stationarity
from maps.figures import write_png

assert geogp
Array = NDArray[np.float64]
REACH_M, PIXELS, WILD_M = 30_000.0, 61, 10_000.0


def places_of(X: Array, counts: Array, urban: NDArray[np.bool_]) -> dict[str, Array]:
    """Inputs (3,) at the newest time of an urban, a rural and a wild place among training rows X (n, 3)."""
    newest = X[:, 2].max()
    city = X[urban, :2][np.argmax(counts[urban])]
    country = X[~urban, :2]
    away, _ = cKDTree(X[urban, :2]).query(country)
    village = country[np.argsort(away)[len(away) // 2]]
    low, high = X[:, :2].min(axis=0), X[:, :2].max(axis=0)
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 200) for a, b in zip(low, high))), axis=-1).reshape(-1, 2)
    distance, _ = cKDTree(X[:, :2]).query(grid)
    wild = grid[np.argmin(np.abs(distance - WILD_M))]
    return {name: np.array([*p, newest]) for name, p in (("urban", city), ("rural", village), ("wild", wild))}


def correlation(model: geogp.GPRegressor, at: Array) -> Array:
    """Prior correlation of the surface around a place with the place: (PIXELS, PIXELS), north up."""
    steps = np.linspace(-REACH_M, REACH_M, PIXELS)
    east, north = np.meshgrid(steps, steps[::-1])
    X = np.column_stack([at[0] + east.ravel(), at[1] + north.ravel(), np.full(east.size, at[2])])
    with torch.no_grad():
        _, c = model.engine_.prior_slice(torch.as_tensor(X), torch.as_tensor(at[None]))
    return c.numpy().reshape(PIXELS, PIXELS)


def main(argv: list[str] | None = None) -> int:
    """Fit, print the table, write the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slices")
    parser.add_argument("--methods", default="dbk-rbf,dbk-silu,sv-rbf")
    parser.add_argument("--split", default="random", choices=("random", "block", "forward"))
    parser.add_argument("--out", type=Path, default=Path("slices.png"))
    parser.add_argument("--steps", type=int, default=None, help="of training; default: the method's own")
    options = parser.parse_args(argv)
    data = Path(os.environ.get("GEOGP_DATA") or "absent")
    try:
        problem = CASES[f"hawaii-fixed-download-{options.split}"].load(data)
        rows = geogp_rows(data)
    except Absent as absent:
        print(f"{absent}; nothing to draw.", file=sys.stderr)
        return 0
    X, y, counts = problem.train
    assert counts is not None
    # Training rows find their label by place: tiles do not move.
    urban = rows[1][cKDTree(rows[0]).query(X[:, :2])[1]]
    places = places_of(X, counts, urban)
    methods = [m for m in options.methods.split(",") if m]
    figure = Figure(figsize=(9.0, 3.0 * len(methods) + 0.4), layout="constrained")
    axes = figure.subplots(len(methods), len(places), squeeze=False)
    table = []
    for row, name in zip(axes, methods):
        model = geogp.GPRegressor(
            name,
            spatial=(0, 1),
            time=problem.time,
            target_transform="identity",
            random_state=0,
            steps=options.steps,
        )
        model.fit(X, y, counts, validation=problem.validation)
        index = non_stationarity(model, np.stack(list(places.values())), REACH_M)
        table.append([name, f"{index:.3f}"])
        for ax, (place, at) in zip(row, places.items()):
            image = ax.imshow(
                correlation(model, at), vmin=-1.0, vmax=1.0, cmap="RdBu_r",
                extent=[-REACH_M / 1e3, REACH_M / 1e3] * 2,
            )  # fmt: skip
            ax.plot(0, 0, "k+")
            ax.set_title(f"{name}, {place}", fontsize=9)
            ax.set_xlabel("km east", fontsize=8)
            ax.tick_params(labelsize=7)
        row[0].set_ylabel("km north", fontsize=8)
    figure.colorbar(image, ax=axes, label="prior correlation with the place", shrink=0.6)
    print("\n".join(markdown(("method", "non-stationarity index"), table)))
    print(write_png(figure, options.out, overwrite=True))
    return 0


def geogp_rows(data: Path) -> tuple[Array, NDArray[np.bool_]]:
    """Places (n, 2) and urban labels (n,) of the fixed tiles."""
    import pyarrow.parquet as pq

    table = pq.read_table(observations(data, "fixed"), columns=["easting_m", "northing_m", "urban"])
    P = np.column_stack([table["easting_m"].to_numpy(), table["northing_m"].to_numpy()])
    return P, table["urban"].to_numpy(zero_copy_only=False).astype(bool)


if __name__ == "__main__":
    sys.exit(main())
