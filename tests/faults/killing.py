"""Kills a process by SIGKILL at its k-th change of the file system: what no clean-up code sees."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.faults.limiting import one_thread

#: Audit events of what changes a file system, and of flushes that stand between.
EVENTS = frozenset(
    {
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.mkdir",
        "os.link",
        "os.chmod",
        "shutil.rmtree",
        "shutil.copyfile",
    }
)


def killed_at(instant: int, work: Callable[..., Any], *arguments: Any) -> bool:
    """Whether `work`, in a process of its own, was killed just before its change number `instant` (from 0)."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(instant, work, arguments))
    process.start()
    process.join(120)
    code = process.exitcode
    assert code in (0, -signal.SIGKILL), f"the process ended with {code}"
    return code == -signal.SIGKILL


def killed_after(seconds: float, work: Callable[..., Any], *arguments: Any) -> bool:
    """Whether `work`, in a process of its own, was killed so long after it began; else it had ended well before."""
    process = multiprocessing.get_context("fork").Process(target=_alone, args=(work, arguments))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
    process.join()
    code = process.exitcode
    assert code in (0, -signal.SIGKILL), f"the process ended with {code}"
    return code == -signal.SIGKILL


def _alone(work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    one_thread()
    work(*arguments)


def changes(work: Callable[..., Any], *arguments: Any) -> int:
    """How many instants there are to kill `work` at; it is played to its end once."""
    told, tell = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(10**9, work, arguments, tell))
    process.start()
    left = told.recv()
    process.join(120)
    assert process.exitcode == 0
    return 10**9 - int(left)


def some(total: int, few: int) -> list[int]:
    """`few` of `total` instants: half over all of them, half over the last ones, where names are given."""
    early = {total * i // few for i in range(0, few, 2)}
    return sorted({*early, *range(max(0, total - few // 2), total)})


def _run(instant: int, work: Callable[..., Any], arguments: tuple[Any, ...], tell: Any = None) -> None:
    one_thread()
    left = [instant]

    def count(*_: object) -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    def audit(event: str, values: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(values[2], int) and values[2] & (os.O_WRONLY | os.O_RDWR)
        if event in EVENTS or (writes and str(values[0]).startswith(os.environ["KILLING"])):
            count()

    import geogp.storage.staging
    import maps.staging

    for module in (geogp.storage.staging, maps.staging):  # renameat2 has no audit event; both its sides count
        swap = module.swap
        module.swap = lambda a, b, swap=swap: (count(), swap(a, b), count())
    sys.addaudithook(audit)
    work(*arguments)
    if tell is not None:
        tell.send(left[0])
