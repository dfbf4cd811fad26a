"""What a model says of areas: averages over them, their ranks, and what changed between two moments."""

from geogp.areas.averages import AreaMoments, Surface, area_moments, surface
from geogp.areas.ranking import Ranks, p_below, ranked

__all__ = ["AreaMoments", "Ranks", "Surface", "area_moments", "p_below", "ranked", "surface"]
