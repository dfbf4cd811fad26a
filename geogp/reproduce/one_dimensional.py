"""The one-dimensional example of the deep basis kernel paper: figures 1, 4 and 5.

The printed noise, sd = 2 |sin 10x|, has an oracle NLL of 1.37, so no model can print -.22 on it. With
sd = .4 |sin 10x| every printed figure fits (oracle about -.24): that is what is used here, and said.
"""

import math
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from geogp.estimator import GPRegressor
from geogp.methods import METHODS
from geogp.reproduce.result import Line, Panel, Result

Array = NDArray[np.float64]

NOISE_SD = 0.4
PAPER = "deep-basis-kernel-gp"
NOTE = (
    "The paper prints the noise as sd = 2 |sin 10x|; its oracle NLL is 1.37, so the printed -.22 cannot come from it. "
    "sd = .4 |sin 10x| fits every printed figure and is used here."
)

LEARNED = (
    "The spread is as the paper's objective leaves it. The defaults' reading on validation rows, which tells surface from "
    "noise, is not applied: it gives the same intervals for new observations and narrower ones for the surface."
)


def truth(x: Array) -> tuple[Array, Array]:
    """Mean and noise sd at x: (n,) each."""
    s1, s2, s3 = expit(200 * (x + 0.6)), expit(200 * x), expit(200 * (x - 0.4))
    return 0.3 * (1 - s1) + 0.9 * (s1 - s2) - 0.6 * (s2 - s3), NOISE_SD * np.abs(np.sin(10 * x))


