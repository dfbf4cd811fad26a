"""The certificate of a run: what its intervals promised and what they kept on rows it never saw."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.workflow.grids import length_words
from app.workflow.rows import Flags
from data_pipelines.words import many
from geogp.calibrate import COUNT_EDGES, certificate
from geogp.predictive import Predictive
from geogp.run import Run
from geogp.scores import LEVELS, SMALLEST_GROUP

#: Its file in the run folder.
FILE = "certificate.json"


def certify(
    predictive: Predictive, t: NDArray[np.float64], groups: Mapping[str, Flags], **about: Any
) -> dict[str, Any]:
    """The certificate of predictions of held-out rows, as `certificate.json` and `evaluate --json` hold it.

    Parameters
    ----------
    predictive : of the rows, on the scale of t (n,)
    groups : name -> (n,) membership
    about : what the rows were, such as split and part

    Returns
    -------
    {"schema": 1, ..about, "n", "levels", "groups"}, see `geogp.calibrate.certificate`
    """
    inside = {}
    for level in LEVELS:
        lower, upper = predictive.interval(level)
        inside[level] = (t >= lower) & (t <= upper)
    return {"schema": 1, **about, "n": len(t), **certificate(inside, groups)}


def count_groups(counts: NDArray[np.float64] | None, counted_by: str = "tests") -> dict[str, Flags]:
    """Rows by the number of measurements behind them: "tests 1", "tests 2-4", ..; nothing where none are counted.

    The names begin with what was counted, see `app.workflow.outputs.counted_by`.

    Examples
    --------
    >>> {name: int(rows.sum()) for name, rows in count_groups(np.array([1.0, 3.0, 4.0, 99.0])).items()}
    {'tests 1': 1, 'tests 2-4': 2, 'tests 5-19': 0, 'tests 20+': 1}
    """
    if counts is None:
        return {}
    out = {}
    for low, high in itertools.pairwise([0.0, *COUNT_EDGES, np.inf]):
        first = int(low) + 1
        last = "+" if np.isinf(high) else "" if int(high) == first else f"-{int(high)}"
        out[f"{counted_by} {first}{last}"] = (counts > low) & (counts <= high)
    return out


def unscored_words(run: Run) -> str:
    """Why nothing shows how good a run is, and what would, as said after "The run" or its name."""
    if run.facts.get("split") == "none":
        return "holds no rows out, so nothing shows how good it is; fit it with --split for that."
    return f"was not scored on held-out rows; `geogp evaluate {run.path}` does."


def certificate_of(run: Run) -> dict[str, Any] | None:
    """The certificate in a run folder, or None before its first evaluation, and where it is of other weights."""
    document = run.document(FILE)
    if document is not None and document.get("weights_sha256") not in (None, run.weights_sha256):
        return None
    return document


def short(document: Mapping[str, Any]) -> dict[str, Any]:
    """What exported files carry: split, part, rows, and the achieved coverages by group."""
    groups = {
        name: {"n": g["n"], "judged": g["judged"], "achieved": [round(a, 4) for a in g["achieved"]]}
        for name, g in document["groups"].items()
    }
    keep = ("split", "part", "n", "levels")
    return {**{k: document[k] for k in keep}, "groups": groups}


def words(document: Mapping[str, Any]) -> str:
    """The certificate in a sentence, for the attributes of files and the page."""
    at = len(document["levels"]) - 1
    level = 100 * document["levels"][at]
    whole = document["groups"]["all"]
    low, high = whole["band"][at]
    parts = []
    for name, g in document["groups"].items():
        few = "" if g["judged"] else f" of {g['n']}"
        if name != "all":
            parts.append(f"{name} {100 * g['achieved'][at]:.1f}%{few}")
    return (
        f"{level:g}% prediction intervals held {100 * whole['achieved'][at]:.1f}% of {many(whole['n'], 'held-out row')} "
        f"({100 * low:.1f}-{100 * high:.1f}% by chance; {document['part']} part of split {document['split']}): "
        + ", ".join(parts)
    )


def table(document: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]], list[str]]:
    """Title, header, rows and footnotes for a terminal of 80 columns."""
    levels = [f"{100 * level:g}%" for level in document["levels"]]
    header = ["group", "rows", *(cell for level in levels for cell in (level, "chance"))]
    rows = []
    for name, g in document["groups"].items():
        cells = [name, f"{g['n']:,}" if g["judged"] else f"({g['n']})"]
        for achieved, (low, high), within in zip(g["achieved"], g["band"], g["within"]):
            digits = 1 if high - low < 0.05 else 0
            cells.append(f"{100 * achieved:.1f}{'*' if within is False else ' '}")
            cells.append(f"{100 * low:.{digits}f}-{100 * high:.{digits}f}")
        rows.append(cells)
    title = (
        f"Calibration certificate: % of the {document['part']} rows of split {document['split']} inside their "
        f"prediction intervals"
    )
    notes = [
        "chance: where a calibrated model lies 99 times in 100, were the rows independent; rows of one place share "
        "their luck, so a little outside is no proof."
    ]
    if "far" in document["groups"]:
        notes.append(f"near, far: within and beyond {length_words(document['far_m'])} of a training place.")
    if any(False in g["within"] for g in document["groups"].values()):
        notes.append("*: outside it.")
    if not all(g["judged"] for g in document["groups"].values()):
        notes.append(f"(rows): fewer than {SMALLEST_GROUP}, too few to judge.")
    return title, header, rows, notes
