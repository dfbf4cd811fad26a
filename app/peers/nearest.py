"""Nearest neighbours: what a map of the last measurements next door would say."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from app.peers.base import Array, Options, Sample
from geogp.predictive import Predictive

NEIGHBOURS = (10, 20, 40, 60, 100, 160)
TIME_FACTORS = (0.05, 0.15, 0.5, 1.5)
LEAST_VARIANCE = 1e-3
FLOOR = 0.1  # share of one measurement's variance that more measurements do not remove


@dataclass(frozen=True)
class Neighbours:
    """Gaussian with the (weighted) mean and variance of the k nearest training rows.

    scale : (D,) length of each axis; weighted : by count, in which case the variance is for the new count
    """

    tree: cKDTree
    train: Sample
    scale: Array
    k: int
    weighted: bool
    factor: float = 1.0
    facts: dict[str, Any] = field(default_factory=dict)

    def moments(self, rows: Sample) -> tuple[Array, Array]:
        """Mean and variance of each row: (N,), (N,)."""
        _, near = self.tree.query(rows.X / self.scale, k=np.arange(1, min(self.k, len(self.train)) + 1))
        return self._moments(near, rows)

    def _moments(self, near: np.ndarray, rows: Sample) -> tuple[Array, Array]:
        z = self.train.z[near]
        if self.weighted and self.train.counts is not None and rows.counts is not None:
            w = 1.0 / (FLOOR + 1.0 / self.train.counts[near])
            new = FLOOR + 1.0 / rows.counts
        else:
            w, new = np.ones_like(z), np.ones(len(z))
        total = w.sum(1)
        mean = (w * z).sum(1) / total
        k = z.shape[1]
        # Variance of one unit of precision; the mean's own variance is 1 / total of it.
        unit = (w * (z - mean[:, None]) ** 2).sum(1) / max(k - 1, 1)
        return mean, np.maximum(unit * (new + 1.0 / total), LEAST_VARIANCE)

    def predictive(self, rows: Sample) -> Predictive:
        mean, variance = self.moments(rows)
        return Predictive(mean, np.sqrt(self.factor * variance))


def fit(train: Sample, held: Sample, options: Options) -> Neighbours:
    """k and the length of a year against that of the map, chosen by validation NLL."""
    return _choose(train, held, weighted=False)


def fit_counts(train: Sample, held: Sample, options: Options) -> Neighbours:
    """The same with weights 1 / (0.1 + 1/count)."""
    return _choose(train, held, weighted=True)


def _choose(train: Sample, held: Sample, *, weighted: bool) -> Neighbours:
    best: tuple[float, Neighbours] | None = None
    sd = np.where(train.X.std(0) > 0, train.X.std(0), 1.0)
    if train.has_position:
        sd[:2] = np.sqrt((sd[:2] ** 2).mean())
    for factor in TIME_FACTORS if train.X.shape[1] == 3 else (1.0,):
        scale = sd.copy()
        if train.X.shape[1] == 3:
            scale[2] = sd[2] / factor
        tree = cKDTree(train.X / scale)
        most = min(NEIGHBOURS[-1], len(train))
        _, near = tree.query(held.X / scale, k=np.arange(1, most + 1))
        for k in NEIGHBOURS:
            if k > most:
                continue
            model = Neighbours(tree, train, scale, k, weighted)
            mean, variance = model._moments(near[:, :k], held)
            ratio = float(np.mean((held.z - mean) ** 2 / variance))
            nll = float(np.mean((held.z - mean) ** 2 / (ratio * variance) + np.log(ratio * variance)))
            if best is None or nll < best[0]:
                facts = {"k": k, "time_factor": factor, "variance_factor": round(ratio, 3)}
                best = nll, Neighbours(tree, train, scale, k, weighted, ratio, facts)
    assert best is not None
    return best[1]
