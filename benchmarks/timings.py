"""What `benchmarks.speed` times, one function a section; each returns rows of a table."""

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import geogp  # before torch: sets how OpenMP waits

assert geogp
import torch  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from benchmarks import growth, sizes  # noqa: E402
from benchmarks.machine import best_seconds, clock_of, interleaved, synced  # noqa: E402
from geogp.basis.build import Shape, Size, build  # noqa: E402
from geogp.basis.initialise import warm_start  # noqa: E402
from geogp.basis.objectives import Weights  # noqa: E402
from geogp.basis.schedule import Schedule  # noqa: E402
from geogp.basis.train import minibatch, parameter_groups  # noqa: E402
from geogp.data import Data  # noqa: E402
from geogp.engines.lowrank import rows_at_once  # noqa: E402
from geogp.field import LocalKernel, neighbours  # noqa: E402
from geogp.field.solve import conditional_moments  # noqa: E402
from geogp.linalg.precision import products_in  # noqa: E402
from geogp.methods import method  # noqa: E402

Row = dict[str, Any]
BATCH = 1024
SIZES = ((64, 128), (128, 512), (256, 1024))
OURS = ("dbk-silu", "dbk-rbf")
#: What a step is timed of: a row's name, its posterior, and the precision of its products.
STEPS = (
    ("dbk-silu", "dense", "float32"), ("dbk-silu", "dense", "bfloat16"), ("dbk-silu", "lowrank", "bfloat16"),
    ("dbk-rbf", "dense", "float32"), ("dbk-rbf", "dense", "bfloat16"),
)  # fmt: skip


def gemm_gflops(device: str, size: int = 2048) -> float:
    """Measured peak of a float32 matrix product, in GFLOP/s."""
    A = torch.randn(size, size, device=device)
    seconds = _seconds(lambda: A @ A, device, at_least=0.3)
    return 2.0 * size**3 / seconds / 1e9


def _seconds(work: Callable[[], Any], device: str, **options: Any) -> float:
    return best_seconds(synced(work, device), clock=clock_of(device), **options)


