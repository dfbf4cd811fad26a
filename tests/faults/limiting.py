"""Plays a full disk to a process of its own: no file may grow beyond a size, for root too."""

import io
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any


def one_thread() -> None:
    """In a forked process: the threads that computed for its parent are not here, and whoever waits for them hangs."""
    import torch

    torch.set_num_threads(1)


def under_limit(size: int, work: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """What `work` returns in a process whose files end at `size` bytes, or the error it raises; and its stderr.

    Fails where the process is ended by a signal.
    """
    told, tell = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(size, work, arguments, tell))
    process.start()
    tell.close()
    try:
        answer = told.recv()
    except EOFError:
        answer = None
    process.join(120)
    assert process.exitcode == 0 and answer is not None, f"the process ended with {process.exitcode}"
    return answer


def _run(size: int, work: Callable[..., Any], arguments: tuple[Any, ...], tell: Any) -> None:
    one_thread()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    said = io.StringIO()
    hear, speak = os.pipe()  # what libraries say past Python
    os.set_blocking(speak, False)
    os.dup2(speak, 2)
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        try:
            out = work(*arguments)
        except Exception as error:
            out = (type(error).__name__, getattr(error, "exit_code", None), str(error))
        sys.stderr.flush()
    os.set_blocking(hear, False)
    try:
        past = os.read(hear, 1 << 16).decode()
    except BlockingIOError:
        past = ""
    tell.send((out, said.getvalue() + past))
