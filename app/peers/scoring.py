"""A peer's row of a leaderboard: fitted and scored on an observations file like a method of ours."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import InvalidInput
from app.peers import peer
from app.workflow.evaluating import CHUNK, FAR_M
from app.workflow.fitting import peak_rss_mb
from app.workflow.rows import Rows, read_rows
from data_pipelines.splits import make_split
from geogp.predictive import Predictive
from geogp.scores import score, score_strata
from geogp.targets import target as target_named

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def evaluate_peer(
    observations: str | Path,
    name: str,
    *,
    target: str = "download",
    split: str = "random",
    seed: int = 0,
    device: str = "cpu",
    threads: int = 1,
) -> dict[str, Any]:
    """The document that `evaluate --json` prints of a run, for a peer.

    Parameters
    ----------
    observations, target, split, seed : as for `app.workflow.fit`
    name : of `app.peers.PEERS`

    Raises
    ------
    ValueError
        an unknown peer, a package that is not installed, a split that holds nothing out.
    """
    rows = read_rows(observations, target)
    part = make_split(rows.table, split, seed)
    train, val, test = (rows.usable & (part == p) for p in ("train", "val", "test"))
    if not test.any():
        raise InvalidInput(f"split {split!r} holds nothing out; take random, block or forward.")
    started = time.perf_counter()
    fitted = peer(name).fit(
        *select(rows, train),
        validation=select(rows, val) if val.any() else None,
        seed=seed,
        device=device,
        threads=threads,
    )
    seconds = time.perf_counter() - started
    X, t, counts = select(rows, test)
    predictive = fitted.predictive(X, counts)
    y = rows.t[train]
    scale = {"target_mean": float(y.mean()), "target_sd": float(y.std())}
    return {
        "schema": 1,
        "method": name,
        "target": target,
        "split": split,
        "part": "test",
        "refit": None,
        "n_train": int(train.sum()),
        "n_test": int(test.sum()),
        "fit_seconds": round(seconds, 2),
        "peak_rss_mb": round(peak_rss_mb(), 1),
        **scale,
        **scored(predictive, t, rows, strata(rows, train, test), scale, (float(y.min()), float(y.max()))),
        "peer": dict(fitted.facts),
    }


def fit_and_score(output: str | Path, **arguments: Any) -> None:
    """`evaluate_peer`, its document written to a file: the body of a process of its own."""
    Path(output).write_text(json.dumps(evaluate_peer(**arguments)), encoding="utf-8")


def select(rows: Rows, mask: Mask) -> tuple[Array, Array, Array | None]:
    """X, t, counts of some rows."""
    return rows.X[mask], rows.t[mask], None if rows.counts is None else rows.counts[mask]


def strata(rows: Rows, train: Mask, test: Mask) -> dict[str, Mask]:
    """Masks over the test rows: urban and rural by label, near and far by distance to training places."""
    from scipy.spatial import cKDTree

    masks: dict[str, Mask] = {}
    if rows.urban is not None:
        masks |= {"urban": rows.urban[test], "rural": ~rows.urban[test]}
    distance_m, _ = cKDTree(rows.places_m(train)).query(rows.X[test, :2])
    return masks | {"near": distance_m <= FAR_M, "far": distance_m > FAR_M}


def scored(
    predictive: Predictive,
    t: Array,
    rows: Rows,
    masks: Mapping[str, Mask],
    scale: dict[str, float],
    bounds: tuple[float, float],
) -> dict[str, Any]:
    """The documents' entries that hold scores: on z, in the target's own unit, by stratum."""
    goal = target_named(rows.target)
    unit = (rows.metadata.get("value_unit") or goal.unit) if goal.name == "value" else goal.unit
    mae = float(np.abs(goal.from_score(predictive.median()) - goal.from_score(t)).mean())
    crps = np.empty(len(t))
    for i in range(0, len(t), CHUNK):
        chunk = np.arange(i, min(i + CHUNK, len(t)))
        crps[chunk] = predictive.rows(chunk).crps_of(goal.from_score, t[chunk], bounds=bounds)
    native = {"unit": unit, "mae": mae, "crps": float(crps.mean())}
    return {
        "scores": score(predictive, t, **scale),
        "scores_mbps": {k: native[k] for k in ("mae", "crps")} if unit == "Mbit/s" else None,
        "scores_native": native,
        "strata": score_strata(predictive, t, dict(masks), **scale),
    }
