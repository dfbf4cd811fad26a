"""Tables and figures of the papers, ours beside theirs. Numbers only: whoever shows them draws the panels.

result = geogp.reproduce.run("dbk-fig5", quick=True)
print(result.markdown())
"""

import importlib
from typing import Any

from geogp.errors import InvalidInput, seed_of
from geogp.reproduce.result import Line, Panel, Result

#: name -> "module:function"; each function takes quick, seed and, where it reads files, `data` or `observations`.
REPRODUCTIONS: dict[str, str] = {
    "dbk-fig1": "geogp.reproduce.one_dimensional:fig1",
    "dbk-fig4": "geogp.reproduce.one_dimensional:fig4",
    "dbk-fig5": "geogp.reproduce.one_dimensional:fig5",
    "dbk-table1": "geogp.reproduce.uci:dbk_table1",
    "dbk-fig6": "geogp.reproduce.uci:dbk_fig6",
    "dbk-table2": "geogp.reproduce.mobile:dbk_table2",
    "lowrank-fig1": "geogp.reproduce.spectra:lowrank_fig1",
    "lowrank-table1": "geogp.reproduce.uci:lowrank_table1",
    "softki-table1": "geogp.reproduce.uci:softki_table1",
    "softki-ricker": "geogp.reproduce.ricker:softki_ricker",
    "fmgp-fig1": "geogp.reproduce.fixed_mean:fmgp_fig1",
}


def run(name: str, *, quick: bool = False, seed: int = 0, **inputs: Any) -> Result:
    """Reproduce `name`.

    Parameters
    ----------
    quick : seconds instead of minutes: smaller data and shorter training, to see that it works
    inputs : `data` (folder of the UCI files, default GEOGP_DATA/uci) or `observations` (an ingested table)

    Raises
    ------
    InvalidInput
        for a name that is not registered, a seed that is none, or files that are not there.
    """
    check_name(name)
    seed = seed_of(seed, "seed")
    module, function = REPRODUCTIONS[name].split(":")
    return getattr(importlib.import_module(module), function)(quick=quick, seed=seed, **inputs)


def check_name(name: str) -> None:
    """Refuse what is no reproduction.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_name("dbk-fig1")
    """
    if name not in REPRODUCTIONS:
        raise InvalidInput(f"there is no reproduction {name!r}; choose from {', '.join(REPRODUCTIONS)}.")


__all__ = ["REPRODUCTIONS", "Line", "Panel", "Result", "check_name", "run"]