def map_data(n: int, device: str) -> Data:
    """Places, years and counts, with a field on them."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 3, generator=generator, dtype=torch.float64) * torch.tensor([2e5, 2e5, 5.0])
    y = torch.sin(X[:, 0] / 2e4) + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    counts = torch.randint(1, 50, (n,), generator=generator).float()
    return Data(X, ((y - y.mean()) / y.std()).float(), counts).to(torch.device(device))


def deep_basis(name: str, hidden: int, rank: int, data: Data, device: str, posterior: str = "dense") -> Any:
    shape = Shape(3, (0, 1), 2, data.counts is not None)
    row = replace(method(name), posterior=posterior)
    if row.residual_of_features:  # the basis alone: the search for the nearest place is not timed
        row = replace(row, residual=row.residual_of_features)
    model = build(row, shape, Size(hidden=hidden, rank=rank), seed=0)
    model.encoder.fit_scaling(data.X.cpu())
    model.to(device)
    warm_start(model, data.X, data.y, data.counts, seed=0)
    return model


def copy_gb_s(device: str, size: int = 2**25) -> float:
    """Measured bandwidth of a copy that no cache holds, in GB/s read and written."""
    A = torch.zeros(size, device=device)
    B = torch.empty_like(A)
    return 8.0 * size / _seconds(lambda: B.copy_(A), device, at_least=0.2) / 1e9


def training(device: str, quick: bool) -> list[Row]:
    """One optimiser step: ours, and GPyTorch's SVGP and PPGP on the same encoder and backbone, in turns."""
    peak, bandwidth = gemm_gflops(device), copy_gb_s(device)
    data = map_data(8192, device)
    batch = data.rows(torch.arange(BATCH, device=device))
    rows: list[Row] = []
    for hidden, rank in SIZES[: 1 if quick else None]:
        works: dict[str, Callable[[], None]] = {}
        for name, posterior, precision in STEPS:
            model = deep_basis(name, hidden, rank, data, device, posterior).train()
            backward = minibatch(model, method(name).objective, Weights(), len(data)).backward
            adamw = torch.optim.AdamW(parameter_groups(model, Schedule()), fused=True)
            words = [name, *(["low-rank L"] if posterior == "lowrank" else []), precision]
            works[", ".join(words)] = partial(_stepped, adamw, partial(backward, batch), precision)
        for objective in ("svgp", "ppgp"):
            loss, parameters = _gpytorch(objective, hidden, rank, data, device)
            adam = torch.optim.Adam(parameters, lr=1e-3)

            def one(loss: Any = loss) -> None:
                loss(batch).backward()

            works[f"gpytorch {objective}"] = partial(_stepped, adam, one)
        seconds = dict(
            zip(
                works,
                interleaved(tuple(works.values()), device, rounds=5 if quick else max(10, 8192 // rank)),
            )
        )
        for name, work in works.items():
            with FlopCounterMode(display=False) as counter:
                work()
            gflop = counter.get_total_flops() / 1e9
            rows.append(
                {
                    "what": name, "h": hidden, "r": rank, "ms a step": 1e3 * seconds[name],
                    "times as fast as SVGP": seconds["gpytorch svgp"] / seconds[name], "GFLOP": gflop,
                    "share of peak": gflop / seconds[name] / peak, "peak GFLOP/s": peak, "copy GB/s": bandwidth,
                }
            )  # fmt: skip
    return rows


def _stepped(
    optimiser: torch.optim.Optimizer, backward: Callable[[], Any], precision: str = "float32"
) -> None:
    optimiser.zero_grad(set_to_none=True)
    with products_in(precision):
        backward()
    optimiser.step()


def _gpytorch(objective: str, hidden: int, rank: int, data: Data, device: str) -> tuple[Any, list[Any]]:
    """Loss of a batch and its parameters: GPyTorch's sparse GP on our encoder and ResNet."""
    warnings.filterwarnings("ignore", message=".torch.jit.script. is deprecated")
    import gpytorch

    from app.peers.sparse import build as sparse

    ours = deep_basis("dbk-rbf", hidden, rank, data, device)
    with torch.no_grad():
        start = ours.backbone(ours.encoder(data.X[:rank]))
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=start.shape[1]))
    kernel.base_kernel.lengthscale = float(start.shape[1]) ** 0.5
    model = sparse(start.clone(), kernel).to(device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    kind = gpytorch.mlls.PredictiveLogLikelihood if objective == "ppgp" else gpytorch.mlls.VariationalELBO
    criterion = kind(likelihood, model, num_data=len(data))
    model.train()

    def loss(batch: Data) -> torch.Tensor:
        return -criterion(model(ours.backbone(ours.encoder(batch.X))), batch.y)

    return loss, [*ours.backbone.parameters(), *model.parameters(), *likelihood.parameters()]


def prediction(device: str, quick: bool) -> list[Row]:
    """Mean, latent and noise variance of places: pixels a second."""
    n = 8192 if quick else 65536 if device == "cpu" else 2**22
    few, data = (
        map_data(8192, device),
        map_data(n, "cpu"),
    )  # pixels come from the CPU, and what is said goes back there
    rows: list[Row] = []
    for hidden, rank in SIZES[: 1 if quick else None]:
        for name in OURS:
            model = deep_basis(name, hidden, rank, few, device).eval()

            def predict(model: Any = model, rank: int = rank) -> None:
                with torch.no_grad():
                    for part in data.chunks(rows_at_once(rank, torch.device(device).type)):
                        part = part.to(torch.device(device))
                        m = model.moments(part.X, part.counts)
                        torch.stack((m.mean, m.latent_variance, m.noise_variance, m.prior_variance)).cpu()

            seconds = _seconds(predict, device, at_least=0.2)
            rows.append({"what": name, "h": hidden, "r": rank, "pixels/s": n / seconds})
    return rows


def locally(device: str, quick: bool) -> list[Row]:
    """Neighbour search, and the small dense systems it feeds."""
    n, m = (5000, 1000) if quick else (100_000, 20_000)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, 2))
    new = rng.uniform(0, 1, (m, 2))
    started = time.perf_counter()
    search = neighbours.build(X)
    rows: list[Row] = [{"what": f"build the search, {n:,} places", "seconds": time.perf_counter() - started}]
    kernel = LocalKernel(torch.full((1, 2), -2.0).double(), torch.zeros(1).double(), ("matern12",))
    Xt, yt = torch.as_tensor(X, device=device), torch.as_tensor(rng.normal(size=n), device=device)
    noise = torch.full((n,), 0.1, dtype=torch.float64, device=device)
    kernel = LocalKernel(
        kernel.log_lengthscale.to(device), kernel.log_variance.to(device), kernel.smoothness, kernel.time_axis
    )
    for k in (16, 64):
        started = time.perf_counter()
        index = neighbours.query(search, new, k)
        seconds = time.perf_counter() - started
        rows.append({"what": f"{k} neighbours on all sides", "places/s": m / seconds, "seconds": seconds})
        at = torch.as_tensor(index, device=device)
        places = torch.as_tensor(new, device=device)

        def solve(at: torch.Tensor = at, places: torch.Tensor = places) -> None:
            with torch.no_grad():
                for i in range(0, m, 2048):
                    conditional_moments(kernel, places[i : i + 2048], Xt, yt, noise, at[i : i + 2048])

        seconds = _seconds(solve, device, at_least=0.1, rounds=2)
        rows.append(
            {"what": f"condition on {k} of them, float64", "places/s": m / seconds, "seconds": seconds}
        )
    return rows


