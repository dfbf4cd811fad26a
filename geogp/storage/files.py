"""Single files of a run: text and tensors, whole or not at all, and JSON as it may be written."""

import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from geogp.errors import InvalidInput
from geogp.storage.staging import check_room, publish_file, room_for, staged


def sha256(path: Path) -> str:
    """Hex digest of a file, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write atomically: a hidden name in the same folder, flushed, renamed.

    Raises
    ------
    NoRoom
        the disk is full; `path` is as it was.
    """
    data = text.encode()
    check_room(path, len(data))
    with staged(path) as temporary, room_for(path, len(data)):
        temporary.write_bytes(data)
        publish_file(temporary, path)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file atomically, re-opened and compared before it gets its name.

    Raises
    ------
    NoRoom
        the disk is full; `path` is as it was.
    """
    size = sum(v.numel() * v.element_size() for v in tensors.values()) + 200 * (len(tensors) + 1)
    check_room(path, size)
    with staged(path) as temporary, room_for(path, size):
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, temporary)
        if set(load_file(temporary)) != set(tensors):
            raise OSError(f"{path.name} could not be read back after writing; check the disk.")
        # safetensors makes files that only their owner can read; a run is there to be shared, as the umask allows.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        publish_file(temporary, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises
    ------
    InvalidInput
        no such file, or none that can be read.
    """
    try:
        return load_file(path)
    except FileNotFoundError:
        raise InvalidInput(f"{path} is not there; copy the whole folder again, or fit again.") from None
    except Exception as error:  # safetensors raises its own, of several kinds
        raise InvalidInput(
            f"{path} cannot be read ({_first(error)}); copy it again, or fit again."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises
    ------
    InvalidInput
        no such file, no JSON, or no object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"{path} is not there; copy the whole folder again, or fit again.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON ({_first(error)}); copy it again, or fit again.") from error
    if not isinstance(found, dict):
        raise InvalidInput(
            f"{path} holds a {type(found).__name__} where a JSON object was written; copy it again, or fit again."
        )
    return found


def write_sealed(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON object that says its own sum; numbers that are not finite become null."""
    plain = json.loads(json.dumps(finite(document)))
    write_text(path, json.dumps({**plain, "sha256": _seal(plain)}))


def read_sealed(path: Path) -> dict[str, Any] | None:
    """What `write_sealed` wrote; None where there is nothing, or anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.pop("sha256", None) != _seal(found):
        return None
    return found


def _seal(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _first(error: Exception) -> str:
    """The first line of an error, short and printable."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"[^\x20-\x7e]", "?", text)[:120]


def json_text(facts: dict) -> str:
    """JSON as runs hold it: indented, no NaN.

    Raises
    ------
    ValueError
        a number that is not finite.
    """
    return json.dumps(facts, indent=1, sort_keys=False, allow_nan=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot go into run.json")


def finite(value: Any) -> Any:
    """JSON has no NaN: None instead."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value
