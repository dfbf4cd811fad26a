"""The command `geogp`: thin, and quick to answer; everything heavy is imported inside the commands.

Data go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 usage, 3 invalid input, 4 partial
but resumable, 130 interrupted.
"""

import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from app.commands import commands
from app.commands.options import CHECKS
from app.console import console
from app.errors import Interrupted, Usage
from app.log import OURS, logs, mark
from data_pipelines.errors import DataWarning


def _layers() -> str:
    from maps.layers import help_list

    return help_list()


def _method() -> str:
    from geogp.methods import DEFAULT

    return DEFAULT


def _peers() -> str:
    from app.peers import PEERS

    return ", ".join(PEERS)


#: What pathlib says, before Python 3.13, of a link that leads to itself.
LOOP = "Symlink loop from "
#: What a line without a command comes to, which says the help.
NO_ARGUMENTS = "NoArgsIsHelpError"
#: What to do about what a system refuses.
WAYS_OUT = {
    errno.EROFS: "; name a place that may be written",
    errno.EACCES: "; ask for the right to it, or name another",
    errno.EPERM: "; ask for the right to it, or name another",
}
#: What registries hold, filled in when the help of a command is asked for.
FILLED: dict[str, Callable[[], str]] = {"{layers}": _layers, "{method}": _method, "{peers}": _peers}


def _is_path(option: Any) -> bool:
    return option.type_descriptor.annotation is Path


class _Command(TyperCommand):
    """A command whose help names what a registry holds, and that begins with the checks of its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an option that is given twice, of which the last would win, and a file without a name, which would be the
        working directory."""
        if not ctx.resilient_parsing:
            values, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option in given:
                once = isinstance(option, TyperOption) and not (
                    option.multiple or option.is_flag or option.count
                )
                if once and given.count(option) > 1:
                    raise Usage(f"{option.opts[0]} is given {given.count(option)} times; give it once.")
                if values.get(option.name) == "" and _is_path(option):
                    raise Usage(f"{option.opts[0]} is empty; name a file or a folder.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        for check in ctx.meta.get(CHECKS, ()):
            check()
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:
            for gap, words in FILLED.items():
                if isinstance(parameter, TyperOption) and gap in (parameter.help or ""):
                    parameter.help = str(parameter.help).replace(gap, words())
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="geogp",
    help="Maps of internet speed that say how sure they are.",
    epilog="--quiet (-q) and --verbose (-v) may stand anywhere on the line. "
    "Exit status: 0 done, 1 failed, 2 usage, 3 invalid input, 4 partial but resumable, 130 interrupted.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # half the time to answer --help goes into importing what it needs
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _name, _command in commands().items():
    app.command(_name, cls=_Command)(_command)


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Say nothing but warnings and errors."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more; show logs."),
) -> None:
    pass  # main() has taken these three off the line already


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    Examples
    --------
    >>> main(["--version"])
    geogp 0.1.0
    0
    """
    arguments = _flags(list(sys.argv[1:] if argv is None else argv))
    if "--version" in arguments[:1]:
        import geogp

        console.data(f"geogp {geogp.__version__}")
        return 0
    here = threading.current_thread() is threading.main_thread()  # elsewhere signals cannot be caught
    signals = (signal.SIGINT, signal.SIGTERM) if here else ()
    previous = {s: signal.signal(s, _interrupt) for s in signals}
    try:
        with warnings.catch_warnings(), logs(console.verbose):
            _words_for_warnings()
            code = app(arguments, prog_name="geogp", standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Interrupted as stop:
        words = stop.words or "nothing half-written is left; the same command starts again"
        console.end(f"interrupted: {words}.")
        return stop.exit_code
    except BrokenPipeError:
        # The reader went away (`geogp methods | head`): no complaint, and none at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        code = _known(error)
        if code is None:
            error.add_note(mark())  # the last line of the traceback, for whoever reports it
            raise
        if type(error).__name__ == NO_ARGUMENTS:  # its message is the help
            print(str(error), file=sys.stderr)
        else:
            console.end(_sentence(error))
        return code
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _flags(arguments: list[str]) -> list[str]:
    """The line without the flags that may stand anywhere before `--`; they set up the console."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    head = arguments[:end]
    console.quiet = "--quiet" in head or "-q" in head
    console.verbose = "--verbose" in head or "-v" in head
    return [a for a in head if a not in ("--quiet", "-q", "--verbose", "-v")] + arguments[end:]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(terminated=number == signal.SIGTERM)


def _words_for_warnings() -> None:
    """Our own warnings become a sentence; other packages' are for -v."""
    if not console.verbose:
        warnings.simplefilter("ignore")

    def show(
        message: Any, category: type, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if category.__module__.split(".")[0] in OURS:
            console.warn(str(message))
        else:
            console.detail(f"{category.__name__}: {message} ({filename}:{lineno})")

    warnings.filterwarnings("always", module=r"(app|geogp|maps|data_pipelines)(\..*)?")
    warnings.simplefilter("always", DataWarning)
    warnings.showwarning = show


def _known(error: Exception) -> int | None:
    """Exit status of an error that has words for people; None for a bug."""
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    if isinstance(error, NotADirectoryError) and error.filename:
        return 3
    # The system's own refusals name the file and the reason.
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return 1
    if isinstance(error, RuntimeError) and str(error).startswith(LOOP):
        return 1
    return None


def _sentence(error: Exception) -> str:
    """The error on one line; usage errors with the way to the help."""
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "geogp"
        words = _line(error.format_message()).rstrip(".").replace("Value error, ", "")
        if "'--target'" in words:
            words += " (a column that `ingest` was told with value= is called 'value' since)"
        return f"{words}; see `{where} --help`."
    if isinstance(error, NotADirectoryError) and error.filename:
        path = Path(os.fsdecode(error.filename))
        file = next((p for p in (path, *path.parents) if p.is_file()), path)
        return f"{file} is a file, and a folder was asked for; name another place."
    if isinstance(error, OSError) and error.strerror:
        named = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{named}{WAYS_OUT.get(error.errno or 0, '')}."
    if str(error).startswith(LOOP):
        return f"Too many levels of symbolic links: {str(error).removeprefix(LOOP)}."
    return _line(str(error))


def _line(text: str) -> str:
    return " ".join(text.split())
