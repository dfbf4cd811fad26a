"""Noise variances: what a new measurement adds to the surface. One file each."""

from geogp.basis.noise.base import Noise
from geogp.registry import registry

NOISES: dict[str, type[Noise]] = registry(
    __name__,
    {
        "auto": "choices.Auto",
        "constant": "constant.Constant",
        "counts": "counts.PerCount",
        "smooth": "choices.Smooth",
    },
)

__all__ = ["NOISES", "Noise"]
