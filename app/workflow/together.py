"""Two runs of the same tiles: what their errors share, and where either target misses its threshold."""

import hashlib
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from app.caches import DiskCache
from app.console import Report
from app.errors import InvalidInput
from app.workflow.grids import Grid
from app.workflow.means import of_draws
from app.workflow.rasters.covariates import opened
from app.workflow.rows import Rows, observations_of
from app.workflow.weighing import GROUND, AreaPoints
from data_pipelines.splits import PARTS
from data_pipelines.words import many
from geogp.areas import (
    Correlation,
    Surface,
    batches_of,
    cross_correlation,
    draw_together,
    either_below,
    missed,
    surface,
)
from geogp.areas.change import carried
from geogp.blocks import Blocks, LazyPlane, moments_of
from geogp.errors import InvalidInput as NotUpdatable
from geogp.errors import check_threshold
from geogp.estimator import GPRegressor
from geogp.linalg.workers import Workers, by
from geogp.predictive import Predictive
from geogp.run import Run
from geogp.update import knowing
from maps.words import exact

Array = NDArray[np.float64]

#: Rows that the correlation is learned from at most: the sd of that of all errors is then below .02. That of the surface's part,
#: which counts, is larger (`Correlation.surface_sd`): fewer rows would be felt, and their number is most of the time.
MOST_ROWS = 4000
#: Of training rows one in so many, that the others still tell of their places; but so many as a correlation takes.
LEFT_OUT, LEAST_ROWS = 5, 30
#: The cache's file; raise the number when the formula changes.
NOTE, FORMAT = "together.json", 2
#: What rows are called that neither run was fitted to.
HELD_OUT = "held-out"

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Together:
    """A second run beside a first, a threshold for each, and how their errors go together.

    limits : in each target's unit; scores : on each model's scale; learned_from : "held-out" or "training" rows
    """

    run: Run
    other: Run
    limits: tuple[float, float]
    correlation: Correlation
    learned_from: str

    @property
    def scores(self) -> tuple[float, float]:
        return tuple(float(r.target.to_score(c)) for r, c in zip((self.run, self.other), self.limits))  # type: ignore[return-value]  # two runs

    @property
    def words(self) -> str:
        """What is missed."""
        said = (
            f"{r.target.words} {'above' if r.target.better == 'lower' else 'below'} {r.target.with_unit(exact(c), r.unit)}"
            for r, c in zip((self.run, self.other), self.limits)
        )
        return " or ".join(said)

    def facts(self) -> dict[str, Any]:
        """For manifests and tables."""
        r = self.correlation
        return {
            "with": {
                "run": self.other.path.name,
                "weights_sha256": self.other.weights_sha256,
                "target": self.other.target.name,
                "either": self.words,
                "correlation": {"surface": r.surface, "noise": r.noise, "all": r.total, "rows": r.n},
                "learned_from": self.learned_from,
            }
        }

    def note(self) -> str:
        r = self.correlation
        return (
            f"errors of the two surfaces are taken to go together with correlation {r.surface:.2f} (sd {r.surface_sd:.2f}), "
            f"learned from {many(r.n, f'{self.learned_from} row')}"
        )

    def at(self, xy: Array, quarter: str | None, workers: Workers | None = None) -> Surface:
        """The other run's surface at places (n, 2) in the plane of the first."""
        return surface(self.other.model, self.inputs(xy, quarter), workers=workers)

    def inputs(self, xy: Array, quarter: str | None) -> Array:
        """What the other run's model takes at places (n, 2) in the plane of the first, in the quarter of the first."""
        return self.other.inputs(carried(self.run, self.other, xy), self.run.quarter(quarter))

    def shares(
        self,
        found: Surface,
        points: AreaPoints,
        quarter: str | None,
        *,
        n_samples: int,
        seed: int,
        workers: Workers | None = None,
        progress: Report | None = None,
    ) -> dict[str, Array]:
        """By kind of weights, draws (areas inside, n_samples) of the share whose surface misses either threshold."""
        if progress is not None:
            progress(0, n_samples, f"predicting by {self.other.path.name}")
        beside = self.at(points.xy, quarter, workers)
        weights = {kind: points.weights(kind) for kind in points.shares}
        out = {kind: np.empty((W.shape[0], n_samples)) for kind, W in weights.items()}
        betters = self.run.target.better, self.other.target.better
        both = Both(found, beside, self.correlation.surface, weights, self.scores, betters, seed)
        first = 0
        for shares in by(workers, _missed, both, batches_of(n_samples)):
            part = slice(first, first := first + shares[GROUND].shape[1])
            for kind in weights:
                out[kind][:, part] = shares[kind]
            if progress is not None:
                progress(first, n_samples, "drawing both")
        for kind, W in weights.items():  # an area may have no point of a kind
            out[kind][np.diff(W.indptr) == 0] = np.nan
        return out


