"""Observations become a run: read, split, train, store; resumable after a kill, deterministic by seed."""

import fcntl
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import geogp
from app.console import Report
from app.errors import Interrupted, InvalidInput, Unfinished
from app.workflow.knowing import what_is_known
from app.workflow.predictors import raster_predictor
from app.workflow.rows import Array, Rows, read_rows
from data_pipelines.splits import PARTS, make_split
from geogp import storage
from geogp.engines import Hooks
from geogp.estimator import GPRegressor
from geogp.run import Run, save
from geogp.update import recondition

#: Seconds between checkpoints of an unfinished fit.
CHECKPOINT_SECONDS = 10.0
#: Facts of an unfinished fit beside its checkpoint; gone from the finished run.
NOTES, LOCK = "unfinished.json", ".lock"
PACKAGES = ("geogp", "torch", "numpy", "scipy", "scikit-learn", "gpytorch", "pyarrow", "xarray", "odc-geo")


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
        dropped = ", ".join(f"{n:,} {cause.replace('_', ' ')}" for cause, n in rows["dropped"].items() if n)
        parts = [
            f"{self.path}: {f['method']} on {f['target']}, {rows['fitted']:,} rows fitted",
            f"{rows['val']:,} validation, {rows['test']:,} test"
            if rows["val"] or rows["test"]
            else "none held out",
            f"dropped: {dropped}" if dropped else "",
            f"{rows['counted_as_one']:,} without a count taken as one test" if rows["counted_as_one"] else "",
            f"went on from epoch {self.resumed_from_epoch}" if self.resumed_from_epoch else "",
            f"{f['fit_seconds']:.0f} s, {f['peak_rss_mb']:.0f} MB",
        ]
        return "; ".join(part for part in parts if part)


