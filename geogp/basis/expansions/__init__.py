"""Kernel expansions: from a representation (N, H) to basis functions (N, r). One file each.

Two or more joined by "+" are concatenated: "rbf+fourier".
"""

from collections.abc import Callable
from functools import partial

from geogp.basis.expansions.base import Expansion
from geogp.basis.expansions.concatenation import Concatenation
from geogp.errors import ImpossibleCombination
from geogp.registry import registry

EXPANSIONS: dict[str, type[Expansion]] = registry(
    __name__,
    {
        "silu": "silu.SiLU",
        "rbf": "rbf.RBF",
        "softki": "softki.SoftKI",
        "ski": "lattice.Lattice",
        "fourier": "fourier.Fourier",
        "hermite": "hermite.Hermite",
        "linear": "linear.Linear",
        "last_layer": "last_layer.LastLayer",
        "none": "absent.NoBasis",
        "exact": "absent.ExactKernel",
    },
)


def expansion_named(name: str) -> Callable[[int, int], Expansion]:
    """What makes the expansion `name` from (n_inputs, rank); "a+b" concatenates.

    Raises
    ------
    ImpossibleCombination
        for a name that is not registered, or stands for no basis.

    Examples
    --------
    >>> expansion_named("rbf+fourier")(2, 8).rank
    8
    """
    parts = name.split("+")
    for part in parts:
        if part not in EXPANSIONS or not EXPANSIONS[part].is_basis:
            known = ", ".join(e for e in EXPANSIONS if EXPANSIONS[e].is_basis)
            raise ImpossibleCombination(
                f"there is no expansion {part!r}; choose from {known}, or join some by '+'."
            )
    made: list[Callable[[int, int], Expansion]] = [EXPANSIONS[part] for part in parts]
    return made[0] if len(made) == 1 else partial(Concatenation, parts=made)


__all__ = ["EXPANSIONS", "Concatenation", "Expansion", "expansion_named"]
