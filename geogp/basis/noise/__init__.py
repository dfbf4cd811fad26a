"""Noise variances: what a new measurement adds to the surface. One file each."""

from geogp.basis.noise.constant import Constant
from geogp.basis.noise.counts import PerCount

NOISES = {
    "constant": Constant,
    "counts": PerCount,
}

__all__ = ["NOISES", "Constant", "PerCount"]
