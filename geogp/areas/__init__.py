"""What a model says of areas: averages over them, their ranks, and what changed between two moments."""

from geogp.areas.averages import AreaMoments, Surface, area_moments, batches_of, surface
from geogp.areas.change import Pairs, change_map, difference_map, pairs_at
from geogp.areas.excursions import Excursion, excursion
from geogp.areas.ranking import Ranks, p_below, ranked
from geogp.areas.together import (
    Correlation,
    cross_correlation,
    draw_together,
    draws_together,
    either_below,
    missed,
)

__all__ = [
    "AreaMoments", "Correlation", "Excursion", "Pairs", "Ranks", "Surface", "area_moments", "batches_of", "change_map",
    "cross_correlation", "difference_map", "draw_together", "draws_together", "either_below", "excursion", "missed", "p_below", "pairs_at", "ranked", "surface",
]  # fmt: skip
