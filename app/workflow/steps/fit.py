"""Observations become a run: read, split, train, store; resumable after a kill, deterministic by seed."""

import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.console import Report
from app.errors import InvalidInput
from app.workflow.evidence import doubts_of
from app.workflow.fitting.parts import Parts, rows_at_once
from app.workflow.fitting.unfinished import UnfinishedFit
from app.workflow.knowing import Known, what_is_known
from app.workflow.machine import peak_rss_mb, versions
from app.workflow.outputs import refuse_taken, surface_of
from app.workflow.rasters.covariates import covariates_of, file_of
from app.workflow.rasters.predictor import raster_predictor
from app.workflow.rows import Array, Flags, Rows, read_rows
from data_pipelines import former
from data_pipelines.errors import DataWarning
from data_pipelines.splits import PARTS, make_split
from data_pipelines.words import many
from geogp.engines.asked import device_named
from geogp.errors import check_new_run
from geogp.estimator import GPRegressor
from geogp.linalg import threads
from geogp.methods import DEFAULT
from geogp.run import Run, save
from geogp.storage import clock
from geogp.update import recondition

log = logging.getLogger(__name__)
#: Seconds between checkpoints of an unfinished fit.
CHECKPOINT_SECONDS = 10.0
#: Arguments that run.json says at its head, too.
SETTINGS = ("method", "target", "split", "refit", "counts", "seed", "device")


@dataclass(frozen=True)
class Fit:
    """A finished fit: the run on disk, loaded, and how many rows went where."""

    run: Run
    resumed_from_epoch: int = 0

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def facts(self) -> dict[str, Any]:
        return self.run.facts

    def summary(self) -> str:
        """One line for people."""
        f, rows = self.facts, self.facts["rows"]
        columns = [name for name in f.get("covariates") or () if name not in f.get("covariate_rasters", {})]
        dropped = ", ".join(f"{n:,} {cause.replace('_', ' ')}" for cause, n in rows["dropped"].items() if n)
        parts = [
            f"{self.path}: {f['method']} on {self.run.target.words}, {many(rows['fitted'], 'row')} fitted",
            f"{rows['val']:,} validation, {rows['test']:,} test"
            if rows["val"] or rows["test"]
            else "none held out",
            f"dropped: {dropped}" if dropped else "",
            f"{rows['counted_as_one']:,} with a count of 0 or none, taken as one {'test' if self.run.target.of_averages else 'measurement'}"
            if rows["counted_as_one"]
            else "",
            f"its surface is the level of {reference}" if (reference := surface_of(self.run)) else "",
            f"maps of it need {columns[0]} as a raster: --covariates {columns[0]}=FILE.tif"
            if columns
            else "",
            f"went on from epoch {self.resumed_from_epoch}" if self.resumed_from_epoch else "",
            f"{f['fit_seconds']:.0f} s, {f['peak_rss_mb']:.0f} MB",
        ]
        return "; ".join(part for part in parts if part)


