"""What runs and peers scored on held-out rows, side by side: by stratum, at each level, and their errors themselves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from app.dashboard.jobs import Job
from app.workflow.certifying import count_groups
from app.workflow.outputs import counted_by
from app.workflow.rows import labels, observations_of
from app.workflow.scoring import strata
from data_pipelines.words import many
from geogp.run import Run
from geogp.scores import LEVELS, SMALLEST_GROUP, binomial_band

#: Scores of a table: key -> heading; the smaller the better, but for the shares.
SCORES = {
    "nll": "NLL",
    "crps": "CRPS",
    "mae": "MAE",
    "rmse": "RMSE",
    "coverage95": "inside 95%",
    "width95": "width of 95%",
}
#: Held-out rows whose errors are drawn, at most.
MOST_ROWS = 3000
ALL = "all"


@dataclass(frozen=True)
class Entry:
    """One method on held-out rows: its name here, and the document of `geogp evaluate --json`.

    run : the name of the run whose scores these are, if it is one of those shown
    """

    name: str
    document: Mapping[str, Any]
    run: str = ""

    @property
    def about(self) -> str:
        """What must be the same for two entries to be compared: target, split, how many rows, and their scale."""
        d = self.document
        return (
            f"{d.get('target_title', d['target'])}, split {d['split']}, {many(d['n_test'], 'held-out row')}"
        )

    def of(self, stratum: str) -> Mapping[str, Any]:
        """Scores in a stratum; empty where it has none."""
        d = self.document
        found: Mapping[str, Any] = (
            {**d["scores"], "n": d["n_test"]} if stratum == ALL else d["strata"].get(stratum) or {}
        )
        return found if found.get("n") else {}


def of_run(name: str, run: Run) -> Entry | None:
    """The entry of a run that was evaluated."""
    scores = run.scores or {}
    needed = ("target", "split", "n_test", "scores", "strata", "target_mean", "target_sd")
    return (
        Entry(f"{name} ({scores.get('method')})", scores, name)
        if all(key in scores for key in needed)
        else None
    )


def of_job(job: Job) -> list[Entry]:
    """The entries of a comparison that is done."""
    rows = json.loads(job.said)["rows"]
    return [Entry(row["method"], row) for row in rows]


def strata_of(entries: Sequence[Entry]) -> list[str]:
    """All strata that any entry has rows in."""
    names = dict.fromkeys(name for e in entries for name in e.document["strata"] if e.of(name))
    return [ALL, *names]


def table(entries: Sequence[Entry], stratum: str) -> pd.DataFrame:
    """Scores of a stratum, a row an entry, the best NLL first; `few` where the rows are too few to judge.

    The columns are those of `SCORES`, `rows` and, of all rows, `seconds` and `MB`.
    """
    rows = []
    for entry in entries:
        scores = entry.of(stratum)
        if not scores:
            continue
        row = {
            "method": entry.name,
            "rows": int(scores["n"]),
            **{head: scores.get(key) for key, head in SCORES.items()},
        }
        rows.append(
            row
            | {
                "few": scores["n"] < SMALLEST_GROUP,
                "seconds": entry.document.get("fit_seconds"),
                "MB": entry.document.get("peak_rss_mb"),
            }
        )
    frame = pd.DataFrame(rows, columns=["method", "rows", *SCORES.values(), "few", "seconds", "MB"])
    return frame.sort_values("NLL", kind="stable", ignore_index=True)


def reliability(entries: Sequence[Entry], stratum: str) -> pd.DataFrame:
    """method, promised, held, low, high: the share inside at each level, and where an honest one lies by chance."""
    rows = []
    for entry in entries:
        scores = entry.of(stratum)
        for level in LEVELS:
            held = scores.get(f"coverage{100 * level:g}")
            if held is not None:
                low, high = binomial_band(int(scores["n"]), level)
                rows.append({"method": entry.name, "promised": level, "held": held, "low": low, "high": high})
    return pd.DataFrame(rows, columns=["method", "promised", "held", "low", "high"])


@lru_cache(8)
def errors(run: Run) -> pd.DataFrame:
    """Of held-out rows, `MOST_ROWS` at most: error of the median in sds of the target, and the share of the
    distribution below the value (uniform when it is honest), by group.

    Raises
    ------
    InvalidInput
        the run's observations are not where it was fitted from.
    """
    rows = observations_of(run)
    chosen = np.flatnonzero(rows.usable & labels(run, "test"))
    if len(chosen) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, MOST_ROWS, replace=False))
    mask = np.zeros(len(rows.usable), bool)
    mask[chosen] = True
    X, t, counts = rows.select(mask)
    predictive = run.model.predictive(X, counts)
    frame = pd.DataFrame(
        {"error": (t - predictive.median()) / run.model.target_sd_, "below": predictive.cdf(t)}
    )
    groups = {
        ALL: np.ones(len(frame), bool),
        **strata(rows, mask, run.support),
        **count_groups(counts, counted_by(run.target, rows.counted_by)),
    }
    parts = [frame[member].assign(group=name) for name, member in groups.items() if member.any()]
    return pd.concat(parts, ignore_index=True)
