"""Ordinary kriging with PyKrige: exact, so it gets a random subsample of the rows."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.peers.base import Array, Options, Sample
from geogp.predictive import Predictive

SUBSAMPLE = 2000
SUBSAMPLE_3D = 800  # the package checks each row of a 3-D model in turn, O(n^4) in all
TIME_FACTORS = (0.03, 0.1, 0.3)
LAGS = 20
AT_ONCE = 4096


@dataclass(frozen=True)
class Kriging:
    """Mean and kriging variance (nugget included: of a new measurement), rescaled on validation rows."""

    model: Any
    centre: Array
    scale: Array
    factor: float = 1.0
    facts: dict[str, Any] = field(default_factory=dict)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """(N,), (N,)."""
        C = (X - self.centre) / self.scale
        parts = [
            self.model.execute("points", *(np.ascontiguousarray(c) for c in C[i : i + AT_ONCE].T))
            for i in range(0, len(C), AT_ONCE)
        ]
        mean = np.concatenate([np.asarray(m).ravel() for m, _ in parts])
        variance = np.concatenate([np.asarray(v).ravel() for _, v in parts])
        return mean, np.maximum(variance, 1e-4)

    def predictive(self, rows: Sample) -> Predictive:
        mean, variance = self.moments(rows.X)
        return Predictive(mean, np.sqrt(self.factor * variance))


def fit(train: Sample, held: Sample, options: Options) -> Kriging:
    """Exponential variogram by the package's own least squares; the length of a year by validation NLL."""
    from pykrige.ok import OrdinaryKriging
    from pykrige.ok3d import OrdinaryKriging3D

    rng = np.random.default_rng(options.seed)
    timed = train.X.shape[1] == 3
    most = SUBSAMPLE_3D if timed else SUBSAMPLE
    some = train.take(np.sort(rng.permutation(len(train))[:most]))
    check = held.take(np.sort(rng.permutation(len(held))[:SUBSAMPLE]))
    centre = train.X.mean(0)
    spread = train.X.std(0)
    spread[:2] = np.sqrt((spread[:2] ** 2).mean())
    spread = np.where(spread > 0, spread, 1.0)
    best: tuple[float, Kriging] | None = None
    for time_factor in TIME_FACTORS if timed else (1.0,):
        scale = spread.copy()
        if timed:
            scale[2] = spread[2] / time_factor
        C = (some.X - centre) / scale
        settings = {"variogram_model": "exponential", "nlags": LAGS, "weight": True, "exact_values": False}
        kind = OrdinaryKriging3D if timed else OrdinaryKriging
        model = Kriging(kind(*C.T, some.z, **settings), centre, scale)
        mean, variance = model.moments(check.X)
        ratio = float(np.mean((check.z - mean) ** 2 / variance))
        nll = float(np.mean(np.log(ratio * variance)))
        if best is None or nll < best[0]:
            facts = {"rows": len(some), "time_factor": time_factor, "variance_factor": round(ratio, 3)}
            best = nll, Kriging(model.model, centre, scale, ratio, facts)
    assert best is not None
    return best[1]