def fit(
    observations: str | Path,
    *,
    output: str | Path,
    target: str | None = None,
    method: str = DEFAULT,
    split: str = "none",
    refit: str | None = None,
    counts: str = "tests",
    predictor: str | Path | None = None,
    covariates: str | None = None,
    seed: int = 0,
    device: str = "auto",
    deterministic: bool = False,
    model: Mapping[str, Any] | None = None,
    max_memory: int | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    time_limit_seconds: float | None = None,
) -> Fit:
    """Train one method on an observations file and store the run.

    Parameters
    ----------
    observations : GeoParquet made by ingest
    output : run folder to write
    target : a key of `geogp.targets.TARGETS`; None is what the table has alone, of several the download speed
    method : a row of the method table
    split : "none", "random", "block", "forward" or "FILE:COLUMN"; training uses the train rows alone, and the
        validation rows choose and stop without being conditioned on; with "none" a tenth of the rows does that
        where there are 1,000 or more, and `refit` takes it back in
    refit : "train+val" trains once more on both, for as many epochs as were found best, and keeps what else the
        validation rows taught: factors on the variances, tails, a network's noise; a local field keeps all it
        learned, its calibration too, and comes to know both
    counts : what the noise takes as the number of measurements behind a value: "tests", "devices" or "both" (their
        geometric mean)
    predictor : a raster file whose pixels, in the target's unit, are the mean; with method "fmgp"
    covariates : "elevation,dist=dist.tif", columns of the table and rasters that the model takes beside the places
    seed : of split and training
    device : "cpu", "cuda" or "auto"
    deterministic : fit inside `geogp.deterministic`: the same weights, whatever the number of threads
    model : further parameters of `geogp.GPRegressor`, such as rank or steps
    max_memory : bytes to stay below: a table that does not fit is read in parts by the methods that learn from minibatches,
        with split "none"; a tenth of its rows, at most 65,536, choose the epoch
    overwrite : replace a finished run
    progress : called with (epochs done, epochs, words)
    checkpoint_seconds : least time between checkpoints
    time_limit_seconds : stop after an epoch beyond this, with a checkpoint

    Returns
    -------
    Fit

    Raises
    ------
    InvalidInput
        a file, target or split that cannot be used; a finished run without `overwrite`.
    Unfinished
        the time limit, or SIGTERM: the same call goes on from the checkpoint.

    Notes
    -----
    An unfinished run lies in `.<output>.partial` beside the output; the same call with the same data goes on
    from its last checkpoint to the result of an unbroken one, bit for bit. Other arguments begin anew.
    """
    output = Path(output)
    refuse_taken(output, overwrite)
    check_new_run(output, overwrite)
    most = rows_at_once(observations, method, max_memory)
    if most is not None:
        _refuse_whole(split=split, refit=refit, predictor=predictor)
    given = covariates_of(covariates or "")
    rows = (
        read_rows(observations, target, counts, given)
        if most is None
        else Parts.of(observations, target, counts, given, seed)
    )
    target = rows.target
    name = _name(
        rows.sha256, target, method, split, refit, counts, predictor, seed, model, covariates, deterministic
    )
    log.info("fitting %s to a table of %d rows", method, rows.n_rows, extra={"work": f"fit {name}"})
    if other := former.note(rows.metadata, output.parent, (former.RUNS,)):
        warnings.warn(other, DataWarning, stacklevel=2)
    part = make_split(rows.table, split, seed) if isinstance(rows, Rows) else np.full(rows.n_rows, "train")
    masks = {name: rows.usable & (part == name) for name in PARTS}
    if not masks["train"].any():
        raise InvalidInput(f"Split {split!r} leaves no usable {target} row of {observations} to train on.")
    raster = (
        raster_predictor(predictor, rows, method)
        if predictor is not None and isinstance(rows, Rows)
        else None
    )
    beside = {"covariates": list(rows.covariates), "covariate_rasters": rows.rasters} if covariates else {}
    arguments: dict[str, Any] = {
        "observations_sha256": rows.sha256,
        "target": target,
        "method": method,
        "split": split,
        "split_sha256": hashlib.sha256(_codes(part).tobytes()).hexdigest(),
        "refit": refit,
        "counts": counts,
        "predictor": None if predictor is None else file_of(predictor),
        "seed": seed,
        "model": dict(model or {}),
        "device": device_named(device),
        "versions": {name: versions()[name] for name in ("geogp", "torch")},
        **({"deterministic": True} if deterministic else {}),
        **beside,
        **({} if most is None else {"rows_at_once": most}),
    }
    make = partial(_estimator, arguments, rows, raster)
    training = UnfinishedFit(output, arguments, progress, checkpoint_seconds, time_limit_seconds)
    with training.locked(), threads.deterministic() if deterministic else nullcontext():
        if isinstance(rows, Rows):
            estimator, refitted = _train(training, rows, masks, make, bool(refit))
            fitted = _fitted(estimator, masks["train"] | masks["val"] if refit else masks["train"])
            known, statistics = what_is_known(estimator, rows, fitted)
            dealt = _split(rows, part, fitted)
        else:
            assert most is not None
            estimator, refitted = rows.fit(make(), most, training.hooks({"words": "fitting"})), {}
            known, statistics = rows.what_is_known(estimator)
            dealt = rows.split()
        facts = {
            **{setting: arguments[setting] for setting in SETTINGS},
            "fit": name,
            "arguments": {**arguments, "observations": str(observations), "output": str(output)},
            "data": rows.manifest(),
            "rows": _counted(rows, masks, known),
            **refitted,
            **beside,
            "reference_count": estimator.reference_count_,
            "center": estimator.center,
            "fit_seconds": round(training.seconds(), 2),
            "peak_rss_mb": round(peak_rss_mb(), 1),
            "versions": versions(),
            "created": clock.now().isoformat(timespec="seconds"),
            "scores": None,
        }
        tensors = {"split": dealt, "support": known.to_tensors(), **statistics}
        training.clear()
        run = save(output, estimator, facts, extra=tensors, overwrite=overwrite)
    for words in doubts_of(run):
        warnings.warn(words, DataWarning, stacklevel=2)
    return Fit(run, training.resumed_from_epoch)


def _refuse_whole(**asked: str | Path | None) -> None:
    """Refuse what takes all rows at once."""
    for name, value in asked.items():
        if value is not None and value != "none":
            raise InvalidInput(
                f"A table read in parts is fitted whole, and --{name} {value} asks for all rows at once; leave it out, or "
                "allow more memory."
            )


def _name(*asked: Any) -> str:
    """Eight digits by which logs name a fit before it has weights: of the table's hash and what was asked of it."""
    return hashlib.sha256(json.dumps(asked, default=str, sort_keys=True).encode()).hexdigest()[:8]


