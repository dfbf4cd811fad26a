"""Work in a process of its own, so that its memory is its own and a crash is a sentence."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from app.errors import Failed, InvalidInput

#: What it gave back, or else the words of its error and an exit status.
Answer = tuple[Any, str, int | None]


def apart(work: Callable[..., Any], what: str, /, **arguments: Any) -> Any:
    """What `work(**arguments)` gives back in a fresh interpreter, where nobody sees what it says on stderr.

    Parameters
    ----------
    work : a function of a module
    what : is done, for the message: "Fitting knn"

    Raises
    ------
    InvalidInput
        it ended with an error of usage or input; the message is its own.
    Failed
        any other error, or an end without an answer.

    Examples
    --------
    >>> apart(dict, "Making a dict", a=1)
    {'a': 1}
    """
    context = get_context("spawn")
    with TemporaryDirectory(prefix="geogp-apart-") as folder:
        said = Path(folder) / "stderr"
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_answer, args=(theirs, said, work, arguments))
        with without_script():
            child.start()
        theirs.close()
        try:
            result, words, code = _received(ours, said)
        except BaseException:
            child.kill()
            raise
        finally:
            child.join()
            ours.close()
    if code is None:
        return result
    words = words or f"it ended with status {child.exitcode}"
    if code in (2, 3):
        raise InvalidInput(words)
    raise Failed(f"{what} failed: {words}")


def _received(ours: Connection, said: Path) -> Answer:
    """The answer, or the last words of a process that ended without one."""
    try:
        return ours.recv()
    except EOFError:
        lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return None, lines[-1] if lines else "", 1


def _answer(theirs: Connection, said: Path, work: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """The body of the process."""
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    answer: Answer
    try:
        answer = work(**arguments), "", None
    except Exception as error:
        code = getattr(error, "exit_code", None)
        last = str(error) if code is not None else traceback.format_exception_only(error)[-1]
        answer = None, " ".join(last.split()), code or 1
    theirs.send(answer)


@contextmanager
def without_script() -> Iterator[None]:
    """A process started here does not run the caller's script again, which may have no `__main__` guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