@dataclass(frozen=True, eq=False)
class Both:
    """All that decides the draws of two surfaces, for whoever draws a batch of them.

    weights : by kind, of the areas inside; scores, betters : of each, its limit on the model's scale and which side is better
    """

    a: Surface
    b: Surface
    correlation: float
    weights: dict[str, sparse.csr_array]
    scores: tuple[float, float]
    betters: tuple[str, str]
    seed: int


def _missed(both: Both, number: int, n_samples: int) -> dict[str, Array]:
    """A batch of the draws, by kind: the shares of the areas inside that miss either limit."""
    y = draw_together(both.a, both.b, both.correlation, number, n_samples, both.seed)
    a, b = (missed(*of) for of in zip(y, both.scores, both.betters))
    return {kind: W @ (a | b).astype(np.float64) for kind, W in both.weights.items()}


def with_layer(pair: Together, ds: xr.Dataset, grid: Grid, quarter: str | None) -> xr.Dataset:
    """A prediction Dataset of the first run with the layer `either_missed`: P(the surface of either misses its limit)."""

    def planes(X: Array) -> NDArray[np.float32]:
        a, b = surface_moments(pair.run, X), surface_moments(pair.other, pair.inputs(X[:, :2], quarter))
        sides = [1.0 if r.target.better != "lower" else -1.0 for r in (pair.run, pair.other)]
        h, k = (
            side * (d.transform.forward(np.array(score)) - d.location) / d.scale
            for side, score, d in zip(sides, pair.scores, (a, b))
        )
        return either_below(h, k, sides[0] * sides[1] * pair.correlation.surface)[None].astype(np.float32)

    blocks = Blocks(
        pair.run,
        grid.geobox,
        planes,
        1,
        quarter=quarter,
        where=grid.where if grid.boundary is not None else None,
        max_distance_m=grid.max_distance_m,
    )
    attrs = {"units": "1", "long_name": f"probability that the surface lies at {pair.words}"}
    layer = LazyPlane(blocks, lambda values, _: values[0]).variable(("y", "x"), attrs)
    return ds.assign(either_missed=layer).assign_attrs({"either_missed": pair.words})


def surface_moments(run: Run, X: Array) -> Predictive:
    """The surface's distribution at inputs of a run, at its reference count."""
    model = run.model
    return model.distribution(moments_of(model, X, model.reference_count_), latent=True)


def columns_of(shares: dict[str, Array], ground: str, level: float) -> dict[str, Array]:
    """Columns (areas inside,) of the table: `share_either_missed` and its sd and ends, other kinds before their name."""
    out: dict[str, Array] = {}
    for kind, draws in shares.items():
        said, name = of_draws(draws, level), "share_either_missed"
        name = name if kind == ground else f"{kind}_{name}"
        out |= {name: said["mean"], **{f"{name}_{k}": said[k] for k in ("sd", "lower", "upper")}}
    return out


def together(
    run: Run,
    other: str | Path | Run,
    limits: tuple[float | None, float | None],
    *,
    data: str | Path | None = None,
) -> Together:
    """A second run beside a first, their cross-correlation learned from rows that both predicted.

    Raises
    ------
    InvalidInput
        a threshold is missing, the runs share no rows, or too few.
    """
    if None in limits:
        raise InvalidInput(
            "--with needs a threshold for each run: --below and --with-below, such as 100 and 20."
        )
    found = opened(other)
    chosen = tuple(float(c) for c in limits if c is not None)
    for one, c, option in zip((run, found), chosen, ("--below", "--with-below")):
        check_threshold(c, option)
        one.target.to_score(c)  # refuses one that its scale does not reach
    learned, learned_from = learned_together(run, found, data)
    return Together(run, found, (chosen[0], chosen[1]), learned, learned_from)