def draw(n: int, seed: int) -> tuple[Array, Array]:
    """n inputs, uniform on [-1, 1], as a column, and their targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    mean, sd = truth(x)
    return x[:, None], mean + sd * rng.standard_normal(n)


def nll(y: Array, mean: Array, sd: Array) -> float:
    """Mean negative log density of a Gaussian."""
    return float(np.mean(0.5 * np.square((y - mean) / sd) + np.log(sd)) + 0.5 * math.log(2 * math.pi))


def fit(method: str, n: int, *, seed: int = 0, **keywords: Any) -> GPRegressor:
    """A model of n rows, with 1,000 validation rows; its spread as the paper's objective leaves it."""
    if METHODS[method].spread != "learned":
        keywords["spread"] = "learned"
    X, y = draw(n, seed)
    Xv, yv = draw(1000, 10_000 + seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = GPRegressor(method=method, target_transform="identity", random_state=seed, **keywords)
        return model.fit(X, y, validation=(Xv, yv, None))


def measure(model: GPRegressor, seed: int) -> dict[str, float]:
    """NLL beside the oracle's on 1,000 test rows, MAE, and the correlation of predicted and true sd."""
    X, y = draw(1000, 20_000 + seed)
    mean, sd = model.predict(X, return_std=True)
    best, best_sd = truth(X[:, 0])
    return {
        "nll": nll(y, mean, sd),
        "oracle": nll(y, best, np.maximum(best_sd, 1e-12)),
        "mae": float(np.abs(y - mean).mean()),
        "sd_correlation": float(np.corrcoef(sd, best_sd)[0, 1]),
        "sd_ratio": float(sd.max() / sd.min()),
    }


def fig1(*, quick: bool = False, seed: int = 0) -> Result:
    """Kernels and predictions of exact RBF, exact DKL, DBK by marginal likelihood and by dPPGP."""
    n_exact, n = (100, 400) if quick else (2000, 20_000)
    steps = 40 if quick else None
    grid = np.linspace(-1, 1, 201)[:, None]
    rows, panels = [], []
    paper = {"gp-rbf": "", "dkl": "", "dbk-silu-exact": "flat sd", "dbk-silu": "sd follows the noise"}
    for method, said in paper.items():
        size = n_exact if method in ("gp-rbf", "dkl") else n
        if method == "dbk-silu-exact" and not quick:
            size = 10_000
        model = fit(method, size, seed=seed, steps=steps)
        m = measure(model, seed)
        rows.append([method, size, m["nll"], m["oracle"], m["mae"], m["sd_correlation"], m["sd_ratio"], said])
        mean, sd = model.predict(grid, return_std=True)
        slices = {f"x = {x:g}": model.kernel_slice(grid, [x]) for x in (-0.8, -0.3, 0.2, 0.7)}
        x = grid[:, 0].tolist()
        true_mean, true_sd = truth(grid[:, 0])
        panels.append(
            Panel(
                f"{method}: prediction",
                "x",
                "y",
                [
                    Line("mean and 95%", x, mean.tolist(), (1.96 * sd).tolist()),
                    Line("true 97.5%", x, (true_mean + 1.96 * true_sd).tolist()),
                    Line("true 2.5%", x, (true_mean - 1.96 * true_sd).tolist()),
                ],
            )
        )
        panels.append(
            Panel(
                f"{method}: kernel slices",
                "x",
                "k(x, x0)",
                [Line(k, x, (v / np.abs(v).max()).tolist()) for k, v in slices.items()],
            )
        )
    columns = [
        "method",
        "n",
        "NLL",
        "oracle NLL",
        "MAE",
        "corr(sd, true sd)",
        "largest / smallest sd",
        "paper",
    ]
    return Result(
        "dbk-fig1", f"{PAPER}, figure 1: kernels and predictions", columns, rows, [NOTE, LEARNED], panels
    )


def fig4(*, quick: bool = False, seed: int = 0) -> Result:
    """Error and time as n grows from 500 to 100,000."""
    sizes = [100, 400] if quick else [500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]
    limits = {"gp-rbf": 2000, "dkl": 2000, "dbk-silu-exact": 20_000, "dbk-silu": 100_000}
    rows: list[list] = []
    for method, limit in limits.items():
        for n in (s for s in sizes if s <= limit):
            begun = time.perf_counter()
            model = fit(method, n, seed=seed, steps=40 if quick else None)
            seconds = time.perf_counter() - begun
            m = measure(model, seed)
            rows.append([method, n, m["mae"], m["nll"], m["oracle"], seconds])
    panels = [
        Panel(
            title,
            "n",
            title,
            [Line(k, [r[1] for r in rows if r[0] == k], [r[at] for r in rows if r[0] == k]) for k in limits],
            log_x=True,
            log_y=title.startswith("time"),
        )
        for title, at in (("MAE", 2), ("NLL", 3), ("time, s", 5))
    ]
    notes = [
        NOTE,
        LEARNED,
        "The paper runs exact GPs to n = 20,000 on a GPU; here they stop at 2,000 rows and dbk-silu-exact at 20,000.",
        "The paper's claim: DBK is the most accurate at every n and only dPPGP improves NLL with the noise.",
    ]
    return Result(
        "dbk-fig4",
        f"{PAPER}, figure 4: scaling",
        ["method", "n", "MAE", "NLL", "oracle NLL", "fit seconds"],
        rows,
        notes,
        panels,
    )


def fig5(*, quick: bool = False, seed: int = 0) -> Result:
    """Effect of the rank: test NLL for r = 1 .. 64; the paper's best of 10 seeds are .126 to -.225."""
    paper = {1: 0.126, 2: -0.192, 8: -0.215, 64: -0.225}
    n = 400 if quick else 20_000
    rows: list[list] = []
    panels = []
    grid = np.linspace(-1, 1, 201)[:, None]
    for rank in [1, 8] if quick else [1, 2, 4, 8, 16, 32, 64]:
        model = fit("dbk-silu", n, seed=seed, rank=rank, steps=40 if quick else None)
        m = measure(model, seed)
        rows.append([rank, m["nll"], m["oracle"], paper.get(rank, math.nan), m["sd_correlation"]])
        if rank in paper:
            K = model.kernel_slice(grid, [0.2])
            panels.append(
                Panel(
                    f"rank {rank}: k(x, 0.2)",
                    "x",
                    "k",
                    [Line("slice", grid[:, 0].tolist(), (K / np.abs(K).max()).tolist())],
                )
            )
    panels.append(
        Panel(
            "test NLL by rank",
            "rank",
            "NLL",
            [
                Line("ours", [r[0] for r in rows], [r[1] for r in rows]),
                Line("paper, best of 10 seeds", [float(r) for r in paper], list(paper.values())),
                Line("oracle", [r[0] for r in rows], [r[2] for r in rows]),
            ],
            log_x=True,
        )
    )
    return Result(
        "dbk-fig5",
        f"{PAPER}, figure 5: rank",
        ["rank", "NLL", "oracle NLL", "paper NLL (best of 10 seeds)", "corr(sd, true sd)"],
        rows,
        [NOTE, LEARNED, f"n = {n:,} here, 100,000 in the paper; one seed here."],
        panels,
    )
