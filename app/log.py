"""Whose line it is: each line of a log names the version of GeoGP and the run it is about; none holds a value of the data."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import geogp

#: Packages whose INFO `--verbose` shows; of others it shows warnings.
OURS = ("app", "geogp", "maps", "data_pipelines")
#: Where a log record of ours says what it begins to work on: `log.info(.., extra={WORK: "run 1a2b3c4d"})`.
WORK = "work"
#: Names that a mark has at most: the latest.
MOST = 4

_begun: list[str] = []
_here: ContextVar[str] = ContextVar("geogp_works_on", default="")


def mark() -> str:
    """The head of a line: the version, and what this thread, else this process, works on.

    Examples
    --------
    >>> begin_anew(); mark()
    'geogp 0.1.0'
    >>> works_on("fit 1a2b3c4d"); mark()
    'geogp 0.1.0 [fit 1a2b3c4d]'
    """
    work = _here.get() or ", ".join(_begun)
    return f"geogp {geogp.__version__}" + (f" [{work}]" if work else "")


def works_on(name: str) -> None:
    """From now on this process works on something, too."""
    _begun[:] = [*(known for known in _begun if known != name), name][-MOST:]


def works_here_on(name: str) -> None:
    """From now on this thread (of a server: this request) works on one thing alone; "" on what the process does."""
    _here.set(name)


def begin_anew() -> None:
    """Nothing is worked on."""
    _begun.clear()
    _here.set("")


def marked(text: str) -> str:
    """A text with the mark before each of its lines."""
    return "\n".join(f"{mark()}: {line}" for line in text.split("\n"))


class _Lines(logging.Handler):
    """Records as marked lines on stderr: warnings, and where `verbose` all."""

    def __init__(self, verbose: bool):
        super().__init__(logging.INFO)
        self.verbose = verbose

    def emit(self, record: logging.LogRecord) -> None:
        if work := getattr(record, WORK, ""):
            works_on(work)
        if self.verbose or record.levelno >= logging.WARNING:
            print(marked(f"{record.name}: {self.format(record)}"), file=sys.stderr, flush=True)


@contextmanager
def logs(verbose: bool) -> Iterator[None]:
    """Logs inside go to stderr, each line marked: warnings, and where `verbose` what our packages say, too."""
    if any(isinstance(handler, _Lines) for handler in logging.getLogger().handlers):
        yield
        return
    handler, root = _Lines(verbose), logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in OURS}
    begin_anew()
    root.addHandler(handler)
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def take_over(*packages: str) -> None:
    """Have what packages log on handlers of their own go where all the rest goes."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.split(".")[0] in packages:
            logger.handlers.clear()
            logger.propagate = True
