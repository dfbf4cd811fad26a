"""Tables on the UCI sets: the files under GEOGP_DATA/uci, with their published test splits."""

import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from geogp.basis.rescale import factors_of, spread_of
from geogp.data import Data
from geogp.densities import gaussian_nll
from geogp.engines.lowrank import LowRankEngine
from geogp.errors import InvalidInput
from geogp.estimator import GPRegressor
from geogp.reproduce.journal import Attempt, once
from geogp.reproduce.result import READING, Line, Panel, Result
from geogp.scores import score
from geogp.storage.files import sha256

Array = NDArray[np.float64]
SETS = ("pol", "elevators", "keggdirected", "protein")

#: deep-basis-kernel-gp, table 1: MAE, NLL, CRPS.
DBK_TABLE1 = {
    "pol": {"dbk-silu": (0.0190, -2.9670, 0.0144), "dbk-rbf": (0.0190, -2.9807, 0.0144)},
    "elevators": {"dbk-silu": (0.2606, 0.2936, 0.1865), "dbk-rbf": (0.2614, 0.2967, 0.1870)},
    "keggdirected": {"dbk-silu": (0.0386, -1.6479, 0.0308), "dbk-rbf": (0.0382, -1.6679, 0.0311)},
    "protein": {"dbk-silu": (0.4031, 0.7406, 0.2852), "dbk-rbf": (0.3937, 0.7416, 0.2817)},
}
#: how-good-are-low-rank-approximations, table 1: NLPD by method and rank.
LOWRANK_TABLE1 = {
    "elevators": {
        "sgpr": {6: 0.52, 10: 0.50, 50: 0.46, 100: 0.44, 200: 0.43, 300: 0.42},
        "fgp": {6: 1.13, 10: 1.16, 50: 0.56, 100: 0.53, 200: 0.47, 300: 0.46},
        "mgp": {6: 0.56, 10: 0.48, 50: 0.45, 100: 0.43, 200: 0.41, 300: 0.40},
    },
    "protein": {
        "sgpr": {6: 1.22, 10: 1.19, 50: 1.11, 100: 1.07, 200: 1.01, 300: 0.97},
        "fgp": {6: 1.29, 10: 1.22, 50: 1.19, 100: 1.16, 200: 1.13, 300: 1.10},
        "mgp": {6: 1.25, 10: 1.19, 50: 1.15, 100: 1.14, 200: 1.13, 300: 1.02},
    },
    "keggdirected": {
        "sgpr": {6: 0.65, 10: 0.58, 50: 0.35, 100: 0.27, 200: 0.20, 300: 0.16},
        "fgp": {6: 1.27, 10: 1.06, 50: 0.71, 100: 0.60, 200: 0.47, 300: 0.40},
        "mgp": {6: 0.98, 10: 0.67, 50: 0.46, 100: 0.39, 200: 0.36, 300: 0.21},
    },
}
#: soft-kernel-interpolation, tables 1 and 2: method -> interpolation or inducing points.
SOFTKI_POINTS = {"softki": 512, "sgpr": 512, "sv-rbf": 1024}


@dataclass(frozen=True)
class Split:
    """One test split: validation is a ninth of the rows that are not test. name: file, digest, split and rows."""

    train: tuple[Array, Array]
    validation: tuple[Array, Array]
    test: tuple[Array, Array]
    name: str


