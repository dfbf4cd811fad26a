"""How the work of a fit grows with rows and rank, and fields beside GPBoost and LightGBM: sections of `benchmarks.speed`."""

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import geogp  # before torch: sets how OpenMP waits

assert geogp
import torch  # noqa: E402

from benchmarks.machine import interleaved  # noqa: E402
from geogp.basis.build import Shape, Size, build  # noqa: E402
from geogp.basis.full_batch import full_batch_backward  # noqa: E402
from geogp.basis.initialise import warm_start  # noqa: E402
from geogp.basis.objectives import OBJECTIVES, Sums, Weights  # noqa: E402
from geogp.basis.schedule import Schedule  # noqa: E402
from geogp.basis.statistics import statistic_of  # noqa: E402
from geogp.basis.train import Training, minibatch  # noqa: E402
from geogp.data import Data  # noqa: E402
from geogp.engines.closed_form import rows_of  # noqa: E402
from geogp.methods import method  # noqa: E402

Row = dict[str, Any]
ON_ALL_ROWS = ("sgpr", "fgp", "mgp")
FEATURES = 9
PEERS = ("gpboost-vecchia", "lightgbm-mean-variance")


def features(n: int, device: str) -> Data:
    """Rows of nine generic features."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, FEATURES, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return Data(X, (y - y.mean()) / y.std()).to(torch.device(device))


def _model(name: str, rank: int, data: Data, *, hidden: int = 64) -> Any:
    row = method(name)
    latent = min(5, FEATURES) if len(row.latent) > 1 else None
    model = build(
        row, Shape(FEATURES, None, None, False), Size(hidden=hidden, rank=rank, latent=latent), seed=0
    )
    if row.engine == "closed_form":
        model.double()
    model.encoder.fit_scaling(data.X.cpu())
    model.to(data.y.device)
    warm_start(model, data.X, data.y, None, seed=0)
    return model.train()


def on_all_rows(device: str, quick: bool) -> list[Row]:
    """A step on all rows and its gradient: as it is, and by automatic differentiation of the plain formula."""
    rows: list[Row] = []
    sizes = ((2_000, 50),) if quick else ((10_000, 50), (10_000, 300), (40_000, 300))
    for n, rank in sizes:
        data = features(n, device)
        for name in ON_ALL_ROWS:
            model, objective = _model(name, rank, data), method(name).objective

            def ours(model: Any = model, objective: str = objective, data: Data = data) -> None:
                model.zero_grad(set_to_none=True)
                full_batch_backward(model, objective, data)

            def plain(model: Any = model, objective: str = objective, data: Data = data) -> None:
                model.zero_grad(set_to_none=True)
                OBJECTIVES[objective](Sums.of(rows_of(model, data))).backward()

            own, automatic = interleaved((ours, plain), device, rounds=3)
            rows.append(
                {
                    "what": name, "n": n, "r": rank, "ms a step": 1e3 * own, "plain formula, ms": 1e3 * automatic,
                    "ratio": automatic / own,
                }
            )  # fmt: skip
    return rows


def epochs(device: str, quick: bool) -> list[Row]:
    """An epoch of minibatches, optimiser and averages with it, and the exact posterior of the weights."""
    rows: list[Row] = []
    for n in (4_096,) if quick else (16_384, 65_536):
        data = features(n, device)
        for hidden, rank in ((64, 128),) if quick else ((64, 128), (256, 1024)):
            for name in ("dbk-silu", "dbk-rbf"):
                if n * rank > 2**25:  # a minute of it tells no more
                    continue
                model = _model(name, rank, data, hidden=hidden)
                loss = minibatch(model, method(name).objective, Weights(), n)
                training = Training(model, data, loss, Schedule(), 0)
                epoch, statistic = interleaved(
                    (training.run_epoch, functools.partial(statistic_of, model, data)), device, rounds=2
                )
                rows.append(
                    {
                        "what": name, "n": n, "h": hidden, "r": rank, "epoch, s": epoch, "epoch, rows/s": n / epoch,
                        "statistics, s": statistic, "statistics, rows/s": n / statistic,
                    }
                )  # fmt: skip
    return rows


def fields(device: str, quick: bool) -> list[Row]:
    """The default, GPBoost's Vecchia process and LightGBM on the same rows of a field: fit and prediction of places."""
    from app.peers import peer
    from geogp.estimator import GPRegressor

    rows: list[Row] = []
    for n in (500,) if quick else (4_000, 16_000):
        rng = np.random.default_rng(0)
        X = rng.uniform(0.0, 1000.0 * n**0.5, (n, 2))
        y = np.sin(X[:, 0] / 9000.0) + 0.5 * rng.standard_t(5.0, n)
        new = rng.uniform(0.0, 1000.0 * n**0.5, (2_000 if quick else 20_000, 2))

        def predict(model: Any, new: np.ndarray = new) -> Any:
            return model.predictive(new).mean

        def ours(X: np.ndarray = X, y: np.ndarray = y) -> Any:
            model = GPRegressor(spatial=(0, 1), random_state=0, target_transform="identity", device=device)
            return model.fit(X, y)

        fits: dict[str, Callable[[], Any]] = {"geogp": ours}
        for name in PEERS:
            if peer(name).installed:
                fits[name] = functools.partial(peer(name).fit, X, y)
        first: dict[str, tuple[float, float]] = {}
        for name, fit in fits.items():
            started, cpu = time.perf_counter(), time.process_time()
            model = fit()
            fitted, fitted_cpu = time.perf_counter() - started, time.process_time() - cpu
            started, cpu = time.perf_counter(), time.process_time()
            predict(model)
            told, told_cpu = time.perf_counter() - started, time.process_time() - cpu
            first[name] = fitted_cpu, told_cpu
            rows.append(
                {
                    "what": name, "n": n, "places": len(new), "fit, s": fitted, "fit, CPU s": fitted_cpu,
                    "fit, times ours": fitted_cpu / first["geogp"][0], "places/s": len(new) / told,
                    "prediction, CPU s": told_cpu, "prediction, times ours": told_cpu / first["geogp"][1],
                }
            )  # fmt: skip
    return rows
