"""A finished run learns new quarters and forgets old ones: its weights are solved again, nothing is trained."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.errors import InvalidInput, Usage
from app.workflow.knowing import Known, span
from app.workflow.news import NO_NEWS, News, news_of
from app.workflow.outputs import refuse_taken
from app.workflow.rows import ALL
from data_pipelines import quarters
from data_pipelines.splits import PARTS
from data_pipelines.words import many
from geogp.basis.statistics import Statistic
from geogp.estimator import GPRegressor
from geogp.run import Run, load, save
from geogp.storage import clock
from geogp.storage.staging import staged
from geogp.update import STATISTICS, observed_times, recondition, refresh, summarise, way

#: How far a time may have moved on its way through a field's own units and back.
ROUNDING_YEARS = 1e-6


@dataclass(frozen=True)
class Update:
    """An updated run, loaded, and what changed: quarter -> rows."""

    run: Run
    added: Mapping[str, int]
    forgotten: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> dict[str, int]:
        """Quarter -> rows that the run is conditioned on now."""
        return self.run.facts["rows"]["known"]

    def document(self) -> dict[str, Any]:
        """What `geogp update --json` prints."""
        return {
            "schema": 1, "run": str(self.run.path), "added": dict(self.added), "forgotten": dict(self.forgotten),
            "known": self.known, "notes": list(self.notes),
        }  # fmt: skip

    def summary(self) -> str:
        """One line for people."""
        parts = [
            f"{verb} {many(sum(changed.values()), 'row')} of {span(changed)}"
            for verb, changed in (("forgot", self.forgotten), ("added", self.added))
            if changed
        ]
        return f"{self.run.path}: {', '.join(parts)}; knows {many(sum(self.known.values()), 'row')} of {span(self.known)}"


def update(
    path: str | Path,
    *,
    add: str | Path | None = None,
    forget: str | None = None,
    data: str | Path | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
) -> Update:
    """Add quarters to what a run knows, or take them out of it, without retraining.

    Parameters
    ----------
    path : run folder
    add : an observations file, whose quarters that the run did not know are added; or quarters of the run's own
        file (forgotten ones come back as they were, held-out ones are held out no longer)
    forget : "2019Q1", "2019Q1..2019Q4" or a comma list
    data : the run's own observations, if they were moved
    output : write the updated run there and leave `path` as it is; None changes `path` itself
    overwrite : replace an existing `output`

    Raises
    ------
    Usage
        neither `add` nor `forget`.
    InvalidInput
        quarters the run does not know, a file that does not fit it, a method that cannot be updated. The run is then
        as it was, and so it is after an interruption.

    Notes
    -----
    The result equals, in float64, the same basis (or local field) conditioned on exactly the rows known afterwards.
    Basis, kernel, noise, target scaling and calibration stay those of the fit. Scores and certificate were of the
    old run and go. Cost: one pass over the new rows, O(n r^2), and O(r^3) a quarter; for a local field one
    neighbour search.
    """
    if not (add or forget):
        raise Usage("Say what to --add (a table of `geogp ingest`) or what to --forget (such as 2019Q1).")
    path = Path(path)
    target = path if output is None else Path(output)
    if output is not None:
        refuse_taken(target, overwrite)
    with _workplace(target) as work:
        run = load(path)
        renew = _solved if way(run.model) == STATISTICS else _reconditioned
        known = Known.of_run(run)
        gone = _forgotten(run, known, forget)
        rest = known.without(gone)
        news = NO_NEWS if add is None else news_of(run, known, add, data)
        if not rest.rows and news.rows is None:
            raise InvalidInput(f"{path} would know nothing any more; leave it a quarter, or --add others.")
        after = rest.with_(news.known)
        model, statistics = renew(run, gone, after, news)
        split = _split(run, news)
        dropped = {label: known.rows[label] for label in gone}
        fresh = save(
            target,
            _told(model, after, news),
            _facts(run, after, dropped, news, split),
            extra={"split": split, "support": after.to_tensors(), **statistics},
            overwrite=True,
            folder=work,
        )
    return Update(fresh, news.known.rows, dropped, news.notes)


@contextmanager
def _workplace(target: Path) -> Iterator[Path]:
    """A hidden folder beside the run; no other process updates the run meanwhile."""
    if not target.parent.is_dir():
        raise InvalidInput(f"{target.parent} is not a folder; make it, or give another -o.")
    with ExitStack() as stack:
        if target.is_dir():
            handle = os.open(target, os.O_RDONLY)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(f"Another update is writing {target}; wait for it.") from None
            except OSError:  # a file system without locks
                pass
        yield stack.enter_context(staged(target.resolve()))


def _forgotten(run: Run, known: Known, forget: str | None) -> list[str]:
    """The labels to take out."""
    if not forget:
        return []
    names = [part.strip() for part in forget.split(",")]
    # Files without quarters have labels of their own; all else is a list of quarters.
    gone = names if set(names) <= set(known.rows) else quarters.parse(forget)
    for label in gone:
        if label not in known.rows and ALL in known.rows:
            parts = ", ".join(known.rows)
            raise InvalidInput(
                f"The rows of {run.path} have no quarters, so that it cannot forget {label}; what can be forgotten is {parts}."
            )
        if label not in known.rows:
            raise InvalidInput(
                f"{run.path} does not know {label}, so that it cannot forget it; it knows {span(known.rows)}."
            )
    return sorted(set(gone))


Renewed = tuple[GPRegressor, dict[str, dict[str, Tensor]]]


def _solved(run: Run, gone: list[str], after: Known, news: News) -> Renewed:
    """The run's model with weights solved from statistics, and those statistics as files."""
    parts = {
        label: Statistic.from_tensors(run.tensors(f"statistics/{label}"))
        for label in run.facts["rows"]["known"]
        if label not in gone
    }
    if news.rows is not None:
        X, t, counts = news.rows.select(news.mask)
        parts |= summarise(run.model, X, t, counts, groups=news.labels[news.mask])
    # In the order of the labels, so that the same rows give the same weights bit for bit, however they came.
    ordered = {label: parts[label] for label in after.rows}
    return refresh(run.model, ordered.values()), {
        f"statistics/{label}": part.to_tensors() for label, part in ordered.items()
    }


