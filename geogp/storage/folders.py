"""A run's folder: written whole, read with its sums checked, changed as one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from geogp.errors import InvalidInput, check_new_run, check_run_folder
from geogp.storage.files import finite, json_text, read_json, read_tensors, write_tensors, write_text
from geogp.storage.staging import alone, link_missing, remove, replace_folder, room_for, staged, sweep
from geogp.storage.sums import FACTS, SUMS, WEIGHTS, digests, verify, write_sums

SCHEMA = 1
#: Times that a run is read again because it changed while it was being read.
TRIES = 5


def partial_folder(path: Path) -> Path:
    """Where an unfinished run of `path` lives."""
    return path.parent / f".{path.name}.partial"


def write_folder(
    path: Path,
    tensors: Mapping[str, dict[str, Tensor]],
    facts: dict[str, Any],
    *,
    overwrite: bool = False,
    folder: Path | None = None,
) -> None:
    """Write a run folder: files of tensors by name without suffix ("weights", "statistics/2023Q4"), run.json, hashes.

    run.json says under "files" which files there must be, with their sums.

    Parameters
    ----------
    folder : where it is built, beside `path`; default `partial_folder(path)`

    Raises
    ------
    InvalidInput
        if `path` exists and overwrite is False, or is no run.
    NoRoom
        the disk is full; `path` is as it was.
    """
    check_new_run(path, overwrite)
    folder = folder or partial_folder(path)
    size = sum(v.numel() * v.element_size() for values in tensors.values() for v in values.values())
    with room_for(path, size + len(json_text(facts))):
        _write(path, tensors, facts, folder)


def _write(path: Path, tensors: Mapping[str, dict[str, Tensor]], facts: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in tensors.items():
        file = folder / f"{name}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(file, values)
    for leftover in ("checkpoint.safetensors", "checkpoint.json"):
        (folder / leftover).unlink(missing_ok=True)
    for place in {folder, *(p for p in folder.rglob("*") if p.is_dir())}:
        sweep(place)
    _seal(folder, facts)
    with alone(path.resolve().parent):
        replace_folder(folder, path)
    remove(folder)


def _seal(folder: Path, facts: dict[str, Any]) -> None:
    """run.json and SHA256SUMS of a folder whose other files are there."""
    write_text(folder / FACTS, json_text({"schema": SCHEMA, **facts, "files": digests(folder)}))
    write_sums(folder)


def read_folder(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the facts of a run folder, its hashes checked; "files" of the facts are the sums.

    Raises
    ------
    InvalidInput
        no finished run there, a file missing, too many or altered, or another schema.
    """
    for attempt in range(TRIES):
        before = _inode(path)
        try:
            found = _read(path)
        except InvalidInput:
            if _inode(path) == before or attempt == TRIES - 1:
                raise
        else:
            if _inode(path) == before:
                return found
    raise InvalidInput(f"{path} changes all the time; wait for what writes it.")


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    check_run_folder(path)
    sums = verify(path)
    facts = read_json(path / FACTS)
    check_schema(path / FACTS, facts.get("schema"))
    facts["files"] = {name: digest for name, digest in sums.items() if name != FACTS}
    return read_tensors(path / WEIGHTS), facts


def check_schema(file: Path, found: Any) -> None:
    """Refuse a run of another schema, and say which way it is another.

    Raises
    ------
    InvalidInput
    """
    if found == SCHEMA and not isinstance(found, bool):
        return
    if isinstance(found, int) and not isinstance(found, bool) and found > SCHEMA:
        raise InvalidInput(f"{file} has schema {found}, this version reads {SCHEMA}: update geogp.")
    raise InvalidInput(f"{file} has schema {found!r}, and there are 1 to {SCHEMA}: fit it again.")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_ctime_ns


def update_facts(
    path: str | Path,
    changes: dict,
    *,
    documents: Mapping[str, dict] | None = None,
    weights_sha256: str | None = None,
) -> None:
    """Merge `changes` into run.json (e.g. scores), write `documents` (file name -> JSON-able) beside it.

    The hashes are renewed; an interruption leaves the run as it was.

    Parameters
    ----------
    weights_sha256 : of the run that `changes` are about; None takes whatever is there

    Raises
    ------
    InvalidInput
        a run that is not whole, or whose weights are others by now.
    NoRoom
        the disk is full; the run is as it was.
    """
    path = Path(path).resolve()
    with staged(path) as work, alone(path.parent), room_for(path):
        sums = verify(path)
        if weights_sha256 not in (None, sums[WEIGHTS]):
            raise InvalidInput(
                f"{path} has other weights than it had when this was computed (it was updated or fitted again); "
                "run the same command again."
            )
        facts = {**read_json(path / FACTS), **changes}
        files = {name: json_text(finite(document)) for name, document in (documents or {}).items()}
        work.mkdir()
        link_missing(path, work, leave_out={*files, FACTS, SUMS})
        for name, text in files.items():
            write_text(work / name, text)
        _seal(work, facts)
        replace_folder(work, path)


def read_document(path: str | Path, name: str) -> dict | None:
    """A JSON document of a run folder, such as certificate.json; None where it has none.

    Raises
    ------
    InvalidInput
        a file that holds no JSON object.
    """
    return read_json(Path(path) / name) if (Path(path) / name).exists() else None


__all__ = [
    "SCHEMA",
    "partial_folder",
    "read_document",
    "read_folder",
    "update_facts",
    "write_folder",
]
