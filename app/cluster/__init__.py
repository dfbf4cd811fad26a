"""Work past this process, on Dask: a scheduler that was named, or workers that are started here and taken down again.

Nothing of Dask is imported where none was asked for. What is sent are functions of ours by their names, and their
arguments: whoever works for us has this very version installed.
"""

import importlib.util
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from app.errors import InvalidInput, Unfinished
from data_pipelines.words import many
from geogp import __version__

#: Seconds for a scheduler to answer, and then for its first worker to be there.
ANSWERS, WORKS = 10, 60
#: Pieces on their way: so many a thread, and so many in all where nobody works yet.
AHEAD, LEAST_AHEAD = 2, 4
#: Seconds between two looks at how many work.
LOOK = 5.0
#: A worker of ours that holds more than this share of its memory is ended by Dask, and begun anew.
MOST_HELD = 0.95
#: Of a worker of ours, before it imports anything.
ONE_THREAD = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}
_LOCAL = re.compile(r"local:([1-9][0-9]{0,2})")
_ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx)://)?([\w.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}/?")


def check_scheduler(text: str | None, option: str = "--scheduler") -> None:
    """Refuse what names no scheduler, or one without the package that speaks to it; None, for nothing said, passes.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_scheduler("local:none")
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: --scheduler is the address of a Dask scheduler, such as tcp://10.0.0.5:8786, or local:N for \
N processes here; got 'local:none'.
    """
    if text is None:
        return
    if not (_LOCAL.fullmatch(text) if text.startswith("local") else _ADDRESS.fullmatch(text)):
        raise InvalidInput(
            f"{option} is the address of a Dask scheduler, such as tcp://10.0.0.5:8786, or local:N for N processes here; "
            f"got {text!r}."
        )
    if importlib.util.find_spec("distributed") is None:
        raise InvalidInput(
            f"{option} needs Dask, which is not installed: pip install -e '.[distributed]' beside this GeoGP."
        )


def processes_of(text: str | None) -> int:
    """How many processes a scheduler starts on this machine: N of local:N, else 0.

    Examples
    --------
    >>> processes_of("local:4"), processes_of("tcp://10.0.0.5:8786"), processes_of(None)
    (4, 0, 0)
    """
    found = None if text is None else _LOCAL.fullmatch(text)
    return 0 if found is None else int(found[1])


