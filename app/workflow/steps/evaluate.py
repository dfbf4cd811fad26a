"""How good a run is on the rows it never saw: overall, by urban and rural, near and far; and its certificate."""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import InvalidInput
from app.workflow.certifying import FILE as CERTIFICATE
from app.workflow.certifying import certify, count_groups
from app.workflow.outputs import counted_by
from app.workflow.rasters.covariates import opened
from app.workflow.rows import labels, observations_of
from app.workflow.scoring import far_m_of, scored, strata
from geogp import storage
from geogp.run import Run
from geogp.storage import clock
from geogp.targets import target
from maps.words import number

#: What a system says of a folder that may not be changed, or not be renamed (a mounted one).
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


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

    @property
    def unit(self) -> str:
        """Of the native scores, as people read it."""
        return target(self.document["target"]).unit_words(self.document["scores_native"]["unit"])

    def title(self) -> str:
        """What the table shows, and the scores in the target's own unit."""
        d = self.document
        native = d["scores_native"]
        return (
            f"{d['method']}, {d.get('target_title', d['target'])}, {d['part']} rows of split {d['split']}: "
            f"scores on z = (t - {d['target_mean']:.3f}) / {d['target_sd']:.3f} with t {target(d['target']).scale_words}"
            f"{'' if d.get('center', 'mean') == 'mean' else ', RMSE of the median for want of a mean'}; "
            f"MAE {number(native['mae'], 4)}, CRPS {number(native['crps'], 4)} {self.unit}".rstrip()
        )


def evaluate(
    run: str | Path | Run, *, data: str | Path | None = None, part: str = "test", store: bool = True
) -> Evaluation:
    """Score a run on the held-out part of its split.

    Parameters
    ----------
    run : folder, or what `geogp.load` gives
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
    run = opened(run)
    rows = observations_of(run, data)
    facts, model = run.facts, run.model
    chosen = rows.usable & labels(run, part)
    if not chosen.any():
        raise InvalidInput(
            f"{run.path} was fitted with split {facts['split']!r}, which holds nothing out for {part}; "
            "fit it with --split random, block or forward to have something to evaluate."
        )
    X, t, counts = rows.select(chosen)
    predictive = model.predictive(X, counts)
    masks = strata(rows, chosen, run.support)
    about = {k: facts[k] for k in ("method", "target", "split")}
    about |= {"part": part, "refit": facts.get("refit"), "weights_sha256": run.weights_sha256}
    certificate = certify(
        predictive,
        t,
        {**masks, **count_groups(counts, counted_by(run.target, rows.counted_by))},
        **about,
        far_m=far_m_of(rows.metadata.get("source"), run.support),
        observations_sha256=rows.sha256,
        created=clock.now().isoformat(timespec="seconds"),
    )
    document = {
        "schema": 1,
        **about,
        "target_title": run.target.words,
        "spread": model.engine_.spread,
        "n_train": facts["rows"]["fitted"],
        "n_test": int(chosen.sum()),
        "fit_seconds": facts["fit_seconds"],
        "peak_rss_mb": facts["peak_rss_mb"],
        **scored(
            predictive,
            rows,
            chosen,
            masks,
            target_mean=model.target_mean_,
            target_sd=model.target_sd_,
            bounds=model.target_range_,
        ),
        "certificate": certificate,
    }
    if store and part == "test":
        _store(run, document, certificate)
    return Evaluation(run.path, document)


def _store(run: Run, document: dict[str, Any], certificate: dict[str, Any]) -> None:
    """Scores and certificate into the run's folder."""
    try:
        storage.update_facts(
            run.path,
            {"scores": document},
            documents={CERTIFICATE: certificate},
            weights_sha256=run.weights_sha256,
        )
    except OSError as error:  # a run one may read but not write can still be evaluated
        if error.errno not in READ_ONLY:
            raise


def _cells(s: dict[str, float]) -> list[str]:
    return [
        *(f"{s[name]:.3f}" for name in ("nll", "crps", "mae", "rmse")),
        f"{100 * s['coverage95']:.1f}%",
        f"{s['width95']:.3f}",
    ]
