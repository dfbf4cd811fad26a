"""Workers without a cluster: all that reaches them, and all that they answer, has been through a wire."""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shared:
    """What was sent once."""

    wire: bytes


@dataclass
class Others:
    """They work one after the other, in a folder of their own if they have one; `done` names each piece of work."""

    home: Path | None = None
    done: list[str] = field(default_factory=list)

    def share(self, value: Any) -> Shared:
        return Shared(pickle.dumps(value))

    def in_order(self, work: Callable[..., Any], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        for piece in pieces:
            there, arguments = pickle.loads(pickle.dumps((work, piece)))
            known = [pickle.loads(v.wire) if isinstance(v, Shared) else v for v in arguments]
            here = Path.cwd()
            os.chdir(self.home or here)
            try:
                answer = there(*known)
            finally:
                os.chdir(here)
            self.done.append(work.__name__)
            yield pickle.loads(pickle.dumps(answer))
