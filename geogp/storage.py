"""Runs on disk without pickle: JSON, safetensors and a list of hashes that is checked on load.

A run is built in a hidden folder beside its final place, which also holds the checkpoint of an unfinished
fit, and renamed when complete: `run/` is either whole or absent. What changes a run later builds the changed
one beside it and swaps the two: `run/` is the old one or the new one at any moment.
"""

import ctypes
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from geogp.basis.train import Progress
from geogp.errors import InvalidInput

SCHEMA = 1
SUMS = "SHA256SUMS"


def sha256(path: Path) -> str:
    """Hex digest of a file, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write atomically: temporary name in the same folder, fsync, rename."""
    temporary = path.with_name(f".{path.name}.tmp{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file atomically, re-opened and compared before it gets its name."""
    temporary = path.with_name(f".{path.name}.tmp{os.getpid()}")
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, temporary)
    if set(load_file(temporary)) != set(tensors):
        temporary.unlink()
        raise OSError(f"{path.name} could not be read back after writing; check the disk.")
    # safetensors makes files that only their owner can read; a run is there to be shared, as the umask allows.
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(temporary, 0o666 & ~mask)
    with open(temporary, "rb") as f:
        os.fsync(f.fileno())
    os.replace(temporary, path)


def _write_sums(folder: Path) -> None:
    files = sorted(
        p for p in folder.rglob("*") if p.is_file() and p.name != SUMS and not p.name.startswith(".")
    )
    write_text(folder / SUMS, "".join(f"{sha256(p)}  {p.relative_to(folder).as_posix()}\n" for p in files))


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

    Parameters
    ----------
    folder : where it is built, beside `path`; default `partial_folder(path)`

    Raises
    ------
    InvalidInput
        if `path` exists and overwrite is False.
    """
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists; give another -o, or --overwrite to replace it.")
    folder = folder or partial_folder(path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in tensors.items():
        file = folder / f"{name}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(file, values)
    write_text(folder / "run.json", _json({"schema": SCHEMA, **facts}))
    for leftover in ("checkpoint.safetensors", "checkpoint.json"):
        (folder / leftover).unlink(missing_ok=True)
    _write_sums(folder)
    if path.exists():
        swap(folder, path)
        shutil.rmtree(folder)
    else:
        os.rename(folder, path)


def read_folder(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the facts of a run folder, its hashes checked.

    Raises
    ------
    InvalidInput
        no finished run there, a file missing or altered, or a newer schema.
    """
    if not path.is_dir():
        raise InvalidInput(f"{path} is not a run folder; `geogp fit ... -o {path}` makes one.")
    verify(path)
    facts = json.loads((path / "run.json").read_text(encoding="utf-8"))
    if facts.get("schema") != SCHEMA:
        raise InvalidInput(
            f"{path / 'run.json'} has schema {facts.get('schema')}, this version reads {SCHEMA}: update geogp."
        )
    return read_tensors(path / "weights.safetensors"), facts


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    return load_file(path)


def swap(a: Path, b: Path) -> None:
    """Exchange the names of two folders of one file system, in one step where the system can (Linux)."""
    a, b = a.resolve(), b.resolve()  # what a link points to, not the link
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        done = rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0
    except AttributeError:
        done = False
    if not done:
        aside = b.parent / f".{b.name}.old{os.getpid()}"
        os.rename(b, aside)
        os.rename(a, b)
        os.rename(aside, a)


#: Of renameat2(2): paths as from here; exchange both names.
_HERE, _EXCHANGE = -100, 2


