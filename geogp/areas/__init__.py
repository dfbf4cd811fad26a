"""What a model says of areas: averages over them, their ranks, and what changed between two moments."""

from geogp.areas.averages import AreaMoments, Surface, area_moments, surface
from geogp.areas.change import Pairs, change_map, pairs_at
from geogp.areas.ranking import Ranks, p_below, ranked

__all__ = [
    "AreaMoments", "Pairs", "Ranks", "Surface", "area_moments", "change_map", "p_below", "pairs_at", "ranked", "surface",
]  # fmt: skip
