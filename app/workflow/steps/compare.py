"""A leaderboard: several methods on the same rows, each in its own process so that its memory is its own."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from app.choices import check_methods
from app.cluster import workers
from app.console import Report
from app.errors import Failed, InvalidInput
from app.peers import PEERS
from app.peers.evaluate import evaluate_peer
from app.workflow.apart import apart
from app.workflow.outputs import refuse_taken
from app.workflow.rasters.covariates import covariates_of
from app.workflow.rows import Array, read_rows
from app.workflow.scoring import pooled
from app.workflow.steps.evaluate import Evaluation, evaluate
from app.workflow.steps.fit import fit
from data_pipelines.atomic import atomic_path
from data_pipelines.splits import folds_of, make_split
from data_pipelines.words import many
from geogp.run import load
from maps.words import number

#: What runs of other rows mean.
CHANGED = "The methods were not fitted on the same split; the observations changed on the way."
#: What the last comparison of a folder of runs found, beside them.
LEADERBOARD = "compare.json"
#: Fewer test rows are said to be few.
FEW = 400


@dataclass(frozen=True)
class Comparison:
    """Evaluations of the methods, best NLL first."""

    target: str
    split: str
    evaluations: tuple[Evaluation, ...]

    @property
    def words(self) -> str:
        """What the target is called, by its table where this has a name for it."""
        return str(
            next(
                (e.document["target_title"] for e in self.evaluations if "target_title" in e.document),
                self.target,
            )
        )

    def caution(self) -> str:
        """What few rows cannot tell; "" where they are enough."""
        n = min(e.document["n_test"] for e in self.evaluations)
        if n >= FEW:
            return ""
        # The NLL of one row varies by about .7, as that of a Gaussian does.
        more = "" if len(folds_of(self.split)) > 1 else "; --split kfold scores every row once"
        return (
            f"Compared on {many(n, 'row')}: differences in NLL below about {1.4 / np.sqrt(n):.2f}, and in coverage below "
            f"{200 * np.sqrt(0.95 * 0.05 / n):.0f} points, may be chance{more}."
        )

    def document(self) -> dict[str, Any]:
        rows = [{k: v for k, v in e.document.items() if k != "schema"} for e in self.evaluations]
        caution = {"caution": said} if (said := self.caution()) else {}
        return {"schema": 1, "target": self.target, "split": self.split, **caution, "rows": rows}

    header = (
        "method", "spread", "NLL", "CRPS", "MAE", "RMSE", "coverage95", "width95", "CRPS (unit)", "seconds", "MB",
    )  # fmt: skip

    def rows(self) -> list[list[str]]:
        """A table for people."""
        out = []
        for e in self.evaluations:
            d, s = e.document, e.document["scores"]
            numbers = [f"{s[name]:.3f}" for name in ("nll", "crps", "mae", "rmse", "coverage95", "width95")]
            native = f"{number(d['scores_native']['crps'], 4)} {e.unit}".rstrip()
            method = d["method"] + (" (places alone)" if d.get("covariates") == [] else "")
            name = [method, d.get("spread", "")]
            out.append([*name, *numbers, native, f"{d['fit_seconds']:.0f}", f"{d['peak_rss_mb']:.0f}"])
        return out


def compare(
    observations: str | Path,
    *,
    methods: Sequence[str],
    target: str | None = None,
    split: str = "random",
    seed: int = 0,
    device: str = "auto",
    model: Mapping[str, Any] | None = None,
    covariates: str | None = None,
    keep: str | Path | None = None,
    scheduler: str | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
) -> Comparison:
    """Fit and score several methods on the same split.

    Parameters
    ----------
    observations, target, seed, device, model, covariates : as for `fit`; peers that take none know the places alone
    split : also "kfold" or "kfold10": each method is fitted once a fold, and each row scored once
    methods : rows of the method table, and peers (`app.peers.PEERS`; most need the `bench` extra)
    keep : folder for the runs, one of each method's name, and for what was found (`LEADERBOARD`, of the last comparison);
        None throws them away
    scheduler : whose workers fit them side by side, see `app.cluster.workers`; they see `keep` under the same name. Seconds
        are then those beside others, memory that of a worker since it began
    overwrite : replace runs in `keep`
    progress : called with (methods done, methods, name)

    Raises
    ------
    InvalidInput
        unknown method, a split without test rows, existing runs.
    MissingPackage
        a peer whose package is not installed; nothing has been fitted then.
    Failed
        a fit that failed; the message is its own.

    Notes
    -----
    Cost: the sum of the fits; without `scheduler` they run one after the other so that their times can be compared.
    """
    names = check_methods(methods)
    if split == "none":
        raise InvalidInput(
            "Split 'none' holds nothing out to compare on; take random, block, forward, kfold or FILE:COLUMN."
        )
    splits = folds_of(split)
    rows = read_rows(observations, target, covariates=covariates_of(covariates or ""))
    target = rows.target
    make_split(rows.table, splits[0], seed)  # refused here, before any fit
    asked: dict[str, Any] = {
        "observations": str(Path(observations).resolve()) if scheduler else str(observations),
        "target": target,
        "seed": seed,
        "device": device,
        "covariates": covariates,
    }
    ours = {"model": dict(model or {}), "overwrite": overwrite}
    with TemporaryDirectory(prefix="geogp-compare-") as temporary:
        folder = Path(keep) if keep is not None else Path(temporary)
        kept = {(n, s): folder / n if len(splits) == 1 else folder / n / s for n in names for s in splits}
        for path in kept.values():
            refuse_taken(path, overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        documents: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        parts: dict[str, Array] = {}

        def work(name: str, each: str, path: Path) -> tuple[str, dict[str, Any]]:
            """What is fitted, and the arguments."""
            if name in PEERS:
                return "peer", {"name": name, "split": each, **asked}
            path.parent.mkdir(parents=True, exist_ok=True)
            return "ours", {
                "method": name,
                "output": str(path.resolve() if scheduler else path),
                "split": each,
                **asked,
                **ours,
            }

        pieces = ((*work(name, each, path), f"Fitting {name}") for (name, each), path in kept.items())
        with workers(scheduler) as cluster:
            done = (
                (_apart(*piece) for piece in pieces) if cluster is None else cluster.in_order(_there, pieces)
            )
            for i, ((name, each), path) in enumerate(kept.items()):
                if progress is not None:
                    progress(i, len(kept), name)
                document = next(done)
                if document is None:
                    document = evaluate(path, data=observations).document
                    part = load(path).tensors("split")["part"].numpy()
                    if not np.array_equal(parts.setdefault(each, part), part):
                        raise Failed(CHANGED)
                documents[name].append(document)
        if len({tuple(d["n_test"] for d in found) for found in documents.values()}) > 1:
            raise Failed(CHANGED)
        if progress is not None:
            progress(len(kept), len(kept), "")
    evaluations = [Evaluation(folder / name, pooled(found, split)) for name, found in documents.items()]
    best_first = sorted(evaluations, key=lambda e: e.document["scores"]["nll"])
    found = Comparison(target, split, tuple(best_first))
    if keep is not None:
        with atomic_path(Path(keep) / LEADERBOARD, overwrite=True) as temporary_file:
            temporary_file.write_text(json.dumps(found.document(), indent=1) + "\n", encoding="utf-8")
    return found


def _there(kind: str, arguments: dict[str, Any], what: str) -> dict[str, Any] | None:
    """In a worker: the document of a peer; of a method of ours the run on disk is the answer."""
    try:
        return FITTED[kind](**arguments)
    except Exception as error:
        if hasattr(error, "exit_code"):
            raise
        raise Failed(f"{what} failed: {type(error).__name__}: {' '.join(str(error).split())}") from None


def _apart(kind: str, arguments: dict[str, Any], what: str) -> dict[str, Any] | None:
    """The same in a process of its own."""
    answer: dict[str, Any] | None = apart(FITTED[kind], what, **arguments)
    return answer


def _fit(**arguments: Any) -> None:
    fit(**arguments)


#: Who fits what.
FITTED: dict[str, Callable[..., dict[str, Any] | None]] = {"peer": evaluate_peer, "ours": _fit}