def update_facts(path: str | Path, changes: dict, *, documents: Mapping[str, dict] | None = None) -> None:
    """Merge `changes` into run.json (e.g. scores), write `documents` (file name -> JSON-able) beside it.

    The hashes are renewed; an interruption leaves the run as it was.
    """
    path = Path(path).resolve()
    verify(path)
    facts = json.loads((path / "run.json").read_text(encoding="utf-8"))
    facts.update(changes)
    files = {"run.json": _json(facts), **{name: _json(_finite(d)) for name, d in (documents or {}).items()}}
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        os.chmod(work, path.stat().st_mode)
        _link(path, work, leave_out={*files, SUMS})
        for name, text in files.items():
            write_text(work / name, text)
        _write_sums(work)
        swap(work, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read_document(path: str | Path, name: str) -> dict | None:
    """A JSON document of a run folder, such as certificate.json; None where it has none."""
    try:
        return json.loads((Path(path) / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _link(source: Path, target: Path, *, leave_out: set[str]) -> None:
    """The files of a folder under the same names in another: links where the file system has them, else copies."""
    for file in sorted(p for p in source.rglob("*") if p.is_file()):
        name = file.relative_to(source)
        if name.as_posix() in leave_out:
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target / name)
        except OSError:
            shutil.copy2(file, target / name)


def _json(facts: dict) -> str:
    return json.dumps(facts, indent=1, sort_keys=False, allow_nan=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot go into run.json")


def _finite(value: Any) -> Any:
    """JSON has no NaN: None instead."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def verify(path: Path) -> None:
    """Compare every file of a run with its recorded hash.

    Raises
    ------
    InvalidInput
        naming the first file that is missing or differs.
    """
    if not (path / SUMS).is_file():
        raise InvalidInput(f"{path} is not a finished run (it has no {SUMS}); fit it again.")
    for line in (path / SUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        file = (path / name).resolve()
        if not file.is_relative_to(path.resolve()):
            raise InvalidInput(
                f"{path / SUMS} names {name!r}, outside the run folder; do not trust this run."
            )
        if not file.is_file():
            raise InvalidInput(f"{path} lacks {name}; copy the whole folder again, or fit again.")
        if sha256(file) != digest:
            raise InvalidInput(
                f"{path / name} has changed since it was written; copy it again, or fit again."
            )


# -- checkpoints of an unfinished fit --------------------------------------------------------------


def write_checkpoint(folder: Path, state: dict, arguments: dict) -> None:
    """Store what `train` hands to its checkpoint callback, with the arguments it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    progress: Progress = state["progress"]
    tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in state["model"].items()}
    tensors |= {f"best.{k}": v for k, v in progress.best_state.items()}
    tensors |= {f"average.{k}": v for k, v in state.get("average", {}).items()}
    for index, slots in state["optimiser"]["state"].items():
        tensors |= {f"optimiser.{index}.{k}": torch.as_tensor(v) for k, v in slots.items()}
    facts = {
        "arguments": arguments,
        "groups": state["optimiser"]["param_groups"],
        "progress": asdict_light(progress),
    }
    # Clones: an interrupted write must not leave tensors that share memory with a model in training.
    write_tensors(folder / "checkpoint.safetensors", {k: v.detach().clone() for k, v in tensors.items()})
    facts["tensors_sha256"] = sha256(folder / "checkpoint.safetensors")
    write_text(folder / "checkpoint.json", json.dumps(_finite(facts)))


def asdict_light(progress: Progress) -> dict:
    """Progress without its tensors."""
    return {
        k: v
        for k, v in asdict(Progress(**{**progress.__dict__, "best_state": {}})).items()
        if k != "best_state"
    }


def read_checkpoint(folder: Path, arguments: dict) -> dict | None:
    """What to pass to `train(resume=...)`, or None when there is no checkpoint of these very arguments.

    A checkpoint whose two files do not belong together (a kill between their writes) counts as absent.
    """
    try:
        facts = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
        if facts["arguments"] != json.loads(json.dumps(_finite(arguments))):
            return None
        if sha256(folder / "checkpoint.safetensors") != facts["tensors_sha256"]:
            return None
        tensors = load_file(folder / "checkpoint.safetensors")
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None

    def under(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in under("optimiser.").items():
        index, name = key.split(".", 1)
        slots.setdefault(int(index), {})[name] = value
    saved = facts["progress"]
    best = math.inf if saved["best_score"] is None else saved["best_score"]
    return {
        "progress": Progress(saved["epoch"], best, saved["best_epoch"], under("best."), saved["history"]),
        "model": under("model."),
        "optimiser": {"state": slots, "param_groups": facts["groups"]},
        "average": under("average."),
    }
