"""SHA-256 of what an export wrote, of files and of folders such as a Zarr store."""

import hashlib
from pathlib import Path


def files_below(path: Path) -> list[Path]:
    """A file, or all files of a folder, sorted."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def sha256(path: Path) -> str:
    """Of a file; of a folder, that of its sorted `sha256  path` lines."""
    if path.is_dir():
        lines = "".join(f"{sha256(p)}  {p.relative_to(path).as_posix()}\n" for p in files_below(path))
        return hashlib.sha256(lines.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
