"""Which files a run has and their SHA-256: said in run.json and in SHA256SUMS, and both are held to."""

import os
import re
from pathlib import Path

from geogp.errors import InvalidInput
from geogp.storage.files import read_json, sha256, write_text

SUMS, FACTS, WEIGHTS = "SHA256SUMS", "run.json", "weights.safetensors"
#: What systems put into folders by themselves.
_SYSTEM = re.compile(r"\.DS_Store|\._.*|\.nfs\w+|Thumbs\.db|desktop\.ini")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a run but run.json and the list of sums itself, by name."""
    return {name: sha256(folder / name) for name in _files(folder) if name not in (SUMS, FACTS)}


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS, as `sha256sum -c` reads it."""
    found = {**digests(folder), FACTS: sha256(folder / FACTS)}
    write_text(folder / SUMS, "".join(f"{found[name]}  {name}\n" for name in sorted(found)))


def verify(path: Path) -> dict[str, str]:
    """Hold every file of a run to what SHA256SUMS and run.json say of it; what they say, by name.

    Raises
    ------
    InvalidInput
        naming the first file that is missing, too many or altered.
    """
    if not (path / SUMS).is_file():
        raise InvalidInput(f"{path} is not a finished run (it has no {SUMS}); fit it again.")
    said = read_sums(path)
    for name, digest in said.items():
        _check(path, name, digest, SUMS)
    told = read_json(path / FACTS).get("files")
    if told is not None:  # runs written before do not say it
        if not isinstance(told, dict):
            raise InvalidInput(f"{path / FACTS} does not say which files the run has; fit it again.")
        for name in sorted({*told, *said} - {FACTS}):
            if name in told and name not in said:
                _check(path, name, told[name], FACTS)
                raise InvalidInput(
                    f"{path / SUMS} has changed since it was written: it lacks {name}; {_AGAIN}."
                )
            if told.get(name) != said[name]:
                raise InvalidInput(f"{path / name} is not what {FACTS} says it is; {_AGAIN}.")
    extra = [name for name in _files(path) if name not in said and name != SUMS]
    if extra:
        raise InvalidInput(f"{path / extra[0]} is not part of the run; move it out of the folder.")
    return said


_AGAIN = "copy it again, or fit again"


def read_sums(path: Path) -> dict[str, str]:
    """Name -> SHA-256 as SHA256SUMS has it; it names run.json and the weights at least.

    Raises
    ------
    InvalidInput
        a line that is none, a name outside the folder, or one of the two not there.
    """
    try:
        lines = (path / SUMS).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path / SUMS} has changed since it was written (no text); {_AGAIN}.") from error
    out: dict[str, str] = {}
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, 1):
        match = re.fullmatch(r"([0-9a-f]{64})  (\S.*)", line)
        name = match[2] if match else ""
        inside = os.path.normpath(name) == name and not os.path.isabs(name) and name.split("/")[0] != ".."
        if match and not inside:
            raise InvalidInput(
                f"{path / SUMS} names {name!r}, outside the run folder; do not trust this run."
            )
        if not match or "\0" in name or name in out:
            raise InvalidInput(f"{path / SUMS} has changed since it was written (line {number}); {_AGAIN}.")
        out[name] = match[1]
    for name in (FACTS, WEIGHTS):
        if name not in out:
            raise InvalidInput(f"{path / SUMS} has changed since it was written: it lacks {name}; {_AGAIN}.")
    return out


def _check(path: Path, name: str, digest: str, by: str) -> None:
    """Refuse a file that is not as a list `by` says."""
    file = path / name
    if not file.resolve().is_relative_to(path.resolve()):
        raise InvalidInput(f"{file} leads out of the run folder; do not trust this run.")
    if not file.is_file():
        raise InvalidInput(
            f"{path} lacks {name}, which {by} lists; copy the whole folder again, or fit again."
        )
    if sha256(file) != digest:
        raise InvalidInput(f"{file} has changed since it was written; {_AGAIN}.")


def _files(folder: Path) -> list[str]:
    """Names of what lies in a run, sorted; not what systems put there by themselves."""
    found = (p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())
    return sorted(p.relative_to(folder).as_posix() for p in found if not _SYSTEM.fullmatch(p.name))