def load(name: str, split: int, *, data: str | Path | None = None, limit: int | None = None) -> Split:
    """One of the sets with test split `split` (bit k of column test_splits); at most `limit` training rows.

    Raises
    ------
    InvalidInput
        when the files are not there.
    """
    folder = Path(data) if data is not None else Path(os.environ.get("GEOGP_DATA", "")) / "uci"
    file = folder / f"{name}.parquet"
    if not file.is_file():
        raise InvalidInput(
            f"{file} is not there; set GEOGP_DATA to the folder that holds uci/{name}.parquet."
        )
    table = pq.read_table(file)
    X = np.column_stack([table[c].to_numpy() for c in table.column_names if c.startswith("x")]).astype(float)
    y = table["y"].to_numpy().astype(float)
    is_test = (table["test_splits"].to_numpy().astype(int) >> split) & 1 == 1
    rest = np.flatnonzero(~is_test)
    np.random.default_rng(split).shuffle(rest)
    held, train = rest[: len(rest) // 9], rest[len(rest) // 9 :]
    train = train[:limit]
    said = f"{file.name} {sha256(file)[:16]}, split {split}, {len(train)} rows"
    return Split((X[train], y[train]), (X[held], y[held]), (X[is_test], y[is_test]), said)


def measure(method: str, split: Split, *, seed: int = 0, **keywords: Any) -> dict[str, float]:
    """Test scores in units of the training sd, and the seconds of the fit; once where a journal is kept."""
    key = {"method": method, "split": split.name, "seed": seed, **keywords}
    return once(key, lambda: _measure(method, split, seed, keywords, Attempt(key)))


def _measure(
    method: str, split: Split, seed: int, keywords: dict[str, Any], attempt: Attempt
) -> dict[str, float]:
    Xv, yv = split.validation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = GPRegressor(method=method, target_transform="identity", random_state=seed, **keywords)
        model.fit(*split.train, validation=(Xv, yv, None), hooks=attempt.hooks)
    seconds = attempt.seconds
    attempt.done()
    X, y = split.test
    predictive = model.predictive(X)
    out = score(predictive, y, target_mean=model.target_mean_, target_sd=model.target_sd_)
    gaussian = out["nll"] if predictive.degrees_of_freedom is None else gaussian_reading(model, split)
    return {**out, "seconds": seconds, "gaussian_nll": gaussian}


def gaussian_reading(model: GPRegressor, split: Split) -> float:
    """Test NLL of a deep basis with its two factors fitted to training and validation rows as Gaussians: what a paper
    prints.

    On z, the target standardised by the training rows.
    """

    def rows(part: tuple[Array, Array]) -> Data:
        z = (part[1] - model.target_mean_) / model.target_sd_
        return Data(torch.as_tensor(part[0]), torch.as_tensor(z, dtype=torch.float32))

    assert isinstance(model.engine_, LowRankEngine)
    learned = model.engine_.model
    factors = factors_of(learned, rows(split.train), rows(split.validation))
    seen = spread_of(learned, rows(split.test))
    return float(
        gaussian_nll(
            seen.y, seen.mean, seen.variance(factors.surface, factors.noise, factors.noise_from_weights)
        ).mean()
    )


def _mean(runs: list[dict[str, float]], key: str) -> float:
    return float(np.mean([r[key] for r in runs]))


def dbk_table1(
    *,
    quick: bool = False,
    seed: int = 0,
    data: str | Path | None = None,
    sets: tuple[str, ...] = SETS,
    splits: tuple[int, ...] = (0, 1, 2),
) -> Result:
    """DBK-SiLU and DBK-RBF with the defaults, mean over test splits."""
    rows: list[list] = []
    settings: dict = {"steps": 20} if quick else {}
    for name in sets:
        for method in ("dbk-silu", "dbk-rbf"):
            used = splits[:1] if quick else splits
            runs = [
                measure(method, load(name, k, data=data, limit=500 if quick else None), seed=seed, **settings)
                for k in used
            ]
            mae, nll, crps = DBK_TABLE1[name][method]
            spread = float(np.std([r["nll"] for r in runs]))
            rows.append(
                [
                    name, method, _mean(runs, "nll"), spread, nll, _mean(runs, "gaussian_nll"),
                    _mean(runs, "crps"), crps,
                    _mean(runs, "mae"), mae, _mean(runs, "coverage95"), _mean(runs, "seconds"),
                ]
            )  # fmt: skip
    notes = [
        "Recipe, the same for every set: standardised inputs, warm start, learning rate up to 5e-3 and down a cosine, "
        "noise x10, the log of the CRPS in the loss, averaged parameters, and the spread read from validation rows; "
        "the paper's printed one (min-max inputs, 1e-3, 400 epochs) gives -2.05 on Pol where it prints -2.967.",
        READING,
        "The paper's NLL is a Gaussian's. Ours is that of the reading in use; 'NLL, Gaussian' is the same network with both "
        "factors fitted as a Gaussian's, the one to set beside the paper's. A single wild row can rule it.",
        "Pol's targets are discrete, so its NLL can be gamed and a few rows decide it: hold CRPS and MAE as the goal.",
        "The paper averages 5 seeds of one random split; here the published test splits.",
    ]
    columns = [
        "set", "method", "NLL", "sd of NLL", "paper NLL", "NLL, Gaussian", "CRPS", "paper CRPS", "MAE", "paper MAE", "coverage95",
        "seconds",
    ]  # fmt: skip
    return Result("dbk-table1", "deep-basis-kernel-gp, table 1: UCI regression", columns, rows, notes)


def dbk_fig6(*, quick: bool = False, seed: int = 0, data: str | Path | None = None) -> Result:
    """Sensitivity of DBK-SiLU to the trace weight alpha and the KL weight beta."""
    grid = (0.0, 0.01, 0.1, 1.0)
    rows: list[list] = []
    settings: dict = {"steps": 20} if quick else {}
    for name in ("pol",) if quick else ("pol", "keggdirected"):
        split = load(name, 0, data=data, limit=400 if quick else None)
        base = measure("vbll", split, seed=seed, **settings)
        rows.append([name, "vbll", math.nan, math.nan, base["nll"], base["crps"], base["mae"]])
        pairs = [(a, 0.01) for a in grid] + [(0.01, b) for b in grid if b != 0.01]
        for alpha, beta in pairs[:2] if quick else pairs:
            r = measure("dbk-silu", split, seed=seed, trace_weight=alpha, kl_weight=beta, **settings)
            rows.append([name, "dbk-silu", alpha, beta, r["nll"], r["crps"], r["mae"]])
    panels = [
        Panel(
            f"{name}: NLL by alpha (beta = .01)",
            "alpha",
            "NLL",
            [Line("dbk-silu", *_pairs([(r[2], r[4]) for r in rows if r[0] == name and r[3] == 0.01]))],
        )
        for name in dict.fromkeys(r[0] for r in rows)
    ]
    notes = [
        "The paper's claim: a small but nonzero alpha helps, beta matters little, all are below VBLL in NLL.",
        READING,
    ]
    columns = ["set", "method", "alpha", "beta", "NLL", "CRPS", "MAE"]
    return Result("dbk-fig6", "deep-basis-kernel-gp, figure 6: alpha and beta", columns, rows, notes, panels)


def _pairs(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    points = sorted(points)
    return [p[0] for p in points], [p[1] for p in points]


def lowrank_table1(*, quick: bool = False, seed: int = 0, data: str | Path | None = None) -> Result:
    """NLPD of SGPR, Fourier GP and Mercer GP as the rank grows from 6 to 300."""
    rows: list[list] = []
    ranks = (6, 50) if quick else (6, 10, 50, 100, 200, 300)
    settings: dict = {"steps": 20} if quick else {}
    panels = []
    for name in ("elevators",) if quick else tuple(LOWRANK_TABLE1):
        split = load(name, 0, data=data, limit=400 if quick else None)
        lines = []
        for method in ("sgpr", "fgp", "mgp"):
            found = []
            for rank in ranks:
                r = measure(method, split, seed=seed, rank=rank, **settings)
                found.append(r["nll"])
                rows.append([name, method, rank, r["nll"], LOWRANK_TABLE1[name][method][rank], r["seconds"]])
            lines.append(Line(method, [float(k) for k in ranks], found))
        panels.append(Panel(f"{name}: NLPD by rank", "rank", "NLPD", lines, log_x=True))
    notes = [
        "One split here, five in the paper. The paper's order at high rank: MGP and SGPR ahead of FGP.",
        "KEGG is not the paper's table: 48,827 rows of 20 inputs here (RMSE .09, as the SoftKI paper has for it), 53,413 of 19 "
        "there (RMSE .29). Only the order compares.",
        "Elevators, SGPR with 6 points: seed 0 ends in a poor optimum; seeds 1, 2 and 3 give .514, .514 and .514.",
    ]
    columns = ["set", "method", "rank", "NLPD", "paper NLPD", "seconds"]
    title = "how-good-are-low-rank-approximations, table 1: NLPD by rank"
    return Result("lowrank-table1", title, columns, rows, notes, panels)


def softki_table1(*, quick: bool = False, seed: int = 0, data: str | Path | None = None) -> Result:
    """RMSE and NLL of SoftKI and SGPR with 512 points and of SVGP with 1,024, as in the paper."""
    paper = {
        "elevators": {"softki": (0.36, 0.406), "sgpr": (0.393, 0.581), "sv-rbf": (0.384, 0.586)},
        "protein": {"softki": (0.596, 0.905), "sgpr": (0.601, 1.029), "sv-rbf": (0.607, 1.047)},
        "pol": {"softki": (0.075, -0.71), "sgpr": (0.108, -0.538), "sv-rbf": (0.122, -0.394)},
    }
    rows: list[list] = []
    for name in ("elevators",) if quick else tuple(paper):
        split = load(name, 0, data=data, limit=400 if quick else None)
        for method, points in SOFTKI_POINTS.items():
            settings: dict = {"steps": 20, "rank": points // 16} if quick else {"rank": points}
            r = measure(method, split, seed=seed, **settings)
            said = paper[name][method]
            row = [name, method, settings["rank"], r["rmse"], said[0], r["nll"], said[1], r["seconds"]]
            rows.append(row)
    notes = [
        "Not the same models throughout. Points are the paper's: 512, and 1,024 for SVGP (sv-rbf). Kernel: Matern-3/2 "
        "for all in the paper, here for SoftKI alone; SGPR and SVGP have the RBF kernel, a lengthscale an input.",
        "Training: 50 epochs of Adam in the paper, batches of 1,024 for SVGP; here sv-rbf takes about 6,000 such steps, "
        "sgpr steps on all rows, both until validation rows say stop. One split here (8:1:1), three of 9:1 there.",
        "The published code computes the predictive covariance with two signs flipped (a variance of 1.756 where the "
        "posterior's is .0036); ours is derived from the formula and pinned to a dense solve, so NLL differs.",
    ]
    columns = ["set", "method", "points", "RMSE", "paper RMSE", "NLL", "paper NLL", "seconds"]
    return Result("softki-table1", "soft-kernel-interpolation, tables 1 and 2: UCI", columns, rows, notes)
