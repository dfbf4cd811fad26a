"""Words on stderr, data on stdout, progress bars only on a terminal."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from app.log import mark, marked

#: With this in GEOGP_PROGRESS progress goes to stderr in lines "@progress done total what", for a program that reads it.
LINES, MARK, EVERY = "lines", "@progress", 0.3
#: (done, total, what): the shape of every progress callback of the workflows.
Report = Callable[[int, int, str], None]


class Console:
    """Where a command writes. `quiet` silences all but warnings and errors; `verbose` adds details and marks all lines."""

    def __init__(self) -> None:
        self.quiet = False
        self.verbose = False

    def say(self, text: str) -> None:
        """A line for people, on stderr."""
        if not self.quiet:
            _print(marked(text) if self.verbose else text)

    def detail(self, text: str) -> None:
        """A line for those who asked with -v."""
        if self.verbose:
            _print(marked(text))

    def notes(self, notes: Iterable[str]) -> None:
        """What a workflow decided by itself, a line each, on stderr."""
        for note in notes:
            self.say(f"Note: {note}.")

    def warn(self, text: str) -> None:
        """A sentence that must be seen, even with --quiet."""
        _print(marked(f"warning: {text}"))

    def end(self, text: str) -> None:
        """The last sentence of a command that does not end well."""
        _print(f"{mark() if self.verbose else 'geogp'}: {text}")

    def data(self, text: str) -> None:
        """A line of the result, on stdout."""
        print(text, flush=True)

    def document(self, value: Mapping[str, Any]) -> None:
        """One JSON document on stdout."""
        self.data(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False))

    def table(
        self,
        title: str,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        stderr: bool = False,
        numbers_from: int = 1,
    ) -> None:
        """An aligned table: columns from `numbers_from` on are flush right."""
        from rich import box
        from rich.console import Console as RichConsole
        from rich.table import Table

        stream = sys.stderr if stderr else sys.stdout
        header, rows = [inert(cell) for cell in header], [[inert(cell) for cell in row] for row in rows]
        table = Table(title=inert(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for i, name in enumerate(header):
            table.add_column(name, justify="right" if i >= numbers_from else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        screen = RichConsole(
            file=stream, width=None if stream.isatty() else 160, highlight=False, markup=False
        )
        for column, width in zip(table.columns, _widths([header, *rows], screen.width)):
            column.width = width
        screen.print(table)

    @contextmanager
    def progress(self, what: str) -> Iterator[Report]:
        """A progress bar on stderr, when that is a terminal and --quiet was not given; lines where GEOGP_PROGRESS asks for
        them; else nothing."""
        if os.environ.get("GEOGP_PROGRESS") == LINES:
            yield _lines(what)
            return
        if self.quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            yield _silent
            return
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=RichConsole(file=sys.stderr),
            transient=True,
        )
        with bar:
            task = bar.add_task(what, total=None)

            def report(done: int, total: int, label: str = "") -> None:
                words = f"{what}: {_short(label)}" if label and label != what else what
                bar.update(task, completed=done, total=total or None, description=words)

            yield report


def inert(text: str) -> str:
    """What a terminal would obey (colours, titles, a cursor that moves) as "?": names come from other people's files.

    Examples
    --------
    >>> inert("\x1b[2Jspeed")
    '?[2Jspeed'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _print(text: str) -> None:
    print(inert(text), file=sys.stderr, flush=True)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Columns as wide as their cells; of a screen of `room` characters, the widest give way until a word would break."""
    columns = list(zip(*rows))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in [*cell.split(), ""]) for column in columns]
    room -= 3 * len(widths)  # a space on either side and one between
    while sum(widths) > room and (wide := [i for i, w in enumerate(widths) if w > least[i]]):
        widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _silent(done: int, total: int, label: str = "") -> None:
    """Progress that nobody watches."""


def _lines(what: str) -> Report:
    """Progress as lines on stderr, a few a second."""
    last, said = -EVERY, ""

    def report(done: int, total: int, label: str = "") -> None:
        nonlocal last, said
        if (now := time.monotonic()) - last >= EVERY or done == total or label != said:
            said = label
            last = now
            print(f"{MARK} {done} {total} {label or what}", file=sys.stderr, flush=True)

    return report


def _short(label: str) -> str:
    return label if len(label) <= 48 else "…" + label[-47:]


console = Console()