def grid(device: str, quick: bool) -> list[Row]:
    """Pixels of a map of the default field, by cells that share neighbours, against places with neighbours of their own."""
    from geogp.field.predict.around import around

    rows: list[Row] = []
    for what, field, side_m, visits in grid_fields(device, quick):
        known = field.known
        for apart_m in (1000, 250, 125):  # places are some 500 m from the nearest
            pixels = pixels_of(side_m, apart_m, visits, most=60 if quick else 300)
            some = known.frame.coordinates(pixels[:: max(1, len(pixels) // 1000)])
            C = known.frame.coordinates(pixels)
            work = (
                partial(_one_by_one, known, some),
                partial(around, known, C),
                partial(field.moments, pixels),
            )
            own, shared, whole = (_seconds(w, device, at_least=0.1, rounds=2) for w in work)
            rows.append(
                {
                    "what": what,
                    "pixels": len(pixels),
                    "metres apart": apart_m,
                    "pixels/s": len(pixels) / whole,
                    "cells, pixels/s": len(pixels) / shared,
                    "place by place, pixels/s": len(some) / own,
                    "ratio": own / len(some) / (shared / len(pixels)),
                }
            )
    return rows


def grid_fields(device: str, quick: bool) -> Iterator[tuple[str, Any, float, int]]:
    """What a field is of, the field, the side of its square in metres, and at how many times each place was seen."""
    from geogp.field import FieldOptions, LocalField

    rng = np.random.default_rng(0)
    for what, places, visits in (("places seen 8 times", 4000, 8), ("places seen once", 20_000, 1)):
        places = places // 16 if quick else places
        P = rng.uniform(0, 1000.0 * places**0.5, (places, 2)).repeat(visits, 0)
        X = torch.from_numpy(np.column_stack([P, np.tile(np.arange(visits) / 4.0, places)]))
        y = torch.sin(X[:, 0] / 9000) + 0.5 * torch.from_numpy(rng.standard_t(5.0, len(X)))
        options = FieldOptions(steps=10, n_targets=1000, epochs=2, metric=False)
        field = LocalField.fit(X, y, None, time=2, options=options, device=device)
        yield what, field, 1000.0 * places**0.5, visits


def pixels_of(side_m: float, apart_m: float, visits: int, *, most: int) -> torch.Tensor:
    """Pixels of a square from one of its corners, at the last time; `most` of them along a side."""
    at = torch.arange(min(most, int(side_m / apart_m)), dtype=torch.float64) * apart_m
    return torch.cartesian_prod(at, at, torch.tensor([0.25 * (visits - 1)], dtype=torch.float64))


def _one_by_one(known: Any, C: torch.Tensor) -> None:
    """What the observations say at places, each with neighbours of its own, as a fit looks at rows left out."""
    known.survey(C, known.neighbours_of(C), known.latest)


def convergence(device: str, quick: bool) -> list[Row]:
    """The whole default fit of 36,000 rows of 8 features."""
    from geogp.estimator import GPRegressor

    n = 3000 if quick else 36_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 8))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + 0.2 * rng.normal(size=n)
    rows: list[Row] = []
    for name in OURS:
        started = time.perf_counter()
        model = GPRegressor(
            name, target_transform="identity", random_state=0, device=device, steps=100 if quick else None
        ).fit(X, y)
        seconds = time.perf_counter() - started
        facts = model.engine_.state()[1]
        rows.append({"what": f"{name}, {n:,} x 8", "seconds": seconds, "epochs": facts.get("epochs", 0)})
    return rows


def streaming(device: str, quick: bool) -> list[Row]:
    """A Parquet table that is read row group by row group: an epoch, and the exact posterior of the weights."""
    from app.workflow.machine import peak_rss_mb
    from geogp.estimator import GPRegressor
    from geogp.update import refresh
    from geogp.update.streaming import fit_streamed, row_groups, summarise_streamed

    n, rank = (20_000, 16) if quick else (10_000_000, 256)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        _write_rows(path, n, 5_000 if quick else 2**16)
        groups = row_groups(path, ["easting_m", "northing_m", "years"], "value", "tests")
        before = peak_rss_mb()
        model = GPRegressor(
            "dbk-silu", spatial=(0, 1), time=2, rank=rank, epochs=1, fourier_scales=None, device=device
        )

        def timed(what: str, work: Callable[[], Any]) -> Any:
            start, cpu = time.perf_counter(), time.process_time()
            found = work()
            rows.append(
                {
                    "what": what, "rows": n, "rank": rank, "seconds": time.perf_counter() - start,
                    "cpu seconds": time.process_time() - cpu, "file MB": round(path.stat().st_size / 2**20),
                    "peak MB": round(peak_rss_mb()), "above before MB": round(peak_rss_mb() - before),
                }
            )  # fmt: skip
            return found

        timed("fit, one epoch", lambda: fit_streamed(model, groups, most_rows=5_000 if quick else 2**20))
        timed("posterior", lambda: refresh(model, [summarise_streamed(model, groups)]))
    return rows


def _write_rows(path: Path, n: int, group: int) -> None:
    """Rows in row groups, made a group at a time: 8 a place, 20 quarters."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("easting_m", "northing_m", "years", "value", "tests")
    with pq.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in names])) as writer:
        for start in range(0, n, group):
            rng, m = np.random.default_rng(start), min(group, n - start)
            xy = np.repeat(rng.uniform(0, 3e5, (-(-m // 8), 2)), 8, axis=0)[:m]
            years = 2019.125 + 0.25 * rng.integers(0, 20, m)
            value = np.sin(xy[:, 0] / 2e4) + 0.1 * years + 0.3 * rng.standard_normal(m)
            columns = (xy[:, 0], xy[:, 1], years, value, rng.integers(1, 50, m).astype(float))
            writer.write_table(pa.table(dict(zip(names, columns))), row_group_size=group)


def ingest(device: str, quick: bool) -> list[Row]:
    """From published files to observations: a synthetic world, and the mirror where GEOGP_DATA has one."""
    from data_pipelines import observations, synthetic

    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        root = Path(folder) / "world"
        synthetic.write_world(root, size="small" if quick else "demo")
        report = observations.ingest(source="synthetic", root=root, output=Path(folder) / "obs.parquet")
        rows.append(_ingested("synthetic world", report))
        data = os.environ.get("GEOGP_DATA")
        mirror, states = (
            Path(data or "") / "ookla-open-data",
            Path(data or "") / "census" / "cb_2018_us_state_500k.zip",
        )
        if data and mirror.is_dir() and states.is_file():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report = observations.ingest(
                    root=mirror, type="fixed", quarters="2023Q1..2023Q4" if quick else "2019Q1..2023Q4", region="HI",
                    states=states, output=Path(folder) / "hawaii.parquet",
                )  # fmt: skip
            rows.append(_ingested("Hawaii, fixed", report))
    return rows


def archive(device: str, quick: bool) -> list[Row]:
    """A world quarter for one state: ours, geopandas and DuckDB in turn, and many quarters; see `benchmarks.ingest`."""
    from benchmarks.ingest import measured

    return measured(quick)


def _ingested(what: str, report: Any) -> Row:
    m = report.metadata
    return {
        "what": what, "rows read": m["rows_read"], "rows kept": m["rows_kept"], "seconds": report.seconds,
        "rows/s": m["rows_read"] / report.seconds,
    }  # fmt: skip


def export(device: str, quick: bool) -> list[Row]:
    """A run to files: every layer as COG and NetCDF."""
    from app.workflow.steps.export import export as write
    from app.workflow.steps.fit import fit
    from data_pipelines import observations, synthetic

    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as folder:
        root = Path(folder)
        synthetic.write_world(root / "world", size="small")
        observations.ingest(source="synthetic", root=root / "world", output=root / "obs.parquet")
        run = root / "run"
        fit(root / "obs.parquet", output=run, method="dbk-rbf", device=device, model={"steps": 100})
        for formats in (("cog",), ("netcdf",)):
            done = write(
                run, root / formats[0], formats=formats, resolution_m=2000.0 if quick else 250.0,
                layers=("median", "lower", "upper", "latent_sd"),
            )  # fmt: skip
            pixels = done.grid.n_inside
            rows.append(
                {"what": f"{formats[0]}, 4 layers", "pixels": pixels, "seconds": done.seconds, "pixels/s": pixels / done.seconds}
            )  # fmt: skip
    return rows


#: section -> (title, function of (device, quick)).
SECTIONS: dict[str, tuple[str, Callable[[str, bool], list[Row]]]] = {
    "training": (f"A training step, batch {BATCH}", training),
    "prediction": ("Prediction", prediction),
    "on-all-rows": ("A step on all rows", growth.on_all_rows),
    "epochs": ("An epoch, and the weights' statistics", growth.epochs),
    "fields": ("A field beside other libraries", growth.fields),
    "sizes": ("A fit of the default, of more and more rows", sizes.section),
    "local": ("Local Gaussian process", locally),
    "grid": ("A map of the default field", grid),
    "convergence": ("A default fit", convergence),
    "streaming": ("A table read row group by row group", streaming),
    "ingest": ("Ingest", ingest),
    "archive": ("A world quarter for one state", archive),
    "export": ("Export", export),
}
