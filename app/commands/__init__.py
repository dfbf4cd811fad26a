"""The sub-commands, found by being there: a file of this folder with a function of its own name is one.

`PLACE` in the file is where `geogp --help` lists it; without one it comes last. The files import nothing heavy: all of
them are imported to answer `geogp --help`.
"""

import importlib
import pkgutil
from collections.abc import Callable

LAST = 1000


def commands() -> dict[str, Callable[..., object]]:
    """Name on the command line -> function, in the order of the help.

    Examples
    --------
    >>> list(commands())[:3]
    ['demo', 'ingest', 'fit']
    """
    found = []
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        function = getattr(module, file.name, None)
        if callable(function):
            found.append((getattr(module, "PLACE", LAST), file.name.replace("_", "-"), function))
    return {name: function for _, name, function in sorted(found, key=lambda entry: entry[:2])}
