"""Quantiles from other trees: CatBoost's in one model (Prokhorenkova et al. 2018), a forest's of its leaves (Meinshausen 2006)."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from app.peers.base import Array, Options, Sample
from app.peers.quantiles import from_quantiles, tuned
from app.peers.seen import Seen, folded, pinball, unit_of
from app.peers.trees import LEVELS, MOST_TREES, PATIENCE, TRIED, Features
from geogp.predictive import Predictive

#: Trees of a forest, and of those that choose its folds and leaves.
TREES, TRIAL_TREES = 300, 60
#: Rows a leaf holds at least, of which validation rows choose.
LEAVES = (3, 10, 30)


@dataclass(frozen=True)
class Catboost:
    """One model of all levels."""

    model: Any
    features: Features
    shape: dict[str, float]
    facts: dict[str, Any] = field(default_factory=dict)

    def predictive(self, rows: Sample) -> Predictive:
        return from_quantiles(LEVELS, self.model.predict(self.features(rows)), **self.shape)


def fit_catboost(train: Sample, held: Sample, options: Options) -> Catboost:
    """Quantiles from X, X rotated and the count, by boosting all levels together until validation rows gain no more."""
    from catboost import CatBoostRegressor

    f = Features(train.X.mean(0), log_count=True, rotations=True)
    model = CatBoostRegressor(
        loss_function="MultiQuantile:alpha=" + ",".join(str(p) for p in LEVELS),
        iterations=max(1, round(MOST_TREES * options.effort)),
        learning_rate=0.1,
        depth=8,
        od_type="Iter",
        od_wait=PATIENCE,
        random_seed=options.seed,
        thread_count=options.threads,
        allow_writing_files=False,
        verbose=False,
    )
    model.fit(f(train), train.z, eval_set=(f(held), held.z))
    shape = tuned(LEVELS, model.predict(f(held)), held.z)
    return Catboost(model, f, shape, {"trees": int(model.tree_count_), **shape})


@dataclass(frozen=True)
class NeighbourForest:
    """A forest of what neighbours measured beside position and count."""

    forest: Any
    features: Features
    seen: Seen
    shape: dict[str, float]
    facts: dict[str, Any] = field(default_factory=dict)

    def predictive(self, rows: Sample) -> Predictive:
        A = np.hstack([self.features(rows), self.seen(rows)])
        return from_quantiles(LEVELS, _asked(self.forest, A), **self.shape)


def fit_neighbours(train: Sample, held: Sample, options: Options) -> NeighbourForest:
    """Random forest spatial interpolation with quantiles: the folds that training rows see their neighbours through, and
    how many rows a leaf holds, are those of the smallest pinball loss on validation rows.

    References
    ----------
    Sekulić, Kilibarda, Heuvelink, Nikolić and Bajat 2020, Random forest spatial interpolation; Meinshausen 2006, Quantile
    regression forests
    """
    # Rounding: of equally good splits another unit must not choose another.
    train = replace(train, z=np.round(train.z, 9))
    unit = unit_of(train)
    f = Features(train.X.mean(0), log_count=True, rotations=False)
    seen = Seen.of(train, unit)
    Av = np.hstack([f(held), seen(held)])
    best, chosen = np.inf, ("", 0, Av, held.z)
    for kind, A, z in folded(train, unit, f(train), options.seed):
        for leaf in LEAVES:
            found = _asked(_grown(A, z, leaf, TRIAL_TREES, options), Av)
            loss = sum(pinball(p, held.z, found[:, LEVELS.index(p)]) for p in TRIED)
            if loss < best:
                best, chosen = loss, (kind, leaf, A, z)
    kind, leaf, A, z = chosen
    forest = _grown(A, z, leaf, TREES, options)
    shape = tuned(LEVELS, _asked(forest, Av), held.z)
    return NeighbourForest(forest, f, seen, shape, {"folds": kind, "least_rows_a_leaf": leaf, **shape})


def _grown(A: Array, z: Array, leaf: int, trees: int, options: Options) -> Any:
    from quantile_forest import RandomForestQuantileRegressor

    forest = RandomForestQuantileRegressor(
        n_estimators=max(5, round(trees * options.effort)),
        min_samples_leaf=leaf,
        max_features=1.0 / 3.0,
        # Each leaf keeps one of its rows: the distribution is that over trees, in bounded memory.
        max_samples_leaf=1,
        n_jobs=options.threads,
        random_state=options.seed,
    )
    return forest.fit(A, z)


def _asked(forest: Any, A: Array) -> Array:
    return np.asarray(forest.predict(A, quantiles=list(LEVELS)))
