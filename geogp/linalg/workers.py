"""Pieces of work that others may do: in other processes, on other machines, or here where there is nobody."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from geogp.linalg.threads import one_thread_each


class Workers(Protocol):
    """Who works in other processes. What is sent are functions of modules, by their names, and their arguments."""

    def share(self, value: Any) -> Any:
        """A value that many pieces take: each worker gets it once."""

    def in_order(self, work: Callable[..., Any], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """What `work(*piece)` gives of each piece, in their order."""


def by(
    workers: Workers | None,
    work: Callable[..., Any],
    shared: Any,
    pieces: Iterable[tuple[Any, ...]],
) -> Iterator[Any]:
    """What `work(shared, *piece)` gives of each piece, in their order: the same to the last bit whoever does it.

    Parameters
    ----------
    workers : None for this process, an operation in one thread as theirs

    Examples
    --------
    >>> list(by(None, pow, 2, [(1,), (5,)]))
    [2, 32]
    """
    if workers is not None:
        known = workers.share(shared)
        yield from workers.in_order(work, ((known, *piece) for piece in pieces))
        return
    for piece in pieces:
        with one_thread_each():
            answer = work(shared, *piece)
        yield answer
