"""Small tables of other people: the default beside a Gaussian process of scikit-learn and ordinary kriging, five folds.

    python -m benchmarks.small [--only CASE[,CASE]] [--out FILE] [--report]

Surveys of 49 to 211 rows: soil by a river (`small/` of the data folder, as scikit-gstat has it), house prices and counties (the
same, as libpysal has them), neighbourhoods and counties out of libpysal itself, where that is installed. Every method is given
the same rows as they are; nothing is chosen by the rows held out. scikit-learn's has a Matérn-3/2 kernel with a lengthscale an
input, a variance and a noise; kriging an exponential variogram. A minute of one core in all.
"""

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import page
from benchmarks.machine import write_text
from benchmarks.tables import markdown
from geogp.estimator import GPRegressor
from geogp.scores import interval_score

Array = NDArray[np.float64]
RESULTS = page.FOLDER / "small.json"
FOLDS, LEVEL, NORMAL = 5, 0.95, 1.959964
#: Middle, lower and upper end (m,) each.
Told = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Survey:
    """One table: what it is, its file (of the data folder, or of libpysal), columns of places, target and covariates."""

    title: str
    file: str
    places: tuple[str, str] | None
    target: str
    covariates: tuple[str, ...] = ()

    def rows(self, data: Path) -> tuple[Array, Array] | None:
        """X (n, 2 + covariates) and y (n,), None where the file is not there."""
        import pandas as pd

        if self.places is not None:
            path = data / "small" / self.file
            if not path.is_file():
                return None
            frame = pd.read_csv(path)
            places = frame[list(self.places)].to_numpy(dtype=np.float64)
        else:
            try:
                from libpysal.examples import get_path
            except ModuleNotFoundError:
                return None
            import geopandas

            frame = geopandas.read_file(get_path(self.file))
            inside = frame.geometry.representative_point()
            places = np.column_stack([inside.x, inside.y])
        X = np.column_stack([places, frame[list(self.covariates)].to_numpy(dtype=np.float64)])
        y = frame[self.target].to_numpy(dtype=np.float64)
        there = np.isfinite(X).all(axis=1) & np.isfinite(y)
        return X[there], y[there]


SURVEYS = {
    "meuse-zinc": Survey("Meuse, zinc in mg/kg", "meuse.csv", ("x", "y"), "zinc"),
    "meuse-om": Survey("Meuse, organic matter in %", "meuse.csv", ("x", "y"), "om"),
    "meuse-lead": Survey("Meuse, lead in mg/kg", "meuse.csv", ("x", "y"), "lead"),
    "baltimore": Survey("Baltimore, house prices", "baltim.csv", ("X", "Y"), "PRICE"),
    "georgia": Survey("Georgia, graduates in %", "georgia.csv", ("X", "Y"), "PctBach"),
    "georgia-poverty": Survey("Georgia, poverty in %", "georgia.csv", ("X", "Y"), "PctPov"),
    "columbus": Survey("Columbus, home values", "columbus.shp", None, "HOVAL"),
    "st-louis": Survey("St. Louis, homicide rates", "stl_hom.shp", None, "HR8893"),
    "meuse-zinc-river": Survey(
        "Meuse, zinc, by distance to the river and elevation", "meuse.csv", ("x", "y"), "zinc", ("dist", "elev")
    ),
    "baltimore-houses": Survey(
        "Baltimore, house prices, by size, lot, age and rooms",
        "baltim.csv",
        ("X", "Y"),
        "PRICE",
        ("SQFT", "LOTSZ", "AGE", "NROOM"),
    ),
}  # fmt: skip


def ours(X: Array, y: Array, new: Array) -> Told:
    """The default as it is."""
    model = GPRegressor(spatial=(0, 1), random_state=0).fit(X, y)
    predictive = model.predictive(new)
    return (predictive.median(), *predictive.interval(LEVEL))


