"""Boosted trees (LightGBM; Ke et al. 2017): a mean and a variance, or quantiles."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.peers.base import Array, Options, Sample, precision_of_counts
from app.peers.quantiles import from_quantiles, tuned
from app.peers.seen import Seen, folded, pinball, unit_of
from geogp.predictive import Predictive

#: Levels that choose the folds, and all levels.
TRIED = (0.1, 0.5, 0.9)
LEVELS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99)
MEAN = {"objective": "regression", "num_leaves": 63, "min_data_in_leaf": 20, "learning_rate": 0.05}
VARIANCE = {"objective": "gamma", "num_leaves": 15, "min_data_in_leaf": 100, "learning_rate": 0.05}
QUANTILE = {"objective": "quantile", "num_leaves": 31, "min_data_in_leaf": 50, "learning_rate": 0.05}
MOST_TREES, PATIENCE, FOLDS = 3000, 50, 5


@dataclass(frozen=True)
class Features:
    """Columns the trees see: X less its training mean (trees are fed float32), rotations, log count."""

    centre: Array
    log_count: bool
    rotations: bool

    def __call__(self, rows: Sample) -> Array:
        A = rows.X - self.centre
        columns = [A]
        if self.rotations and rows.has_position:
            columns += [A[:, :1] + A[:, 1:2], A[:, :1] - A[:, 1:2]]
        if self.log_count and rows.counts is not None:
            columns.append(np.log(rows.counts)[:, None])
        return np.hstack(columns)


def _parameters(base: dict, options: Options) -> dict[str, Any]:
    return {
        **base, "num_threads": options.threads, "seed": options.seed, "verbosity": -1, "deterministic": True,
        "force_row_wise": True,
    }  # fmt: skip


def _boost(
    parameters: dict,
    options: Options,
    A: Array,
    z: Array,
    Av: Array,
    zv: Array,
    w: Array | None = None,
    wv: Array | None = None,
) -> Any:
    """Trees until the validation loss has not fallen for `PATIENCE` rounds."""
    import lightgbm

    train = lightgbm.Dataset(A, z, weight=w)
    held = lightgbm.Dataset(Av, zv, weight=wv, reference=train)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    return lightgbm.train(
        _parameters(parameters, options),
        train,
        max(1, round(MOST_TREES * options.effort)),
        valid_sets=[held],
        callbacks=[stop],
    )


@dataclass(frozen=True)
class MeanVariance:
    """Gaussian with both moments from trees; `scale2` is fitted on validation rows."""

    mean: Any
    variance: Any
    mean_features: Features
    variance_features: Features
    scale2: float
    facts: dict[str, Any] = field(default_factory=dict)

    def predictive(self, rows: Sample) -> Predictive:
        m = self.mean.predict(self.mean_features(rows))
        v = self.variance.predict(self.variance_features(rows))
        return Predictive(m, np.sqrt(self.scale2 * np.maximum(v, 1e-6)))


def _fit_mean_variance(
    train: Sample, held: Sample, options: Options, *, log_count: bool, rotations: bool, weighted: bool
) -> MeanVariance:
    import lightgbm

    centre = train.X.mean(0)
    f = Features(centre, log_count, rotations)
    g = Features(centre, True, rotations)
    w = precision_of_counts(train.counts, len(train)) if weighted else None
    wv = precision_of_counts(held.counts, len(held)) if weighted else None
    A, Av = f(train), f(held)
    mean = _boost(MEAN, options, A, train.z, Av, held.z, w, wv)
    # Residuals of rows the trees have not seen; those of the training rows would be far too small.
    fold = np.random.default_rng(options.seed).integers(0, FOLDS, len(train))
    left = np.empty(len(train))
    for k in range(FOLDS):
        inside = fold != k
        data = lightgbm.Dataset(A[inside], train.z[inside], weight=None if w is None else w[inside])
        part = lightgbm.train(_parameters(MEAN, options), data, max(mean.best_iteration, 1))
        left[~inside] = train.z[~inside] - part.predict(A[~inside])
    left_held = held.z - mean.predict(Av)
    variance = _boost(VARIANCE, options, g(train), left**2 + 1e-6, g(held), left_held**2 + 1e-6)
    # Folds by row are an easier task than blocks or the future: validation rows set the level.
    scale2 = float(np.mean(left_held**2 / np.maximum(variance.predict(g(held)), 1e-6)))
    facts = {
        "trees_mean": mean.best_iteration, "trees_variance": variance.best_iteration, "scale2": round(scale2, 3)
    }  # fmt: skip
    return MeanVariance(mean, variance, f, g, scale2, facts)


def fit_mean_variance(train: Sample, held: Sample, options: Options) -> MeanVariance:
    """The mean from X, the variance from X and the count."""
    return _fit_mean_variance(train, held, options, log_count=False, rotations=False, weighted=False)


def fit_mean_variance_counts(train: Sample, held: Sample, options: Options) -> MeanVariance:
    """The mean from X, X rotated and the count, rows weighted by their count; the variance from the same."""
    return _fit_mean_variance(train, held, options, log_count=True, rotations=True, weighted=True)


@dataclass(frozen=True)
class Quantiles:
    """One booster a level."""

    boosters: list[Any]
    features: Features
    shape: dict[str, float]
    facts: dict[str, Any] = field(default_factory=dict)

    def predictive(self, rows: Sample) -> Predictive:
        A = self.features(rows)
        return from_quantiles(LEVELS, np.column_stack([b.predict(A) for b in self.boosters]), **self.shape)


def _fit_quantiles(
    train: Sample, held: Sample, options: Options, *, log_count: bool, rotations: bool, weighted: bool
) -> Quantiles:
    f = Features(train.X.mean(0), log_count, rotations)
    w = precision_of_counts(train.counts, len(train)) if weighted else None
    wv = precision_of_counts(held.counts, len(held)) if weighted else None
    A, Av = f(train), f(held)
    boosters = [_boost({**QUANTILE, "alpha": p}, options, A, train.z, Av, held.z, w, wv) for p in LEVELS]
    shape = tuned(LEVELS, np.column_stack([b.predict(Av) for b in boosters]), held.z)
    return Quantiles(boosters, f, shape, {"trees": [b.best_iteration for b in boosters], **shape})


def fit_quantiles(train: Sample, held: Sample, options: Options) -> Quantiles:
    """Quantiles from X; the density's shape between and beyond them is chosen on validation rows."""
    return _fit_quantiles(train, held, options, log_count=False, rotations=False, weighted=False)