@dataclass
class Cluster:
    """Those who work for us.

    client : `distributed.Client`
    name : what was asked for
    """

    client: Any
    name: str
    _looked: float = -LOOK
    _threads: int = 0

    def submit(self, work: Callable[..., Any], /, *arguments: Any) -> "Future":
        """Begin `work(*arguments)` somewhere; a worker that ends on the way costs only what it was doing."""
        return Future(self, self.client.submit(_done, __version__, work, *arguments, pure=False))

    def share(self, value: Any) -> Any:
        """A value that many pieces take, for `submit`: each worker gets it once."""
        return self.client.submit(_same, value, pure=False)

    def ahead(self) -> int:
        """How many pieces to have on their way: none waits, and answers do not pile up."""
        return max(LEAST_AHEAD, AHEAD * self.threads)

    @property
    def threads(self) -> int:
        """How many pieces are worked on at once; looked up now and then, for workers come and go."""
        if (now := time.monotonic()) - self._looked > LOOK:
            self._looked = now
            with suppress(Exception):  # a scheduler that is gone is told of by the next answer
                self._threads = sum(self.client.nthreads().values())
        return self._threads

    @property
    def words(self) -> str:
        return many(self.threads, "worker")

    def in_order(self, work: Callable[..., Any], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """What `work(*piece)` gives of each piece, in their order; as many at once as there are workers."""
        waiting: list[Future] = []
        try:
            for piece in pieces:
                waiting.append(self.submit(work, *piece))
                while len(waiting) > self.ahead():
                    yield waiting[0].result()
                    waiting.pop(0)
            while waiting:
                yield waiting[0].result()
                waiting.pop(0)
        finally:
            for future in waiting:
                future.cancel()


@dataclass
class Future:
    """A piece of work somewhere."""

    cluster: Cluster
    future: Any

    def result(self) -> Any:
        """What it came to.

        Raises
        ------
        Unfinished
            The scheduler is gone, or several workers ended at this piece: the same command goes on.
        InvalidInput
            The workers have not what is needed.
        """
        from concurrent.futures import CancelledError

        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        name = self.cluster.name
        try:
            return self.future.result()
        except KilledWorker as error:
            raise Unfinished(
                f"Several workers of {name} ended at the same piece of work, as they do who have too little memory; give "
                "them more, and the same command goes on."
            ) from error
        except (CancelledError, CommClosedError, TimeoutError, ConnectionError) as error:
            raise Unfinished(
                f"The scheduler {name} is gone; the same command goes on, with another --scheduler or without."
            ) from error
        except ImportError as error:
            raise InvalidInput(
                f"The workers of {name} cannot do this ({error}); install this version of GeoGP where they run."
            ) from error

    def done(self) -> bool:
        return bool(self.future.status == "finished")

    def cancel(self) -> None:
        with suppress(Exception):
            self.future.cancel()


@contextmanager
def workers(scheduler: str | None, *, memory: int | None = None) -> Iterator[Cluster | None]:
    """Those whom `--scheduler` names; None where it names none.

    Parameters
    ----------
    scheduler : address of a Dask scheduler, local:N, or None
    memory : bytes that each process of local:N may take; None for no bound

    Raises
    ------
    InvalidInput
        no such address, nobody answers, nobody works there, Dask is not installed.
    """
    check_scheduler(scheduler)
    if scheduler is None:
        yield None
        return
    import dask
    from distributed import Client

    for part in ("distributed", "tornado"):
        logging.getLogger(part).setLevel(logging.CRITICAL)
    # Of what all workers take, such as a surface, Dask would warn that it is large: it is sent once.
    quietly = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})
    with quietly, _place(scheduler, memory) as address:
        try:
            client = Client(address, timeout=ANSWERS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"No Dask scheduler answers at {scheduler} within {ANSWERS} s ({_line(error)}); start one with "
                "`dask scheduler`, or take --scheduler local:N."
            ) from None
        try:
            try:
                client.wait_for_workers(1, timeout=WORKS)
            except TimeoutError:
                raise InvalidInput(
                    f"Nobody works for the scheduler {scheduler} after {WORKS} s; start `dask worker {scheduler}` where "
                    "GeoGP is installed."
                ) from None
            yield Cluster(client, scheduler)
        finally:
            with suppress(Exception):
                client.close(timeout=5)


@contextmanager
def _place(scheduler: str, memory: int | None) -> Iterator[Any]:
    """What a client connects to: the address, or processes of our own as long as they are needed."""
    if not (n := processes_of(scheduler)):
        yield scheduler
        return
    with started(n, memory=memory) as own:
        yield own


@contextmanager
def started(n: int, *, memory: int | None = None) -> Iterator[Any]:
    """A `distributed.LocalCluster` of n processes with a thread each, which nobody outside this machine can reach.

    Parameters
    ----------
    memory : bytes that each may take; one that takes more is ended and begun anew
    """
    import dask
    from distributed import LocalCluster

    from app.workflow.apart import without_script

    # Dask writes nothing to disk, which would be pickles; and memory that is free stays with a worker: given back and asked
    # for again in each step, it takes as long as the work.
    own_ways = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.terminate": MOST_HELD,
        "distributed.nanny.pre-spawn-environ": ONE_THREAD,
    }
    with dask.config.set(own_ways), without_script():  # for those that are begun anew on the way, too
        own = LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address=None,
            memory_limit=memory or 0,
            silence_logs=logging.CRITICAL,
            preload=["app.cluster.own"],
        )
        try:
            yield own
        finally:
            own.close(timeout=10)


def _done(version: str, work: Callable[..., Any], /, *arguments: Any) -> Any:
    """In a worker: a piece of work, if it has this version."""
    if version != __version__:
        raise InvalidInput(f"A worker has GeoGP {__version__}, and this is {version}; install the same.")
    return work(*arguments)


def _same(value: Any) -> Any:
    return value


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
