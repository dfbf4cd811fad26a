"""Kernel expansions: from a representation (N, H) to basis functions (N, r). One file each.

Two or more joined by "+" are concatenated: "rbf+fourier".
"""

from collections.abc import Callable
from functools import partial

from geogp.basis.expansions.base import Expansion
from geogp.basis.expansions.concatenation import Concatenation
from geogp.basis.expansions.fourier import Fourier
from geogp.basis.expansions.hermite import Hermite
from geogp.basis.expansions.last_layer import LastLayer
from geogp.basis.expansions.lattice import Lattice
from geogp.basis.expansions.linear import Linear
from geogp.basis.expansions.rbf import RBF
from geogp.basis.expansions.silu import SiLU
from geogp.basis.expansions.softki import SoftKI
from geogp.errors import ImpossibleCombination

EXPANSIONS: dict[str, type[Expansion]] = {
    "silu": SiLU,
    "rbf": RBF,
    "softki": SoftKI,
    "ski": Lattice,
    "fourier": Fourier,
    "hermite": Hermite,
    "linear": Linear,
    "last_layer": LastLayer,
}


def expansion_named(name: str) -> Callable[[int, int], Expansion]:
    """What makes the expansion `name` from (n_inputs, rank); "a+b" concatenates.

    Raises
    ------
    ImpossibleCombination
        for a name that is not registered.

    Examples
    --------
    >>> expansion_named("rbf+fourier")(2, 8).rank
    8
    """
    parts = name.split("+")
    for part in parts:
        if part not in EXPANSIONS:
            raise ImpossibleCombination(
                f"there is no expansion {part!r}; choose from {', '.join(EXPANSIONS)}, or join some by '+'."
            )
    made: list[Callable[[int, int], Expansion]] = [EXPANSIONS[part] for part in parts]  # type: ignore[list-item]
    return made[0] if len(made) == 1 else partial(Concatenation, parts=made)


__all__ = [
    "EXPANSIONS",
    "RBF",
    "Concatenation",
    "Expansion",
    "Fourier",
    "Hermite",
    "LastLayer",
    "Lattice",
    "Linear",
    "SiLU",
    "SoftKI",
    "expansion_named",
]
