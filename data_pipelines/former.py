"""Whether what is read now is what was read before: sources of the same name and date by their SHA-256."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Record = dict[str, Any]

#: Tables and runs of a folder that are looked at, the newest first; bytes of one document that are read.
MOST_BESIDE, MOST_BYTES = 20, 64 * 2**20
KEY = b"geogp"
#: What lies beside an output.
TABLES, RUNS = "*.parquet", "*/run.json"


def changed(metadata: Record, former: Record) -> list[str]:
    """Names of the sources whose content is another than in a former table's or run's document.

    Two records are of one source when file name and quarter are the same, or, without a quarter, path or URL.

    Parameters
    ----------
    metadata, former : documents with `sources`, and `boundary_source` and `urban` where there are any

    Examples
    --------
    >>> a, b = ({"sources": [{"url": f"{at}/q4.parquet", "quarter": "2023Q4", "sha256": at}]} for at in "ab")
    >>> changed(a, b), changed(a, a)
    (['q4.parquet'], [])
    """
    now, then = _records(metadata), _records(former)
    return [
        name.rsplit("/", 1)[-1]
        for (name, quarter), digest in now.items()
        if then.get((name, quarter), digest) != digest
    ]


def note(metadata: Record, folder: Path, among: tuple[str, ...] = (TABLES, RUNS)) -> str | None:
    """One sentence where a source differs from the one that a table or run of `folder` was made from, else None."""
    for path, document in _beside(folder, among):
        if names := changed(metadata, document):
            return sentence(names, str(path))
    return None


def sentence(names: list[str], what: str) -> str:
    """What to say of changed sources."""
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"{listed} {'is' if len(names) == 1 else 'are'} not what {what} was made from (another SHA-256, same name and "
        "date): numbers of the two may differ; make both from one, and hold to it with --expect-sha256."
    )


def _records(document: Record) -> dict[tuple[str, str], str]:
    """(name or URL, quarter) -> SHA-256 of each source that has one."""
    urban = document.get("urban")
    records = [*(document.get("sources") or []), document.get("boundary_source")]
    if isinstance(urban, dict):
        records.append({"url": urban.get("source"), "sha256": urban.get("sha256")})
    out = {}
    for record in records:
        if isinstance(record, dict) and record.get("sha256") and record.get("url"):
            url, quarter = str(record["url"]), str(record.get("quarter") or "")
            out[url.rsplit("/", 1)[-1] if quarter else url, quarter] = str(record["sha256"])
    return out


def _beside(folder: Path, among: tuple[str, ...]) -> Iterator[tuple[Path, Record]]:
    """Tables and runs of a folder and what they say of their sources; what cannot be read is passed over."""
    found = [path for pattern in among for path in folder.glob(pattern)]
    dated = sorted(((p.stat().st_mtime, p) for p in found if p.is_file()), reverse=True)
    for _, path in dated[:MOST_BESIDE]:
        try:
            document = _document(path)
        except Exception:  # a file of others, damaged, or gone meanwhile: nothing to compare with
            continue
        if isinstance(document, dict):
            yield (path.parent if path.name == "run.json" else path), document


def _document(path: Path) -> Any:
    if path.name == "run.json":
        if path.stat().st_size > MOST_BYTES:
            return None
        return json.loads(path.read_text(encoding="utf-8")).get("data")
    return json.loads((pq.read_metadata(path).metadata or {}).get(KEY, b"null"))
