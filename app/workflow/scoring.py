"""Scores of held-out rows, by the same rules for a method of ours and for a peer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.workflow.grids import measures_tiles
from app.workflow.rows import Array, Flags, Rows
from geogp.predictive import Predictive
from geogp.run import FAR_M, Support
from geogp.scores import pool, pool_strata, score, score_strata

#: Rows scored at once in the target's own unit: 64 + 64 quadrature nodes each.
AT_ONCE = 20_000


def far_m_of(source: str | None, support: Support) -> float:
    """Beyond which distance from data a place is far: 1 km of tiles; else the gap that holds nine in ten of the places."""
    if measures_tiles(source) or support.usual_gap_m is None:
        return FAR_M
    return support.usual_gap_m


def strata(rows: Rows, chosen: Flags, support: Support) -> dict[str, Flags]:
    """Masks over the chosen rows: urban and rural by label, near and far by distance to the training places."""
    masks: dict[str, Flags] = {}
    if rows.urban is not None:
        masks |= {"urban": rows.urban[chosen], "rural": ~rows.urban[chosen]}
    far = support.distances_m(rows.X[chosen, :2]) > far_m_of(rows.metadata.get("source"), support)
    return masks | {"near": ~far, "far": far}


def scored(
    predictive: Predictive,
    rows: Rows,
    chosen: Flags,
    masks: Mapping[str, Flags],
    *,
    target_mean: float,
    target_sd: float,
    bounds: tuple[float, float],
) -> dict[str, Any]:
    """The entries of `evaluate --json` that hold scores: on z, in the target's own unit, by stratum.

    Parameters
    ----------
    predictive : of the chosen rows
    masks : name -> membership over the chosen rows, see `strata`
    target_mean, target_sd, bounds : of the training targets
    """
    t = rows.t[chosen]
    native = {"unit": rows.unit, **_native(predictive, rows, t, bounds)}
    scale = {"target_mean": target_mean, "target_sd": target_sd}
    return {
        **scale,
        "center": predictive.center,
        "scores": score(predictive, t, **scale, bounds=bounds),
        "scores_mbps": _mbps(native),
        "scores_native": native,
        "strata": score_strata(predictive, t, dict(masks), **scale, bounds=bounds),
    }


def _native(predictive: Predictive, rows: Rows, t: Array, bounds: tuple[float, float]) -> dict[str, float]:
    """MAE of the median and CRPS in the target's own unit."""
    value = rows.goal.from_score
    mae = np.abs(value(predictive.median()) - value(t)).mean()
    total = 0.0
    for i in range(0, len(t), AT_ONCE):
        piece = predictive.rows(np.arange(i, min(i + AT_ONCE, len(t))))
        total += float(piece.crps_of(value, t[i : i + AT_ONCE], bounds=bounds).sum())
    return {"mae": float(mae), "crps": total / len(t)}


def pooled(documents: Sequence[dict[str, Any]], split: str) -> dict[str, Any]:
    """The evaluations of several folds as one: scores are means over all rows, the RMSE's of squares, times are sums.

    Each fold's scores are on its own training mean and sd, which hardly differ.
    """
    if len(documents) == 1:
        return documents[0]
    first, n = documents[0], [d["n_test"] for d in documents]
    about = {k: first[k] for k in ("schema", "method", "target", "part", "refit", "spread", "center")}
    native = pool([d["scores_native"] for d in documents], n)
    about |= {k: first[k] for k in ("target_title", "covariates") if k in first}
    return about | {
        "split": split,
        "folds": len(documents),
        "n_train": round(float(np.mean([d["n_train"] for d in documents]))),
        "n_test": sum(n),
        "fit_seconds": round(sum(d["fit_seconds"] for d in documents), 2),
        "peak_rss_mb": max(d["peak_rss_mb"] for d in documents),
        "target_mean": float(np.mean([d["target_mean"] for d in documents])),
        "target_sd": float(np.mean([d["target_sd"] for d in documents])),
        "scores": pool([d["scores"] for d in documents], n),
        "scores_native": native,
        "scores_mbps": _mbps(native),
        "strata": pool_strata([d["strata"] for d in documents]),
    }


def _mbps(native: Mapping[str, Any]) -> dict[str, float] | None:
    """Native scores in Mbit/s, None in any other unit."""
    return {k: native[k] for k in ("mae", "crps")} if native["unit"] == "Mbit/s" else None
