"""MAPIE's split-conformal intervals around boosted trees, read as a distribution."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from app.peers.base import Options, Sample
from app.peers.quantiles import from_quantiles, tuned
from app.peers.trees import MEAN, Features, _boost
from geogp.predictive import Predictive

INTERVALS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.98)


def levels(intervals: tuple[float, ...]) -> list[float]:
    """Quantile levels of the ends of central intervals, the median among them.

    Examples
    --------
    >>> levels((0.5, 0.9))
    [0.05, 0.25, 0.5, 0.75, 0.95]
    """
    low = [round(0.5 - c / 2, 6) for c in intervals]
    return [*low[::-1], 0.5, *(round(1.0 - p, 6) for p in low)]


@dataclass(frozen=True)
class Conformal:
    """Intervals at six levels are thirteen quantiles with the prediction in the middle."""

    mapie: Any
    features: Features
    levels: list[float]
    shape: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def quantiles(self, rows: Sample) -> np.ndarray:
        """(N, K)"""
        middle, bounds = self.mapie.predict_interval(self.features(rows))
        lower, upper = bounds[:, 0, ::-1], bounds[:, 1, :]
        return np.column_stack([lower, middle, upper])

    def predictive(self, rows: Sample) -> Predictive:
        return from_quantiles(self.levels, self.quantiles(rows), **self.shape)


def fit(train: Sample, held: Sample, options: Options) -> Conformal:
    """A mean from trees, its absolute residuals from trees, conformal on half of the validation rows."""
    from lightgbm import LGBMRegressor
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor

    f = Features(train.X.mean(0), True, True)
    order = np.random.default_rng(options.seed).permutation(len(held))
    half = len(order) // 2
    calibrate, choose = held.take(np.sort(order[:half])), held.take(np.sort(order[half:]))
    booster = _boost(MEAN, options, f(train), train.z, f(choose), choose.z)

    def trees(n: int, **changes: Any) -> Any:
        return LGBMRegressor(
            n_estimators=max(n, 1), num_leaves=63, min_child_samples=20, learning_rate=0.05,
            n_jobs=options.threads, random_state=options.seed, verbosity=-1, **changes,
        )  # fmt: skip

    mean = trees(booster.best_iteration).fit(f(train), train.z)
    score = ResidualNormalisedScore(
        residual_estimator=LGBMRegressor(
            n_estimators=100, num_leaves=15, min_child_samples=100, n_jobs=options.threads, verbosity=-1
        ),
        split_size=0.5,
        random_state=options.seed,
    )
    # Half of the calibration rows fit the residuals' size; MAPIE wants more than 1 / (1 - level) for the rest.
    intervals = tuple(c for c in INTERVALS if 1.0 / min(c, 1.0 - c) < half // 2)
    mapie = SplitConformalRegressor(
        mean, confidence_level=list(intervals), conformity_score=score, prefit=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapie.conformalize(f(calibrate), calibrate.z)
    model = Conformal(mapie, f, levels(intervals))
    shape = tuned(model.levels, model.quantiles(choose), choose.z)
    return replace(model, shape=shape, facts={"trees": booster.best_iteration, **shape})
