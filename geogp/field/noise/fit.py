"""The smooth noise learned from rows that were left out, and the calibration of its intervals."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.calibrate import Calibration, fit_calibration
from geogp.field.conditioned import Conditioned
from geogp.field.frame import SPACINGS, Frame
from geogp.field.left_out import GAPS, SIDES, LeftOut
from geogp.field.noise.smooth import HeldOutRows, SmoothNoise, fit_smooth_noise, new_smooth_noise
from geogp.field.observations import canonical
from geogp.field.predict.moments import moments_of
from geogp.field.predict.outlook import noise_inputs, outlook
from geogp.field.stages import Stages

#: Held-out rows within a square of this many spacings of places share their luck: one vote in calibration.
CLUSTER_SPACINGS = 30.0
#: Parts of the validation rows' squares, each calibrated by a noise that did not learn from it.
FOLDS = 2

#: X, y, counts of rows that are never conditioned on.
Validation = tuple[Tensor, Tensor, Tensor | None]


def held_out_rows(known: Conditioned, left_out: list[LeftOut], X: Tensor) -> list[HeldOutRows]:
    """What the smooth noise learns from, of all training rows X (N, D): those left out, a table for each kind."""
    seen = known.left
    pieces: dict[str, list[HeldOutRows]] = {}
    for out in left_out:
        latest = known.frame.newest(seen.X[out.reference])
        C = seen.X[out.rows]
        around = known.survey(
            C,
            out.neighbours,
            latest,
            given=known.left_given(out.reference),
            kernel=known.kernel_given(out.reference) if out.kind in GAPS else None,
        )
        # Single rows and blocks tell the plane nothing that the rest does not.
        drift = known.drift_given(out.reference) if out.kind == "sides" else known.drift
        change, uncertain = known.drift.extra(C, around.leaning, drift)
        around = around.moved(change)
        surface = known.regional_given(out.reference)
        regional = None if surface is None else surface.at_observations(out.rows)
        counts = seen.counts[out.rows]
        rows = HeldOutRows(
            features=noise_inputs(known, around, counts, X[out.rows], regional),
            mean=around.mean,
            variance=around.variance,
            drift_variance=uncertain,
            counts=counts,
            value=seen.value[out.rows],
            weight=torch.full((len(out.rows),), SIDES if out.kind == "sides" else 1.0, dtype=torch.float64),
        )
        pieces.setdefault(out.kind, []).append(rows)
    return [HeldOutRows.together(parts) for parts in pieces.values()]


def fit_noise(
    known: Conditioned,
    kinds: list[HeldOutRows],
    stages: Stages,
    asked: HeldOutRows | None = None,
    name: str = "noise",
) -> SmoothNoise:
    """A stage of that name: the smooth noise of a field.

    Each kind of missing data counts alike, however many rows it found, but for sides; of validation rows (`asked`)
    none counts more than those rows do on average, so that a few cannot outvote the rest.
    """
    typical = sum(len(rows) for rows in kinds) / len(kinds)
    share = [replace(rows, weight=rows.weight * (typical / len(rows))) for rows in kinds]
    if asked is not None:
        share.append(replace(asked, weight=asked.weight * min(1.0, typical / len(asked))))
    rows = HeldOutRows.together(share)
    o, gp = known.options, known.gp
    model = new_smooth_noise(rows.features.shape[1], hidden=o.hidden, seed=o.seed)
    s2 = gp.s2 if known.has_counts else 1e-6
    model.start_from(rows.features, gp.tau2, s2, gp.degrees_of_freedom or 30.0)

    def fit() -> dict[str, Tensor]:
        fit_smooth_noise(
            model, rows, gp.kernel.prior_variance, epochs=o.epochs, seed=o.seed, tick=stages.tick
        )
        return model.state_dict()

    model.load_state_dict(stages.once(name, fit))
    return model.eval()


def fit_noise_and_calibration(
    known: Conditioned, kinds: list[HeldOutRows], validation: Validation, stages: Stages
) -> tuple[SmoothNoise, Calibration]:
    """Let validation rows be a kind of missing data of their own, and calibrate out of fold.

    The noise that is kept learned from all of them; the misses that calibrate come from noises that did not see
    the squares they judge.
    """
    X, y, n = canonical(*validation)
    places = outlook(known, X, n)
    asked = HeldOutRows(
        features=places.inputs,
        mean=places.around.mean,
        variance=places.around.variance,
        drift_variance=places.drift_variance,
        counts=places.counts,
        value=y - places.prior_mean,
        weight=torch.ones(len(y), dtype=torch.float64),
    )
    options, cluster = known.options, squares(known.frame, X)
    fold = np.random.default_rng(options.seed).permutation(cluster.max() + 1)[cluster] % FOLDS
    miss = np.ones(len(y))
    for part in np.unique(fold):
        inside, outside = np.flatnonzero(fold == part), np.flatnonzero(fold != part)
        without = asked.at(outside) if len(outside) else None
        noise = fit_noise(known, kinds, stages, without, name=f"noise without fold {part}")
        miss[inside] = moments_of(known, places, noise).misses(y)[inside]
    noise = fit_noise(known, kinds, stages, _at_most(options.n_targets, asked, options.seed))
    return noise, fit_calibration(miss, places.group, cluster=cluster)


def calibration_of(known: Conditioned, noise: SmoothNoise | None, validation: Validation) -> Calibration:
    """Conformal factors of a noise that is fitted already, from rows it did not learn from."""
    X, y, counts = validation
    X = X.double()
    places = outlook(known, X, counts)
    miss = moments_of(known, places, noise).misses(y.double())
    return fit_calibration(miss, places.group, cluster=squares(known.frame, X))


def squares(frame: Frame, X: Tensor) -> NDArray[np.int64]:
    """Number (N,) of the square that each row of X (N, D) lies in; its rows share their luck."""
    cell = np.floor(frame.coordinates(X)[:, :2].numpy() * (SPACINGS / CLUSTER_SPACINGS))
    return np.unique(cell, axis=0, return_inverse=True)[1].ravel()


def _at_most(n_targets: int, rows: HeldOutRows, seed: int) -> HeldOutRows:
    """So many of the rows, as of every other kind."""
    n = len(rows)
    if n <= n_targets:
        return rows
    keep = np.random.default_rng(seed).choice(n, n_targets, replace=False)
    return rows.at(np.sort(keep))
