"""A leaderboard: several methods on the same rows, each in its own process so that its memory is its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.console import Report
from app.errors import Failed, InvalidInput, Usage
from app.peers import PEERS, MissingPackage
from app.workflow.evaluating import Evaluation, evaluate, unit_words
from app.workflow.rows import read_rows
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

    header = ("method", "NLL", "CRPS", "MAE", "RMSE", "coverage95", "width95", "CRPS (unit)", "seconds", "MB")

    def rows(self) -> list[list[str]]:
        """A table for people."""
        out = []
        for d in (e.document for e in self.evaluations):
            s = d["scores"]
            numbers = [f"{s[name]:.3f}" for name in ("nll", "crps", "mae", "rmse", "coverage95", "width95")]
            crps, unit = d["scores_native"]["crps"], unit_words(d["scores_native"]["unit"], d["target"])
            native = f"{crps:.4g} {unit}".rstrip()
            out.append([d["method"], *numbers, native, f"{d['fit_seconds']:.0f}", f"{d['peak_rss_mb']:.0f}"])
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
    names = list(dict.fromkeys(methods))
    if not names:
        raise Usage("Name the methods to compare, as --methods dbk-silu,dbk-rbf; `geogp methods` lists them.")
    for name in names:
        if name not in PEERS:
            method(name)
        elif not PEERS[name].installed:
            raise MissingPackage.of(PEERS[name])
    if split == "none":
        raise InvalidInput(
            "Split 'none' holds nothing out to compare on; take random, block, forward or FILE:COLUMN."
        )
    make_split(read_rows(observations, target).table, split, seed)  # refused here, before any fit
    with tempfile.TemporaryDirectory(prefix="geogp-compare-") as temporary:
        folder = Path(keep) if keep is not None else Path(temporary)
        existing = [folder / name for name in names if (folder / name).exists()]
        if existing and not overwrite:
            raise InvalidInput(f"{existing[0]} exists; give another folder, or --overwrite to replace it.")
        folder.mkdir(parents=True, exist_ok=True)
        config = Path(temporary) / "fit.json"
        evaluations, parts = [], []
        for i, name in enumerate(names):
            if progress is not None:
                progress(i, len(names), name)
            if name in PEERS:
                evaluations.append(_peer(name, config, observations, target, split, seed, device))
                continue
            arguments = {
                "observations": str(observations), "output": str(folder / name), "target": target, "method": name,
                "split": split, "seed": seed, "device": device, "model": dict(model or {}), "overwrite": overwrite,
            }  # fmt: skip
            config.write_text(json.dumps(arguments), encoding="utf-8")
            _apart(_CHILD, config, name)
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


_CHILD = """
import json, sys
from app.workflow import fit
try:
    fit(**json.loads(open(sys.argv[1], encoding="utf-8").read()))
except Exception as error:
    code = getattr(error, "exit_code", None)
    if code is None:
        raise
    print(" ".join(str(error).split()), file=sys.stderr)
    sys.exit(code)
"""

#: The same for a peer, which leaves no run: its document replaces its arguments.
_CHILD_PEER = _CHILD.replace(
    "from app.workflow import fit", "from app.peers.scoring import fit_and_score as fit"
).replace("fit(**json", "fit(sys.argv[1], **json")


def _peer(
    name: str, config: Path, observations: str | Path, target: str, split: str, seed: int, device: str
) -> Evaluation:
    """A peer, fitted and scored in a fresh interpreter."""
    arguments = {
        "observations": str(observations), "name": name, "target": target, "split": split, "seed": seed,
        "device": device,
    }  # fmt: skip
    config.write_text(json.dumps(arguments), encoding="utf-8")
    _apart(_CHILD_PEER, config, name)
    return Evaluation(Path(name), json.loads(config.read_text(encoding="utf-8")))


def _apart(script: str, config: Path, name: str) -> None:
    """One fit in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(config)], stderr=subprocess.PIPE, text=True
    )
    if done.returncode == 0:
        return
    words = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
    if done.returncode in (2, 3):
        raise InvalidInput(words[-1])
    raise Failed(f"Fitting {name} failed: {words[-1]}")
