"""Names that stand for another noise, or for one that an engine fits itself."""

from geogp.basis.noise.base import Noise
from geogp.basis.noise.constant import Constant
from geogp.basis.noise.counts import PerCount


class Auto(Noise):
    """tau^2 + s^2 / n when counts are given, else one noise variance; smooth under a local field."""

    formula = "ε of variance τ² + s²/n with counts, else σ²"

    @classmethod
    def made(cls, has_counts: bool) -> Noise:
        return PerCount() if has_counts else Constant()


class Smooth(Noise):
    """tau^2(x) + s^2(x) / n, smooth functions of neighbours and regional level, learned from rows held out.

    Fitted by the local field: `geogp.field.noise.smooth`.
    """

    formula = "ε ~ skewed Student-t, squared scale τ²(x) + s²(x)/n: smooth functions of what surrounds x"
    of_basis = False
