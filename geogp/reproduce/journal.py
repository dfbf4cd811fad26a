"""What a long reproduction has measured so far, so that a stopped one goes on where it was."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_file: ContextVar[Path | None] = ContextVar("journal", default=None)


@contextmanager
def keeping(path: Path | None) -> Iterator[None]:
    """Keep what is measured inside in a file of a JSON line each; None keeps nothing."""
    token = _file.set(path)
    try:
        yield
    finally:
        _file.reset(token)


def once(key: dict[str, Any], measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What `measure` gives, or gave earlier under an equal key.

    Parameters
    ----------
    key : everything the measurement depends on, as JSON has it

    Examples
    --------
    >>> once({"method": "sgpr"}, lambda: {"nll": 0.5})
    {'nll': 0.5}
    """
    path, name = _file.get(), json.dumps(key, sort_keys=True)
    if path is None:
        return measure()
    kept = _read(path)
    if name not in kept:
        kept[name] = measure()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps([name, kept[name]]) + "\n")  # a line that was cut stays alone
    return kept[name]


def _read(path: Path) -> dict[str, dict[str, float]]:
    """What the file holds; a line that was cut when the process was killed is none."""
    kept = {}
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        try:
            name, scores = json.loads(line)
        except ValueError:
            continue
        kept[name] = scores
    return kept