def fit_quantiles_counts(train: Sample, held: Sample, options: Options) -> Quantiles:
    """Quantiles from X, X rotated and the count."""
    return _fit_quantiles(train, held, options, log_count=True, rotations=True, weighted=False)


@dataclass(frozen=True)
class NeighbourQuantiles:
    """One booster a level, of what neighbours measured beside position and count."""

    boosters: list[Any]
    features: Features
    seen: Seen
    shape: dict[str, float]
    facts: dict[str, Any] = field(default_factory=dict)

    def quantiles(self, rows: Sample) -> Array:
        """(N, levels), as the trees give them."""
        A = np.hstack([self.features(rows), self.seen(rows)])
        return np.column_stack([b.predict(A) for b in self.boosters])

    def predictive(self, rows: Sample) -> Predictive:
        return from_quantiles(LEVELS, self.quantiles(rows), **self.shape)


def fit_neighbours(train: Sample, held: Sample, options: Options) -> NeighbourQuantiles:
    """Quantiles from what neighbours measured; the folds that training rows see them through are chosen by the pinball
    loss of the median and of the outer quantiles on validation rows."""
    unit = unit_of(train)
    f = Features(train.X.mean(0), log_count=True, rotations=True)
    seen = Seen.of(train, unit)
    Av = np.hstack([f(held), seen(held)])
    tables, best = {}, ("", np.inf)
    for kind, A, z in folded(train, unit, f(train), options.seed):
        tables[kind] = A, z
        loss = 0.0
        for p in TRIED:
            booster = _boost({**QUANTILE, "alpha": p}, options, A, z, Av, held.z)
            loss += pinball(p, held.z, booster.predict(Av))
        best = min(best, (kind, loss), key=lambda pair: pair[1])
    A, z = tables[best[0]]
    boosters = [_boost({**QUANTILE, "alpha": p}, options, A, z, Av, held.z) for p in LEVELS]
    shape = tuned(LEVELS, np.column_stack([b.predict(Av) for b in boosters]), held.z)
    facts = {"folds": best[0], "trees": [b.best_iteration for b in boosters], **shape}
    return NeighbourQuantiles(boosters, f, seen, shape, facts)