def scikit_learn(X: Array, y: Array, new: Array) -> Told:
    """A Gaussian process by its marginal likelihood, inputs standardised."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    middle, scale = X.mean(axis=0), X.std(axis=0)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(np.ones(X.shape[1]), (1e-2, 1e2), nu=1.5)
    model = GaussianProcessRegressor(
        kernel + WhiteKernel(0.3, (1e-4, 1e1)), normalize_y=True, n_restarts_optimizer=2, random_state=0
    )
    mean, sd = model.fit((X - middle) / scale, y).predict((new - middle) / scale, return_std=True)
    return mean, mean - NORMAL * sd, mean + NORMAL * sd


def kriging(X: Array, y: Array, new: Array) -> Told:
    """Ordinary kriging, which knows places alone; new values have the nugget, too."""
    from pykrige.ok import OrdinaryKriging

    model = OrdinaryKriging(*X[:, :2].T, y, variogram_model="exponential", exact_values=False)
    mean, variance = (np.asarray(v) for v in model.execute("points", *new[:, :2].T))
    sd = np.sqrt(np.maximum(variance + model.variogram_model_parameters[2], 0.0))
    return mean, mean - NORMAL * sd, mean + NORMAL * sd


METHODS: dict[str, Callable[[Array, Array, Array], Told]] = {
    "geogp": ours,
    "scikit-learn GP": scikit_learn,
    "kriging": kriging,
}


def measured(name: str, X: Array, y: Array) -> list[dict[str, Any]]:
    """A row for each method: scores over all folds, seconds of processor time of a fit and its prediction."""
    fold = np.random.default_rng(0).permutation(len(y)) % FOLDS
    rows = []
    for method, predict in METHODS.items():
        told, begun = np.empty((3, len(y))), time.process_time()
        for k in range(FOLDS):
            out = fold == k
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                told[:, out] = predict(X[~out], y[~out], X[out])
        seconds = (time.process_time() - begun) / FOLDS
        middle, lower, upper = told
        rows.append(
            {
                "case": name,
                "method": method,
                "rows": len(y),
                "mae": float(np.abs(y - middle).mean()),
                "interval_score": float(interval_score(y, lower, upper, LEVEL).mean()),
                "coverage": float(((lower <= y) & (y <= upper)).mean()),
                "seconds": seconds,
            }
        )
    return rows


def report(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The table, in markdown: the best of each column of a survey in bold."""
    if not rows:
        return []
    lines = []
    for name, survey in SURVEYS.items():
        mine = [row for row in rows if row["case"] == name]
        least = {key: min((row[key] for row in mine), default=0.0) for key in ("mae", "interval_score")}
        for row in mine:
            scores = [
                f"**{row[key]:.4g}**" if row[key] == least[key] else f"{row[key]:.4g}"
                for key in ("mae", "interval_score")
            ]
            lines.append(
                [
                    survey.title,
                    f"{row['rows']}",
                    row["method"],
                    *scores,
                    f"{row['coverage']:.1%}",
                    f"{row['seconds']:.1f}",
                ]
            )
    header = ("survey", "rows", "method", "MAE", "interval score", "cov. 95", "CPU s")
    words = (
        "By `python -m benchmarks.small`: five folds, each method as it comes, the same rows; MAE of medians (means of the others), "
        "interval score of 95%, both in units of the target, processor time of one fit and its prediction. Only the two last "
        "surveys give covariates, which kriging does not see."
    )
    return ["", "## Small tables of other people", "", words, "", *markdown(header, lines)]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; 2 for a survey that there is not."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.small", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default=",".join(SURVEYS), help="these surveys, by commas")
    parser.add_argument("--out", type=Path, default=RESULTS, help="results file")
    parser.add_argument("--report", action="store_true", help="print what the file holds")
    arguments = parser.parse_args(argv)
    kept = {(row["case"], row["method"]): row for row in page.read(arguments.out)["rows"]}
    if not arguments.report:
        data = Path(os.environ.get("GEOGP_DATA", "data"))
        for name in arguments.only.split(","):
            if name not in SURVEYS:
                print(f"There is no survey {name}; choose from {', '.join(SURVEYS)}.", file=sys.stderr)
                return 2
            found = SURVEYS[name].rows(data)
            if found is None:
                print(f"{name}: not in the data folder, nor in libpysal; left out", file=sys.stderr)
                continue
            kept |= {(row["case"], row["method"]): row for row in measured(name, *found)}
            write_text(arguments.out, json.dumps({"schema": 1, "rows": [*kept.values()]}, indent=1) + "\n")
    print("\n".join(report([*kept.values()])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