def learned_together(run: Run, other: Run, data: str | Path | None = None) -> tuple[Correlation, str]:
    """The cross-correlation of two runs' errors, from rows that both predicted, and which rows these are.

    Notes
    -----
    One prediction of `MOST_ROWS` rows by each run; kept in the user's cache, where it is found when it is asked again.
    """
    cache, key = DiskCache(), _key(run, other)
    if key is not None and (known := _kept(cache.note(key, NOTE))) is not None:
        return known
    learned, words = _learned(run, other, data)
    if key is not None:
        cache.write_note(key, NOTE, {"correlation": asdict(learned), "from": words})
    return learned, words


def _key(run: Run, other: Run) -> str | None:
    """Names what the correlation follows from; None of runs that do not tell."""
    told = [run.weights_sha256, other.weights_sha256, run.data.get("sha256"), other.data.get("sha256")]
    targets = [run.target.name, other.target.name]
    if None in told:
        return None
    return hashlib.blake2b(repr((FORMAT, told, targets)).encode(), digest_size=10).hexdigest()


def _kept(document: Any) -> tuple[Correlation, str] | None:
    """What was kept, or None."""
    try:
        return Correlation(**document["correlation"]), str(document["from"])
    except (TypeError, KeyError):
        return None


def _learned(run: Run, other: Run, data: str | Path | None) -> tuple[Correlation, str]:
    pair = observations_of(run, data), observations_of(other, data)
    rows, learned_from = _shared(run, other, *pair)
    z, share = [], []
    for one, table, index in zip((run, other), pair, rows):
        counts = None if table.counts is None else table.counts[index]
        model = one.model if learned_from == HELD_OUT else _without(one, table, index)
        moments = model.moments(table.X[index], counts)
        latent, noise = (v.double().numpy() for v in (moments.latent_variance, moments.noise_variance))
        share.append(np.clip(latent / np.maximum(latent + noise, 1e-300), 0.0, 1.0))
        p = model.distribution(moments).cdf(table.t[index])
        z.append(ndtri(np.clip(p, 1e-6, 1 - 1e-6)))
    return cross_correlation(*z, *share), learned_from


def _without(run: Run, table: Rows, index: NDArray[np.int64]) -> GPRegressor:
    """A run's model that knows all its rows but these: of rows it knows, errors of surface and noise offset each other.

    Itself where its method cannot be told of other rows.
    """
    known = table.usable.copy()
    known[index] = False
    try:
        return knowing(run.model, *table.select(known))
    except NotUpdatable as error:
        log.info("rows that %s was fitted to tell what two runs share: %s", run.path, error)
        return run.model


def _shared(
    run: Run, other: Run, a: Rows, b: Rows
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], str]:
    """Rows of both files that are of one tile and quarter, held out in both where there are enough, and what they are."""
    if a.sha256 == b.sha256:
        first = second = np.arange(len(a.t))
    else:
        names = {"quadkey", "quarter"}
        if not names <= set(a.table.column_names) & set(b.table.column_names):
            raise InvalidInput(
                f"{run.path} and {other.path} were fitted from other files whose rows have no quadkey and quarter to match "
                "them by; fit both from one file."
            )
        keys = [
            [f"{k} {q}" for k, q in zip(*(t.table.column(n).to_pylist() for n in sorted(names)))]
            for t in (a, b)
        ]
        _, first, second = np.intersect1d(np.array(keys[0]), np.array(keys[1]), return_indices=True)
    good = a.usable[first] & b.usable[second]
    first, second = first[good], second[good]
    if not len(first):
        raise InvalidInput(
            f"{run.path} and {other.path} share no rows, none of one tile and quarter, so nothing tells how their errors go "
            "together; name two runs of the same region and quarters."
        )
    if len(first) < LEAST_ROWS:
        raise InvalidInput(
            f"{run.path} and {other.path} share {many(len(first), 'row')}, and it takes {LEAST_ROWS} to learn how their errors go "
            "together; name two runs of the same region and quarters."
        )
    parts = run.tensors("split")["part"].numpy()[first], other.tensors("split")["part"].numpy()[second]
    out = [PARTS.index(name) for name in ("val", "test")]
    held = np.isin(parts[0], out) & np.isin(parts[1], out)
    words, most = HELD_OUT, MOST_ROWS
    if held.sum() < 100:
        held, words = np.ones(len(first), dtype=bool), "training"
        most = min(MOST_ROWS, max(LEAST_ROWS, len(first) // LEFT_OUT))
    chosen = np.flatnonzero(held)
    if len(chosen) > most:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, most, replace=False))
    return (first[chosen], second[chosen]), words
