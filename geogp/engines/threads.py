"""Arithmetic in one order, whatever the machine: one thread, and only algorithms that repeat themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


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
