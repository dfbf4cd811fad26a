"""How good a run is on the rows it never saw: overall, by urban and rural, near and far; and its certificate."""

import errno
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import InvalidInput
from app.workflow.certifying import FILE as CERTIFICATE
from app.workflow.certifying import certify, count_groups
from app.workflow.rows import Rows, read_rows
from data_pipelines.splits import PARTS
from geogp import storage
from geogp.predictive import Predictive
from geogp.run import Run, load
from geogp.scores import score, score_strata
from geogp.targets import target as target_named

Array = NDArray[np.float64]

#: A test place farther than this from every training place is far.
FAR_M = 1000.0
#: What a system says of a folder that may not be changed, or not be renamed (a mounted one).
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)
#: Rows scored at once in the target's own unit: 64 + 64 quadrature nodes each.
CHUNK = 20_000


@dataclass(frozen=True)
class Evaluation:
    """The scores of a run: `document` is what `geogp evaluate --json` prints."""

    path: Path
    document: dict[str, Any]

    def rows(self) -> list[list[str]]:
        """A table for people: one row overall, one a stratum. Coverage by group is in the certificate's own."""
        d = self.document
        rows = [["all", f"{d['n_test']:,}", *_cells(d["scores"])]]
        for name, s in d["strata"].items():
            size = f"{s['n']:,}" if s["judged"] else f"({s['n']})"
            rows.append([name, size, *(_cells(s) if s["n"] else ["-"] * 6)])
        return rows

    #: Header of `rows`.
    header = ("rows", "number", "NLL", "CRPS", "MAE", "RMSE", "coverage95", "width95")

    def title(self) -> str:
        d = self.document
        native = d["scores_native"]
        return (
            f"{d['method']}, {d['target']}, {d['part']} rows of split {d['split']}: "
            f"scores on z = (t - {d['target_mean']:.3f}) / {d['target_sd']:.3f}; "
            f"MAE {native['mae']:.4g}, CRPS {native['crps']:.4g} {unit_words(native['unit'], d['target'])}".rstrip()
        )


def unit_words(unit: str, target: str) -> str:
    """A unit as people read it: pure numbers have none, tests are tests."""
    return unit if unit != "1" else "tests" if target == "tests" else ""


def evaluate(
    path: str | Path, *, data: str | Path | None = None, part: str = "test", store: bool = True
) -> Evaluation:
    """Score a run on the held-out part of its split.

    Parameters
    ----------
    path : run folder
    data : the observations file, when it is no longer where the run was fitted from; its hash is checked
    part : "test" or "val"
    store : write scores and certificate into the run (test only: validation rows may have calibrated it)

    Returns
    -------
    Evaluation

    Raises
    ------
    InvalidInput
        nothing was held out, or the observations are not those of the run.

    Notes
    -----
    Scores are on z = (t - training mean) / training sd, each row predicted for its own number of measurements.
    Cost: one prediction of each held-out row.
    """
    run = load(path)
    return evaluate_run(run, observations_of(run, data), part=part, store=store)


def evaluate_run(run: Run, rows: Rows, *, part: str = "test", store: bool = True) -> Evaluation:
    """`evaluate` for a run and observations already in memory."""
    facts, model = run.facts, run.model
    chosen = rows.usable & labels(run, part)
    if not chosen.any():
        raise InvalidInput(
            f"{run.path} was fitted with split {facts['split']!r}, which holds nothing out for {part}; "
            "fit it with --split random, block or forward to have something to evaluate."
        )
    t = rows.t[chosen]
    counts = None if rows.counts is None else rows.counts[chosen]
    predictive = model.predictive(rows.X[chosen], counts)
    scale = {"target_mean": model.target_mean_, "target_sd": model.target_sd_}
    strata = _strata(run, rows, chosen)
    promised = certify(
        predictive,
        t,
        {**strata, **count_groups(counts, rows.counted_by)},
        method=facts["method"],
        target=facts["target"],
        split=facts["split"],
        part=part,
        refit=facts.get("refit"),
        far_m=FAR_M,
        observations_sha256=rows.sha256,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    native = _native(predictive, t, facts, model.target_range_)
    document = {
        "schema": 1,
        "method": facts["method"],
        "target": facts["target"],
        "split": facts["split"],
        "part": part,
        "refit": facts.get("refit"),
        "n_train": facts["rows"]["fitted"],
        "n_test": int(chosen.sum()),
        "fit_seconds": facts["fit_seconds"],
        "peak_rss_mb": facts["peak_rss_mb"],
        **scale,
        "scores": score(predictive, t, **scale),
        "scores_mbps": {k: native[k] for k in ("mae", "crps")} if native["unit"] == "Mbit/s" else None,
        "scores_native": native,
        "strata": score_strata(predictive, t, strata, **scale),
        "certificate": promised,
    }
    if store and part == "test":
        try:
            storage.update_facts(run.path, {"scores": document}, documents={CERTIFICATE: promised})
        except OSError as error:  # a run one may read but not write can still be evaluated
            if error.errno not in READ_ONLY:
                raise
    return Evaluation(run.path, document)


def labels(run: Run, part: str) -> NDArray[np.bool_]:
    """Which rows of the run's observations file belong to a part of its split: (N,)."""
    return run.tensors("split")["part"].numpy() == PARTS.index(part)


def observations_of(run: Run, data: str | Path | None = None) -> Rows:
    """The observations a run was fitted from, from where they were or from `data`, their hash checked.

    Raises
    ------
    InvalidInput
        the file is gone, or is another.
    """
    path = Path(data or run.facts["data"]["path"])
    if not path.is_file():
        raise InvalidInput(
            f"The observations {path} of {run.path} are not there; say where with --data FILE."
        )
    if storage.sha256(path) != run.facts["data"]["sha256"]:
        raise InvalidInput(
            f"{path} is not the file {run.path} was fitted from (its SHA-256 differs); give that one with --data."
        )
    return read_rows(path, run.facts["target"], run.facts.get("counts", "tests"))


def _strata(run: Run, rows: Rows, chosen: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """Masks over the chosen rows."""
    from scipy.spatial import cKDTree

    strata: dict[str, NDArray[np.bool_]] = {}
    if rows.urban is not None:
        strata |= {"urban": rows.urban[chosen], "rural": ~rows.urban[chosen]}
    places = run.tensors("support")["positions_m"].numpy()
    distance_m, _ = cKDTree(places).query(rows.X[chosen, :2])
    return strata | {"near": distance_m <= FAR_M, "far": distance_m > FAR_M}


def _native(
    predictive: Predictive, t: Array, facts: dict[str, Any], bounds: tuple[float, float]
) -> dict[str, Any]:
    """MAE of the median and CRPS in the target's own unit."""
    goal = target_named(facts["target"])
    unit = (facts["data"].get("value_unit") or goal.unit) if goal.name == "value" else goal.unit
    mae = np.abs(goal.from_score(predictive.median()) - goal.from_score(t)).mean()
    total = 0.0
    for i in range(0, len(t), CHUNK):
        piece = predictive.rows(np.arange(i, min(i + CHUNK, len(t))))
        total += float(piece.crps_of(goal.from_score, t[i : i + CHUNK], bounds=bounds).sum())
    return {"unit": unit, "mae": float(mae), "crps": total / len(t)}


def _cells(s: dict[str, float]) -> list[str]:
    return [
        *(f"{s[name]:.3f}" for name in ("nll", "crps", "mae", "rmse")),
        f"{100 * s['coverage95']:.1f}%",
        f"{s['width95']:.3f}",
    ]