def _estimator(
    arguments: Mapping[str, Any], rows: Rows | Parts, predictor: Any, **changes: Any
) -> GPRegressor:
    """The estimator that a fit's arguments describe, not fitted."""
    method, asked = arguments["method"], arguments["model"]
    options = {
        "device": arguments["device"],
        "random_state": arguments["seed"],
        "target_transform": rows.goal.transform,
        **asked,
    }
    if predictor is not None:
        options["options"] = {**(options.get("options") or {}), "predictor": predictor}
    return GPRegressor(method, spatial=(0, 1), time=2 if rows.has_time else None, **{**options, **changes})


def _train(
    training: UnfinishedFit,
    rows: Rows,
    masks: dict[str, Flags],
    make: Callable[..., GPRegressor],
    refit: bool,
) -> tuple[GPRegressor, dict[str, Any]]:
    """Fitted to the train rows while the validation rows choose; with `refit`, then to both.

    Returns
    -------
    The estimator, and what the run should say about the refit.
    """
    if not (refit and "taught" in training.notes):
        val = rows.select(masks["val"])
        estimator = make()
        estimator.fit(
            *rows.select(masks["train"]),
            validation=val if masks["val"].any() else None,
            hooks=training.hooks({"words": "choosing" if refit else "fitting"}),
        )
        if not refit:
            return estimator, {}
        if estimator.refits_by_conditioning:
            return _all_known(estimator, val), {"refit_epochs": 0}
        capacity = None if estimator.capacity_ is None else estimator.capacity_.to_dict()
        taught = estimator.engine_.taught()
        training.note(best_epoch=_best_epoch(estimator), capacity=capacity, taught=taught)
    return _refitted(training, rows, masks["train"] | masks["val"], make)


def _refitted(
    training: UnfinishedFit, rows: Rows, both: Flags, make: Callable[..., GPRegressor]
) -> tuple[GPRegressor, dict[str, Any]]:
    """Fitted to all rows, for as many epochs and with the scales that the notes say were best."""
    chosen, capacity = training.notes["best_epoch"], training.notes["capacity"]
    changes: dict[str, Any] = {"epochs": chosen, "steps": None} if chosen else {}
    # What the validation rows had a say in stays as it was chosen.
    if training.arguments["model"].get("fourier_scales", "auto") == "auto":
        changes["fourier_scales"] = capacity["fourier_scales"] if capacity else None
    estimator = make(**changes)
    # No rows to choose by: everything is conditioned on, and the last epoch of the chosen length stands.
    nothing = (np.empty((0, rows.X.shape[1])), np.empty(0), None)
    hooks = training.hooks({"words": "refitting", "epochs": chosen})
    hooks = replace(hooks, taught=training.notes.get("taught", {}))
    estimator.fit(*rows.select(both), validation=nothing, hooks=hooks)
    return estimator, {"refit_epochs": chosen, **({"refit_capacity": capacity} if capacity else {})}


def _best_epoch(estimator: GPRegressor) -> int:
    """Epochs after which the validation rows were predicted best; 0 for engines that do not count them."""
    return int(estimator.state()[1]["engine"].get("best_epoch") or 0)


def _all_known(field: GPRegressor, val: tuple[Array, Array, Array | None]) -> GPRegressor:
    """A local field that also knows the validation rows: what they taught it, noise and calibration, stays."""
    n_train, n_val = field.n_rows_, len(val[1])
    out = recondition(field, *val) if n_val else copy(field)
    out.n_rows_, out.fitted_rows_ = n_train + n_val, np.arange(n_train + n_val)
    low, high = field.target_range_
    if n_val:
        out.target_range_ = (min(low, float(val[1].min())), max(high, float(val[1].max())))
    return out


def _fitted(estimator: GPRegressor, given: Flags) -> Flags:
    """Which rows of the file the estimator learned, of those it was given: (N,)."""
    fitted = np.zeros_like(given)
    fitted[np.flatnonzero(given)[estimator.fitted_rows_]] = True
    return fitted


def _counted(rows: Rows | Parts, masks: Mapping[str, Flags], known: Known) -> dict[str, Any]:
    """How many rows went where."""
    return {
        "read": rows.n_rows,
        "dropped": rows.dropped,
        "counted_as_one": rows.counted_as_one,
        "fitted": sum(known.rows.values()),
        **{name: int(mask.sum()) for name, mask in masks.items()},
        "known": known.rows,
    }


def _split(rows: Rows, part: NDArray[np.str_], fitted: Flags) -> dict[str, Tensor]:
    """What `split.safetensors` holds: of each row of the file its part, whether it was learned, and its quarter."""
    return {
        "part": torch.from_numpy(_codes(part)),
        "fitted": torch.from_numpy(fitted),
        "quarter": torch.from_numpy(rows.quarter_codes),
    }


def _codes(part: NDArray[np.str_]) -> NDArray[np.int8]:
    """Parts as their place in `data_pipelines.splits.PARTS`."""
    codes = np.zeros(len(part), np.int8)
    for code, name in enumerate(PARTS):
        codes[part == name] = code
    return codes
