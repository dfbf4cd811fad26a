"""A peer's row of a leaderboard: fitted and scored on an observations file like a method of ours."""

import time
from pathlib import Path
from typing import Any

from app.errors import InvalidInput
from app.peers import peer
from app.workflow.machine import peak_rss_mb
from app.workflow.rasters.covariates import covariates_of
from app.workflow.rows import read_rows
from app.workflow.scoring import scored, strata
from data_pipelines.splits import make_split
from geogp.run import Support


def evaluate_peer(
    observations: str | Path,
    name: str,
    *,
    target: str = "download",
    split: str = "random",
    seed: int = 0,
    device: str = "cpu",
    threads: int = 1,
    covariates: str | None = None,
) -> dict[str, Any]:
    """The document that `evaluate --json` prints of a run, for a peer.

    Parameters
    ----------
    observations, target, split, seed, covariates : as for `app.workflow.fit`
    name : of `app.peers.PEERS`

    Raises
    ------
    ValueError
        an unknown peer, a package that is not installed, a split that holds nothing out.
    """
    rows = read_rows(observations, target, covariates=covariates_of(covariates or ""))
    part = make_split(rows.table, split, seed)
    train, val, test = (rows.usable & (part == p) for p in ("train", "val", "test"))
    if not test.any():
        raise InvalidInput(f"split {split!r} holds nothing out; take random, block or forward.")
    started = time.perf_counter()
    fitted = peer(name).fit(
        *rows.select(train),
        validation=rows.select(val) if val.any() else None,
        seed=seed,
        device=device,
        threads=threads,
        covariates=len(rows.covariates),
    )
    seconds = time.perf_counter() - started
    X, _, counts = rows.select(test)
    y = rows.t[train]
    return {
        "schema": 1,
        "method": name,
        "target": target,
        "target_title": rows.goal.words,
        "split": split,
        "part": "test",
        "refit": None,
        "spread": "own",
        "n_train": int(train.sum()),
        "n_test": int(test.sum()),
        "fit_seconds": round(seconds, 2),
        "peak_rss_mb": round(peak_rss_mb(), 1),
        **scored(
            fitted.predictive(X, counts),
            rows,
            test,
            strata(rows, test, Support(rows.places_m(train))),
            target_mean=float(y.mean()),
            target_sd=float(y.std()),
            bounds=(float(y.min()), float(y.max())),
        ),
        **({"covariates": [] if fitted.ignored else list(rows.covariates)} if rows.covariates else {}),
        "peer": dict(fitted.facts),
    }