def _reconditioned(run: Run, gone: list[str], after: Known, news: News) -> Renewed:
    """The run's local field on other observations."""
    rows = (None, None, None) if news.rows is None else news.rows.select(news.mask)
    if not gone:
        return recondition(run.model, *rows), {}
    times = observed_times(run.model)
    if times is None:
        raise InvalidInput(
            f"{run.path} has observations without a time, which cannot be told apart; fit it again."
        )
    keep = ~np.isin(quarters.of_years(times + ROUNDING_YEARS), gone)
    left = sum(n for label, n in run.facts["rows"]["known"].items() if label not in gone)
    if int(keep.sum()) != left:
        raise InvalidInput(
            f"{run.path} has {int((~keep).sum()):,} observations at the times of {span(gone)} where its record has "
            f"{len(keep) - left:,}; fit it again."
        )
    # The rows that the function is given are in the order of `times`.
    return recondition(run.model, *rows, keep=lambda _: keep), {}


def _told(model: GPRegressor, after: Known, news: News) -> GPRegressor:
    """The model with its own record of the rows renewed."""
    out = copy(model)
    out.n_rows_ = sum(after.rows.values())
    if news.rows is not None:
        t = news.rows.t[news.mask]
        low, high = model.target_range_
        out.target_range_ = (min(low, float(t.min())), max(high, float(t.max())))
    return out


def _split(run: Run, news: News) -> dict[str, Tensor]:
    """The run's split: rows of its own file that it has learned now are held out no longer."""
    split = run.tensors("split")
    if news.rows is None:
        return split
    part, fitted = split["part"].clone(), split["fitted"].clone()
    if news.own:
        mask = torch.from_numpy(news.mask)
        part[mask], fitted[mask] = PARTS.index("train"), True
        return {**split, "part": part, "fitted": fitted}
    # Another file may hold the very rows that were held out of a quarter.
    own = run.data["labels"]
    codes = torch.tensor([own.index(label) for label in news.known.rows if label in own], dtype=torch.int16)
    held = torch.isin(split["quarter"], codes) & (part != PARTS.index("train"))
    part[held] = PARTS.index("unused")
    return {**split, "part": part}


def _facts(
    run: Run, after: Known, dropped: dict[str, int], news: News, split: dict[str, Tensor]
) -> dict[str, Any]:
    """run.json of the updated run: what it knows, where that came from, and no scores of the old one."""
    facts = {k: v for k, v in run.facts.items() if k not in ("schema", "model")}
    data = dict(run.data)
    names = (set(data["quarters"]) - set(dropped)) | set(news.known.rows) if data["quarters"] else set()
    known = sorted(names)
    if known:
        data |= {"quarters": known, "last_quarter": known[-1]}
    source = None
    if news.rows is not None:
        source = {"path": str(news.rows.path), "sha256": news.rows.sha256}
    step = {
        "time": clock.now().isoformat(timespec="seconds"),
        "forgotten": dropped,
        "added": news.known.rows,
        "from": source,
        "notes": list(news.notes),
    }
    was, now = run.tensors("split")["part"], split["part"]
    rows = {**facts["rows"], "fitted": sum(after.rows.values()), "known": after.rows}
    for name in ("val", "test"):
        rows[name] -= int(((was == PARTS.index(name)) & (now != was)).sum())
    return {
        **facts, "data": data, "rows": rows, "scores": None, "updates": [*facts.get("updates", []), step],
    }  # fmt: skip
