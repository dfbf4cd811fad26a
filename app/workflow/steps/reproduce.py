"""The papers' tables and figures as files, and all their numbers beside ours in one table."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.workflow.outputs import refuse_taken
from geogp.errors import InvalidInput as CoreInvalidInput
from geogp.reproduce import REPRODUCTIONS, run
from geogp.reproduce.journal import keeping
from geogp.storage import write_text
from geogp.storage.staging import refuse_within_run
from maps.figures import write_png
from maps.panels import panels_figure

#: Which of them read files, and by which keyword.
DATA = ("dbk-table1", "dbk-fig6", "lowrank-table1", "softki-table1")
OBSERVATIONS = ("dbk-table2",)
SUMMARY = "all.md"


def names() -> list[str]:
    """What there is to reproduce."""
    return list(REPRODUCTIONS)


def reproduce(
    name: str,
    output: Path,
    *,
    data: Path | None = None,
    observations: Path | None = None,
    quick: bool = False,
    seed: int = 0,
    keep: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Run one, write NAME.md, NAME.json and, where it draws something, NAME.png; its content as plain data.

    What a table on the UCI files has measured is kept beside them until it is whole: a stopped one goes on.

    Parameters
    ----------
    keep : give back an earlier result with the same settings instead of refusing to overwrite it, and a document
        with the reason under "left_out" where files are missing

    Raises
    ------
    InvalidInput
        an unknown name, files that are not there, existing output without `overwrite`.
    """
    settings: dict[str, Any] = {"quick": quick, "seed": seed}
    files = [output / f"{name}.{suffix}" for suffix in ("md", "json", "png")]
    refuse_within_run(files[0])
    taken = [file for file in files if file.exists()]
    if taken and not overwrite:
        earlier = _read(files[1])
        if keep and earlier is not None and earlier.get("settings") == settings:
            return earlier
        refuse_taken(taken[0], overwrite)
    inputs: dict[str, Any] = {}
    if name in OBSERVATIONS and observations is not None:
        inputs["observations"] = observations
    if name in DATA and data is not None:
        inputs["data"] = data
    journal = output / f"{name}{'.quick' if quick else ''}.part.jsonl"
    try:
        with keeping(journal):
            result = run(name, quick=quick, seed=seed, **inputs)
    except CoreInvalidInput as error:
        if keep and name in (*DATA, *OBSERVATIONS):
            return {"name": name, "left_out": str(error)}
        raise
    output.mkdir(parents=True, exist_ok=True)
    # JSON has no NaN: null where the paper prints no number.
    document: dict[str, Any] = _plain({**result.to_dict(), "settings": settings})
    if result.panels:
        write_png(panels_figure(document["panels"], title=result.title), files[2], overwrite=overwrite)
    write_text(files[0], result.markdown())
    write_text(files[1], json.dumps(document, indent=1, allow_nan=False) + "\n")
    journal.unlink(missing_ok=True)
    return document


def side_by_side(documents: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one table with every number that a paper prints, ours before it."""
    rows = []
    for document in documents:
        columns = document.get("columns", [])
        for at, column in enumerate(columns):
            if not column.startswith("paper "):
                continue
            measure = column.removeprefix("paper ").split(" (")[0]
            ours = columns.index(measure) if measure in columns else at - 1
            for row in document["rows"]:
                mine, theirs = row[ours], row[at]
                if all(isinstance(v, int | float) for v in (mine, theirs)):
                    what = ", ".join(
                        _label(columns[i], v) for i, v in enumerate(row) if _is_label(columns[i], v)
                    )
                    rows.append(
                        [document["name"], what, measure, cell(mine), cell(theirs), f"{mine - theirs:+.3g}"]
                    )
    return ["reproduction", "of", "measure", "ours", "paper", "ours - paper"], rows


def write_summary(
    output: Path, header: Sequence[str], rows: Sequence[Sequence[str]], documents: Sequence[dict[str, Any]]
) -> Path:
    """All numbers in one markdown table, `all.md`, with the titles and notes of each reproduction."""
    lines = [
        "# The papers' numbers and ours",
        "",
        "| " + " | ".join(header) + " |",
        "|---|---|---|--:|--:|--:|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    for document in documents:
        lines += ["", f"## {document['name']}: {document.get('title', 'left out')}", ""]
        notes = document.get("notes") or [document.get("left_out", "")]
        lines += [f"- {note}" for note in notes if note]
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / SUMMARY, "\n".join(lines) + "\n")
    return output / SUMMARY


def cell(value: object) -> str:
    """A value as tables show it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _label(column: str, value: object) -> str:
    return f"{column} {cell(value)}" if isinstance(value, int) else str(value)


def _is_label(column: str, value: object) -> bool:
    """Text and whole numbers (rank, n, points) tell a row from the others."""
    return isinstance(value, str | int) and not isinstance(value, bool) and not column.startswith("paper")


def _plain(value: Any) -> Any:
    """The same without NaN and with plain numbers, at any depth."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(path: Path) -> dict[str, Any] | None:
    """An earlier result; None where there is none, or none that a table can be made of."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        width = len(found["columns"])
        whole = width and all(len(row) == width for row in found["rows"]) and isinstance(found["name"], str)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if whole else None