def fit(
    observations: str | Path,
    *,
    output: str | Path,
    target: str = "download",
    method: str = "geogp",
    split: str = "none",
    refit: str | None = None,
    counts: str = "tests",
    predictor: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    model: Mapping[str, Any] | None = None,
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
    target : "download", "upload", "latency", "tests" or "value"
    method : a row of the method table
    split : "none", "random", "block", "forward" or "FILE:COLUMN"; training uses the train rows alone, and the
        validation rows choose and stop without being conditioned on; with "none" a tenth of the rows does that
        where there are 1,000 or more, and `refit` takes it back in
    refit : "train+val" trains once more on both, for as many epochs as were found best; a local field keeps what it
        learned, its calibration too, and comes to know both
    counts : what the noise takes as the number of measurements behind a value: "tests", "devices" or "both" (their
        geometric mean)
    predictor : a raster file whose pixels, in the target's unit, are the mean; with method "fmgp"
    seed : of split and training
    device : "cpu", "cuda" or "auto"
    model : further parameters of `geogp.GPRegressor`, such as rank or steps
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
    if output.exists() and not overwrite:
        raise InvalidInput(f"{output} exists; give another -o, or --overwrite to replace it.")
    rows = read_rows(observations, target, counts)
    part = make_split(rows.table, split, seed)
    masks = {name: rows.usable & (part == name) for name in PARTS}
    if not masks["train"].any():
        raise InvalidInput(f"Split {split!r} leaves no usable {target} row of {observations} to train on.")
    options = {"device": _device(device), "random_state": seed, **(model or {})}
    if target == "value" and method not in ("cox", "fmgp"):
        # Speeds, latencies and counts are logarithms already; a measured value comes on any scale.
        options.setdefault("target_transform", "auto")
    frozen = None
    if predictor is not None:
        raster = raster_predictor(predictor, rows, method)
        options["options"] = {**(options.get("options") or {}), "predictor": raster}
        frozen = {"path": str(Path(predictor).resolve()), "sha256": storage.sha256(Path(predictor))}
    arguments: dict[str, Any] = {
        "observations_sha256": rows.sha256,
        "target": target,
        "method": method,
        "split": split,
        "split_sha256": _digest(part),
        "refit": refit,
        "counts": counts,
        "predictor": frozen,
        "seed": seed,
        "model": dict(model or {}),
        "device": options["device"],
        "torch": torch.__version__,
    }
    training = Training(
        storage.partial_folder(output), arguments, progress, checkpoint_seconds, time_limit_seconds
    )
    with training.locked():
        estimator, facts = _train(training, rows, masks, method, options, refit)
        given = np.flatnonzero(masks["train"] | masks["val"] if refit else masks["train"])
        fitted = np.zeros(len(part), dtype=bool)
        fitted[given[estimator.fitted_rows_]] = True
        known, statistics = what_is_known(estimator, rows, fitted)
        seconds = training.seconds()
        training.clear()
        run = save(
            output,
            estimator,
            {
                "method": method,
                "target": target,
                "split": split,
                "refit": refit,
                "counts": counts,
                "seed": seed,
                "device": options["device"],
                "arguments": {**arguments, "observations": str(observations), "output": str(output)},
                "data": _manifest(rows),
                "rows": {
                    "read": rows.table.num_rows,
                    "dropped": rows.dropped,
                    "counted_as_one": rows.counted_as_one,
                    "fitted": estimator.n_rows_,
                    **{name: int(mask.sum()) for name, mask in masks.items()},
                    "known": known.rows,
                },
                **facts,
                "fit_seconds": round(seconds, 2),
                "peak_rss_mb": round(peak_rss_mb(), 1),
                "versions": versions(),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "scores": None,
            },
            extra={
                "split": {
                    "part": torch.from_numpy(_codes(part)),
                    "fitted": torch.from_numpy(fitted),
                    "quarter": torch.from_numpy(rows.quarter_codes),
                },
                "support": known.to_tensors(),
                **statistics,
            },
            overwrite=overwrite,
        )
    return Fit(run, training.resumed_from_epoch)


class Training:
    """One fit's hidden folder: its lock, its checkpoints, and the clock over all its attempts."""

    def __init__(
        self,
        folder: Path,
        arguments: dict[str, Any],
        progress: Report | None,
        checkpoint_seconds: float,
        time_limit_seconds: float | None,
    ):
        self.folder, self.arguments, self.progress = folder, arguments, progress
        self.every, self.limit = checkpoint_seconds, time_limit_seconds
        self.started = self.written = time.monotonic()
        self.resumed_from_epoch = 0
        self.epoch = 0
        self.notes: dict[str, Any] = {}
        self.before = 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The folder for this process alone; emptied when it belongs to other arguments."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / LOCK, "w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InvalidInput(
                    f"Another fit is writing {self.folder}; wait for it, or give another -o."
                ) from None
            try:
                self.notes = self._read_notes()
                self.before = float(self.notes.get("seconds", 0.0))
                yield
            except BaseException as stop:
                words = self._words()
                if not (self.folder / "checkpoint.json").exists():
                    shutil.rmtree(self.folder, ignore_errors=True)
                if not isinstance(stop, Interrupted):
                    raise
                if stop.terminated:
                    raise Unfinished(f"Terminated: {words}.") from None
                raise Interrupted(words) from None

    def hooks(self, phase: dict[str, Any]) -> Hooks:
        """Progress, checkpoints and the time limit for one of the fit's phases."""
        arguments = {**self.arguments, "phase": phase}
        resume = storage.read_checkpoint(self.folder, arguments)
        if resume is not None:
            self.epoch = self.resumed_from_epoch = int(resume["progress"].epoch)

        def on_epoch(epoch: int, epochs: int, score: float | None) -> None:
            if self.progress is not None:
                self.progress(epoch, epochs, phase["words"])

        def checkpoint(state: dict[str, Any]) -> None:
            now = time.monotonic()
            over = self.limit is not None and now - self.started > self.limit
            if now - self.written >= self.every or over:
                self.epoch = int(state["progress"].epoch)
                storage.write_checkpoint(self.folder, state, arguments)
                self.note()
                self.written = time.monotonic()
            if over:
                raise Unfinished(f"Stopped after {now - self.started:.0f} s as asked: {self._words()}.")

        return Hooks(on_epoch=on_epoch, checkpoint=checkpoint, resume=resume)

    def note(self, **facts: Any) -> None:
        """Keep facts beside the checkpoint."""
        self.notes = {**self.notes, **facts, "seconds": self.seconds()}
        storage.write_text(self.folder / NOTES, json.dumps({**self.notes, "arguments": self.arguments}))

    def seconds(self) -> float:
        """Time spent fitting, earlier attempts included."""
        return self.before + time.monotonic() - self.started

    def clear(self) -> None:
        """Leave nothing that is not part of a finished run."""
        for name in (NOTES, LOCK):
            (self.folder / name).unlink(missing_ok=True)

    def _read_notes(self) -> dict[str, Any]:
        try:
            notes = json.loads((self.folder / NOTES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            notes = {}
        if notes.pop("arguments", None) == json.loads(json.dumps(self.arguments)):
            return notes
        for path in self.folder.iterdir():  # another fit's remains
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {}

    def _words(self) -> str:
        if not (self.folder / "checkpoint.json").exists():
            return "the same command starts again"
        return f"the same command goes on from epoch {self.epoch}"


def _train(
    training: Training,
    rows: Rows,
    masks: dict[str, NDArray[np.bool_]],
    method: str,
    options: dict[str, Any],
    refit: str | None,
) -> tuple[GPRegressor, dict[str, Any]]:
    """The fitted estimator and what the run should say about the choice of epochs."""

    def make(**changes: Any) -> GPRegressor:
        return GPRegressor(
            method, spatial=(0, 1), time=2 if rows.has_time else None, **{**options, **changes}
        )

    train, val = rows.select(masks["train"]), rows.select(masks["val"])
    chosen = training.notes.get("best_epoch")
    if not (refit and chosen):
        words = "choosing" if refit else "fitting"
        estimator = make()
        estimator.fit(
            *train,
            validation=val if masks["val"].any() else None,
            hooks=training.hooks({"words": words}),
        )
        if not refit:
            return estimator, {}
        if estimator.refits_by_conditioning:
            return _all_known(estimator, val), {"refit_epochs": 0}
        chosen = int(getattr(estimator.engine_, "facts", {}).get("best_epoch") or 0)
        capacity = None if estimator.capacity_ is None else estimator.capacity_.to_dict()
        training.note(best_epoch=chosen, capacity=capacity)
    both = rows.select(masks["train"] | masks["val"])
    changes: dict[str, Any] = {"epochs": chosen, "steps": None} if chosen else {}
    # What the validation rows had a say in stays as it was chosen.
    capacity = training.notes.get("capacity")
    if options.get("fourier_scales", "auto") == "auto":
        changes["fourier_scales"] = capacity["fourier_scales"] if capacity else None
    estimator = make(**changes)
    # No rows to choose by: everything is conditioned on, and the last epoch of the chosen length stands.
    nothing = (np.empty((0, rows.X.shape[1])), np.empty(0), None)
    estimator.fit(*both, validation=nothing, hooks=training.hooks({"words": "refitting", "epochs": chosen}))
    return estimator, {"refit_epochs": chosen, **({"refit_capacity": capacity} if capacity else {})}


def _all_known(field: GPRegressor, val: tuple[Array, Array, Array | None]) -> GPRegressor:
    """A local field that also knows the validation rows: what they taught it, noise and calibration, stays."""
    n_train, n_val = field.n_rows_, len(val[1])
    out = recondition(field, *val) if n_val else copy(field)
    out.n_rows_, out.fitted_rows_ = n_train + n_val, np.arange(n_train + n_val)
    low, high = field.target_range_
    if n_val:
        out.target_range_ = (min(low, float(val[1].min())), max(high, float(val[1].max())))
    return out


def _manifest(rows: Rows) -> dict[str, Any]:
    """What the run keeps of the data: enough to check them, to map them and to say where they came from."""
    m = rows.metadata
    quarters = rows.quarters
    keep = (
        "source",
        "type",
        "region",
        "crs",
        "boundary",
        "bbox",
        "missing_quarters",
        "urban",
        "sources",
        "value_unit",
    )
    return {
        "path": str(rows.path),
        "sha256": rows.sha256,
        "rows": rows.table.num_rows,
        **{name: m.get(name) for name in keep},
        "labels": np.unique(rows.labels).tolist(),
        "quarters": quarters,
        "last_quarter": quarters[-1] if quarters else None,
    }


def _codes(part: NDArray[np.str_]) -> NDArray[np.int8]:
    """Parts as their place in `data_pipelines.splits.PARTS`."""
    codes = np.zeros(len(part), np.int8)
    for code, name in enumerate(PARTS):
        codes[part == name] = code
    return codes


def _digest(part: NDArray[np.str_]) -> str:
    import hashlib

    return hashlib.sha256(_codes(part).tobytes()).hexdigest()


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidInput(
            f"--device {name}: this machine or this torch ({torch.__version__}) has no CUDA; use cpu."
        )
    return name


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far, MB (2**20 bytes).

    Linux' VmHWM where there is one: ru_maxrss starts at the size of the process that started this one.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def versions() -> dict[str, str]:
    """Versions of Python and the packages that decide a result."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = geogp.__version__ if name == "geogp" else "absent"
    return found | {"threads": str(torch.get_num_threads()), "platform": os.uname().machine}
