"""A leaderboard: several methods on the same rows, each in its own process so that its memory is its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from app.console import Report
from app.errors import Failed, InvalidInput, Usage
from app.peers import PEERS, MissingPackage
from app.peers.evaluate import evaluate_peer
from app.workflow.apart import apart
from app.workflow.outputs import refuse_taken
from app.workflow.rows import read_rows
from app.workflow.steps.evaluate import Evaluation, evaluate
from app.workflow.steps.fit import fit
from data_pipelines.splits import make_split
from geogp.methods import method
from geogp.run import load


@dataclass(frozen=True)
class Comparison:
    """Evaluations of the methods, best NLL first."""

    target: str
    split: str
    evaluations: tuple[Evaluation, ...]

    def document(self) -> dict[str, Any]:
        rows = [{k: v for k, v in e.document.items() if k != "schema"} for e in self.evaluations]
        return {"schema": 1, "target": self.target, "split": self.split, "rows": rows}

    header = (
        "method", "spread", "NLL", "CRPS", "MAE", "RMSE", "coverage95", "width95", "CRPS (unit)", "seconds", "MB",
    )  # fmt: skip

    def rows(self) -> list[list[str]]:
        """A table for people."""
        out = []
        for e in self.evaluations:
            d, s = e.document, e.document["scores"]
            numbers = [f"{s[name]:.3f}" for name in ("nll", "crps", "mae", "rmse", "coverage95", "width95")]
            native = f"{d['scores_native']['crps']:.4g} {e.unit}".rstrip()
            name = [d["method"], d.get("spread", "")]
            out.append([*name, *numbers, native, f"{d['fit_seconds']:.0f}", f"{d['peak_rss_mb']:.0f}"])
        return out


def compare(
    observations: str | Path,
    *,
    methods: Sequence[str],
    target: str = "download",
    split: str = "random",
    seed: int = 0,
    device: str = "auto",
    model: Mapping[str, Any] | None = None,
    keep: str | Path | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
) -> Comparison:
    """Fit and score several methods on the same split.

    Parameters
    ----------
    observations, target, split, seed, device, model : as for `fit`
    methods : rows of the method table, and peers (`app.peers.PEERS`; most need the `bench` extra)
    keep : folder for the runs, one of each method's name; None throws them away
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
    Cost: the sum of the fits; they run one after the other so that their times can be compared.
    """
    names = _known(methods)
    if split == "none":
        raise InvalidInput(
            "Split 'none' holds nothing out to compare on; take random, block, forward or FILE:COLUMN."
        )
    make_split(read_rows(observations, target).table, split, seed)  # refused here, before any fit
    asked: dict[str, Any] = {
        "observations": str(observations),
        "target": target,
        "split": split,
        "seed": seed,
        "device": device,
    }
    ours = {"model": dict(model or {}), "overwrite": overwrite}
    with TemporaryDirectory(prefix="geogp-compare-") as temporary:
        folder = Path(keep) if keep is not None else Path(temporary)
        for name in names:
            refuse_taken(folder / name, overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        evaluations, parts = [], []
        for i, name in enumerate(names):
            if progress is not None:
                progress(i, len(names), name)
            if name in PEERS:
                document = apart(evaluate_peer, f"Fitting {name}", name=name, **asked)
                evaluations.append(Evaluation(Path(name), document))
                continue
            apart(_fit, f"Fitting {name}", method=name, output=str(folder / name), **asked, **ours)
            evaluations.append(evaluate(folder / name, data=observations))
            parts.append(load(folder / name).tensors("split")["part"].numpy())
        tested = {e.document["n_test"] for e in evaluations}
        if len(tested) > 1 or any(not np.array_equal(parts[0], other) for other in parts[1:]):
            raise Failed(
                "The methods were not fitted on the same split; the observations changed on the way."
            )
        if progress is not None:
            progress(len(names), len(names), "")
    best_first = sorted(evaluations, key=lambda e: e.document["scores"]["nll"])
    return Comparison(target, split, tuple(best_first))


def _known(methods: Sequence[str]) -> list[str]:
    """The names, each once; refused where one is no method and no peer that can run here."""
    names = list(dict.fromkeys(methods))
    if not names:
        raise Usage("Name the methods to compare, as --methods A,B; `geogp methods` lists them.")
    for name in names:
        if name not in PEERS:
            method(name)
        elif not PEERS[name].installed:
            raise MissingPackage.of(PEERS[name])
    return names


def _fit(**arguments: Any) -> None:
    """`fit` in a process of its own: the run on disk is its answer."""
    fit(**arguments)
