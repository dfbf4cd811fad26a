"""Threads: arithmetic in one order, whatever the machine, and small pieces of work side by side."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

#: Threads that are worth their while, between which Python's lock goes round; pieces each has before it, so that it need
#: not wait and answers do not pile up.
MOST, AHEAD = 8, 3

_lock = threading.Lock()
_here = threading.local()
#: How many are inside `one_thread_each`, how many threads torch had before the first of them, and what numpy's BLAS has again.
_inside, _before = 0, 1
_blas = ExitStack()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Inside, no operation of torch or of numpy's BLAS is shared among threads; how many threads torch had, and has again after.

    Operations on arrays of some ten thousand numbers take as long to share as to do, and on a busy machine many times as
    long. May be entered by several threads at once.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = torch.get_num_threads()
            _blas.enter_context(_controller().limit(limits=1, user_api="blas"))
        _inside += 1
        threads = _before
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(1 if _inside else _before)
            if _inside == 0:
                _blas.close()


@contextmanager
def patient() -> Iterator[None]:
    """Inside, no operation of torch is shared among threads that wait actively, as they do where torch was imported before
    geogp: beside other programs each step of a fit would wait for the processor that another holds."""
    # Looked up, not imported: geogp imports this.
    with one_thread_each() if sys.modules["geogp"]._THREADS_WAIT_ACTIVELY else nullcontext():
        yield


def side_by_side(
    work: Callable[[Piece], Answer], pieces: Iterable[Piece], *, most: int = MOST
) -> Iterator[Answer]:
    """What `work` makes of each piece, without gradients, in their order: as many at once as torch has threads, each in one.

    The answers are those of one thread, to the last bit. What a piece raises is raised here. Inside a piece no more
    threads are started.

    Parameters
    ----------
    most : threads at most; more than `MOST` are worth their while only where an operation takes milliseconds

    Examples
    --------
    >>> list(side_by_side(lambda x: 2 * x, [torch.ones(1), torch.zeros(1)]))
    [tensor([2.]), tensor([0.])]
    """

    stopped = threading.Event()

    def alone(piece: Piece) -> Answer:
        _here.working, _here.stopped = True, stopped
        with torch.no_grad():
            return work(piece)

    with one_thread_each() as threads:
        if threads == 1 or getattr(_here, "working", False):
            for piece in pieces:
                with torch.no_grad():
                    answer = work(piece)
                yield answer
            return
        threads = min(threads, most)
        with ThreadPoolExecutor(threads, "geogp", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            waiting: deque[Future[Answer]] = deque()
            try:
                for piece in pieces:
                    waiting.append(pool.submit(alone, piece))
                    if len(waiting) == AHEAD * threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                stopped.set()
                for future in waiting:
                    future.cancel()


class Stopped(Exception):
    """Nobody waits for the answer any more."""


def go_on() -> None:
    """Inside a piece of `side_by_side` that takes long, now and then: raises `Stopped` where another piece has failed or whoever
    waits has been interrupted, who would wait for its end otherwise.

    Examples
    --------
    >>> go_on()  # outside all goes on
    """
    stopped = getattr(_here, "stopped", None)
    if stopped is not None and stopped.is_set():
        raise Stopped


@contextmanager
def deterministic() -> Iterator[None]:
    """Inside, a fit gives the same weights to the last bit, however many threads the process has.

    Sums are added in another order by two threads than by one; a fit, which takes thousands of steps, makes of that
    other weights. Inside torch, BLAS and OpenMP have one thread. Another release of torch, another processor or a GPU
    may differ still.

    Raises
    ------
    RuntimeError
        From torch, on a GPU, where an operation has no way that repeats itself.

    Examples
    --------
    >>> with deterministic():
    ...     torch.get_num_threads()
    1
    """
    threads, mode = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.use_deterministic_algorithms(mode)
        torch.set_num_threads(threads)
