"""Kernel expansions: from a representation (N, H) to basis functions (N, r). One file each."""

from geogp.expansions.base import Expansion
from geogp.expansions.rbf import RBF
from geogp.expansions.silu import SiLU

EXPANSIONS: dict[str, type[Expansion]] = {
    "silu": SiLU,
    "rbf": RBF,
}

__all__ = ["EXPANSIONS", "RBF", "Expansion", "SiLU"]
